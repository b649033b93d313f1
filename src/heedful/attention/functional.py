"""The one equation: context = aggregate(normalize(mask(score(query, key))), value).

Shapes: Q queries, K keys, dq, dk, dv widths; ``..`` is any number of leading dimensions.
"""

import itertools

import torch.nn.functional as F
from torch import Tensor

from heedful.attention.masks import Causal, Mask, dense_mask
from heedful.attention.normalizers import Normalizer, Softmax
from heedful.attention.scores import ScaledDot, Score
from heedful.attention.scores.base import require_same_width

_SCALED_DOT = ScaledDot()
_SOFTMAX = Softmax()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score | None = None,
    mask: Mask | Tensor | None = None,
    normalize: Normalizer | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The context of each query: the values' sum, weighted by how well their keys fit.

    Args:
        query: ``[.., Q, dq]``.
        key: ``[.., K, dk]``.
        value: ``[.., K, dv]``.
        score: how a query fits a key; scaled dot product unless given.
        mask: a mask, or booleans that broadcast to ``[.., Q, K]``, true = may attend. A query that
            may attend to nothing gets zeros. What a masked key and its value hold has no
            influence, as long as it is finite.
        normalize: scores to weights; softmax unless given.
        dropout: share of the weights set to zero, in [0, 1); 0 in evaluation.

    Returns:
        ``[.., Q, dv]``, by the fastest exact path (fused where the score is a dot product).

    Raises:
        TypeError: a tensor is not of floating point, or a mask not boolean.
        ValueError: shapes do not fit, or dropout is not in [0, 1).

    Source: Bahdanau et al. 2015, section 3.1; Vaswani et al. 2017, section 3.2.

    Example:
        >>> import torch
        >>> keys = torch.tensor([[8.0, 0.0], [0.0, 8.0]])
        >>> attend(torch.tensor([[9.0, 0.0]]), keys, torch.tensor([[1.0], [2.0]]))
        tensor([[1.]])
    """
    score, normalize = score or _SCALED_DOT, normalize or _SOFTMAX
    check_inputs(query=query, key=key, value=value)
    check_dropout(dropout)
    return attend_projected(
        score.project_query(query),
        score.project_key(key),
        value,
        score=score,
        mask=mask,
        normalize=normalize,
        dropout=dropout,
    )


def attend_projected(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score,
    mask: Mask | Tensor | None,
    normalize: Normalizer,
    dropout: float,
) -> Tensor:
    """:func:`attend` for queries and keys that went through the score's projections already."""
    scale = score.dot_scale(query.shape[-1])
    if scale is None or not normalize.is_softmax:
        weights = projected_weights(query, key, score=score, mask=mask, normalize=normalize)
        return aggregate(weights, value, dropout)
    require_same_width(query, key)
    shape = (*query.shape[:-1], key.shape[-2])
    if isinstance(mask, Causal) and shape[-1] == shape[-2]:
        # Square, so the kernel's top-left alignment is ours.
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True, scale=scale
        )
    allowed = dense_mask(mask, shape, query.device)
    if allowed is not None and allowed.dim() < 2:
        allowed = allowed.view(1, -1)  # The kernels ask for a query and a key dimension.
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, dropout_p=dropout, scale=scale
    )


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    score: Score | None = None,
    mask: Mask | Tensor | None = None,
    normalize: Normalizer | None = None,
) -> Tensor:
    """The weights ``[.., Q, K]`` by which :func:`attend` sums the values; same arguments.

    This is the plain path, and the definition of the fused one.

    Example:
        >>> import torch
        >>> attention_weights(torch.zeros(1, 2), torch.zeros(2, 2))
        tensor([[0.5000, 0.5000]])
    """
    score, normalize = score or _SCALED_DOT, normalize or _SOFTMAX
    check_inputs(query=query, key=key)
    return projected_weights(
        score.project_query(query),
        score.project_key(key),
        score=score,
        mask=mask,
        normalize=normalize,
    )


def projected_weights(
    query: Tensor,
    key: Tensor,
    *,
    score: Score,
    mask: Mask | Tensor | None,
    normalize: Normalizer,
) -> Tensor:
    """:func:`attention_weights` for queries and keys that are projected already."""
    scores = score.compare(query, key)
    weights: Tensor = normalize(scores, dense_mask(mask, scores.shape, scores.device))
    return weights


def aggregate(weights: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
    """The weighted sum ``[.., Q, dv]`` of values ``[.., K, dv]`` by weights ``[.., Q, K]``."""
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ value


def check_inputs(**named: Tensor) -> None:
    """Check ``query``, ``key`` and ``value``, whichever are given, for what holds for any score.

    Raises:
        TypeError: one is not of floating point.
        ValueError: one has no positions, keys and values differ in number, or they do not
            broadcast.
    """
    for name, tensor in named.items():
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be of floating point, not {tensor.dtype}")
        if tensor.dim() < 2:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}: expected [.., positions, width]"
            )
    if "key" in named and "value" in named and named["key"].shape[-2] != named["value"].shape[-2]:
        raise ValueError(f"{_shapes(named)}: each key needs one value")
    leading = [reversed(tensor.shape[:-2]) for tensor in named.values()]
    for sizes in itertools.zip_longest(*leading, fillvalue=1):
        if len({*sizes} - {1}) > 1:
            raise ValueError(f"{_shapes(named)}: leading dimensions differ")


def _shapes(named: dict[str, Tensor]) -> str:
    return " and ".join(f"{name} {list(tensor.shape)}" for name, tensor in named.items())


def check_dropout(share: float) -> None:
    """Raise ValueError unless ``share`` is in [0, 1)."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"dropout must be in [0, 1), not {share}")
