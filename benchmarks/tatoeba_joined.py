"""Long and short texts of one kind: Tatoeba's English–German pairs, two to five joined into one.

    python benchmarks/tatoeba_joined.py TATOEBA --out FOLDER [--test 2000] [--validation 1000]

TATOEBA is ``deu-eng.zip`` from manythings.org/anki, or the ``deu.txt`` in it: English TAB German,
CC BY 2.0, tatoeba.org. Writes ``{train,val,test}.{en,de}`` and ``ATTRIBUTION.txt``. Single pairs
are short and much alike, Multi30k's are of one length: joined ones run from four words to over
fifty, so that what length does to a translator can be seen.

The parts share no sentence of either language, upper case and punctuation apart: pairs that share
one, directly or through others, go to the same part. Of such pairs, validation and test take a
single one, drawn at random; training takes all. Within a part pairs are shuffled and joined in
order, as many as an even draw from two to five says; a text does not hold a sentence twice. The
same seed makes the same files.
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
MEMBER = "deu.txt"
PARTS = ("train", "val", "test")
ATTRIBUTION = """Sentence pairs from the Tatoeba Project (tatoeba.org), by way of
manythings.org/anki, licensed under CC BY 2.0 (http://creativecommons.org/licenses/by/2.0).
Changed here: grouped and joined, two to five into one (benchmarks/tatoeba_joined.py, seed {seed}).
"""

Pair = tuple[str, str]


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of the zip archive or the text file in it.

    Raises:
        UserError: the file is missing, or is neither.
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
    # Later files of the same kind have a third column, with whom each sentence is by.
    return list(dict.fromkeys((row[0].strip(), row[1].strip()) for row in rows))


def families(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs that share a sentence, directly or through others, together; in order of the first."""
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


def joined(pairs: Sequence[Pair], chance: random.Random) -> Iterator[Pair]:
    """Groups of two to five pairs, each as one; the last few pairs may be left over."""
    waiting = list(pairs)
    chance.shuffle(waiting)
    waiting.reverse()
    while True:
        size = chance.randint(FEWEST, MOST)
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


def make_parts(pairs: Sequence[Pair], sizes: dict[str, int], seed: int) -> dict[str, list[Pair]]:
    """Joined pairs of each part; ``sizes`` says how many validation and test have.

    Raises:
        UserError: the pairs are too few for that and a training part.
    """
    chance = random.Random(seed)
    groups = families(pairs)
    chance.shuffle(groups)
    parts: dict[str, list[Pair]] = {}
    for name, size in sizes.items():
        # One pair a family, and enough of them whatever the sizes drawn.
        taken, groups = groups[: size * MOST], groups[size * MOST :]
        parts[name] = list(joined([chance.choice(group) for group in taken], chance))[:size]
    parts["train"] = list(joined([pair for group in groups for pair in group], chance))
    if not parts["train"] or any(len(parts[name]) < size for name, size in sizes.items()):
        asked = ", ".join(f"{size:,} for {name}" for name, size in sizes.items())
        raise UserError(f"{len(pairs):,} pairs are too few: joined ones wanted are {asked}")
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the corpus and say what is in it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tatoeba", type=Path, help="deu-eng.zip or deu.txt")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--validation", type=int, default=1000, help="joined pairs; default 1000")
    parser.add_argument("--test", type=int, default=2000, help="joined pairs; default 2000")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    sizes = {"val": options.validation, "test": options.test}
    try:
        parts = make_parts(read_pairs(options.tatoeba), sizes, options.seed)
        for name in PARTS:
            for side, language in enumerate(("en", "de")):
                lines = "".join(f"{pair[side]}\n" for pair in parts[name])
                write_text(options.out / f"{name}.{language}", lines)
        write_text(options.out / "ATTRIBUTION.txt", ATTRIBUTION.format(seed=options.seed))
    except UserError as error:
        print(f"tatoeba_joined: {error}", file=sys.stderr)
        return 1
    for name in PARTS:
        print(_said(name, parts[name]))
    return 0


def _said(name: str, pairs: Sequence[Pair]) -> str:
    lengths = sorted(len(pair[0].split()) for pair in pairs)
    tens = groupby(lengths, key=lambda length: (length - 1) // 10)
    counts = ", ".join(f"{10 * ten + 1}–{10 * ten + 10}: {len(list(of)):,}" for ten, of in tens)
    return f"{name}: {len(pairs):,} joined pairs; by English words {counts}"


if __name__ == "__main__":
    sys.exit(main())
