"""The corpus for speed benchmarks: Multi30k if available, otherwise random texts of similar
lengths.

Both are prepared like any corpus: tokeniser, encoded shards, batches.
"""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from heedful.data.examples import Pair
from heedful.data.pair_store import write_pair_store
from heedful.data.readers import read_pairs
from heedful.data.tokeniser import Tokenisers, TokeniserSettings

MULTI30K = Path(__file__).resolve().parents[2] / "shared" / "data" / "multi30k"
MADE_PAIRS, MADE_TEST = 29_000, 1_000
_SYLLABLES = [c + v for c in "bdfghklmnprstvwz" for v in ("a", "e", "i", "o", "u", "ei", "an")]


class Corpus(NamedTuple):
    """Encoded training pairs in a folder, and test sources as tokens."""

    folder: Path
    """Contains the shards in ``train`` and the tokenisers in ``tokenisers``."""
    test: list[list[int]]
    """Tokens of each test source, without END."""
    vocabulary: int
    what: str
    """A description for the report."""


def prepare_corpus(
    folder: Path,
    data: Path | None,
    vocabulary: int,
    pairs: int | None = None,
    sentences: int | None = None,
) -> Corpus:
    """Train a tokeniser and encode.

    Args:
        folder: an empty folder for shards and tokenisers.
        data: contains ``train.en``, ``train.de`` and ``test_2016_flickr.en``; None for random
            texts.
        vocabulary: size of the joint vocabulary.
        pairs: number of training pairs, and maximum number of test sources; default: all.
        sentences: maximum number of test sources, taken evenly from the file; default: all.
    """
    if data is None:
        made = list(made_pairs(pairs or MADE_PAIRS, seed=1))
        test = [pair.source for pair in made_pairs(min(pairs or MADE_TEST, MADE_TEST), seed=2)]
        what = f"random texts, {len(made):,} pairs"
    else:
        read = read_pairs([str(data / "train.en"), str(data / "train.de")])
        made = list(islice(read, pairs))
        lines = (data / "test_2016_flickr.en").read_text(encoding="utf-8").splitlines()
        test = lines[:pairs]
        what = f"Multi30k, {len(made):,} pairs"
    if sentences is not None:
        test = test[:: max(1, len(test) // sentences)][:sentences]
    settings = TokeniserSettings(vocabulary_size=vocabulary)
    tokenisers = Tokenisers.train(lambda: made, settings, seed=1)
    left_out: Counter[str] = Counter()
    write_pair_store(made, tokenisers, folder / "train", max_tokens=256, left_out=left_out)
    if left_out:
        what += f" ({sum(left_out.values())} too long)"
    tokenisers.save(folder / "tokenisers")
    sources = tokenisers.source.encode_batch(test)
    return Corpus(folder, sources, tokenisers.source.size, what)


def made_pairs(count: int, seed: int) -> Iterator[Pair]:
    """Pairs of random words with Zipf's frequencies and lengths similar to Multi30k.

    Multi30k has 11.9 words per English sentence (standard deviation 3.8) and 11.1 per German one.
    """
    words = ["".join(random.Random(n).choices(_SYLLABLES, k=2 + n % 3)) for n in range(20_000)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
    rng = random.Random(seed)
    for _ in range(count):
        length = max(3, round(rng.gammavariate(9.8, 1.21)))
        other = max(3, round(0.93 * length + rng.gauss(0, 1.5)))
        source = " ".join(rng.choices(words, cum_weights=weights, k=length))
        yield Pair(source + ".", " ".join(rng.choices(words, cum_weights=weights, k=other)) + ".")
