"""Shared code of the translation benchmarks, whose sides are measured in turns."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from corpus import MULTI30K, Corpus, prepare_corpus
from heedful_worker import POOLS, precisions
from install_peers import how_to_install, peer_python
from limits import operations
from reporting import summarised, table
from sizes import SIZES
from workers import Worker, WorkerError

HERE = Path(__file__).resolve().parent
SEARCHES = {1: "greedy", 5: "beam 5"}
Sides = dict[str, Worker]


def parser_for(description: str | None, sizes: Sequence[str] = ("tiny", "base")) -> Any:
    """A command line with the common options."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = MULTI30K if MULTI30K.is_dir() else None
    parser.add_argument("--data", type=Path, default=default, help="folder with Multi30k's files")
    parser.add_argument(
        "--made", action="store_true", help="use random texts even if Multi30k is available"
    )
    parser.add_argument(
        "--pairs", type=int, help="maximum number of training pairs and test sentences"
    )
    parser.add_argument("--sentences", type=int, help="maximum number of test sentences")
    parser.add_argument("--ours-only", action="store_true", help="without peers")
    if sizes:
        known = list(SIZES)
        parser.add_argument("--sizes", nargs="+", choices=known, default=list(sizes))
    parser.add_argument(
        "--pool",
        choices=POOLS,
        default="threads",
        help="kind of workers in heedful's rows with two workers",
    )
    for name, value in {"repetitions": 5, "threads": 2, "length": 16, "vocabulary": 8000}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    return parser


def add_batches(parser: Any) -> None:
    """Options of benchmarks whose sides choose their batch size."""
    parser.add_argument(
        "--batch-tokens",
        nargs="+",
        type=int,
        default=[1024, 4096, 16384],
        help="batch sizes that each side tries, in source tokens times beam",
    )


Found = dict[str, Any]


def run(
    options: Any, measure: Callable[[Any, Corpus, Path], Found], report: Callable[[Found], str]
) -> None:
    """Prepare the corpus, measure in a temporary folder, and print."""
    with tempfile.TemporaryDirectory() as temporary:
        data = None if options.made else options.data
        few = (options.pairs, options.sentences)
        corpus = prepare_corpus(Path(temporary), data, options.vocabulary, *few)
        options.vocabulary = corpus.vocabulary
        found = {"corpus": corpus.what, **measure(options, corpus, Path(temporary))}
    print(json.dumps(found) if options.json else report(found))


def write_work(
    file: Path, model: Mapping[str, Any], sentences: list[list[int]], options: Any, **more: Any
) -> Path:
    """Write the input of all sides: the model's settings and the sentences, longest first."""
    given = {
        "model": dict(model),
        "vocabulary": options.vocabulary,
        "length": options.length,
        "sentences": sorted(sentences, key=len, reverse=True),
    }
    file.write_text(json.dumps(given | more), encoding="utf-8")
    return file


def transformer(size: str) -> dict[str, Any]:
    """The settings of a model of this size."""
    return {"kind": "transformer", **SIZES[size]._asdict()}


class Starter:
    """Starts sides, which are closed with ``stack``."""

    def __init__(self, stack: ExitStack, work: Path, options: Any) -> None:
        self.stack, self.work, self.options = stack, work, options
        self.sides: Sides = {}
        self.left_out: dict[str, str] = {}
        """Peers that are missing or failed, with the reason."""
        self.facts: dict[str, dict[str, Any]] = {}
        """The description of each side."""

    def add(self, name: str, python: Path, script: str, *arguments: str) -> None:
        """Start a side in a separate process."""
        command = ["--work", str(self.work), *arguments]
        worker = Worker(python, HERE / script, command, self.options.threads)
        self.sides[name] = self.stack.enter_context(worker)
        try:
            self.facts[name] = worker.ask(ask="facts")
        except WorkerError as error:
            self._leave_out(name, error)

    def ours(self, workers: bool = True) -> None:
        """Start heedful in every fast precision, with one worker and with two."""
        threads = str(self.options.threads)
        for precision in precisions():
            name = "ours" if precision == "float32" else f"ours, {precision}"
            own = ["--threads", threads, "--precision", precision]
            python = Path(sys.executable)
            self.add(name, python, "heedful_worker.py", *own)
            if workers and self.options.threads > 1 and self.options.pool != "none":
                pool = ["--pool", self.options.pool]
                named = f"{name}, {threads} workers"
                self.add(named, python, "heedful_worker.py", *own, *pool)

    def peer(self, name: str, package: str, script: str, *arguments: str) -> None:
        """Start a selected peer; if it is not installed, note how to install it."""
        python = peer_python(package)
        if self.options.ours_only:
            return
        if python is None:
            self.left_out[name] = how_to_install(package)
            return
        self.add(name, python, script, *arguments)

    def ask(self, name: str, **request: Any) -> dict[str, Any]:
        """Request translations from a side; a peer that fails is skipped from then on.

        Raises:
            WorkerError: heedful failed.
        """
        try:
            answer = self.sides[name].ask(**request)
            every = request.get("every", 1)
            require_whole(name, answer, len(self.sentences[::every]), self.options.length)
        except WorkerError as error:
            self._leave_out(name, error)
            return {}
        return answer

    def _leave_out(self, name: str, error: WorkerError) -> None:
        if name.startswith("ours"):
            raise error
        self.left_out[name] = str(error)
        del self.sides[name]

    @property
    def sentences(self) -> list[list[int]]:
        """The sentences to translate."""
        given: list[list[int]] = json.loads(self.work.read_text(encoding="utf-8"))["sentences"]
        return given


def measure_whole(
    starter: Starter, beam: int, candidates: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Sentences per second of each side, measured in turns.

    Each side first tries all batch sizes of ``candidates``, which is also the warm-up, and uses the
    fastest.

    Raises:
        WorkerError: heedful's output has a missing sentence or a wrong length.
    """
    sides, count = starter.sides, len(starter.sentences)
    chosen, outputs = {}, {}
    for name in list(sides):
        tried = {}
        for tokens in candidates:
            if name in sides and (
                answer := starter.ask(name, ask="all", beam=beam, tokens=tokens, outputs=True)
            ):
                tried[tokens], outputs[name] = answer["seconds"], answer["outputs"]
        if name in sides:
            chosen[name] = min(tried, key=tried.__getitem__)
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for repetition in range(starter.options.repetitions):
        for name in list(sides):
            if answer := starter.ask(name, ask="all", beam=beam, tokens=chosen[name]):
                speeds[name].append(count / answer["seconds"])
        print(f"beam {beam}, repetition {repetition + 1}", file=sys.stderr, flush=True)
    speeds = {name: own for name, own in speeds.items() if name in sides}
    base = next(iter(speeds.values())) if len(speeds) > 1 else None
    found = {}
    for name, own in speeds.items():
        found[name] = {**summarised(own, base), "batch_tokens": chosen[name]}
        if starter.facts[name].get("our_weights"):
            pairs = zip(outputs[name], outputs["ours"], strict=True)
            found[name]["same"] = mean(own == ours for own, ours in pairs)
    return found


def measure_each(starter: Starter, beam: int, every: int) -> dict[str, dict[str, list[float]]]:
    """The 50th and 90th percentiles of the milliseconds per sentence, for each round."""
    sides = starter.sides
    found: dict[str, dict[str, list[float]]] = {name: {"p50": [], "p90": []} for name in sides}
    for repetition in range(-1, starter.options.repetitions):
        for name in list(sides):
            answer = starter.ask(name, ask="each", beam=beam, every=every)
            if answer and repetition >= 0:
                tenths = quantiles(answer["milliseconds"], n=10, method="inclusive")
                found[name]["p50"].append(median(answer["milliseconds"]))
                found[name]["p90"].append(tenths[-1])
        print(f"one at a time, repetition {repetition + 1}", file=sys.stderr, flush=True)
    return {name: own for name, own in found.items() if name in sides}


def require_whole(name: str, answer: Mapping[str, Any], sentences: int, length: int) -> None:
    """Raise WorkerError unless every output has exactly ``length`` tokens and no end."""
    found = answer["sentences"], answer["lengths"], answer["ended"]
    if found != (sentences, [length], 0):
        raise WorkerError(
            f"{name}: {found[0]} sentences, lengths {found[1]}, {found[2]} that contain an end; "
            f"expected {sentences} of {length} tokens"
        )


def speeds_table(
    rows: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Mapping[str, Any]],
    work: float,
    limits: Mapping[str, float],
) -> str:
    """A row for each side: speeds, ratio, batch size, percentage of the machine's limit.

    Args:
        rows: the result of :func:`measure_whole`.
        facts: the description of each side.
        work: operations for a sentence.
        limits: the machine's limits.
    """
    lines = []
    for name, figures in rows.items():
        ratio, limit = figures.get("ratio"), operations(limits, facts[name]["precision"])
        share = "–" if limit is None else f"{figures['median'] * work / limit:.0%}"
        cells = [f"{figures[which]:,.0f}" for which in ("median", "lowest", "highest")]
        cells.append("–" if ratio is None else f"{ratio:.2f}×")
        same = f"{figures['same']:.1%}" if "same" in figures else "–"
        lines.append([name, *cells, f"{figures['batch_tokens']:,}", share, same])
    titles = ["", "sentences/s, median", "lowest", "highest", "ratio", "batch", "of the limit"]
    return table([*titles, "same output"], lines)


def said_of(facts: Mapping[str, Mapping[str, Any]], left_out: Mapping[str, str]) -> str:
    """A line for each side with version, precision and workers, or the reason why it was
    skipped."""
    lines = [f"- Skipped: {name}: {why}" for name, why in left_out.items()]
    for name, own in facts.items():
        parameters = [f"{own['parameters']:,} parameters"] if "parameters" in own else []
        workers = [own["workers"]] if "workers" in own else []
        said = [own["versions"], own["precision"], *workers, *parameters]
        lines.append(f"- {name}: {', '.join(said)}")
    return "\n".join(lines)
