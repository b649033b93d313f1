"""The delta rule with heads, as a module.

Schlag et al. 2021, section 4.2, for each head of Vaswani et al. 2017, section 3.2.2; with decay,
Yang, Kautz, Hatamizadeh 2024. Shapes: B batch, H heads, L positions, D a head's width, F features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention.checking import refuse_positional
from heedful.attention.delta import DeltaState, delta_attend, delta_step, delta_weights
from heedful.attention.feature_maps import FeatureMap, SiluFeatures
from heedful.attention.linear import mask_of_keys
from heedful.attention.masks import Mask, causal
from heedful.attention.masks.use import mask_for_heads
from heedful.attention.short_convolution import ConvolvedState, parted
from heedful.attention.state_heads import StateAttention

_LEAST_RATE, _MOST_RATE = 1e-3, 1e-1


class DeltaAttention(StateAttention):
    """Causal multi-head attention by the delta rule, with a state instead of a cache.

    The memory of a head is a matrix. A position reads what the matrix has for its key, and writes
    the difference to its value, as strongly as it decides: β = sigmoid(w_β x). Features are
    divided by their sum, or by their length if the feature map has negative results. With
    ``decay``, the matrix shrinks by α = exp(−e^a softplus(w_α x + b)) before each step.

    It is called like :class:`~heedful.attention.MultiHeadAttention`, with a causal mask, because
    the order of writing matters. :meth:`step` is for decoding. Its weights may be negative and need
    not sum to 1.

    Args:
        dim: width of the states and of the result.
        heads: number of heads.
        head_dim: width of a head; ``dim / heads`` by default.
        feature_map: φ of queries and keys, applied to ``head_dim`` components; SiLU by default.
        decay: whether the memory decays (the gated delta rule).
        chunk: see :func:`~heedful.attention.delta_attend`.
        convolution: size of a causal convolution of queries, keys and values over the positions,
            before the feature map; 0 for none.
        bias: whether the four projections have a bias.

    Raises:
        ValueError: ``heads`` is below 1, ``dim`` is not a multiple of ``heads`` and ``head_dim`` is
            not given, or the chunk is below 1. At the call: shapes do not match, or the mask is not
            causal, or masks more than keys.

    Source: Schlag, Irie, Schmidhuber 2021, section 4.2; features divided by their length: Yang,
        Wang, Zhang, Shen, Kim 2024, section 3.3.

    Example:
        >>> from heedful.attention import masks
        >>> tokens = torch.zeros(1, 3, 8)
        >>> DeltaAttention(8, heads=2)(tokens, tokens, mask=masks.causal()).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        head_dim: int | None = None,
        feature_map: FeatureMap | None = None,
        decay: bool = False,
        chunk: int = 64,
        convolution: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__(
            dim,
            heads,
            key_dim=None,
            value_dim=None,
            head_dim=head_dim,
            feature_map=SiluFeatures() if feature_map is None else feature_map,
            chunk=chunk,
            convolution=convolution,
            bias=bias,
        )
        self.strength_projection = nn.Linear(dim, heads)
        self.decay_projection = nn.Linear(dim, heads) if decay else None
        self._reset(self.strength_projection)
        if self.decay_projection is not None:
            self.decay_rate = nn.Parameter(torch.linspace(1.0, 16.0, heads).log())
            self._reset(self.decay_projection)
            rates = torch.linspace(math.log(_LEAST_RATE), math.log(_MOST_RATE), heads).exp()
            with torch.no_grad():  # the inverse of softplus
                self.decay_projection.bias.copy_(rates + torch.log(-torch.expm1(-rates)))

    def _inputs(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        mask: Mask | Tensor | None,
        last: Tensor | None = None,
    ) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor | None, Tensor | None]:
        """Features of queries and keys, values ``[B, H, L, ..]`` and strength; log decay; the last
        inputs of the convolution."""
        q, k, v, last = self._projected(query, key, value, last)
        q, k = self._normalised(q), self._normalised(k)
        strength = self.strength_projection(key).sigmoid().transpose(-2, -1)
        decay = None
        if self.decay_projection is not None:
            rate = F.softplus(self.decay_projection(key)) * self.decay_rate.exp()
            decay = -rate.transpose(-2, -1)
        in_order, exists = mask_of_keys(mask_for_heads(mask, q.dim() - 1), q, k)
        if not in_order and key.shape[-2] > 1:
            raise ValueError(
                "the delta rule writes one position after another: pass mask=causal(), alone or "
                "joined with padding(lengths)"
            )
        if exists is not None:  # a key that is masked writes nothing
            exists = exists.squeeze(-2)
            strength = torch.where(exists, strength, 0.0)
            decay = None if decay is None else torch.where(exists, decay, 0.0)
        return (q, k, v, strength), decay, last

    def _normalised(self, vectors: Tensor) -> Tensor:
        features: Tensor = self.feature_map(vectors)
        if getattr(self.feature_map, "may_be_negative", False):
            return F.normalize(features, dim=-1, eps=1e-6)
        return features / features.sum(-1, keepdim=True).clamp(min=1e-6)

    def step(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        memory: DeltaState | ConvolvedState | None = None,
    ) -> tuple[Tensor, DeltaState | ConvolvedState]:
        """One or more steps of decoding: write ``key [B, L, dim]``, each position in turn, and
        read.

        Returns:
            The results ``[B, L, dim]`` and the new memory.

        Raises:
            ValueError: the module is watched: a matrix has no keys, and so no weights; or shapes do
                not match.
        """
        self._require_unwatched()
        state, last = parted(memory)
        given, decay, last = self._inputs(query, key, value, causal(), last)
        context, state = delta_step(*given, log_decay=decay, state=state, chunk=self.chunk)
        return self._joined(context), state if last is None else ConvolvedState(state, last)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        *others: object,
        mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """``[B, L, dim]`` for ``query``, ``key`` and ``value [B, L, dim]``, by default the keys.

        The mask is ``causal()``, or ``causal() & padding(lengths)``, or booleans ``[B, 1, L]`` in
        place of the padding; it is a keyword argument. A single position needs none.
        """
        refuse_positional(self, others)
        given, decay, _ = self._inputs(query, key, value, mask)
        q, k, v, strength = given
        if self.watched_in_part:

            def rows_of(rows: Tensor) -> Tensor:
                return delta_weights(q, k, strength, log_decay=decay, rows=rows)

            self.show_some(rows_of, q, k.shape[-2])
        if self.watched:
            weights = delta_weights(q, k, strength, log_decay=decay)
            self.show(weights)
            return self._joined(weights.to(v.dtype) @ v)
        context = delta_attend(*given, log_decay=decay, chunk=self.chunk)
        return self._joined(context)
