"""Hypotheses, the results of search, and the length penalty that makes their scores comparable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from torch import Tensor


@overload
def length_penalty(length: float, exponent: float) -> float: ...
@overload
def length_penalty(length: Tensor, exponent: float) -> Tensor: ...
def length_penalty(length: float | Tensor, exponent: float) -> float | Tensor:
    """``((5 + |Y|) / 6) ** exponent``; a score is the log-probability divided by it.

    Wu et al. 2016, "Google's Neural Machine Translation System", equation 14. ``length`` counts
    END. With exponent 0 a score is the log-probability itself and short outputs are favoured.
    """
    penalty: float | Tensor = ((5.0 + length) / 6.0) ** exponent
    return penalty


@dataclass(frozen=True)
class Hypothesis:
    """One finished output of search."""

    tokens: tuple[int, ...]
    """The tokens, without END."""
    score: float
    """Natural logarithm of its probability, divided by the length penalty."""
    log_probability: float
    """Natural logarithm of its probability: the sum over all tokens, END included."""
    token_log_probabilities: tuple[float, ...]
    """Log-probability of each token, and of END unless a forced length ended the output."""

    @classmethod
    def finished(
        cls, tokens: Sequence[int], log_probabilities: Sequence[float], exponent: float
    ) -> "Hypothesis":
        """Build one from its tokens (no END) and each step's log-probability (END's last)."""
        total = sum(log_probabilities)
        score = total / length_penalty(float(len(log_probabilities)), exponent)
        return cls(tuple(tokens), score, total, tuple(log_probabilities))
