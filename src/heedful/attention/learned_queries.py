"""Learned queries: a fixed number of vectors that attend to an input of any length.

    Z = Attn(S, X, X)   with the learned queries S [n, D]

The cross-attention of the latents of Jaegle et al. 2021, "Perceiver: General Perception with
Iterative Attention", section 3.1, and the pooling by multi-head attention (PMA) of Lee et al. 2019,
"Set Transformer: A Framework for Attention-based Permutation-Invariant Neural Networks", section
3.2. With ``residual`` the queries are added, as in both.
Shapes: B batch, n queries, K keys, D width.
"""

import torch
from torch import Tensor, nn

from heedful.attention.checking import check_inputs, check_part
from heedful.attention.latent import LatentAttention
from heedful.attention.masks import Causal, Mask
from heedful.attention.multi_head import MultiHeadAttention


class LearnedQueries(nn.Module):
    """``[B, K, key_dim] -> [B, n, D]``, for any number of keys.

    Parameters: ``latents`` (S) ``[count, dim]``, drawn from N(0, 0.02²), cut at two standard
    deviations, and those of the attention.

    Args:
        attention: the multi-head attention; its queries have width ``dim``.
        count: number of queries n.
        dim: width D of the queries; that of the attention.
        residual: whether the queries are added to the result, S + Attn(S, X, X).

    Raises:
        TypeError: ``attention`` has another class.
        ValueError: ``count`` is below 1, the attention has positions, or ``dim`` differs from the
            width of its queries, or of its results where they are added.

    Source: Jaegle et al. 2021, section 3.1; Lee et al. 2019, section 3.2.

    Example:
        >>> pool = LearnedQueries(MultiHeadAttention(8, heads=2, key_dim=5), count=3, dim=8)
        >>> pool(torch.zeros(4, 100, 5)).shape  # [B, n, D]
        torch.Size([4, 3, 8])
    """

    def __init__(
        self, attention: MultiHeadAttention, count: int, dim: int, *, residual: bool = False
    ) -> None:
        super().__init__()
        check_part("attention", attention, MultiHeadAttention)
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        if attention.query_dim != dim:
            raise ValueError(
                f"dim {dim} differs from the width of the attention's queries, "
                f"{attention.query_dim}"
            )
        rotated = isinstance(attention, LatentAttention) and attention.rotary is not None
        if attention.positions is not None or rotated:
            raise ValueError(
                "learned queries have no positions: add positions to the input, and use an "
                "attention without"
            )
        if residual and attention.output_projection is None:
            raise ValueError("queries can only be added to a result of width dim: use a projection")
        self.attention, self.residual = attention, residual
        self.latents = nn.Parameter(torch.empty(count, dim))
        nn.init.trunc_normal_(self.latents, std=0.02, a=-0.04, b=0.04)

    def forward(
        self, x: Tensor, value: Tensor | None = None, mask: Mask | Tensor | None = None
    ) -> Tensor:
        """The results ``[B, n, D]`` of all queries.

        Args:
            x: the keys ``[B, K, key_dim]``.
            value: ``[B, K, value_dim]``; the keys by default.
            mask: which keys exist: ``padding(lengths)``, or a tensor that broadcasts to
                ``[B, n, K]``. A causal mask has no meaning.

        Raises:
            TypeError: a tensor is not floating-point, or the mask has the wrong class.
            ValueError: shapes do not match, or the mask is causal.
        """
        check_inputs(x=x)
        if isinstance(mask, Causal):
            raise ValueError(  # noqa: TRY004
                "a causal mask has no meaning: learned queries have no positions"
            )
        queries = self.latents.to(x.dtype).expand(*x.shape[:-2], -1, -1)
        result: Tensor = self.attention(queries, x, value, mask=mask)
        return queries + result if self.residual else result

    def extra_repr(self) -> str:
        return f"{len(self.latents)}, residual={self.residual}"
