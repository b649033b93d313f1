"""``heedful translate``: translate text or documents with one run or an ensemble of runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import bar
from heedful.tasks.options import columns_of, use_threads
from heedful.tasks.translation.command_options import Translate
from heedful.tasks.translation.input_format import Format

if TYPE_CHECKING:
    from heedful.data.documents import Document
    from heedful.data.documents.sections import Sections
    from heedful.data.memory import Memory
    from heedful.decoding import SearchOptions
    from heedful.inference.files import LineFormat
    from heedful.inference.translator import Translator


def run(options: Translate, loads: Callable[..., "Translator"]) -> None:
    """Run the command.

    Args:
        options: the options of the command.
        loads: loads runs with any inference engine: ``heedful.interop.engines.load_with_engine``.
    """
    from heedful.basics.settings import check
    from heedful.decoding import SearchOptions
    from heedful.inference.files import LineFormat, check_output
    from heedful.tasks.translation.opening import open_translator

    given = _search_given(options)
    check(SearchOptions, {"beam": max(options.nbest or 1, 1), **given}, "search options")
    if options.bulk:
        from heedful.tasks.translation.bulk import run_bulk

        run_bulk(options, loads, given)
        return
    for_bulk = (options.workers, options.shard_lines, options.ray)
    if any(one is not None for one in for_bulk):
        raise UserError("--workers, --shard-lines and --ray need --bulk; add it")
    line_format = LineFormat(json=options.json or (options.nbest or 1) > 1, scores=options.scores)
    if line_format.json and options.scores:
        raise UserError("JSON output includes the score; leave out --scores")
    is_folder = options.file != "-" and Path(options.file).is_dir()
    for path in (None if is_folder else options.output, options.alignments):
        check_output(path)
    if options.output is not None and options.output == options.alignments:
        raise UserError(f"--output and --alignments are both {options.output}; give two files")
    use_threads(options.threads)
    translator, search, memory = open_translator(options, loads, given)
    if is_folder:
        _translate_folder(options, translator, search, line_format, memory)
        return
    document = _document(options, translator)
    if document is None:
        _refuse_table(options)
        _translate_lines(options, translator, search, line_format, memory)
    elif _translate_document(options, translator, search, line_format, document, memory):
        raise typer.Exit(1)


def _translate_folder(
    options: Translate,
    translator: "Translator",
    search: "SearchOptions",
    line_format: "LineFormat",
    memory: "Memory | None",
) -> None:
    """Translate the documents of a folder, and text files line by line."""
    from heedful.tasks.translation.folders import Result, translate_folder, translator_key

    if options.output is None:
        raise UserError(f"{options.file} is a folder; give the folder to write as --output")
    if options.output.is_file():
        raise UserError(f"cannot write {options.output}: it is a file; give a folder")
    if options.alignments is not None:
        raise UserError("--alignments is for one text file; leave it out for a folder")
    lacks = False

    def translate(path: Path, place: Path) -> Result:
        nonlocal lacks
        own = replace(options, file=str(path), output=place)
        document = _document(own, translator)
        if document is not None and document.is_for_translation:
            if _translate_document(own, translator, search, line_format, document, memory):
                lacks = True
                return Result.LACKING
        elif path.suffix.casefold() == ".txt":
            _translate_lines(own, translator, search, line_format, memory)
        else:
            return Result.NO_DOCUMENT
        return Result.DONE

    columns = columns_of(options.source_column, options.target_column)
    how = (options.engine, options.quantization, sorted(translator.computing.items()))
    read = (options.form, options.encoding, options.source, options.target, line_format)
    given = (search, options.no_memory, options.keep_unknown, columns, *how, *read)
    runs = [options.run, *(options.ensemble or [])]
    key = translator_key(runs, options.checkpoint, given)
    counts = translate_folder(Path(options.file), options.output, key, translate)
    files = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
    print(f"{options.output}: {files or 'no files'}")
    if counts["refused"] or (options.strict and lacks):
        raise typer.Exit(1)


def _search_given(options: Translate) -> dict[str, Any]:
    """The search options that were given."""
    if not options.sample and options.seed is not None:
        raise UserError("--seed is for sampling; add --sample, or leave it out")
    if options.sample and options.beam is not None:
        raise UserError("--sample and --beam exclude each other; leave out one of them")
    given: dict[str, Any] = {
        "beam": options.beam,
        "nbest": options.nbest,
        "length_penalty": options.length_penalty,
        "sample": options.sample or None,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "seed": options.seed,
    }
    return {name: value for name, value in given.items() if value is not None}


def _is_pipe(file: str) -> bool:
    """Whether a file can be read only once."""
    return file == "-" or Path(file).is_fifo()


def _translate_lines(
    options: Translate,
    translator: "Translator",
    search: "SearchOptions",
    line_format: "LineFormat",
    memory: "Memory | None",
) -> None:
    from heedful.inference.files import translate_lines
    from heedful.inference.line_input import is_tsv

    file, looks = options.file, options.form is Format.AUTO
    with bar("translating", file, options.output, "lines") as advance:
        translate_lines(
            translator,
            file,
            options.output,
            options=search,
            line_format=line_format,
            encoding=options.encoding,
            tsv=options.form is Format.TSV or (looks and is_tsv(file)),
            wary=looks and _is_pipe(file),
            alignments=options.alignments,
            memory=memory,
            advance=advance,
        )


def _refuse_table(options: Translate) -> None:
    """Raise an error for a table that would be read as lines of text."""
    if options.form is Format.AUTO and options.file.casefold().removesuffix(".gz").endswith(".csv"):
        raise UserError(
            f"{options.file} is a table: name its columns with --source-column and "
            "--target-column, or give --format lines"
        )
    if options.source_column is not None:
        raise UserError(f"{options.file} is no table; leave out --source-column")


def _translate_document(
    options: Translate,
    translator: "Translator",
    search: "SearchOptions",
    line_format: "LineFormat",
    document: "Document | Sections",
    memory: "Memory | None",
) -> bool:
    """Translate a document; returns whether ``--strict`` was given and serious findings remain."""
    from heedful.tasks.translation.document_command import translate_file

    file, output = options.file, options.output
    if line_format.json or line_format.scores or options.alignments is not None:
        raise UserError(
            f"{file} is translated to a file of the same format; --json, --nbest, --scores and "
            "--alignments are for text only"
        )
    if options.encoding is not None and document.declares_encoding:
        raise UserError(f"{file} declares its encoding; leave out --encoding")
    counts = translate_file(file, output, translator, search, document, memory)
    return bool(counts) and options.strict


def _document(options: Translate, translator: "Translator") -> "Document | Sections | None":
    from heedful.data.documents import open_document, open_sections

    form, columns = options.form, columns_of(options.source_column, options.target_column)
    is_stream = form is Format.AUTO and _is_pipe(options.file)
    if is_stream and columns is not None:
        raise UserError("a table on standard input needs --format csv or --format tsv")
    if is_stream or form is Format.LINES or (form is Format.TSV and columns is None):
        return None
    opening: dict[str, Any] = {
        "source": options.source or translator.source_language,
        "target": options.target or translator.target_language,
        "encoding": options.encoding,
        "form": None if form is Format.AUTO else form.value,
        "columns": columns,
    }
    return open_sections(options.file, **opening) or open_document(options.file, **opening)
