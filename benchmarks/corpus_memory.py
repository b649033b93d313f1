"""Measures private memory while an encoded corpus is read: it must not grow with the corpus.

Run ``python benchmarks/corpus_memory.py``. It writes corpora of 50,000, 500,000 and 5,000,000 pairs
of random tokens with the shard writer (about 0.5 GB each, in the system's temporary folder), reads
batches from several places of an epoch in a separate process, and prints a table. Memory is
measured relative to the memory of the process before it opens the corpus:

- private: memory not shared with other processes (`smaps_rollup` of Linux, clean and dirty, which
  includes mapped pages that were read and not released); the maximum after a batch.
- peak resident: the maximum resident memory (`VmHWM`), including the pages of mapped files, which
  belong to the system's cache and are released after each shard.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from heedful.basics.files import atomic_folder
from heedful.data.batching import TokenBatches
from heedful.data.columns import Column, tokens
from heedful.data.positions import Position
from heedful.data.store import Store, StoreWriter
from resident import peak_resident, reset_peak

PAIRS = (50_000, 500_000, 5_000_000)
PLACES = 5
CHUNK = 100_000


def write_corpus(folder: Path, pairs: int, vocabulary: int = 8000) -> None:
    """Pairs of random tokens with the length distribution of sentences (mean about 25)."""
    generator = np.random.default_rng(pairs)
    codecs = {"source": tokens(vocabulary), "target": tokens(vocabulary)}
    with atomic_folder(folder) as beside, StoreWriter(beside, codecs) as writer:
        for start in range(0, pairs, CHUNK):
            count = min(CHUNK, pairs - start)
            source = generator.gamma(4, 6, count)
            both = np.stack([source, source * generator.normal(1, 0.15, count)], axis=1)
            lengths = np.clip(both, 1, 200).astype(np.int64)
            drawn = [generator.integers(4, vocabulary, sizes.sum()) for sizes in lengths.T]
            parts = zip(codecs, drawn, lengths.T, strict=True)
            writer.add({name: Column(own, sizes) for name, own, sizes in parts})
        writer.finish({})


def private_memory() -> tuple[int, int]:
    """Clean and dirty private memory of this process, in bytes."""
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, *rest = line.split()
        if name in ("Private_Clean:", "Private_Dirty:"):
            found[name] = int(rest[0]) * 1024
    return found["Private_Clean:"], found["Private_Dirty:"]


def read_corpus(folder: Path, batches: int, batch_tokens: int) -> dict[str, float]:
    """Read ``batches`` batches from each of several places of an epoch; returns peaks and speed."""
    resident, before = reset_peak() or 0, sum(private_memory())
    corpus = Store.open(folder)
    source = TokenBatches(corpus, batch_tokens)
    pools = -(-len(corpus) // source.pool)
    peak, seconds, count, first = 0, 0.0, 0, 0.0
    for place in range(PLACES):
        position = Position(1, place, place * pools // PLACES * source.pool)
        started = time.perf_counter()
        iterator = source.batches(position)
        next(iterator)
        first = max(first, time.perf_counter() - started)
        for _ in range(batches):
            started = time.perf_counter()
            next(iterator)
            seconds += time.perf_counter() - started
            count += 1
            if count % 10 == 0:
                peak = max(peak, sum(private_memory()))
    return {
        "pairs": len(corpus),
        "private": peak - before,
        "resident": (peak_resident() or 0) - resident,
        "batches_per_second": count / seconds,
        "first_batch_seconds": first,
    }


def main() -> None:
    """Write, read and print. With ``--read FOLDER``, only read one corpus and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--batches", type=int, default=400, help="number of batches from each place"
    )
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read_corpus(options.read, options.batches, options.batch_tokens)))
        return
    titles = ("pairs", "on disk", "private", "peak resident", "batches/s", "first batch")
    print("{:>10} {:>10} {:>10} {:>14} {:>10} {:>12}".format(*titles))
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "corpus"
            write_corpus(folder, pairs)
            size = sum(file.stat().st_size for file in folder.iterdir())
            command = [sys.executable, __file__, "--read", str(folder)]
            command += ["--batches", str(options.batches)]
            command += ["--batch-tokens", str(options.batch_tokens)]
            found = json.loads(subprocess.check_output(command))
        private = f"{found['private'] / 2**20:.1f} MiB"
        resident = f"{found['resident'] / 2**20:.1f} MiB"
        first = f"{found['first_batch_seconds'] * 1000:.0f} ms"
        speed = f"{found['batches_per_second']:,.0f}"
        print(
            f"{pairs:>10,} {size / 2**20:>6,.0f} MiB {private:>10} {resident:>14} "
            f"{speed:>10} {first:>12}"
        )


if __name__ == "__main__":
    main()
