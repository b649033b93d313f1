"""Means over a few seeds: Student's t interval and paired test.

Student 1908, "The probable error of a mean"; the series are those of Abramowitz and Stegun 1964,
26.7.3 and 26.7.4.
"""

import math
from collections.abc import Sequence
from statistics import mean, stdev

_LEVEL = 0.95


def two_sided_p(t: float, freedom: int) -> float:
    """The probability of a value at least as far from 0 as ``t``, with ``freedom`` degrees.

    Example:
        >>> round(two_sided_p(4.303, 2), 3), two_sided_p(0.0, 5)
        (0.05, 1.0)
    """
    if math.isinf(t):
        return 0.0
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine, term, total = math.cos(angle), 1.0, 0.0
    odd = freedom % 2
    if odd:
        term = cosine
    for place in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * place / (place + 1)
    inside = math.sin(angle) * total
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return min(1.0, max(0.0, 1.0 - inside))


def quantile(freedom: int) -> float:
    """The t beyond which, on both sides, 5 % of the distribution lie.

    Example:
        >>> [round(quantile(freedom), 3) for freedom in (1, 2, 4)]
        [12.706, 4.303, 2.776]
    """
    low, high = 0.0, 1e3
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, freedom) > 1 - _LEVEL else (low, middle)
    return high


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean; None for fewer than two values.

    Example:
        >>> [round(end, 2) for end in t_interval([1.0, 2.0, 3.0])]
        [-0.48, 4.48]
    """
    if len(values) < 2:
        return None
    reach = quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean(values) - reach, mean(values) + reach


def paired_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The two-sided p-value of the paired t test; None for fewer than two pairs.

    Example:
        >>> round(paired_p([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 3)
        0.074
    """
    differences = [after - before for before, after in zip(first, second, strict=True)]
    if len(differences) < 2:
        return None
    spread = stdev(differences) / math.sqrt(len(differences))
    if spread == 0:
        return 0.0 if any(differences) else 1.0
    return two_sided_p(mean(differences) / spread, len(differences) - 1)
