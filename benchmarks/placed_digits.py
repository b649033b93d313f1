"""Digits at random places of a larger image, with pieces of other digits (Mnih et al. 2014, 4.1).

    python benchmarks/placed_digits.py MNIST FOLDER --side 60
    python benchmarks/placed_digits.py MNIST FOLDER --side 100 --clutter 4 --copies 3
    heedful train mnist-glimpses-60 --data FOLDER --out runs/glimpses-60

MNIST is a folder with the four IDX files of MNIST, plain, .gz or .xz. Without clutter, the training
images have their digit in the middle, because ``training.shift`` moves it to another place in each
pass; with clutter, each digit is written ``--copies`` times, at other places and with other pieces
of 8 × 8 pixels. The last 6,000 training digits are for validation. Validation and test images are
made once, with their digit anywhere.
"""

import argparse
import gzip
import lzma
import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PIECE = 8
KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
Bytes = NDArray[np.uint8]


def read(folder: Path, name: str) -> Bytes:
    """The numbers of an IDX file, which may be packed."""
    found = sorted(folder.glob(f"{name}*"))
    if not found:
        raise SystemExit(f"no {name} in {folder}: take the four files of MNIST")
    unpack = {".gz": gzip.open, ".xz": lzma.open}.get(found[0].suffix, open)
    with unpack(found[0], "rb") as file:
        data = file.read()
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def write(path: Path, values: Bytes) -> None:
    """Write an IDX file."""
    sizes = struct.pack(f">{values.ndim}I", *values.shape)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes())


def placed(
    digits: Bytes, side: int, clutter: int, rng: np.random.Generator, *, middle: bool
) -> Bytes:
    """Each digit in an image of ``side × side``, after pieces of other digits."""
    count, rows, columns = digits.shape
    out = np.zeros((count, side, side), np.uint8)
    for number, (image, digit) in enumerate(zip(out, digits, strict=True)):
        for _ in range(clutter):
            other = digits[rng.integers(count)]
            row, column = rng.integers(rows - PIECE + 1, size=2)
            piece = other[row : row + PIECE, column : column + PIECE]
            down, right = rng.integers(side - PIECE + 1, size=2)
            place = image[down : down + PIECE, right : right + PIECE]
            np.maximum(place, piece, out=place)
        room = np.array([side - rows, side - columns])
        down, right = room // 2 if middle else rng.integers(room + 1)
        place = out[number, down : down + rows, right : right + columns]
        np.maximum(place, digit, out=place)
    return out


def main(arguments: list[str] | None = None) -> int:
    """Write the six files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mnist", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=60)
    parser.add_argument("--clutter", type=int, default=0, help="pieces of other digits")
    parser.add_argument("--copies", type=int, default=1, help="of each training digit")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(options.seed)
    digits, labels = (read(options.mnist, f"train-{kind}") for kind in KINDS)
    held = len(digits) // 10
    parts = {
        "train": (digits[:-held], labels[:-held]),
        "validation": (digits[-held:], labels[-held:]),
        "t10k": tuple(read(options.mnist, f"t10k-{kind}") for kind in KINDS),
    }
    for part, (own, names) in parts.items():
        copies = options.copies if part == "train" else 1
        digits, labels = np.tile(own, (copies, 1, 1)), np.tile(names, copies)
        middle = part == "train" and not options.clutter
        images = placed(digits, options.side, options.clutter, rng, middle=middle)
        write(options.folder / f"{part}-images-idx3-ubyte.gz", images)
        write(options.folder / f"{part}-labels-idx1-ubyte.gz", labels)
        print(f"{options.folder}: {len(images):,} images for {part}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
