"""Pointer: the weights are the output, a distribution over the inputs.

    u_ij = vᵀ tanh(W₁ e_j + W₂ d_i),   p(C_i = j) = softmax(u_i)_j

Vinyals, Fortunato, Jaitly 2015, "Pointer Networks", section 2.3, equation 3.
Shapes: B batch, Q queries, K keys, dq, dk widths, D width after the score's projections.
"""

import torch
from torch import Tensor

from heedful.attention.checking import check_inputs, check_part
from heedful.attention.functional import HALVES
from heedful.attention.masks import Grid, Mask, split_mask
from heedful.attention.normalizers.preparing import filled
from heedful.attention.scores import RecurrentScore, ScaledDot, Score
from heedful.attention.watching import Watchable
from heedful.basics.device import without_autocast
from heedful.basics.shapes import leading_sizes


class Pointer(Watchable):
    """The log-probability of each key, for each query.

    There is no context and no vocabulary: the outputs are positions of the input. Watchers get the
    probabilities, ``[B, 1, Q, K]``.

    Args:
        score: compares queries with keys; the paper's is
            :class:`~heedful.attention.scores.Additive`; scaled dot product by default.

    Raises:
        TypeError: ``score`` is not a score.
        ValueError: the score needs the weights of earlier steps.

    Source: Vinyals et al. 2015, section 2.3.

    Example:
        >>> pointer, key = Pointer(), torch.tensor([[[9.0, 0.0], [0.0, 9.0]]])  # [B, K, D]
        >>> pointer(key, key).exp().round()
        tensor([[[1., 0.],
                 [0., 1.]]])
    """

    def __init__(self, score: Score | None = None) -> None:
        super().__init__()
        self.score = ScaledDot() if score is None else score
        check_part("score", self.score, Score)
        if isinstance(self.score, RecurrentScore):
            raise ValueError(  # noqa: TRY004
                f"{type(self.score).__name__} needs the weights of the step before: use it in "
                "RecurrentAttention, whose watched weights are the distribution"
            )

    def remember(self, key: Tensor) -> Tensor:
        """Projected keys ``[B, K, D]`` of ``key [B, K, dk]``, for many calls of :meth:`read`."""
        check_inputs(key=key)
        return self.score.project_key(key)

    def read(self, query: Tensor, memory: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        """Log-probabilities ``[B, Q, K]`` of the keys.

        A masked key has −∞, as have all keys of a query that may point to none; the gradients of
        the scores are zero there.

        Args:
            query: ``[B, Q, dq]``.
            memory: the result of :meth:`remember`.
            mask: as for :func:`heedful.attention.attend`; for outputs without repetition, booleans
                ``[B, Q, K]`` that exclude the keys of earlier steps.

        Raises:
            TypeError: the query is not floating-point, or the mask has the wrong class.
            ValueError: shapes do not match.
        """
        check_inputs(query=query)
        projected = self.score.project_query(query)
        if projected.dtype in HALVES:
            with without_autocast(query):
                scores = self.score.compare(projected.float(), memory.float())
        else:
            scores = self.score.compare(projected, memory)
        shape = (*leading_sizes(query, memory), query.shape[-2], memory.shape[-2])
        allowed, bias = split_mask(mask, Grid(shape, query.device))
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        chances = torch.log_softmax(filled(scores, allowed), -1)
        if allowed is not None:
            chances = chances.masked_fill(~allowed, float("-inf"))
        if self.watched_at_all:
            weights = chances.exp().unsqueeze(-3)
            self.show(weights)
            self.show_some(lambda rows: weights[..., rows, :], weights, weights.shape[-1])
        return chances.to(projected.dtype)

    def forward(self, query: Tensor, key: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        """Log-probabilities ``[B, Q, K]`` of ``key [B, K, dk]``; see :meth:`read`."""
        return self.read(query, self.remember(key), mask)
