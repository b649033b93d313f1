"""Location-aware: e_ij = vᵀ tanh(W s_i + V h_j + U f_ij + b),  f_i = F ∗ α_(i−1).

The weights of the step before are convolved with k learned filters, so that a score knows where the
last step attended. Chorowski et al. 2015, "Attention-Based Models for Speech Recognition", section
2.2. With ``accumulated``, the sum of all earlier weights is convolved: Shen et
al. 2018, "Natural TTS Synthesis by Conditioning WaveNet on Mel Spectrogram Predictions", section
2.2.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.scores.base import ScoreSettings
from heedful.attention.scores.recurrent import RecurrentAdditive, State
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH


class LocationAware(RecurrentAdditive):
    """The additive score with features of the last weights.

    Parameters: those of the additive score, with the bias b; ``filters`` (F),
    ``[filters, 1, width]``; ``feature_projection`` (U). Before the first step the weights are 0.

    Args:
        query_dim: width of the queries.
        key_dim: width of the keys.
        hidden_dim: number of tanh units.
        filters: number of filters k.
        width: positions that a filter sees, odd: as many before as after a key.
        accumulated: whether the filters see the sum of all earlier weights.

    Raises:
        ValueError: a number is below 1, or the width is even; at the call, the query or key has
            another width.

    Source: Chorowski et al. 2015, section 2.2.

    Example:
        >>> score = LocationAware(3, 5, hidden_dim=7, filters=2, width=3)
        >>> key = score.project_key(torch.zeros(2, 4, 5))  # [B, K, U]
        >>> state = score.advance(torch.eye(4)[:2], key, score.start(key))
        >>> score.compare_at(torch.zeros(2, 1, 7), key, state).shape
        torch.Size([2, 1, 4])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        reads_past: ClassVar[bool] = True
        name: Literal["location-aware"] = "location-aware"
        hidden_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
        """Number of tanh units; the width of the queries by default."""
        filters: int = Field(10, ge=1, le=MOST_WIDTH)
        """Number of filters."""
        width: int = Field(31, ge=1, le=MOST_POSITIONS)
        """Positions that a filter sees; odd."""
        accumulated: bool = False
        """Whether filters see the sum of all earlier weights."""

        def build(self, query_dim: int, key_dim: int) -> "LocationAware":
            return LocationAware(
                query_dim,
                key_dim,
                self.hidden_size or query_dim,
                filters=self.filters,
                width=self.width,
                accumulated=self.accumulated,
            )

        def compared(self, width: int) -> int:
            return self.hidden_size or width

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden_dim: int,
        *,
        filters: int = 10,
        width: int = 31,
        accumulated: bool = False,
    ) -> None:
        super().__init__(query_dim, key_dim, hidden_dim)
        if filters < 1:
            raise ValueError(f"filters must be at least 1, not {filters}")
        if width < 1 or width % 2 == 0:
            raise ValueError(f"width must be odd and at least 1, not {width}")
        self.accumulated = accumulated
        self.filters = nn.Parameter(torch.empty(filters, 1, width))
        nn.init.uniform_(self.filters, -(width**-0.5), width**-0.5)
        self.feature_projection = nn.Linear(filters, hidden_dim, bias=False)

    def start(self, key: Tensor) -> State:
        return (key.new_zeros(key.shape[:-1]),)

    def message(self, state: State) -> Tensor:
        (seen,) = state
        if not seen.numel():
            return self.filters.new_zeros(*seen.shape, self.hidden_dim)
        rows = seen.reshape(-1, 1, seen.shape[-1]).to(self.filters.dtype)
        features = F.conv1d(rows, self.filters, padding=self.filters.shape[-1] // 2)
        message: Tensor = self.feature_projection(features.transpose(1, 2))
        return message.view(*seen.shape, self.hidden_dim)

    def advance(self, weights: Tensor, key: Tensor, state: State) -> State:
        return (state[0] + weights if self.accumulated else weights,)

    def extra_repr(self) -> str:
        count, _, width = self.filters.shape
        return f"filters={count}, width={width}, accumulated={self.accumulated}"
