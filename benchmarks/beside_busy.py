"""Measures heedful's speed while another program keeps a core busy.

    python benchmarks/beside_busy.py [--rounds 5] [--threads 2] [--rows ROW ...] [--quiet]

Each row measures one workload with one thread and with all threads (``--threads``), in separate
processes and in turns, while a busy process runs. The ratio is the time with all threads divided by
the time of the faster number of threads; the target is at most 1.3. ``--quiet`` runs no busy
process.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import torch

from corpus import MULTI30K, prepare_corpus
from heedful.attention.additive import additive_context
from heedful.attention.masks import Grid
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.decoding import SearchOptions
from heedful.inference import Translator
from heedful.models import build_model
from heedful.models.recurrent_settings import RecurrentSettings
from heedful.models.transformer import TransformerSettings
from heedful.serving.engine import Engine
from reporting import machine, said, table
from sizes import SIZES
from train_speed import DROPOUT, Ours
from workers import Worker, serve

WANTED = 1.3
Work = Callable[[], object]


def additive(length: int, *, backward: bool) -> Work:
    """The kernel of additive attention, 256 units."""
    torch.manual_seed(0)
    parts = [torch.randn(1, length, 256, requires_grad=True) for _ in range(3)]
    v, grid = torch.randn(256, requires_grad=True), Grid((length, length), torch.device("cpu"))

    def work() -> None:
        with torch.set_grad_enabled(backward):
            for _ in range(4):
                context = additive_context(*parts, v, None, grid)
                if backward:
                    torch.autograd.grad(context, [*parts, v], torch.ones_like(context))

    return work


def training(corpus: Path, size: str, attention_dropout: float, steps: int) -> Work:
    """Training a Transformer; with dropout on attention weights, batches are not divided among
    threads."""
    chosen = SIZES[size]._asdict() | {"dropout": DROPOUT, "attention_dropout": attention_dropout}
    ours = Ours(corpus, TransformerSettings.model_validate(chosen), 2048, "float32")
    return lambda: ours.go_on(steps)


def translator_of(corpus: Path, model: Mapping[str, Any]) -> Translator:
    """A model with random weights."""
    torch.manual_seed(1)
    tokenisers = load_tokenisers(corpus / "tokenisers")
    kind = RecurrentSettings if model["kind"] == "recurrent" else TransformerSettings
    sizes = tokenisers.source.size, tokenisers.target.size
    return Translator([build_model(kind.model_validate(model), *sizes).eval()], tokenisers)


def translating(
    corpus: Path, model: Mapping[str, Any], beam: int, texts: int, *, each: bool = False
) -> Work:
    """Translating texts in batches or one at a time."""
    translator = translator_of(corpus, model)
    options = SearchOptions(beam=beam, forced_length=16)
    given = texts_of(translator, corpus, texts)
    if not each:
        return lambda: translator.translate(given, options=options)
    return lambda: [translator.translate([text], options=options) for text in given]


def serving(corpus: Path, model: Mapping[str, Any], beam: int, texts: int) -> Work:
    """The server's engine with one concurrent request for each text."""
    translator = translator_of(corpus, model)
    options, engine = SearchOptions(beam=beam, forced_length=16), Engine()
    given = texts_of(translator, corpus, texts)

    def work() -> None:
        futures = [engine.translate(translator, [text], options=options) for text in given]
        for future in futures:
            future.result()

    return work


def texts_of(translator: Translator, corpus: Path, count: int) -> list[str]:
    """Test sources."""
    sources = json.loads((corpus / "test.json").read_text(encoding="utf-8"))
    return [translator.tokenisers.source.decode(tokens) for tokens in sources[:count]]


def transformer(size: str) -> dict[str, Any]:
    """The settings of a size."""
    return {"kind": "transformer", **SIZES[size]._asdict()}


RECURRENT = {"kind": "recurrent", "attention": "bahdanau", "cell": "gru", "hidden_size": 1024}
ROWS: dict[str, Callable[[Path], Work]] = {
    "additive attention, 1,024": lambda folder: additive(1024, backward=False),
    "additive attention, 1,024, with gradients": lambda folder: additive(1024, backward=True),
    "training tiny": lambda folder: training(folder, "tiny", 0.0, 2),
    "training tiny, whole batches": lambda folder: training(folder, "tiny", DROPOUT, 2),
    "translating tiny, beam 5": lambda folder: translating(folder, transformer("tiny"), 5, 200),
    "translating base, beam 5": lambda folder: translating(folder, transformer("base"), 5, 16),
    "one sentence, tiny": lambda folder: translating(folder, transformer("tiny"), 1, 20, each=True),
    "one sentence, base": lambda folder: translating(folder, transformer("base"), 1, 6, each=True),
    "translating recurrent 1,024, beam 5": lambda folder: translating(folder, RECURRENT, 5, 32),
    "serving base, beam 5, 8 requests": lambda folder: serving(folder, transformer("base"), 5, 8),
}


def work(options: argparse.Namespace) -> None:
    """Run as a worker: one row with a number of threads."""
    torch.set_num_threads(options.threads)
    own = ROWS[options.worker](options.corpus)
    for _ in range(2):
        own()

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        own()
        return {"seconds": time.perf_counter() - began}

    serve(answer)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the seconds of each row with one thread and with all threads."""
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        data = MULTI30K if MULTI30K.is_dir() else None
        corpus = prepare_corpus(Path(temporary), data, 8000, 2000, 200)
        (corpus.folder / "test.json").write_text(json.dumps(corpus.test), encoding="utf-8")
        for row in options.rows or ROWS:
            found[row] = _measured(row, corpus.folder, options)
            print(row, found[row], file=sys.stderr, flush=True)
    return {"machine": machine(options.threads), "busy": not options.quiet, "rows": found}


def _measured(row: str, folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    with ExitStack() as stack:
        if not options.quiet:
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        sides = {}
        for threads in (1, options.threads):
            arguments = ["--worker", row, "--corpus", str(folder), "--threads", str(threads)]
            worker = Worker(Path(sys.executable), Path(__file__), arguments, threads)
            sides[str(threads)] = stack.enter_context(worker)
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(options.rounds + 1):
            for name, side in sides.items():
                times[name].append(side.ask()["seconds"])
    return {name: own[1:] for name, own in times.items()}


def report(found: Mapping[str, Any]) -> str:
    """A table with a row for each workload."""
    lines = []
    for row, times in found["rows"].items():
        medians = [1000 * median(own) for own in times.values()]
        ratio = medians[-1] / min(medians)
        cells = [f"{value:,.0f}" for value in medians]
        lines.append([row, *cells, f"{ratio:.2f}×", "yes" if ratio <= WANTED else "**no**"])
    names = [f"ms, {count} thr." for count in (1, found["machine"]["threads"])]
    title = "## With a busy process" if found["busy"] else "## Alone"
    titles = ["", *names, "all ÷ best", f"at most {WANTED}×"]
    return "\n".join([title, "", table(titles, lines), "", said(found["machine"])])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join(ROWS)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="ROW", help=known)
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--threads", type=int, default=2, help="number of threads; default 2")
    parser.add_argument("--quiet", action="store_true", help="without the busy process")
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    parser.add_argument("--worker", choices=list(ROWS), help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print, or run as a worker."""
    options = parse()
    if options.worker:
        work(options)
        return
    found = measure(options)
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    main()
