"""``heedful translate --bulk``: text files of any size, in worker processes; resumable."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from heedful.basics.errors import UserError
from heedful.basics.files import content_hash
from heedful.basics.notices import notice
from heedful.basics.worker_processes import Advance
from heedful.data.documents.formats import detect_format
from heedful.data.memory import Memory
from heedful.data.readers.opening import open_input
from heedful.data.readers.text import codec_name
from heedful.decoding import SearchOptions
from heedful.inference.bulk import BulkInput, BulkJob, BulkSummary
from heedful.inference.bulk_ray import RayShards
from heedful.inference.bulk_workers import Answer, Shard
from heedful.inference.files import LineFormat, line_of, notice_breaks, without_breaks
from heedful.inference.line_input import is_tsv
from heedful.inference.line_windows import WINDOW
from heedful.inference.memory_first import translate_with_memory
from heedful.inference.translator import Translator, length_notices
from heedful.runs.registry import load_file, loaded_files
from heedful.tasks.options import use_threads
from heedful.tasks.pairs.run import MEMORY
from heedful.tasks.translation.command_options import Translate
from heedful.tasks.translation.folders import hash_of_model, visible_files
from heedful.tasks.translation.input_format import Format
from heedful.tasks.translation.opening import open_translator, uses_memory

_MOST_WORKERS = 1_024
_MOST_SHARD_LINES = 1_000_000
_BREAKS = "line breaks"


def run_bulk(
    options: Translate, loads: Callable[..., Translator], given: dict[str, Any]
) -> BulkSummary:
    """Translate a file or a folder in worker processes, and print a summary.

    Args:
        options: the options of the command.
        loads: loads runs with any inference engine; it is pickled for the workers.
        given: the search options that were given.

    Raises:
        UserError: an option does not fit, or see :meth:`heedful.inference.bulk.BulkJob.run`.
    """
    output = _check_options(options)
    workers = 1 if options.workers is None else options.workers
    inputs = _inputs(options, output)
    translator, search, memory = open_translator(options, loads, given)
    settings = _settings(options, translator, search, memory is not None)
    job = BulkJob(
        inputs,
        output,
        settings,
        shard_lines=WINDOW if options.shard_lines is None else options.shard_lines,
        encoding=options.encoding,
    )
    threads = options.threads or max(1, torch.get_num_threads() // workers)
    opens = _Opens(options, loads, given, threads, tuple(loaded_files()))
    max_length, on_card = translator.max_length, translator.computing["device"] == "cuda"
    del translator, memory  # each worker loads its own
    if options.ray is None:
        summary = job.run(opens, workers, "translating")
    else:
        runs = RayShards(options.ray, threads, int(on_card))
        summary = job.run(opens, workers, "translating", runs=runs)
    _report(options, output, summary, workers, max_length)
    return summary


@dataclass(frozen=True)
class _Opens:
    """Opens the translator of a worker."""

    options: Translate
    loads: Callable[..., Translator]
    given: dict[str, Any]
    threads: int
    plugins: tuple[Path, ...]

    def __call__(self) -> Answer:
        for path in self.plugins:
            load_file(path)
        use_threads(self.threads)
        translator, search, memory = open_translator(self.options, self.loads, self.given)
        line_format = LineFormat(scores=self.options.scores)

        def answer(shard: Shard, advance: Advance) -> tuple[list[str], Counter[str]]:
            return _translated(shard, translator, search, memory, line_format, advance)

        return answer


def _translated(
    shard: Shard,
    translator: Translator,
    search: SearchOptions,
    memory: Memory | None,
    line_format: LineFormat,
    advance: Advance,
) -> tuple[list[str], Counter[str]]:
    """The translations of a shard, in the windows of ``heedful translate``."""
    counts: Counter[str] = Counter()
    windows = (shard.lines[start : start + WINDOW] for start in range(0, len(shard.lines), WINDOW))
    how: dict[str, Any] = {
        "options": search,
        "scores": line_format.scores,
        "advance": advance,
        "counts": counts,
    }
    if memory is None:  # samples, which use no memory, depend on the number of the line
        found = translator.translate_windows(windows, first=shard.first, **how)
    else:
        found = translate_with_memory(translator, memory, windows, **how)
    made = [line_of(one, line_format) for window in found for one in window]
    lines = [without_breaks(line) for line in made]
    counts[_BREAKS] = sum(one != other for one, other in zip(made, lines, strict=True))
    return lines, counts


def _report(
    options: Translate, output: Path, summary: BulkSummary, workers: int, max_length: int
) -> None:
    """Print notices with the counts of all shards, and the summary."""
    for text in length_notices(summary.counts, max_length):
        notice(text)
    notice_breaks(summary.counts[_BREAKS], "translation", hint="")
    rate = summary.new_lines / summary.seconds if summary.seconds else 0.0
    if options.json:
        found = {
            "output": str(output),
            "files": summary.files,
            "lines": summary.lines,
            "new_lines": summary.new_lines,
            "seconds": round(summary.seconds, 3),
            "lines_per_second": round(rate, 2),
            "workers": workers,
            "split": summary.counts["split"],
            "at_limit": summary.counts["at limit"],
            "line_breaks": summary.counts[_BREAKS],
        }
        print(json.dumps(found, ensure_ascii=False))
        return
    files = f"{summary.files:,} file{'s' if summary.files > 1 else ''}"
    print(
        f"{output}: {files}, {summary.lines:,} lines; {summary.new_lines:,} translated now "
        f"({rate:,.0f} lines/s, {workers} worker{'s' if workers > 1 else ''})"
    )


def _check_options(options: Translate) -> Path:
    """The output folder.

    Raises:
        UserError: an option is out of range, or is not for bulk jobs.
    """
    documents = {
        "--from": options.source,
        "--to": options.target,
        "--source-column": options.source_column,
        "--target-column": options.target_column,
        "--strict": options.strict or None,
        "--nbest": options.nbest,
        "--alignments": options.alignments,
    }
    for name, value in documents.items():
        if value is not None:
            raise UserError(f"--bulk translates lines of text to lines of text; leave out {name}")
    if options.form not in (Format.AUTO, Format.LINES, Format.TSV):
        raise UserError(
            f"--bulk translates lines of text, not {options.form.value}; use --format lines or tsv"
        )
    for name, given, most in (
        ("--workers", options.workers, _MOST_WORKERS),
        ("--shard-lines", options.shard_lines, _MOST_SHARD_LINES),
    ):
        if given is not None and not 1 <= given <= most:
            raise UserError(f"{name} {given}: give a number from 1 to {most:,}")
    if options.output is None:
        raise UserError("--bulk needs --output, the folder to write")
    if options.output.exists() and not options.output.is_dir():
        raise UserError(f"cannot write {options.output}: it is a file; --bulk writes a folder")
    codec_name(options.encoding)
    return options.output


def _inputs(options: Translate, output: Path) -> dict[str, BulkInput]:
    """The input files by name.

    Raises:
        UserError: there are none, or one is not lines of text.
    """
    source = Path(options.file)
    if source.is_dir():
        if source.resolve() in (output.resolve(), *output.resolve().parents):
            raise UserError(f"{output} is inside {source}; give another folder as --output")
        files = {path.relative_to(source).as_posix(): path for path in visible_files(source)}
    elif source.is_file():
        files = {source.name: source}
    elif options.file == "-" or source.exists():
        raise UserError("--bulk needs a file or a folder, because it may have to read it again")
    else:
        raise UserError(f"cannot read {source}: there is no such file or folder; check the path")
    if not files:
        raise UserError(f"{source} has no files; give a folder of text files")
    if options.form is Format.AUTO:
        for path in files.values():
            _require_lines(path, options.encoding)
    tsv, looks = options.form is Format.TSV, options.form is Format.AUTO
    return {
        name: BulkInput(path, tsv or (looks and is_tsv(str(path)))) for name, path in files.items()
    }


def _require_lines(path: Path, encoding: str | None) -> None:
    """Raise UserError if a file is a document or a table, whose lines are not texts."""
    with open_input(path) as file:
        found = detect_format(file.name, file.head(), encoding)
    is_table = path.name.casefold().removesuffix(".gz").removesuffix(".xz").endswith(".csv")
    if found is not None or is_table:
        raise UserError(
            f"{path} is a {'table' if is_table else 'document'}, and --bulk translates lines of "
            "text; translate it without --bulk, or give --format lines"
        )


def _settings(
    options: Translate, translator: Translator, search: SearchOptions, remembers: bool
) -> dict[str, Any]:
    """Everything that affects translations, for the manifest of the job."""
    runs = [options.run, *(options.ensemble or [])]
    return {
        "run": [hash_of_model(path, options.checkpoint) for path in runs],
        **json.loads(search.model_dump_json()),
        "scores": options.scores,
        "no_memory": not uses_memory(options),
        "memory": content_hash(options.run / MEMORY) if remembers else None,
        "keep_unknown": options.keep_unknown,
        "format": options.form.value,
        "engine": options.engine,
        "quantization": options.quantization,
        **translator.computing,
    }
