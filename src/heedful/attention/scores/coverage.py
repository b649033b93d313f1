"""Coverage: e_ij = vᵀ tanh(W s_i + V h_j + w_c c_ij + b), with the attention c_ij that key j has
received so far.

    c_ij = Σ_(t < i) α_tj                            See et al. 2017
    c_ij = 1/Φ_j Σ_(t < i) α_tj,  Φ_j = N σ(U_f h_j)     Tu et al. 2016, the fertility Φ

See, Liu, Manning 2017, "Get To The Point: Summarization with Pointer-Generator Networks", section
2.3, equations 10 and 11. Tu et al. 2016, "Modeling Coverage for Neural Machine Translation",
section 3.1.1 (linguistic coverage). The loss that penalises repeated attention is
:func:`heedful.attention.coverage_loss`.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.scores.base import ScoreSettings
from heedful.attention.scores.recurrent import RecurrentAdditive, State
from heedful.basics.limits import MOST_WIDTH


class Coverage(RecurrentAdditive):
    """The additive score with the sum of all earlier weights.

    Parameters: those of the additive score, with the bias b; ``w_c [hidden_dim]``; with a largest
    fertility ``fertility_projection`` (U_f).

    Args:
        query_dim: width of the queries.
        key_dim: width of the keys.
        hidden_dim: number of tanh units.
        largest_fertility: N, the number of queries that one key can attract; above 0. None for
            coverage without fertility.

    Raises:
        ValueError: a number is below 1, or ``largest_fertility`` is not above 0; at the call, the
            query or key has another width.

    Source: See et al. 2017, section 2.3; Tu et al. 2016, section 3.1.1.

    Example:
        >>> score = Coverage(3, 5, hidden_dim=7)
        >>> key = score.project_key(torch.zeros(2, 4, 5))  # [B, K, U]
        >>> state = score.advance(torch.ones(2, 4), key, score.start(key))
        >>> score.advance(torch.ones(2, 4), key, state)[0][0]
        tensor([2., 2., 2., 2.])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        reads_past: ClassVar[bool] = True
        name: Literal["coverage"] = "coverage"
        hidden_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
        """Number of tanh units; the width of the queries by default."""
        largest_fertility: float | None = Field(None, gt=0, allow_inf_nan=False)
        """N; no fertility by default."""

        def build(self, query_dim: int, key_dim: int) -> "Coverage":
            return Coverage(
                query_dim,
                key_dim,
                self.hidden_size or query_dim,
                largest_fertility=self.largest_fertility,
            )

        def compared(self, width: int) -> int:
            return self.hidden_size or width

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden_dim: int,
        *,
        largest_fertility: float | None = None,
    ) -> None:
        super().__init__(query_dim, key_dim, hidden_dim)
        if largest_fertility is not None and not 0 < largest_fertility < float("inf"):
            raise ValueError(
                f"largest_fertility must be above 0 and finite, not {largest_fertility}"
            )
        self.largest_fertility = largest_fertility
        self.w_c = nn.Parameter(torch.empty(hidden_dim))
        nn.init.uniform_(self.w_c, -(hidden_dim**-0.5), hidden_dim**-0.5)
        self.fertility_projection = (
            None if largest_fertility is None else nn.Linear(key_dim, 1, bias=False)
        )

    def project_key(self, key: Tensor) -> Tensor:
        """``V h + b [.., K, U]``; with fertility, Φ is one more component, ``[.., K, U + 1]``."""
        projected = super().project_key(key)
        if self.fertility_projection is None or self.largest_fertility is None:
            return projected
        fertility = self.largest_fertility * torch.sigmoid(self.fertility_projection(key))
        return torch.cat([projected, fertility], -1)

    def start(self, key: Tensor) -> State:
        return (key.new_zeros(key.shape[:-1]),)

    def message(self, state: State) -> Tensor:
        return state[0].unsqueeze(-1) * self.w_c  # [.., K, U]

    def compare_at(self, query: Tensor, key: Tensor, state: State) -> Tensor:
        return super().compare_at(query, key[..., : self.hidden_dim], state)

    def advance(self, weights: Tensor, key: Tensor, state: State) -> State:
        if self.fertility_projection is None:
            return (state[0] + weights,)
        return (state[0] + weights / key[..., -1].clamp(min=torch.finfo(key.dtype).tiny),)

    def extra_repr(self) -> str:
        return f"largest_fertility={self.largest_fertility}"
