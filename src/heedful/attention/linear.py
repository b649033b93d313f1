"""Linearized attention: c_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j).

Katharopoulos, Vyas, Pappas, Fleuret 2020, "Transformers are RNNs: Fast Autoregressive Transformers
with Linear Attention", sections 3.2 to 3.4. The score is φ(q)ᵀφ(k), the normalizer a plain sum;
without an exponential, the keys and values can be summed before any query is known:

    S = Σ_j φ(k_j) v_jᵀ,   z = Σ_j φ(k_j),   c_i = φ(q_i)ᵀS / φ(q_i)ᵀz        (equations 4 to 6)

and under a causal mask S and z are running sums (equations 8 to 12), a recurrent network's state
(equations 16 to 20). There are three equivalent forms:

- parallel, :func:`linear_weights`: all weights ``[.., Q, K]``; the definition.
- chunked, :func:`linear_attend`: weights within chunks of the sequence, sums between them.
- recurrent, :func:`linear_step`: a :class:`LinearState` that is passed from step to step.

Half-precision inputs are mapped and summed in float32, also under autocast.
Shapes: Q queries, K keys, F features, C a chunk's length, N chunks, dv width of the values.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.checking import check_inputs
from heedful.attention.feature_maps import EluPlusOne, FeatureMap
from heedful.attention.masks import Causal, Mask, dense_mask
from heedful.attention.masks.algebra import Combined, Dense
from heedful.basics.device import without_autocast
from heedful.basics.shapes import leading_sizes

_HALVES = (torch.bfloat16, torch.float16)
_ELU_PLUS_ONE = EluPlusOne()


class LinearState(NamedTuple):
    """The sums over all keys and values so far; its size is independent of their number.

    Example:
        >>> state = linear_state(torch.zeros(2, 5, 3), torch.ones(2, 5, 4))
        >>> state.select(torch.tensor([1, 1, 0])).S.shape
        torch.Size([3, 3, 4])
    """

    S: Tensor
    """``Σ φ(k) vᵀ``: ``[.., F, dv]``."""
    z: Tensor
    """``Σ φ(k)``: ``[.., F]``."""

    def select(self, rows: Tensor) -> "LinearState":
        """The entries ``rows [M]`` of the first dimension: reorders, repeats and removes."""
        return LinearState(self.S[rows], self.z[rows])


def linear_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    feature_map: FeatureMap | None = None,
    mask: Mask | Tensor | None = None,
    state: LinearState | None = None,
    chunk: int = 64,
) -> Tensor:
    """The context of each query by linearized attention, in time linear in Q and K.

    Args:
        query: ``[.., Q, d]``.
        key: ``[.., K, d]``.
        value: ``[.., K, dv]``.
        feature_map: φ, with non-negative results; elu + 1 by default.
        mask: ``causal()``, ``padding(lengths)``, both joined by ``&``, or booleans that broadcast
            to ``[.., 1, K]``, true = may attend. Other masks are not supported, because the keys
            are summed before a query is known.
        state: of earlier keys and values; every query may attend to them.
        chunk: under a causal mask, the number of positions that are compared with one another at a
            time. It changes only the cost: memory is Q·(chunk + F·dv / chunk) numbers for each
            batch entry.

    Returns:
        ``[.., Q, dv]``. A query that may attend to nothing, or whose features have a product of
        (almost) zero with those of every key, gets zeros, with zero gradients.

    Raises:
        TypeError: a tensor is not floating-point, or the mask is not a mask or boolean.
        ValueError: shapes do not match, the mask is not supported, or the chunk is below 1.

    Source: Katharopoulos et al. 2020, sections 3.2 and 3.3.

    Example:
        >>> keys = torch.tensor([[8.0, -9.0], [-9.0, 8.0]])
        >>> linear_attend(torch.tensor([[9.0, -9.0]]), keys, torch.tensor([[1.0], [2.0]])).round()
        tensor([[1.]])
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, not {chunk}")
    check_inputs(query=query, key=key, value=value)
    causal, allowed = mask_of_keys(mask, query, key)
    with without_autocast(query):
        features, keys = _features(query, key, feature_map, allowed)
        values = _wide(value)
        _require_state(state, keys, values)
        if causal:
            context = _causal_context(features, keys, values, state, chunk)
        else:
            context = _read(features, _add(keys, values, state))
    return context.to(value.dtype)


def linear_weights(
    query: Tensor,
    key: Tensor,
    *,
    feature_map: FeatureMap | None = None,
    mask: Mask | Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """The weights ``[.., Q, K]`` with which :func:`linear_attend` sums the values.

    They define that function, which itself never computes them. Memory is quadratic.

    Args:
        query: ``[.., Q, d]``.
        key: ``[.., K, d]``.
        feature_map: as in :func:`linear_attend`.
        mask: as in :func:`linear_attend`.
        rows: indices ``[R]`` of the queries to return weights for; all by default.

    Returns:
        ``[.., Q, K]`` or ``[.., R, K]``; in float32 for half precision.

    Raises:
        TypeError: as :func:`linear_attend`.
        ValueError: as :func:`linear_attend`.

    Source: Katharopoulos et al. 2020, section 3.2, equations 3 and 4.

    Example:
        >>> linear_weights(torch.zeros(1, 2), torch.zeros(2, 2))
        tensor([[0.5000, 0.5000]])
    """
    check_inputs(query=query, key=key)
    causal, allowed = mask_of_keys(mask, query, key)
    first = key.shape[-2] - query.shape[-2]
    if rows is None:
        rows = torch.arange(query.shape[-2], device=query.device)
    else:
        query = query[..., rows, :]
    with without_autocast(query):
        features, keys = _features(query, key, feature_map, allowed)
        similarity = features @ keys.transpose(-2, -1)
        if causal:
            places = torch.arange(key.shape[-2], device=query.device)
            similarity = similarity.masked_fill(places > (rows + first).unsqueeze(-1), 0.0)
        return _divided(similarity, similarity.sum(-1))


def linear_state(
    key: Tensor,
    value: Tensor,
    *,
    feature_map: FeatureMap | None = None,
    mask: Mask | Tensor | None = None,
    state: LinearState | None = None,
) -> LinearState:
    """The sums over ``key [.., K, d]`` and ``value [.., K, dv]``, added to ``state``.

    Args:
        key: ``[.., K, d]``.
        value: ``[.., K, dv]``.
        feature_map: as in :func:`linear_attend`.
        mask: which keys exist: ``padding(lengths)``, or booleans that broadcast to
            ``[.., 1, K]``.
        state: of earlier keys and values.

    Raises:
        TypeError: as :func:`linear_attend`.
        ValueError: as :func:`linear_attend`; or the mask is causal.

    Example:
        >>> linear_state(torch.zeros(5, 2), torch.ones(5, 3)).S
        tensor([[5., 5., 5.],
                [5., 5., 5.]])
    """
    check_inputs(key=key, value=value)
    causal, allowed = mask_of_keys(mask, key[..., :1, :], key)
    if causal:
        raise ValueError(
            "mask: all later queries read the same state, so the mask cannot be causal"
        )
    with without_autocast(key):
        _, keys = _features(key[..., :0, :], key, feature_map, allowed)
        values = _wide(value)
        _require_state(state, keys, values)
        return _add(keys, values, state)


def linear_read(
    query: Tensor, state: LinearState, *, feature_map: FeatureMap | None = None
) -> Tensor:
    """The context ``[.., Q, dv]`` of ``query [.., Q, d]`` over the keys and values of a state.

    Raises:
        TypeError: the query is not floating-point.
        ValueError: the query and the state have different numbers of features.

    Source: Katharopoulos et al. 2020, section 3.4, equation 20.

    Example:
        >>> state = linear_state(torch.zeros(5, 2), torch.ones(5, 3))
        >>> linear_read(torch.zeros(1, 2), state)
        tensor([[1., 1., 1.]])
    """
    check_inputs(query=query)
    with without_autocast(query):
        features = (feature_map or _ELU_PLUS_ONE)(_wide(query))
        if features.shape[-1] != state.z.shape[-1]:
            raise ValueError(
                f"query {list(query.shape)} has {features.shape[-1]} features: "
                f"expected {state.z.shape[-1]}, as in the state"
            )
        return _read(features, state).to(query.dtype)


def linear_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: LinearState | None = None,
    *,
    feature_map: FeatureMap | None = None,
) -> tuple[Tensor, LinearState]:
    """One step of the recurrent form: add a key and its value, then read.

    Args:
        query: ``[.., 1, d]``; or several positions, each of which attends to those up to itself.
        key: ``[.., 1, d]``, as many as queries.
        value: ``[.., 1, dv]``.
        state: after the previous step; None at the first step.
        feature_map: as in :func:`linear_attend`.

    Returns:
        The context ``[.., 1, dv]`` and the state after this step.

    Raises:
        TypeError: as :func:`linear_attend`.
        ValueError: as :func:`linear_attend`; or the numbers of keys and queries differ.

    Source: Katharopoulos et al. 2020, section 3.4, equations 16 to 20.

    Example:
        >>> state = None
        >>> for position in torch.ones(3, 1, 2):
        ...     context, state = linear_step(position, position, position, state)
        >>> state.z
        tensor([6., 6.])
    """
    check_inputs(query=query, key=key, value=value)
    if query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"query {list(query.shape)} and key {list(key.shape)}: a step needs one key for each "
            "query"
        )
    after = linear_state(key, value, feature_map=feature_map, state=state)
    if query.shape[-2] == 1:
        return linear_read(query, after, feature_map=feature_map).to(value.dtype), after
    context = linear_attend(query, key, value, feature_map=feature_map, mask=Causal(), state=state)
    return context, after


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in _HALVES else tensor


def _features(
    query: Tensor, key: Tensor, feature_map: FeatureMap | None, allowed: Tensor | None
) -> tuple[Tensor, Tensor]:
    """φ of the queries and of the keys, with zeros for masked keys."""
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query {list(query.shape)} and key {list(key.shape)} differ in their last dimension; "
            "linearized attention needs equal widths"
        )
    feature_map = feature_map or _ELU_PLUS_ONE
    queries, keys = feature_map(_wide(query)), feature_map(_wide(key))
    if allowed is not None:
        keys = torch.where(allowed.transpose(-2, -1), keys, 0.0)
    return queries, keys


def _add(keys: Tensor, values: Tensor, state: LinearState | None) -> LinearState:
    S = keys.transpose(-2, -1) @ values
    z = keys.sum(-2).expand(S.shape[:-1])
    return LinearState(S, z) if state is None else LinearState(state.S + S, state.z + z)


def _read(queries: Tensor, state: LinearState) -> Tensor:
    return _divided(queries @ state.S, (queries @ state.z.unsqueeze(-1)).squeeze(-1))


def _divided(numerator: Tensor, denominator: Tensor) -> Tensor:
    """``[.., Q, dv]`` divided by ``[.., Q]``; zero where the denominator is (almost) zero.

    The gradient divides twice, so it overflows for larger denominators than the quotient does.
    """
    nothing = (denominator < torch.finfo(denominator.dtype).tiny ** 0.75).unsqueeze(-1)
    quotient = numerator / denominator.unsqueeze(-1).masked_fill(nothing, 1.0)
    return quotient.masked_fill(nothing, 0.0)


def _causal_context(
    queries: Tensor, keys: Tensor, values: Tensor, state: LinearState | None, chunk: int
) -> Tensor:
    """The last query is at the last key; each attends to the keys up to its own position."""
    length, early = queries.shape[-2], keys.shape[-2] - queries.shape[-2]
    if early > 0:
        state = _add(keys[..., :early, :], values[..., :early, :], state)
        keys, values = keys[..., early:, :], values[..., early:, :]
    elif early < 0:  # Pad with keys without features before the first.
        keys, values = (F.pad(part, (0, 0, -early, 0)) for part in (keys, values))
    size = max(1, min(chunk, length))
    number = max(1, -(-length // size))
    rest = number * size - length
    queries, keys, values = (
        F.pad(part, (0, 0, 0, rest)).unflatten(-2, (number, size))
        for part in (queries, keys, values)
    )  # [.., N, C, F]
    within = (queries @ keys.transpose(-2, -1)).tril()  # [.., N, C, C]
    # A chunk reads the sums of the chunks before it: cumulative sums, shifted by one.
    S = F.pad((keys.transpose(-2, -1) @ values).cumsum(-3), (0, 0, 0, 0, 1, -1))  # [.., N, F, dv]
    z = F.pad(keys.sum(-2).cumsum(-2), (0, 0, 1, -1))  # [.., N, F]
    if state is not None:
        S, z = S + state.S.unsqueeze(-3), z + state.z.unsqueeze(-2)
    numerator = within @ values + queries @ S
    denominator = within.sum(-1) + (queries @ z.unsqueeze(-1)).squeeze(-1)
    return _divided(numerator, denominator).flatten(-3, -2)[..., :length, :]


def _require_state(state: LinearState | None, keys: Tensor, values: Tensor) -> None:
    if state is None:
        return
    given, expected = list(state.S.shape[-2:]), [keys.shape[-1], values.shape[-1]]
    if given != expected or state.z.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"state has S {list(state.S.shape)} and z {list(state.z.shape)}: expected "
            f"[.., {expected[0]}, {expected[1]}] and [.., {expected[0]}]"
        )


def mask_of_keys(
    mask: Mask | Tensor | None, query: Tensor, key: Tensor
) -> tuple[bool, Tensor | None]:
    """Whether a mask is causal, and which keys it allows, ``[.., 1, K]``, or None for all."""
    shape = (
        *leading_sizes(query, key),
        query.shape[-2],
        key.shape[-2],
    )
    if isinstance(mask, Tensor) and mask.is_floating_point():
        raise TypeError(
            "mask must be boolean (true = may attend): linearized attention has no scores to add "
            f"{mask.dtype} numbers to"
        )
    causal, allowed = False, None
    for part in _parts(mask):
        if isinstance(part, Causal):
            causal = True
            continue
        if isinstance(part, Mask) and not isinstance(part, Dense) and part.paddings != (part,):
            raise _unsupported(type(part).__name__)
        some = dense_mask(part, shape, key.device)
        if some is None:
            continue
        some = some.reshape(*[1] * (2 - some.dim()), *some.shape)
        if some.shape[-2] != 1:
            raise _unsupported(f"{list(some.shape)}")
        allowed = some if allowed is None else allowed & some
    if allowed is not None:
        allowed = allowed.expand(*allowed.shape[:-1], key.shape[-2])
    return causal, allowed


def _parts(mask: Mask | Tensor | None) -> list[Mask | Tensor]:
    """The masks that are joined by ``&``."""
    if isinstance(mask, Combined) and mask.sign == "&":
        return [*_parts(mask.one), *_parts(mask.other)]
    return [] if mask is None else [mask]


def _unsupported(what: str) -> ValueError:
    return ValueError(
        f"mask {what} differs from query to query; linearized attention sums the keys before it "
        "sees a query, so that only causal(), padding(lengths), the two joined by &, or booleans "
        "[.., 1, K] are supported"
    )
