"""Lists of numbers and the same numbers in order, for a pointer network.

    python benchmarks/sorting.py --out FOLDER [--train 20000] [--fewest 2] [--most 10] [--long 20]

Writes ``train.tsv``, ``validation.tsv``, ``test.tsv`` and ``long.tsv``: unsorted TAB sorted. A list
has ``fewest`` to ``most`` different numbers from 10 to 99 (in ``long.tsv`` from ``most`` + 1 to
``long``), and the parts share no list. The same seed gives the same files. Sorting is a task of
Vinyals, Bengio and Kudlur 2016, "Order Matters: Sequence to Sequence for Sets".

    heedful train sorting-pointer --data FOLDER --out runs/sorting
    heedful evaluate runs/sorting
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.files import write_text

NUMBERS = range(10, 100)


def make_parts(
    sizes: dict[str, int], lengths: tuple[int, int], long: int, seed: int
) -> dict[str, list[str]]:
    """The lines of each part.

    Raises:
        UserError: the lengths are impossible, or there are too few different lists.
    """
    fewest, most = lengths
    if not 1 <= fewest <= most < long <= len(NUMBERS):
        raise UserError(
            f"--fewest {fewest}, --most {most}, --long {long}: they must increase, and "
            f"{len(NUMBERS)} is the largest"
        )
    chance, seen = random.Random(seed), set[tuple[int, ...]]()
    parts: dict[str, list[str]] = {}
    for name, size in sizes.items():
        lines: list[str] = []
        for _ in range(20 * size):
            if len(lines) == size:
                break
            between = (most + 1, long) if name == "long" else lengths
            numbers = tuple(chance.sample(NUMBERS, chance.randint(*between)))
            if numbers not in seen:
                seen.add(numbers)
                lines.append(
                    f"{' '.join(map(str, numbers))}\t{' '.join(map(str, sorted(numbers)))}\n"
                )
        if len(lines) < size:
            raise UserError(f"there are fewer than {size:,} different lists for {name}")
        parts[name] = lines
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--train", type=int, default=20000, help="lists; default 20000")
    parser.add_argument(
        "--held-out", type=int, default=500, help="lists of each other part; default 500"
    )
    parser.add_argument("--fewest", type=int, default=2, help="numbers of a list; default 2")
    parser.add_argument("--most", type=int, default=10, help="numbers of a list; default 10")
    parser.add_argument(
        "--long", type=int, default=20, help="numbers of the longest list; default 20"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    sizes = {
        "train": options.train,
        **dict.fromkeys(("validation", "test", "long"), options.held_out),
    }
    try:
        parts = make_parts(sizes, (options.fewest, options.most), options.long, options.seed)
        for name, lines in parts.items():
            write_text(options.out / f"{name}.tsv", "".join(lines))
    except UserError as error:
        print(f"sorting: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
