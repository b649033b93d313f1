"""Projects what a corpus of any size needs from rates that are measured on a small one.

    python benchmarks/billion_pairs.py SOURCE TARGET [--pairs 1e9] [--vocabulary 8000] [--json]

SOURCE and TARGET are files with one text per line. Rates are seconds of processor time on one core:
training the vocabulary on the texts, encoding them, and writing and verifying the store. They are
the medians of ``--repetitions`` rounds. Sizes are those of the files. Nothing is projected that was
not measured, and projections are linear in the number of pairs.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from heedful.basics.files import atomic_folder
from heedful.data import columns
from heedful.data.store import Store, StoreWriter
from heedful.data.subwords import SAMPLE_TEXTS, TokeniserSettings, train_model
from heedful.data.tokeniser import Tokeniser
from reporting import machine, said, table

CHUNK = 10_000


def measure(texts: list[list[str]], tokeniser: Tokeniser, folder: Path) -> dict[str, float]:
    """Processor seconds and bytes of a pair."""
    pairs, began = len(texts[0]), time.process_time()
    encoded = [tokeniser.encode_batch(side, 1) for side in texts]
    encoding = time.process_time() - began
    began = time.process_time()
    codecs = {name: columns.tokens(tokeniser.size) for name in ("source", "target")}
    with atomic_folder(folder) as beside, StoreWriter(beside, codecs) as writer:
        for first in range(0, pairs, CHUNK):
            rows = [side[first : first + CHUNK] for side in encoded]
            parts = zip(codecs.items(), rows, strict=True)
            writer.add({name: codec.column(own) for (name, codec), own in parts})
        writer.finish({})
    writing = time.process_time() - began
    began = time.process_time()
    Store.open(folder).verify()
    return {
        "encoding": encoding / pairs,
        "writing": writing / pairs,
        "verifying": (time.process_time() - began) / pairs,
        "store": sum(path.stat().st_size for path in folder.rglob("*")) / pairs,
    }


def projected(rates: dict[str, float], pairs: float) -> list[list[str]]:
    """Rows of the table."""
    rows = []
    for name, rate in rates.items():
        if name in ("text", "store"):
            rows.append([name, f"{rate:.0f} bytes", f"{rate * pairs / 1e9:,.0f} GB"])
        else:
            hours = rate * pairs / 3600
            rows.append([name, f"{1e6 * rate:.1f} µs", f"{hours:,.1f} hours of one core"])
    return rows


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs=2)
    parser.add_argument("--pairs", type=float, default=1e9)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    texts = [path.read_text(encoding="utf-8").splitlines() for path in asked.files]
    began = time.process_time()
    settings = TokeniserSettings(vocabulary_size=asked.vocabulary)
    model = train_model([*texts[0], *texts[1]], settings, "the files")
    training = (time.process_time() - began) / (2 * len(texts[0]))
    tokeniser = Tokeniser(model, settings)
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            measure(texts, tokeniser, Path(folder, str(number)))
            for number in range(asked.repetitions)
        ]
    rates = {name: median(one[name] for one in rounds) for name in rounds[0]}
    rates["text"] = sum(path.stat().st_size for path in asked.files) / len(texts[0])
    found: dict[str, Any] = {"machine": machine(1), "pairs": asked.pairs, "rates": rates}
    found["vocabulary_seconds_of_a_text"] = training
    if asked.json:
        print(json.dumps(found))
        return
    print(said(found["machine"]))
    print(table(["", "a pair", f"{asked.pairs:,.0f} pairs"], projected(rates, asked.pairs)))
    print(f"vocabulary of {SAMPLE_TEXTS:,} texts: {training * SAMPLE_TEXTS / 60:.1f} minutes")


if __name__ == "__main__":
    main()
