"""Builds a corpus of short and long texts: two to five of Tatoeba's English–German pairs joined.

    python benchmarks/tatoeba_joined.py TATOEBA --out FOLDER [--test 2000] [--validation 1000]
                                        [--long 1000]

TATOEBA is ``deu-eng.zip`` from manythings.org/anki, or the ``deu.txt`` in it: English TAB German,
CC BY 2.0, tatoeba.org. Writes ``{train,val,test}.{en,de}`` and ``ATTRIBUTION.txt``. Single pairs
are short and similar, and Multi30k's have similar lengths. Joined pairs have from four to over
fifty words, which shows the effect of length on translation.

The parts share no sentence of either language, ignoring case and punctuation: pairs that share one,
directly or through others, are in the same part. Of such pairs, validation and test contain only
one, drawn at random; training contains all. Within a part, pairs are shuffled and joined in order,
with a group size drawn uniformly from two to five; no text contains a sentence twice. The same seed
gives the same files.

With ``--long``, ``long.{en,de}`` is another test set, whose texts are longer than those of the
other parts: six to twelve pairs of the test part, joined by the same rules.
"""

import argparse
import io
import random
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.files import write_text

FEWEST, MOST = 2, 5
LONG = 6, 12
"""The fewest and most pairs of a long text."""
MEMBER = "deu.txt"
PARTS = ("train", "val", "test")
ATTRIBUTION = """Sentence pairs from the Tatoeba Project (tatoeba.org), by way of
manythings.org/anki, licensed under CC BY 2.0 (http://creativecommons.org/licenses/by/2.0).
Changed here: grouped and joined, two to five into one (benchmarks/tatoeba_joined.py, seed {seed}).
"""

Pair = tuple[str, str]


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of the zip archive, or of the text file in it.

    Raises:
        UserError: the file is missing or has another format.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                text = archive.read(MEMBER).decode("utf-8")
        else:
            text = path.read_text(encoding="utf-8")
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as Tatoeba's pairs ({error})") from error
    rows = [line.split("\t") for line in io.StringIO(text)]
    if not rows or any(len(row) < 2 for row in rows):
        raise UserError(f"{path}: expected lines of English TAB German")
    # Later versions of the file have a third column with the authors.
    return list(dict.fromkeys((row[0].strip(), row[1].strip()) for row in rows))


def families(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Groups of pairs that share a sentence, directly or through others, ordered by their first
    pair."""
    parent: dict[tuple[int, str], tuple[int, str]] = {}

    def root(key: tuple[int, str]) -> tuple[int, str]:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for pair in pairs:
        english, german = (root((side, _words(text))) for side, text in enumerate(pair))
        parent[german] = english
    found: dict[tuple[int, str], list[Pair]] = {}
    for pair in pairs:
        found.setdefault(root((0, _words(pair[0]))), []).append(pair)
    return list(found.values())


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def joined(
    pairs: Sequence[Pair], chance: random.Random, fewest: int = FEWEST, most: int = MOST
) -> Iterator[Pair]:
    """Join groups of ``fewest`` to ``most`` pairs; the last few pairs can remain unused."""
    waiting = list(pairs)
    chance.shuffle(waiting)
    waiting.reverse()
    while True:
        size = chance.randint(fewest, most)
        group: list[Pair] = []
        aside: list[Pair] = []
        while waiting and len(group) < size:
            pair = waiting.pop()
            known = any(pair[side] == one[side] for one in group for side in (0, 1))
            (aside if known else group).append(pair)
        if len(group) < size:
            return
        waiting += reversed(aside)
        yield " ".join(one[0] for one in group), " ".join(one[1] for one in group)


def make_parts(
    pairs: Sequence[Pair], sizes: dict[str, int], seed: int, long: int = 0
) -> dict[str, list[Pair]]:
    """Joined pairs of each part; ``sizes`` are the numbers for validation and test.

    With ``long``, so many long texts of the test part, too.

    Raises:
        UserError: there are too few pairs for these sizes and a training part.
    """
    chance = random.Random(seed)
    groups = families(pairs)
    chance.shuffle(groups)
    parts: dict[str, list[Pair]] = {}
    for name, size in sizes.items():
        # One pair per family, and enough of them for any drawn group sizes.
        taken, groups = groups[: size * MOST], groups[size * MOST :]
        single = [chance.choice(group) for group in taken]
        parts[name] = list(joined(single, chance))[:size]
        if name == "test" and long:
            # A generator of its own, so that the other parts do not depend on this one.
            parts["long"] = list(joined(single, random.Random(f"{seed} long"), *LONG))[:long]
            sizes = sizes | {"long": long}
    parts["train"] = list(joined([pair for group in groups for pair in group], chance))
    if not parts["train"] or any(len(parts[name]) < size for name, size in sizes.items()):
        asked = ", ".join(f"{size:,} for {name}" for name, size in sizes.items())
        raise UserError(f"{len(pairs):,} pairs are too few for these joined pairs: {asked}")
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the corpus and print its statistics."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tatoeba", type=Path, help="deu-eng.zip or deu.txt")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--validation", type=int, default=1000, help="joined pairs; default 1000")
    parser.add_argument("--test", type=int, default=2000, help="joined pairs; default 2000")
    parser.add_argument("--long", type=int, default=0, help="long texts; default 0")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    sizes = {"val": options.validation, "test": options.test}
    try:
        parts = make_parts(read_pairs(options.tatoeba), sizes, options.seed, options.long)
        for name in parts:
            for side, language in enumerate(("en", "de")):
                lines = "".join(f"{pair[side]}\n" for pair in parts[name])
                write_text(options.out / f"{name}.{language}", lines)
        write_text(options.out / "ATTRIBUTION.txt", ATTRIBUTION.format(seed=options.seed))
    except UserError as error:
        print(f"tatoeba_joined: {error}", file=sys.stderr)
        return 1
    for name in parts:
        print(_said(name, parts[name]))
    return 0


def _said(name: str, pairs: Sequence[Pair]) -> str:
    lengths = sorted(len(pair[0].split()) for pair in pairs)
    tens = groupby(lengths, key=lambda length: (length - 1) // 10)
    counts = ", ".join(f"{10 * ten + 1}–{10 * ten + 10}: {len(list(of)):,}" for ten, of in tens)
    return f"{name}: {len(pairs):,} joined pairs; by English words {counts}"


if __name__ == "__main__":
    sys.exit(main())
