"""Local-p: a softmax in a window around a predicted position, times a Gaussian there.

    p_t = S · sigmoid(v_pᵀ tanh(W_p h_t))                            (9)
    a_t(s) = align(h_t, h̄_s) · exp(−(s − p_t)² / (2σ²)),  σ = D/2     (10)

Luong, Pham, Manning 2015, "Effective Approaches to Attention-based Neural Machine Translation",
section 3.2. ``align`` is the softmax over the window [p_t − D, p_t + D]; since the Gaussian comes
after it, rows sum to less than 1. The paper leaves open where s starts; here the first key is 0.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import check_scores, required, widened
from heedful.attention.normalizers.softmax import masked_softmax
from heedful.basics.device import without_autocast
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH


def local_predictive(
    scores: Tensor, share: Tensor, window: float, allowed: Tensor | None = None
) -> Tensor:
    """Weights ``[.., Q, K]`` around ``p_t = S·share``, for the S keys that a row allows.

    Only allowed keys count for S and for the positions of keys. The result is therefore independent
    of padding on either side. The gradient to ``share`` flows through the Gaussian; that of the
    window's edges is zero almost everywhere.

    Args:
        scores: ``[.., Q, K]``.
        share: p_t / S for each query, in [0, 1]: ``[.., Q, 1]``.
        window: D, at least 1.
        allowed: boolean, broadcastable to the scores; true = may attend. A row that allows no key
            is all zeros, with zero gradients.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> local_predictive(torch.zeros(1, 6), torch.tensor([[0.5]]), window=2)
        tensor([[0.0000, 0.0271, 0.1213, 0.2000, 0.1213, 0.0271]])
    """
    check_scores(scores, allowed)
    wide = widened(scores)
    kept = scores.new_ones((), dtype=torch.bool) if allowed is None else allowed
    kept = kept.expand((*kept.shape[:-1], scores.shape[-1]))
    count = kept.sum(-1, keepdim=True)
    places = kept.cumsum(-1) - 1  # The value at a masked key does not matter.
    away = places.to(wide.dtype) - count * share.to(wide.dtype)  # s − p_t
    near = away.detach().abs() <= window
    gaussian = torch.exp(-away.square() / (2 * (window / 2) ** 2))
    weights = masked_softmax(wide, near & kept) * gaussian
    return weights.to(scores.dtype)


class LocalPredictive(Normalizer):
    """:func:`local_predictive` around a position predicted from the query.

    Parameters: ``query_projection`` (W_p) and ``position_projection`` (v_p), both without bias.

    Args:
        query_dim: width of the queries, before the score's projection.
        hidden_dim: number of tanh units.
        window: D, at least 1; the Gaussian's σ is half of it.

    Raises:
        ValueError: the window or a width is below 1; at the call, ``queries`` is None or has
            another width.

    Example:
        >>> queries = Queries(vectors=torch.zeros(1, 5), positions=torch.tensor([0]))
        >>> normalize = LocalPredictive(query_dim=5, hidden_dim=7, window=2)
        >>> normalize(torch.zeros(1, 6), queries=queries).detach()
        tensor([[0.0000, 0.0271, 0.1213, 0.2000, 0.1213, 0.0271]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        not_for_heads: ClassVar[str] = (
            "needs the vector of each query; use model.kind = 'recurrent'"
        )
        name: Literal["local-predictive"] = "local-predictive"
        window: int = Field(10, ge=1, le=MOST_POSITIONS)
        """D, positions on either side of the predicted one."""
        hidden_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
        """Number of tanh units; the width of the queries by default."""

        def build(self, heads: int, query_dim: int) -> "LocalPredictive":
            return LocalPredictive(query_dim, self.hidden_size or query_dim, self.window)

    def __init__(self, query_dim: int, hidden_dim: int, window: int) -> None:
        super().__init__()
        sizes = {"query_dim": query_dim, "hidden_dim": hidden_dim, "window": window}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, not {size}")
        self.query_dim, self.window = query_dim, window
        self.query_projection = nn.Linear(query_dim, hidden_dim, bias=False)
        self.position_projection = nn.Linear(hidden_dim, 1, bias=False)

    def share(self, vectors: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """``p_t / S [.., Q, 1]`` for queries ``[.., Q, query_dim]``.

        Computed in ``dtype`` even under autocast: half precision cannot distinguish hundreds of
        positions.
        """
        if vectors.shape[-1] != self.query_dim:
            raise ValueError(
                f"LocalPredictive: queries have shape {list(vectors.shape)}: "
                f"expected [.., {self.query_dim}] in the last dimension"
            )
        W, v = (part.weight.to(dtype) for part in (self.query_projection, self.position_projection))
        with without_autocast(vectors):
            return torch.sigmoid(torch.tanh(vectors.to(dtype) @ W.mT) @ v.mT)

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        queries = required(queries, scores, "LocalPredictive", "vectors")
        share = self.share(queries.vectors, widened(scores).dtype)
        return local_predictive(scores, share, self.window, allowed)

    def extra_repr(self) -> str:
        return f"window={self.window}"
