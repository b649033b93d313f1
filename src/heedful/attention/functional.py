"""The one equation: context = aggregate(normalize(mask(score(query, key))), value).

Shapes: Q queries, K keys, dq, dk, dv widths; ``..`` is any number of leading dimensions.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.additive import additive_context
from heedful.attention.block_sparse import block_sparse_context
from heedful.attention.checking import (
    check_dropout,
    check_inputs,
    heads_of_a_group,
)
from heedful.attention.dot import added_form, dot_context, supports
from heedful.attention.masks import Mask, split_mask
from heedful.attention.mechanism import FusedForm, Mechanism, ProjectedQuery
from heedful.attention.normalizers import Draw, Normalizer, Queries, Softmax
from heedful.attention.places import First
from heedful.attention.positions.base import RelativePositions
from heedful.attention.scores import ScaledDot, Score
from heedful.attention.scores.base import require_same_width
from heedful.basics.device import without_autocast

HALVES = (torch.bfloat16, torch.float16)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score | None = None,
    mask: Mask | Tensor | None = None,
    normalize: Normalizer | None = None,
    positions: RelativePositions | None = None,
    dropout: float = 0.0,
    first: First | None = None,
) -> Tensor:
    """The context of each query: the sum of the values, weighted by the scores of their keys.

    Args:
        query: ``[.., Q, dq]``.
        key: ``[.., K, dk]``. With four or more dimensions, ``[.., B, G, K, dk]``, it may have fewer
            heads G than the query's H: each is read by H / G heads, in order (grouped heads).
        value: ``[.., K, dv]``, with as many heads as the key.
        score: compares queries with keys; scaled dot product by default.
        mask: a mask; booleans that broadcast to ``[.., Q, K]``, true = may attend; or numbers that
            are added to the scores, where −∞ (or the lowest number of the type) masks a key and NaN
            makes the row NaN. A query that may attend to nothing gets zeros. The values of masked
            keys do not matter as long as they are finite (on a GPU and under ``torch.compile``,
            their products with queries and gradients must be finite as well).
        normalize: scores to weights; softmax by default.
        positions: rotates queries and keys, or changes scores and values; none by default.
        dropout: share of the weights set to zero, in [0, 1); pass 0 in evaluation.
        first: position of the first query, for all entries or for each, ``[B]``; or the positions
            of all queries, ``[B, Q]``. Keys are at positions 0, 1, … By default the last query is
            at the position of the last key (and local-m counts queries from 0).

    Returns:
        ``[.., Q, dv]``, by the fastest exact path: fused for a dot product with softmax, tile by
        tile for an additive score with softmax, plain otherwise. It has the type of the values;
        under ``torch.autocast`` it has autocast's type, unless the values are float64, as with
        ``scaled_dot_product_attention``.

    Raises:
        TypeError: a tensor is not floating-point, or a mask or part has the wrong class.
        ValueError: shapes do not match, or dropout is not in [0, 1).

    Source: Bahdanau et al. 2015, section 3.1; Vaswani et al. 2017, section 3.2.

    Example:
        >>> import torch
        >>> keys = torch.tensor([[8.0, 0.0], [0.0, 8.0]])
        >>> attend(torch.tensor([[9.0, 0.0]]), keys, torch.tensor([[1.0], [2.0]]))
        tensor([[1.]])
    """
    mechanism = _mechanism(score, normalize, positions)
    check_inputs(grouped=True, query=query, key=key, value=value)
    check_dropout(dropout)
    projected_query = ProjectedQuery.project(mechanism, query, key.shape[-2], first)
    keys = mechanism.remember(key)
    return attend_projected(mechanism, projected_query, keys, value, mask, dropout)


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    score: Score | None = None,
    mask: Mask | Tensor | None = None,
    normalize: Normalizer | None = None,
    positions: RelativePositions | None = None,
    first: First | None = None,
) -> Tensor:
    """The weights ``[.., Q, K]`` with which :func:`attend` sums the values; same arguments.

    This is the plain path, and the definition of the fused one.

    Raises:
        TypeError: as :func:`attend`.
        ValueError: as :func:`attend`.

    Source: Bahdanau et al. 2015, section 3.1, equation 6; Vaswani et al. 2017, equation 1.

    Example:
        >>> import torch
        >>> attention_weights(torch.zeros(1, 2), torch.zeros(2, 2))
        tensor([[0.5000, 0.5000]])
    """
    mechanism = _mechanism(score, normalize, positions)
    check_inputs(grouped=True, query=query, key=key)
    projected_query = ProjectedQuery.project(mechanism, query, key.shape[-2], first)
    keys, each = mechanism.remember(key), heads_of_a_group(query, key)
    if each > 1:
        keys = keys.repeat_interleave(each, dim=-3)
    return projected_weights(mechanism, projected_query, keys, mask)[0]


_PLAIN = Mechanism(ScaledDot(), Softmax())


def _mechanism(
    score: Score | None, normalize: Normalizer | None, positions: RelativePositions | None
) -> Mechanism:
    if score is None and normalize is None and positions is None:
        return _PLAIN
    return Mechanism(
        _PLAIN.score if score is None else score,
        _PLAIN.normalize if normalize is None else normalize,
        positions,
    ).check()


def attend_projected(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    dropout: float,
) -> Tensor:
    """:func:`attend` for queries and keys that are already projected."""
    sparse = None
    if isinstance(mask, Mask):
        sparse = block_sparse_context(mechanism, projected_query, key, value, mask, dropout)
    if sparse is None:
        context = _context(mechanism, projected_query, key, value, mask, dropout)
    else:
        context = sparse
    dtype = _autocast_dtype(value)
    return context if dtype is None else context.to(dtype)


def _autocast_dtype(value: Tensor) -> torch.dtype | None:
    """The type of PyTorch's fused attention under autocast; None without it, and for float64."""
    device = value.device.type
    if value.dtype == torch.float64 or not torch.amp.is_autocast_available(device):
        return None
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _context(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    dropout: float,
) -> Tensor:
    if mechanism.mixing is not None and mechanism.mixing.contexts_suffice:
        value = mechanism.mixing.spread_values(value)
        apart = replace(mechanism, mixing=None)
        contexts = _context(apart, projected_query, key, value, mask, dropout)
        return mechanism.mixing.mix_contexts(contexts)
    query, positions = projected_query.projected, mechanism.positions
    if isinstance(mask, Mask):
        mask = mask.of_vectors(query, key, projected_query.first)
    form = mechanism.fused_form(query.shape[-1])
    biased = positions is not None and positions.biases
    if form is not None and supports(form, query, mask, dropout, biased=biased):
        return _fused(mechanism, projected_query, key, value, mask, dropout, form)
    each = heads_of_a_group(query, key, value)
    if each > 1:
        key, value = (part.repeat_interleave(each, dim=-3) for part in (key, value))
    vector, softmax_scale = mechanism.tanh_vector(), mechanism.softmax_scale()
    plain = positions is not None or mechanism.mixing is not None
    adds = isinstance(mask, Tensor) and mask.is_floating_point()
    if vector is not None and softmax_scale is not None and not (plain or adds):
        grid = projected_query.grid(key)
        given = query, key, value, vector, mask, grid
        tiled = additive_context(*given, scale=softmax_scale, dropout=dropout)
        if tiled is not None:
            return tiled
    weights, _ = projected_weights(mechanism, projected_query, key, mask)
    return aggregate(mechanism, projected_query, weights, value, dropout)


def _fused(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    dropout: float,
    form: FusedForm,
) -> Tensor:
    """The context by fused kernels; only a mask or a bias has the size ``[.., Q, K]``."""
    query, keys = projected_query.projected, key.shape[-2]
    require_same_width(query, key)
    grid = None if mask is None else projected_query.grid(key)
    softmax_scale = mechanism.normalize.softmax_scale() or 1.0
    adds, added = isinstance(mask, Tensor) and mask.is_floating_point(), False
    if mechanism.positions is not None or (adds and softmax_scale != 1.0):
        grid = projected_query.grid(key)
        allowed, bias = split_mask(mask, grid)
        placed = position_bias(mechanism, projected_query, keys)
        if bias is not None:
            bias = bias * softmax_scale
        bias = placed if bias is None else bias if placed is None else bias + placed
        if bias is not None:
            mask, added = added_form(allowed, bias, query.dtype), True
    return dot_context(query, key, value, mask, grid, form=form, dropout=dropout, added=added)


def position_bias(
    mechanism: Mechanism, projected_query: ProjectedQuery, keys: int
) -> Tensor | None:
    """What positions add to ``scale · q · kᵀ`` before the softmax, broadcastable to ``[.., Q, K]``,
    for a mechanism with a :class:`FusedForm`; None for nothing."""
    if mechanism.positions is None:
        return None
    query = projected_query.projected
    dot_scale = mechanism.score.dot_scale(query.shape[-1]) or 1.0
    bias = mechanism.positions.bias(query, keys, projected_query.key_places(keys), dot_scale)
    softmax_scale = mechanism.normalize.softmax_scale() or 1.0
    return bias if bias is None or softmax_scale == 1.0 else bias * softmax_scale


def projected_weights(
    mechanism: Mechanism, projected_query: ProjectedQuery, key: Tensor, mask: Mask | Tensor | None
) -> tuple[Tensor, Draw | None]:
    """:func:`attention_weights` for queries and keys that are already projected.

    Half-precision inputs are compared and normalized in float32, as in the fused kernels.

    Returns:
        Weights ``[.., Q, K]``; log-probability and entropy of the sampled weights, or None if they
        are not sampled or need no reward.
    """
    query = projected_query.projected
    if isinstance(mask, Mask):
        mask = mask.of_vectors(query, key, projected_query.first)
    if query.dtype in HALVES:
        with without_autocast(query):
            return _weights(mechanism, projected_query, query.float(), key.float(), mask)
    return _weights(mechanism, projected_query, query, key, mask)


def projected_scores(
    mechanism: Mechanism, projected_query: ProjectedQuery, key: Tensor, mask: Mask | Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The scores that are normalized ``[.., Q, K]``, and which keys are allowed, None for all.

    Half-precision inputs are compared in float32.
    """
    query = projected_query.projected
    if isinstance(mask, Mask):
        mask = mask.of_vectors(query, key, projected_query.first)
    if query.dtype in HALVES:
        with without_autocast(query):
            return _scores(mechanism, projected_query, query.float(), key.float(), mask)
    return _scores(mechanism, projected_query, query, key, mask)


def _scores(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    query: Tensor,
    key: Tensor,
    mask: Mask | Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    if mechanism.positions is None:
        scores = mechanism.score.compare(query, key)
    else:
        places = projected_query.key_places(key.shape[-2])
        scores = mechanism.positions.compare(mechanism.score, query, key, places)
    if mechanism.mixing is not None:
        scores = mechanism.mixing.mix_scores(scores)
    allowed, bias = (
        split_mask(mask, projected_query.grid(key)) if mask is not None else (None, None)
    )
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores, allowed


def _weights(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    query: Tensor,
    key: Tensor,
    mask: Mask | Tensor | None,
) -> tuple[Tensor, Draw | None]:
    scores, allowed = _scores(mechanism, projected_query, query, key, mask)
    queries = None
    if mechanism.softmax_scale() is None:
        first = 0 if projected_query.first is None else projected_query.first
        queries = Queries(projected_query.vectors, projected_query.places(first))
    weights: Tensor = mechanism.normalize(scores, allowed, queries)
    log_probability = mechanism.normalize.log_probability(scores, allowed, weights)
    if mechanism.mixing is not None:
        weights = mechanism.mixing.mix_weights(weights)
    if log_probability is None:
        return weights, None
    return weights, Draw(log_probability, mechanism.normalize.entropy(scores, allowed))


def aggregate(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    weights: Tensor,
    value: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """The sum ``[.., Q, dv]`` of values ``[.., K, dv]`` with weights ``[.., Q, K]``."""
    if dropout:
        weights = F.dropout(weights, dropout)
    weights = weights.to(value.dtype)
    context = weights @ value
    if mechanism.positions is not None:
        added = mechanism.positions.context(weights, projected_query.key_places(value.shape[-2]))
        if added is not None:
            context = context + added
    return context
