"""docs/attention.md against the code: its pictures, its figures, its names; and all docstrings."""

import importlib
import inspect
import itertools
import re
import sys
import xml.etree.ElementTree as ET
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

import heedful.attention
from heedful.attention import heads, masks, normalizers, positions, scores
from heedful.kernels import additive_compiled as compiled

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "attention.md").read_text(encoding="utf-8")


def script(name: str) -> ModuleType:
    """A module of docs/scripts, which is no package."""
    folder = str(DOCS / "scripts")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


class Line(NamedTuple):
    """A row of the table."""

    name: str
    place: str
    path: str
    flop: str
    moved: str
    key: str


def lines() -> list[Line]:
    found = []
    for row in re.findall(r"^\|(.*)\|$", TEXT, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        key = re.search(r"\(images/attention-([\w-]+)\.svg\)$", cells[-1])
        if key:
            name, _, place, _, path, flop, moved, _ = cells
            found.append(Line(name, place, path, flop, moved, key[1]))
    return found


TABLE = {line.key: line for line in lines()}
MECHANISMS = script("attention_mechanisms").mechanisms()
TILED = ("additive", "concat")


def has_compiler() -> bool:
    return compiled.library() is not None


# Pictures


def test_the_table_has_a_row_for_every_mechanism() -> None:
    assert list(TABLE) == list(MECHANISMS)
    pictures = {path.stem for path in (DOCS / "images").glob("attention-*.svg")}
    assert pictures == {f"attention-{key}" for key in MECHANISMS}


@pytest.mark.parametrize("key", MECHANISMS)
def test_pictures_are_what_the_code_makes(key: str) -> None:
    """The numbers in the cells, whatever the last digit of their rounding."""
    toy = MECHANISMS[key].toy()
    path = DOCS / "images" / f"attention-{key}.svg"
    drawn, made = (
        _cells(text)
        for text in (path.read_text(encoding="utf-8"), script("attention_pictures").picture(toy))
    )
    totals = toy.weights.sum(-1)
    others = ("local-p", "off-by-one", "sink", "differential", "monotonic", "delta")
    if not any(name in key for name in others):
        torch.testing.assert_close(totals, torch.ones_like(totals))
    assert len(drawn) == len(made) == toy.weights.numel() + len(toy.rows) * len(toy.weights) + 4
    if toy.drawn:  # Another version of PyTorch may draw others.
        assert set(toy.weights.unique().tolist()) == {0.0, 1.0}
        return
    for one, other in zip(drawn, made, strict=True):
        if re.match(r"\d?\.\d\d$", one):
            assert abs(float(one) - float(other)) < 0.011
        else:
            assert one == other


def _cells(svg: str) -> list[str]:
    """What is written in the words and cells of a picture, in order; empty and masked as such."""
    found: list[str] = []
    for part in itertools.islice(ET.fromstring(svg), 1, None):
        kind = part.tag.rpartition("}")[2]
        if kind == "rect":
            found.append("masked" if part.get("fill") == "#d9d9d9" else "0")
        elif kind == "text":
            cell = found and found[-1] == "0"
            if cell:
                found.pop()
            found.append(part.text or "")
    return found


# Costs


SLOW = ("monotonic", "coverage", "location-aware", "windowed")
"""Mechanisms that read one query after the other: the 1,024 of the table take seconds."""


def counted() -> list[Any]:
    return [
        pytest.param(key, marks=[pytest.mark.slow] * key.endswith(SLOW))
        for key in MECHANISMS
        if "plain" not in key
    ]


@pytest.mark.parametrize("key", counted())
def test_costs_are_what_is_counted(key: str) -> None:
    line = TABLE[key]
    formula, _, figure = line.flop.partition(" = ")
    if any(part in key for part in TILED) and not has_compiler():
        pytest.skip("the table's figures are those of the compiled form; there is no C compiler")
    if key == "normalizer-entmax":
        pytest.skip("a second of bisection; counted when the table is made")
    flop, moved = script("attention_page").costs_of(key)
    assert float(flop) == pytest.approx(float(figure), rel=0.02, abs=1)
    for found, written in zip(moved.split(" · "), line.moved.split(" · "), strict=True):
        assert float(found) == pytest.approx(float(written), rel=0.25, abs=0.6)
    assert evaluated(formula) == pytest.approx(float(flop), rel=0.03, abs=0.6)


def evaluated(formula: str) -> float:
    """A formula of the FLOP column, for the sizes that the page gives."""
    sizes = {"D": 64, "E": 64, "U": 64, "C": 64, "T": 1024, "H": 8, "r": 8, "c": 16, "L": 10}
    python = formula.replace("²", "**2")
    python = re.sub(r"(?<=[\w)])(?=[A-Za-z(])", "*", python)
    return float(eval(python, {}, sizes))


def test_formulas_are_read_as_they_are_written() -> None:
    assert evaluated("2D + 5 + 2E") == 261
    assert evaluated("2(2c + 1)(D + E)/T") == 8.25
    assert evaluated("2D²/T") == 8


def test_paths_are_those_that_are_taken() -> None:
    """Fused is fused, and what is kept of a whole path is at least the weights."""
    for line in TABLE.values():
        held, kept = (float(part) for part in line.moved.split(" · ")[1:])
        if line.path == "fused":
            assert max(held, kept) < 2, line
        if line.path.startswith("whole") and "hard" not in line.name:
            assert min(held, kept) >= 4, line


def test_additive_attention_holds_no_square() -> None:
    """Of 4096 × 4096 scores, 64 MiB, only blocks; as the page says."""
    if not has_compiler():
        pytest.skip("there is no C compiler")
    score = scores.Additive(8, 8, 8)
    given = [torch.randn(1, 1, 4096, 8) for _ in range(3)]
    with torch.no_grad(), script("attention_costs").Counting() as counting:
        heedful.attention.attend(*given, score=score)
    rows = 12 * 4096 * 16 * 4  # Projections, their exponentials and the result.
    assert counting.counts.most < 12 * 2**20 + rows


# The error table


def test_errors_are_within_twice_those_of_the_page() -> None:
    errors = script("attention_errors")
    block = re.search(r"<!-- errors -->\n(.*?)<!-- end -->", TEXT, re.DOTALL)
    assert block is not None
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in block[1].splitlines()
    ]
    ways = {"plain formula": "plain", "tiles": "tiles", "in C": "compiled"}
    columns = [title.split(": ") for title in head[1:]]
    assert [what for what, _ in columns] == ["value"] * 3 + ["derivative"] * 3
    assert len(rows) == len(errors.DECADES)
    step = 2**-24  # Half a unit in the last place of 1: below it, figures are rounding's luck.
    for decade, row in zip(errors.DECADES, rows, strict=True):
        for way in ways.values():
            if way not in errors.kernels():
                continue
            found = errors.errors(way, decade)
            for (what, title), cell in zip(columns, row[1:], strict=True):
                if ways[title] == way:
                    written = max(float(cell), step)
                    now = max(found[what == "derivative"], step)
                    assert written / 2.1 <= now <= 2.1 * written, (row[0], what, title, now)


# Names and docstrings


def test_classes_in_the_table_exist() -> None:
    room = ""
    for row in re.findall(r"^\| (.*)\|$", TEXT, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        heading = re.match(r"\*\*\w+\*\*(?: in `(\w+)`)?", cells[0])
        if heading:
            room = heading[1] or ""
        if not cells[-1].endswith(".svg)"):
            continue
        named = re.match(r"`([\w.]+)`", cells[2])
        if named:
            dotted = f"{room}.{named[1]}" if room else named[1]
            reduce(getattr, dotted.split("."), heedful.attention)


def test_every_part_is_in_the_table() -> None:
    """A new mechanism gets a row."""
    named = set(re.findall(r"`(\w+)`", " ".join(line.place for line in TABLE.values())))
    bases = (
        *(scores.Score, normalizers.Normalizer, masks.Mask),
        *(scores.RecurrentScore, normalizers.RecurrentNormalizer),
        *(positions.RelativePositions, positions.AddedPositions),
    )
    named |= {"HeadMixing", "Differential"} | set(re.findall(r"heads\.(\w+)", TEXT))
    for room in (scores, normalizers, positions, heads):
        for name in room.__all__:
            part = getattr(room, name)
            if inspect.isclass(part) and issubclass(part, torch.nn.Module) and part not in bases:
                assert name in named, f"{room.__name__}.{name}"
    kinds = ("padding", "causal", "window", "block", "document", "prefix", "function")
    for mask in (*kinds, "sinks", "axial", "neighbourhood", "top_blocks"):
        assert mask in named


ROOMS = (heedful.attention, scores, normalizers, masks, positions, heads)
PUBLIC = [
    pytest.param(room, name, id=f"{room.__name__.removeprefix('heedful.')}.{name}")
    for room in ROOMS
    for name in room.__all__
    if not inspect.ismodule(getattr(room, name))
]
OURS = {
    "Memory", "use_kernel", "watch", "Score", "Normalizer", "Queries", "RelativePositions",
    "Dense", "Grid", "Mask", "as_mask", "dense_mask", "flex_mask", "function", "padding",
    "split_mask", "build_score", "register_score", "build_normalizer", "register_normalizer",
    "AddedPositions", "register_position", "register_relative_position", "register_mask",
    "ScoreSettings", "NormalizerSettings", "PositionSettings", "MaskSettings",
    "HeadMixing", "HeadSizes", "RecurrentScore", "RecurrentNormalizer", "AttentionState",
    "RotaryScaling", "grid_coordinates", "from_torch",
}  # fmt: skip
"""What is no mechanism of the literature but the library's own machinery."""


@pytest.mark.parametrize(("room", "name"), PUBLIC)
def test_every_public_name_says_what_one_must_know(room: ModuleType, name: str) -> None:
    part = getattr(room, name)
    text, module = inspect.getdoc(part) or "", inspect.getmodule(part)
    assert module is not None
    before, _, example = text.partition("Example:\n")
    prompts = re.findall(r"^ +(?:>>>|\.\.\.) ", example, re.MULTILINE)
    assert 1 <= len(prompts) <= 6, "no example, or no short one"
    if name not in OURS:
        assert re.search(r"\b(19|20)\d\d\b", text + (module.__doc__ or "")), "no source"
    source = inspect.getsource(part)
    if inspect.isclass(part):  # What it is given and gives may be said where it is called.
        before += source + (inspect.getdoc(getattr(part, "forward", None)) or "")
    if inspect.isclass(part) or "Tensor" in source.partition('"""')[0]:
        assert re.search(r"``[^`]*\[[^`]*\]", before), "no shapes"
    if re.search(r"raise (ValueError|TypeError)|require_\w+\(|check_\w+\(", source):
        assert "Raises:" in source or "Raises:" in before, "what it raises is not said"
