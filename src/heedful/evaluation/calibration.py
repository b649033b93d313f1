"""Calibration: whether predictions with probability p are right in a share p of the cases.

Guo et al. 2017, "On calibration of modern neural networks". Predictions are sorted into bins of
equal width by their confidence, the probability of the predicted label:

    ECE = Σ_b (n_b / n) |acc(b) − conf(b)|          MCE = max_b |acc(b) − conf(b)|

(equations 3 and 5). Temperature scaling divides all logits by one number T, which minimises the
cross-entropy of held-out examples (section 4.2). It changes no decision, except possibly those
about long texts, for which the probabilities of windows are averaged.

Shapes: N predictions, C classes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.evaluation.outcome import Figure, ReportTable

BINS = 15
"""The number of bins, as in the paper."""
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.05, 20.0
"""The range of fitted temperatures."""


@dataclass(frozen=True)
class Bin:
    """The predictions whose confidence is in ``(low, high]``; the first bin contains 0."""

    low: float
    high: float
    count: int
    confidence: float
    """Mean confidence; 0 if there are no predictions."""
    accuracy: float
    """Share of right predictions; 0 if there are no predictions."""

    @property
    def gap(self) -> float:
        """``|acc − conf|``."""
        return abs(self.accuracy - self.confidence)


@dataclass(frozen=True)
class Calibration:
    """How well probabilities are calibrated.

    Attributes:
        bins: the bins.
        brier: mean of ``Σ_c (p_c − y_c)²`` over all classes, from 0 to 2 (Brier 1950); None if only
            the probabilities of the predicted labels are known.
    """

    bins: tuple[Bin, ...]
    brier: float | None = None

    @property
    def count(self) -> int:
        """The number of predictions."""
        return sum(own.count for own in self.bins)

    @property
    def expected_error(self) -> float:
        """The expected calibration error, from 0 to 1."""
        return math.fsum(own.count * own.gap for own in self.bins) / max(1, self.count)

    @property
    def maximum_error(self) -> float:
        """The maximum calibration error, from 0 to 1."""
        return max((own.gap for own in self.bins if own.count), default=0.0)

    def figures(self) -> dict[str, Figure]:
        """The errors; lower is better."""
        own = {
            "expected_calibration_error": self.expected_error,
            "maximum_calibration_error": self.maximum_error,
        }
        if self.brier is not None:
            own["brier_score"] = self.brier
        return {name: Figure(value, rises=False) for name, value in own.items()}

    def as_json(self) -> dict[str, Any]:
        """The figures and bins as a value that :mod:`json` can write."""
        figures = {name: figure.value for name, figure in self.figures().items()}
        return {**figures, "bins": [dict(vars(own)) for own in self.bins]}

    def table(self) -> ReportTable:
        """The bins that have predictions."""
        rows = [
            (
                f"{own.low:.3f} to {own.high:.3f}",
                f"{own.count:,}",
                f"{own.confidence:.3f}",
                f"{own.accuracy:.3f}",
            )
            for own in self.bins
            if own.count
        ]
        title = (
            f"reliability of {self.count:,} predictions: expected calibration error "
            f"{self.expected_error:.4f}, maximum {self.maximum_error:.4f}"
        )
        return ReportTable(title, ("confidence", "predictions", "mean", "right"), rows)


def measure_calibration(
    confidences: Sequence[float],
    right: Sequence[bool],
    *,
    squares: Sequence[float] | None = None,
    bins: int = BINS,
) -> Calibration:
    """Measure calibration.

    Args:
        confidences: probabilities of the predicted labels ``[N]``.
        right: whether the predictions are right ``[N]``.
        squares: ``Σ_c (p_c − y_c)²`` of each prediction ``[N]``, for the Brier score.
        bins: the number of bins of equal width.

    Raises:
        ValueError: the numbers of values differ.

    Example:
        >>> measure_calibration([0.75, 0.75, 0.5, 0.5], [True, True, True, False]).expected_error
        0.125
    """
    sums = [(0, 0.0, 0)] * bins
    for confidence, is_right in zip(confidences, right, strict=True):
        place = min(bins - 1, max(0, math.ceil(confidence * bins) - 1))
        count, total, hits = sums[place]
        sums[place] = count + 1, total + confidence, hits + is_right
    found = tuple(
        Bin(place / bins, (place + 1) / bins, count, total / max(1, count), hits / max(1, count))
        for place, (count, total, hits) in enumerate(sums)
    )
    if squares is None:
        return Calibration(found)
    if len(squares) != len(confidences):
        raise ValueError(f"{len(squares)} squares for {len(confidences)} predictions")
    return Calibration(found, math.fsum(squares) / max(1, len(squares)))


def calibration_table(now: Calibration, before: Calibration | None = None) -> ReportTable:
    """The errors, and those before temperature scaling."""
    old = {} if before is None else before.figures()
    header = ("error", "value") if before is None else ("error", "value", "before scaling")
    rows = []
    for name, figure in now.figures().items():
        shown = (name.replace("_", " "), f"{figure.value:.4f}")
        rows.append((*shown, f"{old[name].value:.4f}") if old else shown)
    return ReportTable(f"calibration, {len(now.bins)} bins", header, rows)


def calibration_details(
    now: Calibration, before: Calibration | None, temperature: float
) -> dict[str, Any]:
    """The calibration as JSON under the key ``calibration``."""
    kept: dict[str, Any] = {"temperature": temperature, **now.as_json()}
    if before is not None:
        kept["before_scaling"] = before.as_json()
    return {"calibration": kept}


def fit_temperature(surprise: Callable[[float], float]) -> float:
    """The temperature with the least cross-entropy, from 0.05 to 20.

    Args:
        surprise: the mean cross-entropy (nats) of held-out examples at a temperature.

    Example:
        >>> round(fit_temperature(lambda T: (1 / T - 0.5) ** 2), 3)
        2.0
    """
    from scipy.optimize import minimize_scalar

    limits = math.log(LEAST_TEMPERATURE), math.log(MOST_TEMPERATURE)
    found = minimize_scalar(
        lambda exponent: surprise(math.exp(exponent)),
        bounds=limits,
        method="bounded",
        options={"xatol": 1e-5},
    )
    return math.exp(float(found.x))
