"""Latency of single sentences: heedful compared with CTranslate2, with the same weights.

    python benchmarks/install_peers.py ctranslate2
    python benchmarks/one_sentence.py [--sizes tiny base] [--every 5] [--beam 1]

The 50th and 90th percentiles of the milliseconds per sentence for every fifth sentence
(``--every``) of Multi30k's test_2016, translated one at a time with 16 forced target tokens;
medians of five rounds in turns. CTranslate2 and heedful run with one thread and with all
(``--threads``): the faster counts. The limit is the time for reading the weights from memory: the
encoder's once, the decoder's at every step. Small models stay in the caches and can be faster.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import limits
from corpus import Corpus
from heedful_worker import precisions
from reporting import machine, said, table
from sizes import SIZES
from translate_speed import CTRANSLATE2, INT8, work_for
from turns import SEARCHES, Starter, measure_each, parser_for, run, said_of

BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes of a weight for each precision; 1 for others."""


def start(starter: Starter) -> None:
    """CTranslate2 and heedful, with one thread and with all threads."""
    for threads in sorted({1, starter.options.threads}):
        with_threads = f", {threads} threads" if threads > 1 else ", 1 thread"
        for name, numbers in ((CTRANSLATE2, "float32"), (INT8, "int8")):
            own = ["--compute-type", numbers, "--inter", "1", "--intra", str(threads)]
            starter.peer(name + with_threads, "ctranslate2", "ctranslate2_worker.py", *own)
        for precision in precisions(few_rows=True):
            named = "ours" if precision == "float32" else f"ours, {precision}"
            own = ["--threads", str(threads), "--precision", precision]
            starter.add(named + with_threads, Path(sys.executable), "heedful_worker.py", *own)


def measure(options: Any, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Measure the sides in turns, size by size."""
    sentences = corpus.test
    known, sizes = limits.limits(options.threads), {}
    for size in options.sizes:
        work = work_for(size, folder, sentences, options)
        with ExitStack() as stack:
            starter = Starter(stack, work, options)
            start(starter)
            rows = measure_each(starter, options.beam, options.every)
        weights = SIZES[size].weights_read(options.length, options.vocabulary)
        sizes[size] = {"sides": starter.facts, "weights_read": weights, "rows": rows}
        sizes[size]["left_out"] = starter.left_out
    return {
        "machine": machine(options.threads),
        "limits": limits.highest(known, limits.limits(options.threads)),
        "sentences": len(sentences[:: options.every]),
        "length": options.length,
        "beam": options.beam,
        "vocabulary": options.vocabulary,
        "sizes": sizes,
    }


def report(found: dict[str, Any]) -> str:
    """A table for each size."""
    parts = [f"## One sentence at a time, {SEARCHES.get(found['beam'], 'beam')}", ""]
    titles = ["", "p50, ms", "lowest", "highest", "p90, ms", "the limit, ms"]
    for size, own in found["sizes"].items():
        rows = []
        for name, figures in own["rows"].items():
            p50 = figures["p50"]
            size_of = BYTES.get(own["sides"][name]["precision"], 1)
            limit = 1000 * own["weights_read"] * size_of / found["limits"]["memory"]
            numbers = [median(p50), min(p50), max(p50), median(figures["p90"]), limit]
            rows.append([name, *(f"{number:.2f}" for number in numbers)])
        parts += [
            f"### {size}",
            "",
            table(titles, rows),
            "",
            said_of(own["sides"], own["left_out"]),
            "",
        ]
    return "\n".join(
        [
            *parts,
            f"{found['sentences']:,} sentences, {found['length']} target tokens each, vocabulary "
            f"{found['vocabulary']:,}, random weights.",
            limits.said(found["limits"]),
            said(found["machine"]),
        ]
    )


def parse(arguments: list[str] | None = None) -> Any:
    """The command line."""
    parser = parser_for(__doc__)
    parser.add_argument(
        "--every", type=int, default=5, help="measure every N-th sentence; default 5"
    )
    parser.add_argument("--beam", type=int, choices=list(SEARCHES), default=1, help="default 1")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    run(parse(), measure, report)


if __name__ == "__main__":
    main()
