"""Soft-capped: e(q, k) = c · tanh(e'(q, k) / c), for the scores e' of another score.

Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", section 2 ("logit
soft-capping"), with c = 50 for attention; the tanh goes back to Bello et al. 2017, "Neural
Combinatorial Optimization with Reinforcement Learning", appendix A.1. Scores stay within ±c; small
ones are almost unchanged.
"""

import math
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from heedful.attention.checking import check_part
from heedful.attention.overrides import describes
from heedful.attention.scores.base import Score, ScoreSettings
from heedful.attention.scores.recurrent import RecurrentScore
from heedful.attention.scores.scaled_dot import ScaledDot


class SoftCapped(Score):
    """Another score, whose values are bounded smoothly.

    Args:
        score: any score that does not read the weights of earlier steps; scaled dot product by
            default.
        cap: c, above 0.

    Raises:
        TypeError: ``score`` is not a score.
        ValueError: the cap is not above 0 or not finite, or ``score`` is soft-capped itself or
            reads the weights of earlier steps.

    Example:
        >>> keys = torch.tensor([[0.1], [1.0], [100.0]])  # [K, D]
        >>> SoftCapped(cap=2.0)(torch.tensor([[1.0]]), keys)
        tensor([[0.0999, 0.9242, 2.0000]])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["soft-capped"] = "soft-capped"
        score: ScoreSettings = ScaledDot.Settings()
        cap: float = Field(50.0, gt=0, allow_inf_nan=False)
        """c."""

        @field_validator("score")
        @classmethod
        def _cappable(cls, score: ScoreSettings) -> ScoreSettings:
            if score.reads_past:
                raise ValueError(f"'{score.name}' reads the weights of earlier steps: cap another")
            if score.least is not None:
                raise ValueError(f"'{score.name}' is an exponential already: cap the score dot")
            return score

        @property
        def reads_keys(self) -> bool:  # type: ignore[override]
            return self.score.reads_keys

        def longest(self) -> int | None:
            return self.score.longest()

        def compared(self, width: int) -> int:
            return self.score.compared(width)

        def build(self, query_dim: int, key_dim: int) -> "SoftCapped":
            return SoftCapped(self.score.build(query_dim, key_dim), self.cap)

    def __init__(self, score: Score | None = None, cap: float = 50.0) -> None:
        super().__init__()
        self.score = ScaledDot() if score is None else score
        check_part("score", self.score, Score)
        if not 0 < cap < math.inf:
            raise ValueError(f"cap must be above 0 and finite, not {cap}")
        if isinstance(self.score, SoftCapped):
            raise ValueError(  # noqa: TRY004
                "the score is already soft-capped; the smaller cap alone has nearly the same effect"
            )
        if isinstance(self.score, RecurrentScore):
            raise ValueError(  # noqa: TRY004
                f"{type(self.score).__name__} needs the weights of the step before, so it cannot "
                "be soft-capped; choose another score"
            )
        self.cap = float(cap)

    def project_query(self, query: Tensor) -> Tensor:
        return self.score.project_query(query)

    def project_key(self, key: Tensor) -> Tensor:
        return self.score.project_key(key)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.tanh(self.score.compare(query, key) / self.cap) * self.cap

    def capped_dot(self, width: int) -> tuple[float, float] | None:
        known = describes(self.score, "dot_scale", "compare")
        scale = self.score.dot_scale(width) if known else None
        return None if scale is None else (scale, self.cap)

    def extra_repr(self) -> str:
        return f"cap={self.cap:g}"
