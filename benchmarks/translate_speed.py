"""Translation speed: heedful's search compared with CTranslate2 and MarianMT of the same sizes.

    python benchmarks/install_peers.py ctranslate2 transformers
    python benchmarks/translate_speed.py [--sizes tiny base] [--repetitions 5] [--threads 2]

Measures sentences per second on test_2016 of Multi30k (1,000 sentences), greedy and with beam 5,
from token ids to token ids, with random weights and exactly 16 target tokens per sentence. Each
side runs in a separate process and uses the batch size that is fastest for it (``--batch-tokens``
are tried first); sides take turns. The baseline of the ratios is the first row.

- CTranslate2, float32 and int8: the weights of heedful's model, written by heedful's exporter; one
  worker per thread, with one thread each; all sentences are passed at once.
- MarianMT: ``generate`` of transformers, 16 tokens by ``max_new_tokens``; −∞ in the model's bias
  prevents an earlier end.
- ours: heedful's search, in every precision that is fast on the processor.
- ours, 2 workers: the same with workers of one thread each, ``--pool threads`` or ``processes``.
"""

from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Any

import limits
from corpus import Corpus
from heedful_worker import random_model
from install_peers import peer_python
from reporting import machine, said
from sizes import SIZES
from turns import (
    SEARCHES,
    Starter,
    add_batches,
    measure_whole,
    parser_for,
    run,
    said_of,
    speeds_table,
    transformer,
    write_work,
)

CTRANSLATE2, INT8, MARIAN = "CTranslate2", "CTranslate2, int8", "MarianMT"


def export(folder: Path, work: dict[str, Any]) -> None:
    """Write the benchmark's model in CTranslate2's format."""
    from heedful.interop.ctranslate2_folders import save_model
    from heedful.interop.layouts.ctranslate2 import Watched, specification
    from heedful.models.transformer import Transformer

    model = random_model(work)
    assert isinstance(model, Transformer)
    spec = specification(model.state_dict(), model.settings, Watched(0, None))
    pieces = [str(number) for number in range(work["vocabulary"])]
    folder.mkdir()
    save_model(folder, spec, pieces, pieces, "float32")


def work_for(size: str, folder: Path, sentences: list[list[int]], options: Any) -> Path:
    """Write the files for the sides of a size, including the export for CTranslate2 if
    installed."""
    exported = folder / f"{size}-ctranslate2"
    model = transformer(size)
    if peer_python("ctranslate2") and not options.ours_only:
        export(exported, {"model": model, "vocabulary": options.vocabulary})
    file = folder / f"{size}.json"
    return write_work(file, model, sentences, options, exported=str(exported))


def start(starter: Starter) -> None:
    """Start all sides of a size."""
    threads = str(starter.options.threads)
    workers = ["--inter", threads, "--intra", "1"]
    for name, numbers in ((CTRANSLATE2, "float32"), (INT8, "int8")):
        own = ["--compute-type", numbers, *workers]
        starter.peer(name, "ctranslate2", "ctranslate2_worker.py", *own)
    starter.peer(MARIAN, "transformers", "marian_worker.py", "--threads", threads)
    starter.ours()


def measure(options: Any, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Measure the sides in turns, size by size; returns speeds, ratios, versions, the machine's
    limits."""
    sentences = corpus.test
    known, sizes = limits.limits(options.threads), {}
    source = mean(len(sentence) + 1 for sentence in sentences)
    for size in options.sizes:
        work = work_for(size, folder, sentences, options)
        with ExitStack() as stack:
            starter = Starter(stack, work, options)
            start(starter)
            searches = {
                SEARCHES[beam]: {
                    "operations": SIZES[size].translating(
                        source, options.length, beam, options.vocabulary
                    ),
                    "rows": measure_whole(starter, beam, options.batch_tokens),
                }
                for beam in SEARCHES
            }
        sizes[size] = {"sides": starter.facts, "left_out": starter.left_out, "searches": searches}
    return {
        "machine": machine(options.threads),
        "limits": limits.highest(known, limits.limits(options.threads)),
        "sentences": len(sentences),
        "length": options.length,
        "vocabulary": options.vocabulary,
        "sizes": sizes,
    }


def report(found: dict[str, Any]) -> str:
    """A table for each size and search, followed by versions and settings."""
    parts = ["## Translating", ""]
    for size, own in found["sizes"].items():
        for name, search in own["searches"].items():
            rows = search["rows"]
            parts += [f"### {size}, {name}", ""]
            parts += [speeds_table(rows, own["sides"], search["operations"], found["limits"]), ""]
        parts += [said_of(own["sides"], own["left_out"]), ""]
    return "\n".join(
        [
            *parts,
            f"{found['sentences']:,} sentences, {found['length']} target tokens each, vocabulary "
            f"{found['vocabulary']:,}, random weights; {found.get('corpus', 'random texts')}. "
            "Batch: source tokens times beam. Same output: sentences with the tokens of `ours`.",
            limits.said(found["limits"]),
            said(found["machine"]),
        ]
    )


def parse(arguments: list[str] | None = None) -> Any:
    """The command line."""
    parser = parser_for(__doc__)
    add_batches(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    run(parse(), measure, report)


if __name__ == "__main__":
    main()
