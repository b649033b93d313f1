"""Linearized attention with heads, as a module.

Katharopoulos et al. 2020, section 3.2, for each head of Vaswani et al. 2017, section 3.2.2.
Shapes: B batch, H heads, Q queries, K keys, D a head's width, F features.
"""

from torch import Tensor

from heedful.attention.checking import check_inputs, refuse_positional
from heedful.attention.feature_maps import EluPlusOne, FeatureMap
from heedful.attention.linear import (
    LinearState,
    linear_attend,
    linear_read,
    linear_state,
    linear_step,
    linear_weights,
)
from heedful.attention.masks import Mask
from heedful.attention.masks.use import mask_for_heads
from heedful.attention.short_convolution import ConvolvedState, parted
from heedful.attention.state_heads import StateAttention


class LinearAttention(StateAttention):
    """Multi-head attention in time linear in the sequence, with a state instead of a cache.

    It is called like :class:`~heedful.attention.MultiHeadAttention`. Two things differ, because the
    keys are summed before a query is known: the mask is passed to :meth:`remember` instead of
    :meth:`read`; and the memory, a :class:`LinearState`, does not grow with the number of keys.
    :meth:`step` is for decoding.

    Args:
        dim: width of the queries and of the result.
        heads: number of heads.
        key_dim: width of the keys; ``dim`` by default.
        value_dim: width of the values; ``key_dim`` by default.
        head_dim: width of a head; ``dim / heads`` by default.
        feature_map: φ, applied to ``head_dim`` components, with non-negative results; elu + 1 by
            default.
        chunk: see :func:`~heedful.attention.linear_attend`.
        convolution: size of a causal convolution of queries, keys and values over the positions,
            before the feature map; 0 for none. With it, the module is called with queries and keys
            of the same positions, or steps.
        bias: whether the four projections have a bias.

    Raises:
        ValueError: ``heads`` is below 1, ``dim`` is not a multiple of ``heads`` and ``head_dim`` is
            not given, or the chunk is below 1.

    Example:
        >>> import torch
        >>> from heedful.attention import masks
        >>> tokens = torch.zeros(1, 3, 8)
        >>> LinearAttention(8, heads=2)(tokens, tokens, mask=masks.causal()).shape
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
        feature_map: FeatureMap | None = None,
        chunk: int = 64,
        convolution: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__(
            dim,
            heads,
            key_dim=key_dim,
            value_dim=value_dim,
            head_dim=head_dim,
            feature_map=EluPlusOne() if feature_map is None else feature_map,
            chunk=chunk,
            convolution=convolution,
            bias=bias,
        )

    def remember(
        self, key: Tensor, value: Tensor | None = None, mask: Mask | Tensor | None = None
    ) -> LinearState:
        """The sums over ``key [B, K, key_dim]`` and ``value``, by default the keys.

        The mask states which keys exist: ``padding(lengths)``, or booleans ``[1, K]``,
        ``[B, 1, K]`` (for all heads) or ``[B, H, 1, K]``.

        Raises:
            ValueError: there is a convolution.
        """
        self._require_no_convolution()
        value = key if value is None else value
        check_inputs(key=key, value=value)
        keys, values = (
            self._split(part) for part in (self.key_projection(key), self.value_projection(value))
        )
        mask = mask_for_heads(mask, keys.dim() - 1)
        return linear_state(keys, values, feature_map=self.feature_map, mask=mask)

    def read(self, query: Tensor, memory: LinearState) -> Tensor:
        """The result ``[B, Q, dim]`` for ``query [B, Q, dim]`` over the memory.

        Raises:
            ValueError: the module is watched: a state of sums has no keys, and so no weights;
                or there is a convolution.
        """
        self._require_no_convolution()
        check_inputs(query=query)
        self._require_unwatched()
        queries = self._split(self.query_projection(query))
        return self._joined(linear_read(queries, memory, feature_map=self.feature_map))

    def step(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        memory: LinearState | ConvolvedState | None = None,
    ) -> tuple[Tensor, LinearState | ConvolvedState]:
        """One step of decoding: add ``key [B, 1, key_dim]`` to the memory, then read it.

        With several positions (a prompt), each attends to those up to itself.

        Returns:
            The result ``[B, 1, dim]`` and the new memory.

        Raises:
            ValueError: as :meth:`read`; or the numbers of keys and queries differ.
        """
        self._require_unwatched()
        state, last = parted(memory)
        queries, keys, values, last = self._projected(query, key, value, last)
        context, state = linear_step(queries, keys, values, state, feature_map=self.feature_map)
        return self._joined(context), state if last is None else ConvolvedState(state, last)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        *others: object,
        mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """``[B, Q, dim]`` for ``query [B, Q, dim]``, ``key [B, K, key_dim]`` and its values.

        The mask applies to weights ``[B, H, Q, K]`` and is a keyword argument. A tensor
        ``[B, 1, K]`` is for all heads. The supported masks and the errors are as in
        :func:`~heedful.attention.linear_attend`.
        """
        refuse_positional(self, others)
        queries, keys, values, _ = self._projected(query, key, value)
        mask = mask_for_heads(mask, queries.dim() - 1)
        if self.watched_in_part:

            def rows_of(rows: Tensor) -> Tensor:
                return linear_weights(
                    queries, keys, feature_map=self.feature_map, mask=mask, rows=rows
                )

            self.show_some(rows_of, queries, keys.shape[-2])
        if self.watched:
            weights = linear_weights(queries, keys, feature_map=self.feature_map, mask=mask)
            self.show(weights)
            return self._joined(weights.to(values.dtype) @ values)
        context = linear_attend(
            queries, keys, values, feature_map=self.feature_map, mask=mask, chunk=self.chunk
        )
        return self._joined(context)

    def _require_no_convolution(self) -> None:
        if self.convolution is not None:
            raise ValueError(
                "a convolution needs queries and keys of the same positions: call the module, or "
                "step()"
            )
