"""Multi-head differential attention.

    head_j = (1 − λ_init) · RMSNorm(DiffAttn(X; W_q^j, W_k^j, W_v^j)),   W_o [head_1; …; head_H]

Ye et al. 2024, "Differential Transformer", section 2.1, equation 3. The norm has one factor for
each of a head's 2d components, shared by all heads, as in the authors' code.
Shapes: B batch, H heads (pairs of maps), G key heads, Q queries, K keys, d width of a map.
"""

from torch import Tensor, nn

from heedful.attention.heads.differential import Differential
from heedful.attention.heads.gate import OutputGate
from heedful.attention.heads.query_key_norm import QueryKeyNorm
from heedful.attention.masks import Mask
from heedful.attention.modules import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.normalizers import Normalizer
from heedful.attention.positions.base import RelativePositions
from heedful.attention.scores import Score


class DifferentialAttention(MultiHeadAttention):
    """Heads whose weights are the difference of two maps; otherwise as ``MultiHeadAttention``.

    A head has two maps of width d = ``dim / (2 · heads)`` and values of width 2d, so that there are
    as many parameters as in ``MultiHeadAttention`` with the same ``dim``. Parts that count heads,
    such as ``ALiBi``, need ``2 · heads``. Fused kernels compute both maps; watchers get the
    difference, ``[B, H, Q, K]``.

    Args:
        dim: width of queries and result.
        heads: number of heads H, half of those of a comparable ``MultiHeadAttention``.
        layer: number of the layer, counted from 1, for λ_init.
        key_dim: width of the keys; default ``dim``.
        value_dim: width of the values; default ``key_dim``.
        key_heads: number of key and value heads; default ``heads``.
        score: compares vectors of width d; default: scaled dot product.
        normalize: maps scores to weights; default: softmax.
        positions: rotates queries and keys, or changes scores; default: none.
        mask: a mask that is combined with the one of each call; default: none.
        query_key_norm: normalizes queries and keys; default: none.
        gate: scales the contexts of H heads of width 2d; default: none.
        dropout: share of the weights set to zero in training, in [0, 1).
        bias: whether the projections have a bias.

    Raises:
        TypeError: a part has the wrong class.
        ValueError: ``dim`` is not a multiple of ``2 · heads``, or as in ``MultiHeadAttention``.

    Source: Ye et al. 2024, section 2.1.

    Example:
        >>> import torch
        >>> DifferentialAttention(8, heads=2)(torch.zeros(1, 3, 8), torch.zeros(1, 5, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        layer: int = 1,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        key_heads: int | None = None,
        score: Score | None = None,
        normalize: Normalizer | None = None,
        positions: RelativePositions | None = None,
        mask: Mask | None = None,
        query_key_norm: QueryKeyNorm | None = None,
        gate: OutputGate | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        if heads < 1 or dim % (2 * heads):
            raise ValueError(
                f"dim {dim} is not a multiple of 2 · heads = {2 * heads}: each head has two maps"
            )
        width = dim // (2 * heads)
        mixing = Differential(heads, width, layer)
        super().__init__(
            dim,
            2 * heads,
            key_dim=key_dim,
            value_dim=value_dim,
            key_heads=2 * (heads if key_heads is None else key_heads),
            score=score,
            normalize=normalize,
            positions=positions,
            mask=mask,
            query_key_norm=query_key_norm,
            mixing=mixing,
            gate=gate,
            dropout=dropout,
            bias=bias,
        )
        self.share = 1.0 - mixing.initial
        self.head_norm = nn.RMSNorm(2 * width, eps=1e-5)

    def _context_sizes(self) -> tuple[int, int]:
        return self.heads // 2, 2 * self.head_dim

    def _for_all_heads(self, memory: Memory) -> Memory:
        """Join each pair's values, ``[B, 2G, K, d] -> [B, G, K, 2d]``, and repeat groups."""
        pairs = memory.value.unflatten(-3, (self.key_heads // 2, 2))  # [B, G, 2, K, d]
        value = pairs.transpose(-3, -2).flatten(-2)
        if not (self.watched or self.watched_in_part):
            return Memory(memory.key, value)
        repeats = self.heads // self.key_heads
        return Memory(*(part.repeat_interleave(repeats, -3) for part in (memory.key, value)))

    def _joined(self, context: Tensor, query: Tensor) -> Tensor:
        return super()._joined(self.head_norm(context) * self.share, query)
