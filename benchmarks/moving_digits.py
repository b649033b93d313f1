"""Generated clips of moving digits with sentences, for descriptions of videos.

    python benchmarks/moving_digits.py make train-images-idx3-ubyte.gz FOLDER [--train 3000]
    heedful train moving-digits --data FOLDER --out runs/moving-digits
    python benchmarks/moving_digits.py score runs/moving-digits FOLDER

A clip has 16 frames of 48 × 48 pixels. Two digits of MNIST lie in it; in the first half one of them
moves, in the second half the other: "the three moves left, then the seven moves up". The labels are
beside the images, in a file with ``labels-idx1`` instead of ``images-idx3`` in its name. Training,
validation and test clips use different digits of the file.

``score`` describes the test clips, or others with ``--part validation``, and counts the digits and
the directions that are right, and the descriptions that are right as a whole.
"""

import argparse
import csv
import io
import json
import math
import random
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import heedful
from heedful.data.readers.images import as_uri, image_bytes, read_images

SIDE, FRAMES, STEP = 48, 16, 2
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MOVES = {"left": (0, -STEP), "right": (0, STEP), "up": (-STEP, 0), "down": (STEP, 0)}
SCALED = 18
"""Rows and columns of a digit."""


def digits(path: Path, most: int) -> list[tuple[NDArray[np.uint8], str]]:
    """Digits with their names, scaled."""
    found = []
    for one in islice(read_images(str(path), image="", label=""), most):
        with Image.open(io.BytesIO(image_bytes(one.uri))) as image:
            small = image.resize((SCALED, SCALED), Image.Resampling.BILINEAR)
        found.append((np.asarray(small, np.uint8), NAMES[int(one.label)]))
    return found


def clip(
    rng: random.Random, two: list[tuple[NDArray[np.uint8], str]]
) -> tuple[list[NDArray[np.uint8]], str]:
    """The frames and the sentence of a clip with two digits."""
    moves = [rng.choice([*MOVES]) for _ in two]
    room = SIDE - SCALED
    half = FRAMES // 2
    places = []
    for number, move in enumerate(moves):
        down, right = (abs(step) * (half - 1) for step in MOVES[move])
        # One digit in the left half, the other one in the right half, where there is room to move.
        low, high = (0, room // 2) if number == 0 else (room // 2, room)
        row, column = rng.randint(0, room - down), rng.randint(low, max(low, high - right))
        if move == "up":
            row += down
        if move == "left":
            column = min(room, column + right)
        places.append([row, column])
    order = rng.sample(range(2), 2)
    frames = []
    for frame in range(FRAMES):
        moving = order[frame // half]
        if frame % half:
            places[moving][0] += MOVES[moves[moving]][0]
            places[moving][1] += MOVES[moves[moving]][1]
        canvas = np.zeros((SIDE, SIDE), np.uint8)
        for (row, column), (image, _) in zip(places, two, strict=True):
            row, column = max(0, min(row, room)), max(0, min(column, room))
            part = canvas[row : row + SCALED, column : column + SCALED]
            np.maximum(part, image, out=part)
        frames.append(canvas)
    told = [f"the {two[place][1]} moves {moves[place]}" for place in order]
    return frames, ", then ".join(told)


def make(images: Path, folder: Path, train: int, held_out: int, seed: int) -> None:
    """Write the clips and the tables."""
    rng = random.Random(seed)
    counts = {"train": train, "validation": held_out, "test": held_out}
    every = digits(images, 2 * sum(counts.values()))
    for part, count in counts.items():
        own, every = every[: 2 * count], every[2 * count :]
        (folder / part).mkdir(parents=True, exist_ok=True)
        lines = ["image\tcaption"]
        for number in range(count):
            frames, told = clip(rng, rng.sample(own, 2))
            first, *rest = (Image.fromarray(frame) for frame in frames)
            path = folder / part / f"{number:05}.png"
            first.save(path, save_all=True, append_images=rest)
            lines.append(f"{part}/{path.name}\t{told}")
        table = folder / f"{part}.tsv"
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{table}: {count:,} clips")


def right_words(told: str, wanted: str) -> list[bool]:
    """Whether the digit, the direction, the second digit and the second direction are right.

    Example:
        >>> wanted = "the one moves left, then the two moves up"
        >>> right_words("the one moves up, then the two", wanted)
        [True, False, True, False]
    """
    found, own = ([part.split() for part in one.split(", then ")] for one in (told, wanted))
    return [
        number < len(found) and found[number][place : place + 1] == words[place : place + 1]
        for number, words in enumerate(own)
        for place in (1, 3)
    ]


def score(run: Path, folder: Path, part: str) -> dict[str, Any]:
    """The shares of right words and right descriptions of a part, with standard errors, in %."""
    predictor = heedful.load(run)
    kind: Any = predictor.spec.input_type()
    with (folder / f"{part}.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    told = predictor.predict([kind(image=as_uri(folder / row["image"])) for row in rows])
    right = np.array(
        [right_words(one.text, row["caption"]) for one, row in zip(told, rows, strict=True)]
    )
    shares = {
        "digits": right[:, ::2].mean(),
        "directions": right[:, 1::2].mean(),
        "descriptions": right.all(1).mean(),
    }
    counts = {"digits": 2 * len(rows), "directions": 2 * len(rows), "descriptions": len(rows)}
    return {"run": str(run), "clips": len(rows)} | {
        name: [100 * share, 100 * math.sqrt(share * (1 - share) / counts[name])]
        for name, share in shares.items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("images", type=Path)
    making.add_argument("folder", type=Path)
    making.add_argument("--train", type=int, default=3000)
    making.add_argument("--held-out", type=int, default=300)
    making.add_argument("--seed", type=int, default=1)
    scoring = commands.add_parser("score")
    scoring.add_argument("run", type=Path)
    scoring.add_argument("folder", type=Path)
    scoring.add_argument("--part", choices=("validation", "test"), default="test")
    options = parser.parse_args(arguments)
    if options.command == "make":
        make(options.images, options.folder, options.train, options.held_out, options.seed)
    else:
        json.dump(score(options.run, options.folder, options.part), sys.stdout)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
