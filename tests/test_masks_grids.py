"""Masks and attention on grids, and sinks, against loops over places."""

import itertools
import math
import random
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import heedful
from heedful.attention import AxialAttention, MultiHeadAttention, dot, masks, positions, watch
from heedful.attention.masks import MaskSettings
from heedful.attention.mechanism import FusedForm
from heedful.runs.opening import open_run

SHAPES = [(3, 4), (2, 3, 4), (5,), (7, 2)]
TIGHT = {"rtol": 1e-9, "atol": 1e-11}


def places(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, shape)))


def dense(mask: masks.Mask, count: int) -> list[list[bool]]:
    found: list[list[bool]] = mask.dense((1, count, count)).expand(1, count, count)[0].tolist()
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_axial_masks_allow_lines(shape: tuple[int, ...]) -> None:
    where = places(shape)
    for axis in range(len(shape)):
        expected = [
            [all(q[a] == k[a] for a in range(len(shape)) if a != axis) for k in where]
            for q in where
        ]
        assert dense(masks.axial(shape, axis), len(where)) == expected
        assert dense(masks.axial(shape, axis - len(shape)), len(where)) == expected


@pytest.mark.parametrize("radius", [0, 1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_neighbourhoods_are_near_along_each_axis(shape: tuple[int, ...], radius: int) -> None:
    where = places(shape)
    expected = [
        [all(abs(one - other) <= radius for one, other in zip(q, k, strict=True)) for k in where]
        for q in where
    ]
    assert dense(masks.neighbourhood(shape, radius), len(where)) == expected


@pytest.mark.parametrize("radius", [0, 1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_shifted_neighbourhoods_are_those_of_nat(shape: tuple[int, ...], radius: int) -> None:
    """As many places for each query; the start of a window is cut to the axis."""
    where = places(shape)
    side = 2 * radius + 1

    def near(q: int, k: int, size: int) -> bool:
        start = max(0, min(q - radius, size - side))
        return start <= k < start + side

    expected = [
        [all(map(near, q, k, shape)) for k in where] for q in where
    ]  # fmt: skip
    found = dense(masks.neighbourhood(shape, radius, shifted=True), len(where))
    assert found == expected
    assert len({sum(row) for row in found}) == 1


def test_sinks_are_the_first_keys_of_every_query() -> None:
    mask = masks.causal() & (masks.window(2, 0) | masks.sinks(2))
    for i, row in enumerate(dense(mask, 9)):
        assert row == [j <= i and (i - j <= 2 or j < 2) for j in range(9)]
    # With a cache, and with padding in front of everything.
    assert mask.dense((2, 9)).tolist() == mask.dense((9, 9))[-2:].tolist()
    padded = masks.padding(torch.tensor([1])) & mask
    assert padded.dense((1, 3, 9)).sum(-1).tolist() == [[1, 1, 1]]
    assert not masks.sinks(0).dense((2, 3)).any()


@pytest.mark.parametrize(
    "mask",
    [
        masks.axial((4, 8), 0) | masks.axial((4, 8), 1),
        masks.neighbourhood((4, 8), 1),
        masks.neighbourhood((4, 8), 2, shifted=True),
        masks.causal() & (masks.window(3, 0) | masks.sinks(2)),
    ],
    ids=["cross", "neighbourhood", "shifted", "sinks"],
)
def test_flex_attention_and_blocks_of_rows_know_them(
    mask: masks.Mask, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = torch.randn(3, 2, 2, 32, 8, dtype=torch.float64).unbind()
    grid, form = masks.Grid((2, 2, 32, 32), q.device), FusedForm(0.3)
    expected = dot.dot_context(q, k, v, mask, grid, form=form)
    weights = (q @ k.mT * 0.3).masked_fill(~mask.dense((2, 2, 32, 32)), float("-inf")).softmax(-1)
    torch.testing.assert_close(expected, weights @ v, **TIGHT)
    with torch.no_grad():
        flex = dot.flex_context(q, k, v, mask, grid, form=form, compiled=False)
    torch.testing.assert_close(flex, expected)
    monkeypatch.setattr(dot, "_LARGE", 1)
    monkeypatch.setattr(dot, "_BLOCK", 5)
    torch.testing.assert_close(dot.dot_context(q, k, v, mask, grid, form=form), expected)


# Axial attention


def layer(shape: tuple[int, ...], axis: int, **more: object) -> AxialAttention:
    torch.manual_seed(2)
    heads = MultiHeadAttention(8, 2, **more).double()  # type: ignore[arg-type]
    for part in heads.parameters():
        nn.init.normal_(part, std=0.5)
    return AxialAttention(heads, shape, axis)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_axial_attention_is_attention_with_an_axial_mask(shape: tuple[int, ...]) -> None:
    """Outputs and gradients, with places that may not be attended to."""
    count = len(places(shape))
    for axis in range(len(shape)):
        axial = layer(shape, axis)
        x = torch.randn(2, count, 8, dtype=torch.float64, requires_grad=True)
        allowed = torch.rand(2, count) > 0.3
        allowed[0, : shape[-1]] = False  # A line without any.
        for keys in (None, allowed):
            mask: masks.Mask = masks.axial(shape, axis)
            if keys is not None:
                mask = mask & keys[:, None, None]
            whole = axial.attention(x, x, mask=mask)
            found = axial(x, allowed=keys)
            torch.testing.assert_close(found, whole, **TIGHT)
            inputs = [x, *axial.parameters()]
            for one, other in zip(
                torch.autograd.grad(found.square().sum(), inputs),
                torch.autograd.grad(whole.square().sum(), inputs),
                strict=True,
            ):
                torch.testing.assert_close(one, other, **TIGHT)


def test_masks_and_positions_count_within_a_line() -> None:
    axial = layer((3, 4), 1, positions=positions.Rotary(4))
    x = torch.randn(2, 12, 8, dtype=torch.float64)
    allowed = torch.rand(2, 12) > 0.3

    def by_line(mask: Tensor | masks.Mask | None, keys: Tensor | None) -> Tensor:
        rows = []
        for b in range(2):
            for row in range(3):
                at = slice(4 * row, 4 * row + 4)
                own: Tensor | masks.Mask | None = mask
                if keys is not None:
                    there = keys[b, at].expand(4, 4)
                    own = masks.as_mask(there) if mask is None else masks.as_mask(mask) & there
                rows.append(axial.attention(x[b : b + 1, at], x[b : b + 1, at], mask=own))
        return torch.cat(rows).view(2, 12, 8)

    for mask in (None, masks.causal(), masks.causal().dense((4, 4))):
        for keys in (None, allowed):
            torch.testing.assert_close(axial(x, mask, keys), by_line(mask, keys), **TIGHT)
    numbers = torch.randn(4, 4, dtype=torch.float64)
    cut = numbers.masked_fill(~masks.causal().dense((4, 4)), float("-inf"))
    torch.testing.assert_close(axial(x, cut), by_line(cut, None), **TIGHT)
    everywhere = torch.ones(2, 12, dtype=torch.bool)
    torch.testing.assert_close(axial(x, cut, everywhere), by_line(cut, None), **TIGHT)


@pytest.mark.parametrize("allowed", [None, torch.ones(0, 6, dtype=torch.bool)])
def test_axial_attention_of_no_rows(allowed: Tensor | None) -> None:
    axial = AxialAttention(MultiHeadAttention(8, 2), (2, 3), axis=0)
    assert axial(torch.zeros(0, 6, 8), allowed=allowed).shape == (0, 6, 8)


def test_watchers_see_each_line() -> None:
    axial = layer((3, 4), 0)
    with watch(axial) as seen:
        axial(torch.randn(2, 12, 8, dtype=torch.float64))
    assert seen["attention"][0].shape == (2 * 4, 2, 3, 3)


def test_wrong_grids_are_refused() -> None:
    for call in (
        lambda: masks.axial((2, 3), 2),
        lambda: AxialAttention(MultiHeadAttention(8, 2), (2, 3), -3),
    ):
        with pytest.raises(ValueError, match=r"shape \(2, 3\) has 2 axes"):
            call()
    with pytest.raises(ValueError, match="at least 1 place"):
        masks.neighbourhood((2, 0), 1)
    with pytest.raises(ValueError, match="radius must be at least 0"):
        masks.neighbourhood((2, 2), -1)
    with pytest.raises(ValueError, match="count must be at least 0"):
        masks.sinks(-1)
    with pytest.raises(ValueError, match=r"expected \[B, 6, D\]"):
        AxialAttention(MultiHeadAttention(8, 2), (2, 3), 0)(torch.zeros(1, 5, 8))
    with pytest.raises(TypeError, match="attention must be a MultiHeadAttention"):
        AxialAttention(nn.Linear(2, 2), (2, 3), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "mask"),
    [
        ({"name": "axial", "shape": [2, 3], "axis": 0}, masks.axial((2, 3), 0)),
        ({"name": "neighbourhood", "shape": [2, 3], "radius": 1}, masks.neighbourhood((2, 3), 1)),
        ({"name": "window", "before": 1, "sinks": 1}, masks.window(1) | masks.sinks(1)),
    ],
    ids=["axial", "neighbourhood", "window"],
)
def test_recipes_name_them(table: dict[str, object], mask: masks.Mask) -> None:
    built = MaskSettings.model_validate(table).build()
    assert built is not None
    assert dense(built, 6) == dense(mask, 6)


ABOVE = {"name": "neighbourhood", "shape": [4, 6], "radius": 1}
COLUMN = {"name": "axial", "shape": [4, 6], "axis": 0}
ROW = {"name": "axial", "shape": [4, 6], "axis": 1}


@pytest.mark.parametrize(("moved", "sees", "blind"), [(0, ABOVE, COLUMN), (1, COLUMN, ROW)])
def test_a_recipe_learns_grids(
    moved: int, sees: dict[str, object], blind: dict[str, object], tmp_path: Path
) -> None:
    """Each row repeats the one above, moved to the right. A query predicts the next cell."""
    chance = random.Random(1)
    grids = []
    for _ in range(400):
        rows = ["".join(chance.choices("abcd", k=5))]
        for _ in range(3):
            rows.append(("a" * moved + rows[-1])[:5])
        grids.append("\n".join(rows))
    (tmp_path / "grids.txt").write_text("\n\n".join(grids))

    def loss(mask: dict[str, object]) -> float:
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        recipe = {
            "task": "language-model",
            "context": 24,  # 4 rows of 5 cells, a symbol before each
            "windows": "aligned",
            "samples": 0,
            "data": {"train": "grids.txt", "validation_share": 0.1},
            "tokeniser": {"kind": "characters"},
            "model": {"layers": 1, "hidden_size": 24, "heads": 2, "dropout": 0.0,
                      "attention_dropout": 0.0, "attention": {"mask": mask}},
            "training": {"max_steps": 150, "batch_tokens": 480, "learning_rate": 0.03,
                         "warmup_steps": 20, "precision": "float32", "device": "cpu",
                         "threads": 1},
        }  # fmt: skip
        assert heedful.train(recipe, run, data=tmp_path)
        return float((open_run(run).result or {})["validation"]["loss"])

    # ln 4 for each cell that cannot be known: of the first row, and below it if nothing is seen.
    hidden = 5 + sum(5 - moved * row for row in (1, 2, 3))
    assert loss(blind) > 0.95 * hidden / 24 * math.log(4)
    assert loss(sees) < 0.6 * hidden / 24 * math.log(4)
