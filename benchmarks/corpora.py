"""Measures what training on a corpus of 100 million pairs costs before and between its steps.

    python benchmarks/corpora.py order [--pairs 100000000] [--window 4000000] [--folder DIR]
    python benchmarks/corpora.py encode [--pairs 2000000] [--processes 2] [--folder DIR]

``order`` makes an encoded corpus: one shard of 250,000 pairs with random tokens (source and target
of 4 to 36 tokens, 16-bit) is written, and all other shards are hard links to it. It is simulated in
that respect only: the index, the number of files, the number of rows and every read are those of a
real corpus. But the files together have the size of one shard, so that all reads come from the page
cache. ``--shards N`` writes N different shards instead, and the others are links to them; with
``--cold``, their pages are dropped from the cache before each measurement, so that a window of N
shards reads the disk as a real corpus does. Each measurement is a process of its own.

``encode`` prepares the same corpus of random words with one process and with more, and compares the
files. Run nothing else at the same time.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from heedful.data import columns
from heedful.data.batching import TokenBatches
from heedful.data.columns import Column
from heedful.data.pair_encoding import PROCESSES
from heedful.data.positions import Position
from heedful.data.store import SHARD_ROWS, Store, StoreWriter, write_index
from heedful.runs.recipe import check_recipe
from heedful.training.train import prepare
from reporting import machine, said

VOCABULARY = 32_000
BATCH_TOKENS = 4096


def resident() -> float:
    """Resident memory of this process in MB, without files that are mapped."""
    status = Path("/proc/self/status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("Rss")}
    return int(values["RssAnon"]) / 1000


def make_store(folder: Path, pairs: int, different: int) -> None:
    """Write a store whose shards are hard links to ``different`` ones."""
    codecs = {name: columns.tokens(VOCABULARY) for name in ("source", "target")}
    written: list[dict[str, Any]] = []
    for number in range(-(-pairs // SHARD_ROWS)):
        if number < different:
            random = np.random.default_rng(number)
            with StoreWriter(folder, codecs, None, first=number) as writer:
                rows = {}
                for name in codecs:
                    lengths = random.integers(4, 37, SHARD_ROWS)
                    values = random.integers(4, VOCABULARY, int(lengths.sum()))
                    rows[name] = Column(values, lengths)
                writer.add(rows)
                written.append(writer.close())
            continue
        known = written[number % different]
        hashes = {}
        for name, own in known["hashes"].items():
            linked = f"{number:05}{name[5:]}"
            os.link(folder / name, folder / linked)
            hashes[linked] = own
        written.append({"shards": known["shards"], "hashes": hashes})
    write_index(folder, codecs, written, {"max_tokens": 256, "tokenisers": "random"})


def drop_pages(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(folder: Path, window: int | None, batches: int) -> dict[str, float]:
    """Seconds to the first batch, batches per second, seconds to resume, and memory."""
    before = resident()
    start = time.perf_counter()
    store = Store.open(folder, verified=True)
    opened = time.perf_counter() - start
    source = TokenBatches(store, BATCH_TOKENS, window=window)
    walk = source.batches(Position(1))
    next(walk)
    first = time.perf_counter() - start
    begun = time.perf_counter()
    tokens = sum(batch.weight for _, batch in islice(walk, batches))
    took = time.perf_counter() - begun
    begun = time.perf_counter()
    pools = -(-len(store) // source.pool)
    pool = np.random.default_rng(7).integers(pools)
    next(source.batches(Position(1, 3, int(pool) * source.pool)))
    return {
        "pairs": len(store),
        "open (s)": opened,
        "first batch (s)": first,
        "batches/s": batches / took,
        "target tokens/s": tokens / took,
        "resume in epoch 3 (s)": time.perf_counter() - begun,
        "resident (MB)": resident() - before,
        "peak of the process (MB)": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def order(asked: argparse.Namespace, folder: Path) -> None:
    """Measure orders over a store, each in a process of its own."""
    store = folder / "store"
    if asked.worker:
        window = asked.window or None
        print(json.dumps(measure(store, window, asked.batches)))
        return
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    start = time.perf_counter()
    make_store(store, asked.pairs, asked.shards)
    print(f"store made in {time.perf_counter() - start:.1f} s, {asked.shards} different shards")
    for window in (0, asked.window):
        if asked.cold:
            drop_pages(store)
        command = [sys.executable, __file__, "order", "--folder", folder, "--worker"]
        command += ["--window", window, "--batches", asked.batches]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        name = f"windows of {window:,} pairs" if window else "full permutation"
        print(f"{name}{', cold' if asked.cold else ''}:")
        for key, value in json.loads(done.stdout).items():
            print(f"  {key:26}{value:,.2f}")
    shutil.rmtree(store)


def write_texts(path: Path, pairs: int) -> None:
    """Write a corpus of random words with the frequencies of Zipf's law."""
    random = np.random.default_rng(1)
    syllables = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "za", "chi", "dor", "fen"]
    words = np.array(
        ["".join(random.choice(syllables, random.integers(1, 5))) for _ in range(30_000)]
    )
    weights = 1 / np.arange(10, 30_010)
    weights /= weights.sum()
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, pairs, 10_000):
            count = min(10_000, pairs - first)
            lengths = random.integers(3, 30, 2 * count)
            drawn = words[random.choice(30_000, int(lengths.sum()), p=weights)]
            sides = [" ".join(side) for side in np.split(drawn, np.cumsum(lengths)[:-1])]
            file.writelines(f"{a}\t{b}\n" for a, b in zip(sides[::2], sides[1::2], strict=True))


def encode(asked: argparse.Namespace, folder: Path) -> None:
    """Prepare the same corpus with one process and with more."""
    corpus = folder / "train.tsv"
    write_texts(corpus, asked.pairs)
    tables = {
        "data": {"train": str(corpus), "validation_share": 0.001},
        "tokeniser": {"vocabulary_size": 8000},
        "model": {"kind": "transformer", "size": "tiny"},
    }
    found: Counter[int] = Counter()
    stores = []
    for processes in (1, asked.processes):
        PROCESSES.set(processes)
        out = folder / f"encoded-{processes}"
        seconds = _seconds_to_encode(tables, out)
        found[processes] = round(asked.pairs / seconds)
        print(f"{processes} process(es): {seconds:.1f} s, {found[processes]:,} pairs/s")
        stores.append({path.name: path.read_bytes() for path in (out / "data/train").iterdir()})
    if stores[0] != stores[1]:
        raise SystemExit("the encoded corpora differ")
    print(f"ratio {found[asked.processes] / found[1]:.2f}; the files are identical")


def _seconds_to_encode(tables: dict[str, Any], out: Path) -> float:
    """Seconds of the encoding alone, in a whole preparation."""
    from heedful.tasks.pairs import preparation

    seconds = []
    plain = preparation.encode_pairs

    def timed(*given: Any, **how: Any) -> int:
        start = time.perf_counter()
        stored = plain(*given, **how)
        seconds.append(time.perf_counter() - start)
        return stored

    preparation.encode_pairs = timed
    start = time.perf_counter()
    prepare(check_recipe(tables, "the recipe"), out)
    preparation.encode_pairs = plain
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"  whole preparation {time.perf_counter() - start:.1f} s, peak {peak:,.0f} MB")
    return seconds[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("order", "encode"))
    parser.add_argument("--pairs", type=int, default=None)
    parser.add_argument("--window", type=int, default=4_000_000)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--batches", type=int, default=3000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.worker:
        print(said(machine(1)))
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        folder = asked.folder if asked.worker else Path(made)
        if asked.what == "order":
            asked.pairs = asked.pairs or 100_000_000
            order(asked, folder)
        else:
            asked.pairs = asked.pairs or 2_000_000
            encode(asked, folder)


if __name__ == "__main__":
    main()
