"""Split a corpus into training, validation and test parts without common sources.

Sources are ordered by a hash of the seed and their text. Groups of pairs with the same source are
assigned in this order, first to the test set, then to the validation set. Groups that are too large
for the rest of a set are skipped, so that sizes are exact if possible. The parts depend on the seed
and the pairs, not on the order of lines.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder
from heedful.data.examples import Pair
from heedful.data.filters import hash_bytes
from heedful.data.pair_writer import Breaks, PairWriter

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
Group = tuple[int, int]


class Split:
    """The assignment of sources to parts.

    Args:
        sources: the sources of all pairs, including repeated ones.
        validation: number of pairs, or a share such as ``"5%"``.
        test: in the same way.
        seed: seed of the order.

    Raises:
        UserError: a size is invalid, or no pair is left for training.
    """

    def __init__(self, sources: Iterable[str], validation: str, test: str, seed: int) -> None:
        self._seed = seed
        hashes = array("Q", (self._place(source) for source in sources))
        total = len(hashes)
        sizes = [parse_size(size, total) for size in (test, validation)]
        if sum(sizes) >= total:
            raise UserError(
                f"validation ({sizes[1]}) and test ({sizes[0]}) leave no pairs of {total} for "
                "training; make them smaller"
            )
        places, counts = np.unique(np.frombuffer(hashes, dtype=np.uint64), return_counts=True)
        groups = zip(map(int, places), map(int, counts), strict=True)
        self._test, passed = _take(groups, sizes[0])
        self._validation, _ = _take(chain(passed, groups), sizes[1])

    def part(self, source: str) -> Part:
        """The part of pairs with this source."""
        place = self._place(source)
        if place in self._test:
            return "test"
        return "validation" if place in self._validation else "train"

    def _place(self, source: str) -> int:
        # White space around a source makes no other source, as when overlap is counted.
        text = f"{self._seed}\n{source.strip()}"
        return hash_bytes(text.encode("utf-8", "surrogatepass"))


def parse_size(size: str, total: int) -> int:
    """Parse a number of pairs such as ``"500"`` or ``"5%"``.

    Example:
        >>> parse_size("500", 9000), parse_size("2.5 %", 1000)
        (500, 25)

    Raises:
        UserError: the text is something else.
    """
    found = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)\s*%", size.strip(), re.ASCII)
    if found is None:
        raise UserError(f"'{size}' is not a size; give a number of pairs (500) or a share (5%)")
    return int(found[1]) if found[1] else round(total * float(found[2]) / 100)


def split_corpus(
    read: Callable[[], Iterable[Pair]],
    folder: Path,
    names: Sequence[str],
    *,
    validation: str,
    test: str,
    seed: int,
    breaks: Breaks = "space",
) -> tuple[dict[str, int], Counter[str]]:
    """Write the three parts of a corpus into a new folder.

    Args:
        read: returns the pairs; it is called twice and must return the same pairs.
        folder: a folder that is empty or does not exist.
        names: names of files after ``train.``: one for TSV, two for aligned texts.
        validation: see `Split`.
        test: see `Split`.
        seed: see `Split`.
        breaks: see `heedful.data.pair_writer.PairWriter`.

    Returns:
        The number of pairs of each part, and the counts of changed texts.

    Raises:
        UserError: the folder is not empty, a size is impossible, or the corpus cannot be read.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists; choose a new folder or empty it first")
    split = Split((pair.source for pair in read()), validation, test, seed)
    with atomic_folder(folder) as made, ExitStack() as stack:
        writers = {
            part: stack.enter_context(
                PairWriter([made / f"{part}.{name}" for name in names], breaks)
            )
            for part in PARTS
        }
        for pair in read():
            writers[split.part(pair.source)].write(pair)
    changed = sum((writer.changed for writer in writers.values()), Counter[str]())
    return {part: writer.written for part, writer in writers.items()}, changed


def _take(groups: Iterator[Group], wanted: int) -> tuple[set[int], list[Group]]:
    """Take whole groups in order up to ``wanted`` pairs; also returns groups that did not fit."""
    taken: set[int] = set()
    passed: list[Group] = []
    while wanted and (group := next(groups, None)) is not None:
        place, count = group
        if count <= wanted:
            taken.add(place)
            wanted -= count
        else:
            passed.append(group)
    return taken, passed
