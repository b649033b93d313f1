"""Multi-head attention: several attentions side by side, each over projections of its own.

Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.
Shapes: B batch, H heads, Q queries, K keys, D a head's width.
"""

from torch import Tensor, nn

from heedful.attention.functional import (
    aggregate,
    attend_projected,
    check_dropout,
    check_inputs,
    projected_weights,
)
from heedful.attention.masks import Mask
from heedful.attention.modules import Memory
from heedful.attention.normalizers import Normalizer, Softmax
from heedful.attention.scores import ScaledDot, Score
from heedful.attention.watching import Watchable


class MultiHeadAttention(Watchable):
    """Heads ``c_j = Attn(W_q^j q, W_k^j k, W_v^j v)``, joined by concatenation and a matrix.

    Args:
        dim: width of the queries and of the result.
        heads: number of heads.
        key_dim: width of the keys; ``dim`` unless given.
        value_dim: width of the values; ``key_dim`` unless given.
        head_dim: width of a head; ``dim / heads`` unless given.
        score: compares ``head_dim`` numbers; scaled dot product unless given.
        normalize: scores to weights; softmax unless given.
        dropout: share of the weights set to zero in training, in [0, 1).
        bias: whether the four projections have a bias.

    Raises:
        ValueError: there is no head, ``dim`` is no multiple of ``heads`` and no ``head_dim`` is
            given, or dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> MultiHeadAttention(8, heads=2)(torch.zeros(1, 3, 8), torch.zeros(1, 5, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        head_dim: int | None = None,
        score: Score | None = None,
        normalize: Normalizer | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        if heads < 1:
            raise ValueError(f"heads must be at least 1, not {heads}")
        if head_dim is None and dim % heads:
            raise ValueError(f"dim {dim} is no multiple of heads {heads}; give head_dim")
        self.heads, self.head_dim = heads, head_dim or dim // heads
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        inner = heads * self.head_dim
        self.query_projection = nn.Linear(dim, inner, bias=bias)
        self.key_projection = nn.Linear(key_dim, inner, bias=bias)
        self.value_projection = nn.Linear(value_dim, inner, bias=bias)
        self.output_projection = nn.Linear(inner, dim, bias=bias)
        self.score = score or ScaledDot()
        self.normalize = normalize or Softmax()
        self.dropout = dropout
        self._reset()

    def _reset(self) -> None:
        for part in self.children():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def _split(self, joined: Tensor) -> Tensor:
        """``[B, L, H·D] -> [B, H, L, D]``."""
        return joined.view(*joined.shape[:-1], self.heads, self.head_dim).transpose(-3, -2)

    def remember(self, key: Tensor, value: Tensor | None = None) -> Memory:
        """Project ``key [B, K, key_dim]`` and ``value`` (the keys unless given) once."""
        value = key if value is None else value
        check_inputs(key=key, value=value)
        keys = self.score.project_key(self._split(self.key_projection(key)))
        return Memory(keys, self._split(self.value_projection(value)))

    def read(self, query: Tensor, memory: Memory, mask: Mask | Tensor | None = None) -> Tensor:
        """The result ``[B, Q, dim]`` for ``query [B, Q, dim]`` over what was remembered.

        The mask applies to scores ``[B, H, Q, K]``.
        """
        queries = self.score.project_query(self._split(self.query_projection(query)))
        dropout = self.dropout if self.training else 0.0
        if self.watched:
            weights = projected_weights(
                queries, memory.key, score=self.score, mask=mask, normalize=self.normalize
            )
            self.show(weights)
            context = aggregate(weights, memory.value, dropout)
        else:
            context = attend_projected(
                queries,
                memory.key,
                memory.value,
                score=self.score,
                mask=mask,
                normalize=self.normalize,
                dropout=dropout,
            )
        joined = context.transpose(-3, -2).flatten(-2)  # [B, Q, H·D]
        result: Tensor = self.output_projection(joined)
        return result

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """``[B, Q, dim]`` for ``query [B, Q, dim]``, ``key [B, K, key_dim]`` and its values."""
        return self.read(query, self.remember(key, value), mask)
