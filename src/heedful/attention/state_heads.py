"""What attention modules share that read a state of constant size instead of all keys."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from heedful.attention.checking import check_inputs
from heedful.attention.short_convolution import ShortConvolution
from heedful.attention.watching import Watchable


class StateAttention(Watchable, ABC):
    """Heads with projections, whose memory does not grow with the number of keys.

    Args:
        dim: width of the queries and of the result.
        heads: number of heads.
        key_dim: width of the keys; ``dim`` by default.
        value_dim: width of the values; ``key_dim`` by default.
        head_dim: width of a head; ``dim / heads`` by default.
        feature_map: φ, applied to ``head_dim`` components.
        chunk: the number of positions that are compared with one another at a time.
        convolution: size of a causal convolution of queries, keys and values over the positions; 0
            for none. Queries and keys are then those of the same positions.
        bias: whether the four projections have a bias.

    Raises:
        ValueError: ``heads`` is below 1, ``dim`` is not a multiple of ``heads`` and ``head_dim`` is
            not given, or the chunk is below 1.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_dim: int | None,
        value_dim: int | None,
        head_dim: int | None,
        feature_map: Any,
        chunk: int,
        convolution: int,
        bias: bool,
    ) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads must be at least 1, not {heads}")
        if head_dim is None and dim % heads:
            raise ValueError(f"dim {dim} is not a multiple of heads {heads}; give head_dim")
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        if convolution < 0:
            raise ValueError(f"convolution must be at least 0, not {convolution}")
        self.heads, self.head_dim, self.chunk = heads, head_dim or dim // heads, chunk
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        inner = heads * self.head_dim
        self.query_projection = nn.Linear(dim, inner, bias=bias)
        self.key_projection = nn.Linear(key_dim, inner, bias=bias)
        self.value_projection = nn.Linear(value_dim, inner, bias=bias)
        self.output_projection = nn.Linear(inner, dim, bias=bias)
        self.convolution = ShortConvolution(3 * inner, convolution) if convolution else None
        self.feature_map = feature_map
        for part in (self.query_projection, self.key_projection, self.value_projection):
            self._reset(part)
        self._reset(self.output_projection)

    @staticmethod
    def _reset(part: nn.Linear) -> None:
        nn.init.xavier_uniform_(part.weight)
        if part.bias is not None:
            nn.init.zeros_(part.bias)

    @abstractmethod
    def step(
        self, query: Tensor, key: Tensor, value: Tensor | None = None, memory: Any = None
    ) -> tuple[Tensor, Any]:
        """One step of decoding: add ``key [B, 1, key_dim]`` to the memory, then read it."""

    def _split(self, joined: Tensor) -> Tensor:
        """``[B, L, H·D] -> [B, H, L, D]``."""
        heads: Tensor = joined.unflatten(-1, (self.heads, self.head_dim))
        return heads.transpose(-3, -2)

    def _joined(self, context: Tensor) -> Tensor:
        """``[B, H, Q, D] -> [B, Q, dim]``."""
        result: Tensor = self.output_projection(context.transpose(-3, -2).flatten(-2))
        return result

    def _projected(
        self, query: Tensor, key: Tensor, value: Tensor | None, last: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values of the heads ``[B, H, L, D]``, convolved if there is a
        convolution, and its last inputs."""
        value = key if value is None else value
        check_inputs(query=query, key=key, value=value)
        q, k, v = (
            self.query_projection(query),
            self.key_projection(key),
            self.value_projection(value),
        )
        if self.convolution is not None:
            if q.shape != k.shape:
                raise ValueError(
                    "with a convolution, queries and keys are those of the same positions, but "
                    f"queries are {list(q.shape)} and keys {list(k.shape)}"
                )
            joined, last = self.convolution(torch.cat([q, k, v], -1), last)
            q, k, v = joined.chunk(3, -1)
        return self._split(q), self._split(k), self._split(v), last

    def _require_unwatched(self) -> None:
        if self.watched or self.watched_in_part:
            raise ValueError(
                f"the memory of {type(self).__name__} holds sums instead of keys, so there are no "
                "weights to watch; call the module with all keys instead"
            )
