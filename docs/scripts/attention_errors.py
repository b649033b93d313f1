"""How far the additive score is from float64, by the size of what its tangent is of.

One unit with v = 1, so that the error of a score of many units is at most that of one times Σ|v|.
Inputs are float32 numbers; tanh(a + b) in float64 of these numbers is the truth.
"""

from typing import Literal

import torch
from torch import Tensor

from heedful.attention import scores, use_kernel
from heedful.kernels import additive_compiled as compiled

Kernel = Literal["plain", "tiles", "compiled"]

DECADES = range(-3, 5)
_EACH = 200


def numbers(decade: int) -> tuple[Tensor, Tensor]:
    """``a [N, 1]`` between 10^(decade − 1) and 10^decade, and ``b [3N, 1]``.

    Of either sign. A third of ``b`` is as large, a third as large or smaller, and a third is near
    ``−a``, where the sum cancels.
    """
    generator = torch.Generator().manual_seed(decade + 100)

    def drawn(low: float, high: float) -> Tensor:
        exponents = low + (high - low) * torch.rand(_EACH, 1, generator=generator)
        signs = torch.randint(2, (_EACH, 1), generator=generator) * 2 - 1
        return 10.0**exponents * signs

    a = drawn(decade - 1, decade)
    apart = torch.rand(_EACH, 1, generator=generator).mul_(2).sub_(1) * min(3.0, 10.0**decade)
    near = apart - a
    return a, torch.cat([drawn(decade - 1, decade), drawn(-5, decade), near])


def kernels() -> list[Kernel]:
    """Ways to compute that there are here."""
    found: list[Kernel] = ["plain", "tiles"]
    return [*found, "compiled"] if compiled.library() is not None else found


def errors(kernel: Kernel, decade: int) -> tuple[float, float]:
    """The largest absolute error of tanh(a + b), and of its derivative in a."""
    a, b = numbers(decade)
    tangent = scores.Additive(1, 1, 1, vector=False)
    with use_kernel(kernel):
        found = tangent.compare(a, b)
    sums = a.double() + b.double().T
    value_error = (found.double() - torch.tanh(sums)).abs().max()
    # One query at a time with each key: the gradient of a sum over keys would mix their errors.
    query = a.repeat_interleave(len(b), 0).unsqueeze(1).requires_grad_()
    with use_kernel(kernel):
        tangent.compare(query, b.repeat(len(a), 1).unsqueeze(1)).sum().backward()
    assert query.grad is not None
    slopes = torch.cosh(sums.clamp(-300, 300)) ** -2
    slope_error = (query.grad.double().view_as(slopes) - slopes).abs().max()
    return float(value_error), float(slope_error)


def error_table() -> str:
    ways = kernels()
    names = {"plain": "plain formula", "tiles": "tiles", "compiled": "in C"}
    heads = [f"{what}: {names[way]}" for what in ("value", "derivative") for way in ways]
    lines = [["∣a∣", *heads], ["---"] * (len(heads) + 1)]
    for decade in DECADES:
        found = [errors(way, decade) for way in ways]
        both = [value for value, _ in found] + [slope for _, slope in found]
        size = f"{_power(decade - 1)} … {_power(decade)}"
        lines.append([size, *(f"{error:.1e}" for error in both)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
