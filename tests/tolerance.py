"""Tolerances derived from the arithmetic, so that a test holds on any processor.

Processors, libraries and numbers of threads add the terms of a sum in different orders. Rounding
errors behave like independent random numbers (Higham and Mary 2019, "A New Approach to
Probabilistic Rounding Error Analysis"): the error of a sum of n terms is about eps sqrt(n) times
the size of its terms, in any order. A tolerance here is

    MARGIN · eps · sqrt(n) · size

with eps the machine epsilon of the type that computes, n the length of the longest sum, and the
size measured in float64:

- :func:`assert_near` compares one operation, such as a product or a softmax. The size is the
  largest value of the expected tensor.
- :func:`assert_rounded` compares a model, or a gradient. Each operation contributes an error, which
  later operations amplify, and after cancellation the error can exceed the result. The effect of a
  small relative change of every value is measured in float64 (:func:`reference`): the inputs, the
  parameters and the result of every operation are multiplied by 1 + CHANGE · noise (Parker 1997,
  "Monte Carlo Arithmetic").

:func:`quantised` is the same for int8 and bfloat16, whose rounding errors are far larger.

MARGIN covers the largest of many errors, and functions such as exp with errors of a few units.
``HEEDFUL_TOLERANCE=0.5`` halves every tolerance: tests must pass with it, so that they do not fail
on another processor.
"""

import copy
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

SHARE = float(os.environ.get("HEEDFUL_TOLERANCE") or 1)
MARGIN = 8.0 * SHARE
CHANGE = 1e-7
"""Relative change of a value: float64 resolves its effect to about nine digits."""
DRAWS = 2


def rounding(dtype: torch.dtype, terms: int) -> float:
    """The tolerated error of a sum of ``terms``, relative to the size of its terms."""
    return MARGIN * torch.finfo(dtype).eps * math.sqrt(terms)


def quantised(products: int, largest_input: int | None = None) -> float:
    """The tolerated error of a quantised model, relative to the norm of its results.

    Rounding to a step s has an error of s / √12 (the standard deviation of a uniform error). In
    int8, the step is a row's largest value, about three standard deviations, divided by 127 for
    weights and by ``largest_input`` for inputs. In bfloat16, the step of a weight is 2⁻⁸ to 2⁻⁷ of
    it. Errors of products add like independent errors. The margin is 3, because few errors are
    averaged.

    Args:
        products: the number of matrix products.
        largest_input: largest int8 input; None for bfloat16 weights and exact inputs.
    """
    int8 = 3 * math.hypot(1 / 127, 1 / largest_input) if largest_input else None
    return 3 * SHARE * math.sqrt(products / 12) * (int8 or 2**-7.5)


def largest(tensor: Tensor) -> float:
    """The largest finite magnitude; 0 for an empty tensor."""
    finite = tensor.detach().double()[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def assert_near(
    found: Tensor,
    expected: Tensor,
    *,
    terms: int,
    dtype: torch.dtype = torch.float32,
    size: float | None = None,
) -> None:
    """Check one operation against its definition; infinities and NaN must be at the same positions.

    Args:
        found: the result, of any dtype.
        expected: the same in float64, or computed in ``dtype`` in another way.
        terms: the length of the longest sum.
        dtype: the type in which ``found`` was computed.
        size: the largest magnitude of the terms and partial sums, if cancellation makes the result
            smaller; default: the largest magnitude of ``expected``.
    """
    size = largest(expected) if size is None else size
    atol = rounding(dtype, terms) * size
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=atol, equal_nan=True)


class Changed(TorchDispatchMode):
    """Multiply the float64 result of every operation by 1 + CHANGE · noise."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator
        self.factors, self.used = torch.ones(0, dtype=torch.float64), 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in _CHANGES:
            _CHANGES[func] = func.overloadpacket not in _EXACT and all(
                part.alias_info is None for part in func._schema.returns
            )
        if _CHANGES[func] and any(map(_is_double, _parts((*args, *(kwargs or {}).values())))):
            for part in _parts((result,)):
                if _is_double(part):
                    self.change(part)
        return result

    def change(self, tensor: Tensor) -> None:
        """Multiply by factors that are drawn for many tensors at once."""
        size = tensor.numel()
        if self.used + size > len(self.factors):
            drawn = torch.randn(max(size, 1 << 16), generator=self.generator, dtype=torch.float64)
            self.factors, self.used = 1 + CHANGE * drawn, 0
        tensor.mul_(self.factors[self.used : self.used + size].view(tensor.shape))
        self.used += size


_EXACT = (torch.ops.aten.round, torch.ops.aten.floor)
_CHANGES: dict[Any, bool] = {}
"""Whether an operator computes new values, by operator."""


def _parts(given: Iterable[Any]) -> Iterator[Any]:
    """The arguments or results of an operator, with those in its lists."""
    for one in given:
        if isinstance(one, tuple | list):
            yield from one
        else:
            yield one


def _is_double(part: object) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.float64


def _doubled(given: Any) -> Any:
    """A copy of a module or a tensor in float64."""
    if isinstance(given, nn.Module):
        return copy.deepcopy(given).double()
    return given.detach().double().clone().requires_grad_(given.requires_grad)


@dataclass
class Reference:
    """Results in float64, and the error that each may have."""

    exact: list[Tensor]
    allowed: list[float]


def reference(
    run: Callable[..., Sequence[Tensor]],
    *given: nn.Module | Tensor,
    terms: int,
    dtype: torch.dtype = torch.float32,
) -> Reference:
    """Compute results in float64, and measure how far rounding in ``dtype`` moves them.

    Args:
        run: computes the results (outputs, gradients) from float64 copies of ``given``.
        given: modules and floating-point tensors; copies require gradients if the tensors do.
        terms: the length of the longest sum, such as the widest layer or the number of tokens
            that a gradient is summed over.
        dtype: the type in which the results to be compared are computed. For float64, the reference
            itself is rounded, so the tolerance is doubled.
    """
    exact = [part.detach().double() for part in run(*map(_doubled, given))]
    moved = [0.0] * len(exact)
    mode = Changed(torch.Generator().manual_seed(0))
    for _ in range(DRAWS):
        inputs = [_doubled(one) for one in given]
        with torch.no_grad():
            for one in inputs:
                for tensor in one.parameters() if isinstance(one, nn.Module) else (one,):
                    mode.change(tensor)
        with mode:
            found = run(*inputs)
        for place, (one, other) in enumerate(zip(found, exact, strict=True)):
            moved[place] = max(moved[place], largest(one.detach() - other) / CHANGE)
    scale = rounding(dtype, terms) * (2 if dtype == torch.float64 else 1)
    allowed = [scale * (change + largest(one)) for change, one in zip(moved, exact, strict=True)]
    return Reference(exact, allowed)


def assert_rounded(found: Sequence[Tensor], expected: Reference) -> None:
    """Check that results differ from the float64 ones by rounding only."""
    parts = zip(found, expected.exact, expected.allowed, strict=True)
    for place, (one, exact, allowed) in enumerate(parts):
        torch.testing.assert_close(
            one.detach().double(),
            exact,
            rtol=0,
            atol=allowed,
            equal_nan=True,
            msg=lambda text, place=place: f"result {place}: {text}",
        )
