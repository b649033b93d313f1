"""Structured self-attention: A = softmax(W_s2 tanh(W_s1 Hᵀ)), M = A H.

Lin et al. 2017, "A Structured Self-Attentive Sentence Embedding", section 2.1, equations 5 to 7
(one row of A is equation 5). A sequence of any length becomes r vectors, each a weighted sum of
its states; :func:`heedful.attention.disagreement` keeps the r from being the same (equation 8).
Shapes: B batch, K states, D their width, U hidden units, r hops.
"""

import torch
from torch import Tensor, nn

from heedful.attention.checking import check_inputs, check_part
from heedful.attention.masks import Mask, dense_mask
from heedful.attention.normalizers import Normalizer, Softmax
from heedful.attention.scores.base import require_width
from heedful.attention.watching import Watchable


def structured_scores(states: Tensor, W_s1: Tensor, W_s2: Tensor) -> Tensor:
    """``W_s2 tanh(W_s1 Hᵀ)``, ``[.., r, K]``: the argument of the softmax in equation 6.

    Args:
        states: H, ``[.., K, D]``.
        W_s1: ``[U, D]``.
        W_s2: ``[r, U]``.

    Example:
        >>> structured_scores(torch.zeros(5, 4), torch.zeros(3, 4), torch.zeros(2, 3)).shape
        torch.Size([2, 5])
    """
    hidden = torch.tanh(states @ W_s1.T)  # [.., K, U]
    return W_s2 @ hidden.transpose(-2, -1)


class StructuredSelfAttention(Watchable):
    """Pools ``[B, K, dim]`` to ``[B, hops, dim]`` with ``hops`` attentions over the states.

    Parameters: ``W_s1 [hidden_dim, dim]`` and ``W_s2 [hops, hidden_dim]``, both without bias.
    Watchers get weights ``[B, 1, hops, K]``: one head, whose queries are the hops.

    Args:
        dim: width of the states.
        hidden_dim: the paper's d_a.
        hops: the paper's r.
        normalize: scores to weights; softmax by default.

    Raises:
        TypeError: ``normalize`` is not a normalizer.
        ValueError: a size is below 1.

    Example:
        >>> StructuredSelfAttention(8, hidden_dim=6, hops=3)(torch.zeros(2, 5, 8)).shape
        torch.Size([2, 3, 8])
    """

    def __init__(
        self, dim: int, hidden_dim: int, hops: int, normalize: Normalizer | None = None
    ) -> None:
        super().__init__()
        for name, size in (("dim", dim), ("hidden_dim", hidden_dim), ("hops", hops)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, not {size}")
        self.dim = dim
        self.W_s1 = nn.Parameter(torch.empty(hidden_dim, dim))
        self.W_s2 = nn.Parameter(torch.empty(hops, hidden_dim))
        nn.init.xavier_uniform_(self.W_s1)
        nn.init.xavier_uniform_(self.W_s2)
        self.normalize = Softmax() if normalize is None else normalize
        check_part("normalize", self.normalize, Normalizer)

    def forward(self, states: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        """The weighted sums ``M [B, hops, dim]`` of ``states [B, K, dim]``.

        Args:
            states: H, ``[.., K, dim]``.
            mask: a mask (``padding(lengths)``), or booleans that broadcast to ``[.., hops, K]``,
                true = may attend; pass a mask of states ``[B, K]`` as ``[B, 1, K]``. If nothing is
                allowed, the sums are 0.

        Raises:
            TypeError: the states are not floating-point, or the mask is not a mask or boolean.
            ValueError: shapes do not match.
        """
        check_inputs(states=states)
        require_width("states", states, self.dim)
        scores = structured_scores(states, self.W_s1, self.W_s2)
        weights: Tensor = self.normalize(scores, dense_mask(mask, scores.shape, scores.device))
        one_head = weights.unsqueeze(-3)  # [.., 1, r, K]
        self.show_whole(one_head)
        # Uses the tensor that watchers get, so that they can compute gradients with respect to it.
        return one_head.squeeze(-3) @ states
