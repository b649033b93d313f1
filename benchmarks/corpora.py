"""Measures what training on a corpus of 100 million pairs costs before and between its steps.

    python benchmarks/corpora.py order [--pairs 100000000] [--window 4000000] [--folder DIR]
    python benchmarks/corpora.py encode [--pairs 2000000] [--processes 2] [--shard-size N]
    python benchmarks/corpora.py texts [--pairs 2000000] [--processes 2] [--shard-size N]

``order`` makes an encoded corpus: one shard of 250,000 pairs with random tokens (source and target
of 4 to 36 tokens, 16-bit) is written, and all other shards are hard links to it. It is simulated in
that respect only: the index, the number of files, the number of rows and every read are those of a
real corpus. But the files together have the size of one shard, so that all reads come from the page
cache. ``--shards N`` writes N different shards instead, and the others are links to them; with
``--cold``, their pages are dropped from the cache before each measurement, so that a window of N
shards reads the disk as a real corpus does. Each measurement is a process of its own.

``encode`` encodes the same corpus of random words with one process and with more, in turns, and
compares the files. The time includes reading, filtering and starting the processes. ``texts`` does
the same with the lines of the corpus as the documents of a language model. Run nothing else at the
same time.
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
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.data import columns
from heedful.data.batching import TokenBatches
from heedful.data.columns import Column
from heedful.data.examples import Pair
from heedful.data.filters import FilterSettings, filter_pairs
from heedful.data.pair_store import PairEncoder
from heedful.data.parallel_encoding import PROCESSES, encode_store
from heedful.data.positions import Position
from heedful.data.readers import read_documents, read_pairs
from heedful.data.saved_vocabularies import with_vocabulary
from heedful.data.store import SHARD_ROWS, Store, StoreWriter, write_index
from heedful.data.store_encoder import StoreEncoder
from heedful.data.stream_encoder import StreamEncoder
from heedful.data.subwords import TokeniserSettings
from heedful.data.tokeniser import Tokenisers
from heedful.data.vocabularies import VocabularySettings, train_vocabulary
from reporting import machine, said, speed_table, summarised

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


class Work(NamedTuple):
    """What is encoded."""

    items: Callable[[], Iterator[Any]]
    encoder: StoreEncoder[Any]
    opens: Callable[[], StoreEncoder[Any]]
    counted: str


def of_pairs(corpus: Path, saved: Path) -> Work:
    """The encoding of pairs."""

    def pairs() -> Iterator[Pair]:
        return filter_pairs(read_pairs([corpus], left_out=Counter()), FilterSettings(), Counter())

    sample = list(islice(pairs(), 20_000))
    tokenisers = Tokenisers.train(lambda: sample, TokeniserSettings(vocabulary_size=8000), seed=1)
    tokenisers.save(saved)
    return Work(
        pairs, PairEncoder(tokenisers, 256), partial(PairEncoder.open, saved, 256), "stored"
    )


def of_texts(corpus: Path, saved: Path) -> Work:
    """The encoding of a language model's documents."""

    def texts() -> Iterator[str]:
        return (line for [line] in read_documents([corpus], document="lines"))

    sample = list(islice(texts(), 20_000))
    settings = VocabularySettings(kind="bytes", vocabulary_size=8000)
    vocabulary = train_vocabulary(lambda: sample, settings, seed=1, where="the texts")
    vocabulary.save(saved)
    opens = partial(with_vocabulary, StreamEncoder, saved)
    return Work(texts, StreamEncoder(vocabulary), opens, "documents")


def encode(asked: argparse.Namespace, folder: Path) -> None:
    """Read, filter and encode the same corpus with one process and with more, in turns."""
    corpus = folder / "train.tsv"
    write_texts(corpus, asked.pairs)
    saved = folder / "tokeniser"
    saved.mkdir()
    work = of_texts(corpus, saved) if asked.what == "texts" else of_pairs(corpus, saved)
    if asked.shard_size is not None:
        work.encoder.shard_size = asked.shard_size
    speeds: dict[int, list[float]] = {1: [], asked.processes: []}
    for _ in range(asked.repetitions):
        files = []
        for processes, found in speeds.items():
            out = folder / "encoded"
            PROCESSES.set(processes)
            start = time.perf_counter()
            counts = encode_store(work.items(), work.encoder, out, work.opens, identity="it")
            found.append(counts[work.counted] / (time.perf_counter() - start))
            files.append({path.name: path.read_bytes() for path in out.iterdir()})
        if files[0] != files[1]:
            raise SystemExit("the encoded corpora differ")
    figures = {
        f"{processes} process{'es' if processes > 1 else ''}": summarised(
            found, None if processes == 1 else speeds[1]
        )
        for processes, found in speeds.items()
    }
    print(speed_table("documents/s" if asked.what == "texts" else "pairs/s", figures))
    print("the files are identical")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("order", "encode", "texts"))
    parser.add_argument("--pairs", type=int, default=None)
    parser.add_argument("--window", type=int, default=4_000_000)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--batches", type=int, default=3000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shard-size", type=int, default=None)
    parser.add_argument("--repetitions", type=int, default=3)
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
