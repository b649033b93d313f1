"""The loop operators of recurrent models: PyTorch's checks, transforms, second derivatives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.library import opcheck

from heedful.kernels import recurrent_direction, recurrent_input_feeding, recurrent_unrolled
from heedful.kernels.formula_operators import FormulaOperator
from tolerance import assert_near, largest

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
Made = tuple[FormulaOperator, list[Tensor | None], tuple[Any, ...]]
B, T, S, H, D = 3, 2, 4, 6, 5


def floats(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape, dtype=dtype) / 2 for shape in shapes]


def state(cell: str, dtype: torch.dtype) -> Tensor:
    return torch.randn(2 if cell == "lstm" else 1, B, H, dtype=dtype)


def unrolled(cell: str, dtype: torch.dtype) -> Made:
    gates, allowed = GATES[cell] * H, torch.rand(B, 1, S) < 0.7
    known, key, value = floats(dtype, (T, B, gates), (B, S, D), (B, S, 7))
    weights = floats(dtype, (gates, 7), (gates, H), (gates,), (D, H), (D,))
    given = [known, state(cell, dtype), key, value, allowed, *weights]
    return recurrent_unrolled._operator, given, (cell, 0.7)


def fed(cell: str, dtype: torch.dtype, additive: bool) -> Made:
    gates, allowed = GATES[cell] * H, torch.rand(B, 1, S) < 0.7
    width = D if additive else H
    known, feed, key, value = floats(dtype, (T, B, gates), (B, H), (B, S, width), (B, S, H))
    weights = floats(dtype, (gates, H), (gates, H), (gates,), (H, H))
    asked = floats(dtype, (D, H), (D,)) if additive else [None, None]
    given = [known, feed, state(cell, dtype), key, value, allowed, *weights, *asked]
    return recurrent_input_feeding._operator, given, (cell, 0.7)


def direction(cell: str, dtype: torch.dtype, backwards: bool) -> Made:
    gates, sizes = GATES[cell] * H, [3, 1]
    given = floats(dtype, (sum(sizes), gates), (gates, H), (gates,))
    return recurrent_direction._operator, [*given], (cell, sizes, backwards)


LOOPS: dict[str, Callable[[str, torch.dtype], Made]] = {
    "unrolled": unrolled,
    "fed, additive": lambda cell, dtype: fed(cell, dtype, True),
    "fed, dot": lambda cell, dtype: fed(cell, dtype, False),
    "forwards": lambda cell, dtype: direction(cell, dtype, False),
    "backwards": lambda cell, dtype: direction(cell, dtype, True),
}
CASES = [("unrolled", "lstm"), ("fed, additive", "gru"), ("fed, dot", "lstm")]
CASES += [("forwards", "gru"), ("backwards", "lstm")]
SLOW = [("fed, additive", "gru"), ("fed, dot", "lstm"), ("backwards", "lstm")]
"""PyTorch's checks of their fused backward take seconds. The last is ``forwards`` turned round."""


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(7)


def learnt(given: list[Tensor | None]) -> list[Tensor]:
    return [part for part in given if part is not None and part.is_floating_point()]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, marks=[pytest.mark.slow] * (case in SLOW))
        for case in CASES
        for dtype in (torch.float32, torch.float64)
    ],
)
def test_opcheck_of_loops_and_their_backward(case: tuple[str, str], dtype: torch.dtype) -> None:
    operator, given, settings = LOOPS[case[0]](case[1], dtype)
    for part in learnt(given):
        part.requires_grad_()
    opcheck(operator.forward.operator, (*given, *settings))
    with torch.no_grad():
        made = operator.forward(*given, *settings)
    by = [torch.randn_like(part) for part in made[: operator.formula.outputs]]
    if operator.formula.is_supported(
        given
    ):  # else the formula's own derivatives, which cannot be faked
        opcheck(operator.backward.operator, (*by, *given, *made, *settings))


def weighted(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([part.square().sum() for part in parts]).sum()


def results(
    run: Callable[..., tuple[Tensor, ...]], given: list[Tensor | None], size: int
) -> list[Tensor]:
    """Outputs, gradients of first and second order, mapped gradients."""
    floating = learnt(given)

    def loss(*parts: Tensor) -> Tensor:
        own = iter(parts)
        return weighted(
            run(
                *(one if one is None or not one.is_floating_point() else next(own) for one in given)
            )
        )

    places = tuple(range(len(floating)))
    each = grad(loss, places)
    leaves = [part.clone().requires_grad_() for part in floating]
    by = torch.autograd.grad(loss(*leaves), leaves, create_graph=True)
    twice = torch.autograd.grad(weighted(by), leaves)
    three = [torch.stack([(1 + 0.1 * i) * floating[0] for i in range(size)])]
    mapped = vmap(each, (0, *(None for _ in floating[1:])))(*three, *floating[1:])
    return [loss(*floating), *each(*floating), *by, *twice, *mapped]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("loop", LOOPS)
def test_loops_match_their_formula(loop: str, cell: str, dtype: torch.dtype) -> None:
    operator, given, settings = LOOPS[loop](cell, dtype)
    found = results(lambda *parts: operator(*parts, *settings), given, size=2)
    wide = [
        part.double() if part is not None and part.is_floating_point() else part for part in given
    ]
    plain = operator.formula.plain
    expected = results(lambda *parts: plain(parts, settings), wide, size=2)
    for one, other in zip(found, expected, strict=True):
        assert_near(
            one.detach(),
            other.detach(),
            terms=1000,
            dtype=dtype,
            size=max(1.0, largest(other)),
        )


@pytest.mark.parametrize("loop", LOOPS)
def test_gradients_do_not_depend_on_autocast_around_backward(loop: str) -> None:
    operator, given, settings = LOOPS[loop]("gru", torch.float32)
    leaves = [part.requires_grad_() for part in learnt(given)]
    total = weighted(operator(*given, *settings))
    expected = torch.autograd.grad(total, leaves, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(total, leaves)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
