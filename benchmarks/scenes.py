"""Generated scenes with known places: do captions attend to what they name?

    python benchmarks/scenes.py make FOLDER [--train 4000]
    heedful train scenes-soft --data FOLDER --out runs/scenes-soft
    python benchmarks/scenes.py point runs/scenes-soft FOLDER

A scene of 64 × 64 pixels has two shapes in two of 4 × 4 cells, on a noisy background. Its caption
names both in alphabetical order: "a blue square and a red circle". ``point`` describes the test
scenes, or others with ``--part validation``, and measures how often the place with the largest
weight for the words of a shape (colour and noun; the mean of their weights) lies in the cell of the
scene that holds the shape; by chance, in one of 16. Shapes that are not named count as missed.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

import heedful
from heedful.data.readers.images import as_uri

SIDE, CELLS = 64, 4
COLOURS = {
    "red": (214, 48, 49), "blue": (48, 80, 220), "green": (40, 160, 70), "yellow": (240, 210, 50),
    "purple": (140, 60, 170), "orange": (240, 140, 30),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "cross")


class Shape(NamedTuple):
    """A shape in a scene."""

    colour: str
    noun: str
    box: tuple[int, int, int, int]
    """Left, top, right and bottom, in pixels."""


def draw(shape: Shape, drawing: Any) -> None:
    left, top, right, bottom = shape.box
    fill = COLOURS[shape.colour]
    if shape.noun == "circle":
        drawing.ellipse(shape.box, fill=fill)
    elif shape.noun == "square":
        drawing.rectangle(shape.box, fill=fill)
    elif shape.noun == "triangle":
        drawing.polygon([(left, bottom), (right, bottom), ((left + right) / 2, top)], fill=fill)
    else:
        third, across, down = 3, (left + right) / 2, (top + bottom) / 2
        drawing.rectangle((left, down - third + 1, right, down + third - 1), fill=fill)
        drawing.rectangle((across - third + 1, top, across + third - 1, bottom), fill=fill)


def scene(rng: random.Random) -> tuple[Image.Image, list[Shape], str]:
    """A scene, its shapes in the order of the caption, and the caption."""
    image = Image.new("RGB", (SIDE, SIDE))
    image.putdata([(rng.randint(90, 130),) * 3 for _ in range(SIDE * SIDE)])
    drawing, shapes = ImageDraw.Draw(image), []
    size = SIDE // CELLS
    for place in sorted(rng.sample(range(CELLS * CELLS), 2)):
        left, top = place % CELLS * size, place // CELLS * size
        own = rng.randint(10, size - 2)
        left, top = left + rng.randint(0, size - own - 1), top + rng.randint(0, size - own - 1)
        box = (left, top, left + own, top + own)
        shapes.append(Shape(rng.choice([*COLOURS]), rng.choice(SHAPES), box))
        draw(shapes[-1], drawing)
    shapes.sort()
    caption = " and ".join(f"a {one.colour} {one.noun}" for one in shapes)
    return image, shapes, caption


def make(out: Path, train: int, seed: int) -> None:
    """Write the scenes, the tables, and the boxes of the test scenes."""
    rng = random.Random(seed)
    for part, count in (("train", train), ("validation", 500), ("test", 500)):
        (out / part).mkdir(parents=True, exist_ok=True)
        lines, boxes = ["image\tcaption"], []
        for number in range(count):
            image, shapes, caption = scene(rng)
            image.save(out / part / f"{number:05}.png")
            lines.append(f"{part}/{number:05}.png\t{caption}")
            boxes.append([one._asdict() for one in shapes])
        (out / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (out / f"{part}.json").write_text(json.dumps(boxes), encoding="utf-8")


def same_cell(place: int, grid: tuple[float, ...], box: list[int]) -> bool:
    """Whether a place of the grid and the middle of a box are in the same cell of the scene."""
    rows, columns = map(int, grid)
    y, x = divmod(place, columns)
    left, top, right, bottom = box
    own = int((y + 0.5) / rows * CELLS), int((x + 0.5) / columns * CELLS)
    return own == ((top + bottom) * CELLS // (2 * SIDE), (left + right) * CELLS // (2 * SIDE))


def pointed(trace: Any, shapes: list[dict[str, Any]], module: str) -> Iterator[bool]:
    """Whether the weights of each shape's words point to it."""
    words, weights = trace.decided, trace[module].weights.mean(0)
    halves: list[list[int]] = [[]]
    for row, word in enumerate(words):
        if word == "and":
            halves.append([])
        halves[-1].append(row)
    for number, shape in enumerate(shapes):
        own = halves[number] if number < len(halves) else []
        rows = [row for row in own if words[row] in (shape["colour"], shape["noun"])]
        if len(rows) < 2:
            yield False
            continue
        best = int(weights[rows].mean(0).argmax())
        yield same_cell(best, trace.axes["image"].extent, shape["box"])


def point(run: Path, folder: Path, part: str, count: int, module: str | None) -> dict[str, Any]:
    """The pointing accuracy of a run on the scenes of a part."""
    predictor = heedful.load(run)
    boxes = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))[:count]
    axes = predictor.model.attention_axes()
    reading = [name for name, own in axes.items() if own == ("target", "image")]
    chosen = module or reading[-1]
    found = []
    kind: Any = predictor.spec.input_type()
    for number, shapes in enumerate(boxes):
        seen = kind(image=as_uri(folder / part / f"{number:05}.png"))
        found += pointed(predictor.trace(seen, relevance=False), shapes, chosen)
    share = sum(found) / len(found)
    return {
        "run": str(run),
        "module": chosen,
        "shapes": len(found),
        "pointing accuracy": 100 * share,
        "standard error": 100 * math.sqrt(share * (1 - share) / len(found)),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("--train", type=int, default=4000)
    making.add_argument("--seed", type=int, default=1)
    pointing = commands.add_parser("point")
    pointing.add_argument("run", type=Path)
    pointing.add_argument("folder", type=Path)
    pointing.add_argument("--part", choices=("validation", "test"), default="test")
    pointing.add_argument("--count", type=int, default=500)
    pointing.add_argument("--module", help="the attention module; default: the last one")
    options = parser.parse_args(arguments)
    if options.command == "make":
        make(options.folder, options.train, options.seed)
    else:
        names = ("run", "folder", "part", "count", "module")
        json.dump(point(*(getattr(options, name) for name in names)), sys.stdout)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
