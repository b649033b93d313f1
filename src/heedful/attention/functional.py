"""The one equation: context = aggregate(normalize(mask(score(query, key))), value).

Shapes: Q queries, K keys, dq, dk, dv widths; ``..`` is any number of leading dimensions.
"""

import torch.nn.functional as F
from torch import Tensor

from heedful.attention.masks import Causal, Mask, dense_mask
from heedful.attention.normalizers import Normalizer, Softmax
from heedful.attention.scores import ScaledDot, Score

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
            may attend to nothing gets zeros.
        normalize: scores to weights; softmax unless given.
        dropout: share of the weights set to zero, in [0, 1); 0 in evaluation.

    Returns:
        ``[.., Q, dv]``, by the fastest exact path (fused where the score is a dot product).

    Raises:
        TypeError: a tensor is not of floating point, or a mask not boolean.
        ValueError: shapes do not fit.

    Source: Bahdanau et al. 2015, section 3.1; Vaswani et al. 2017, section 3.2.

    Example:
        >>> import torch
        >>> keys = torch.tensor([[8.0, 0.0], [0.0, 8.0]])
        >>> attend(torch.tensor([[9.0, 0.0]]), keys, torch.tensor([[1.0], [2.0]]))
        tensor([[1.]])
    """
    score, normalize = score or _SCALED_DOT, normalize or _SOFTMAX
    _check(query, key, value)
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
    shape = (*query.shape[:-1], key.shape[-2])
    if isinstance(mask, Causal) and shape[-1] == shape[-2]:
        # Square, so the kernel's top-left alignment is ours.
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True, scale=scale
        )
    allowed = dense_mask(mask, shape, query.device)
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
    _check(query, key, None)
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


def _check(query: Tensor, key: Tensor, value: Tensor | None) -> None:
    named = {"query": query, "key": key}
    if value is not None:
        named["value"] = value
    for name, tensor in named.items():
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be of floating point, not {tensor.dtype}")
        if tensor.dim() < 2:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}: expected [.., positions, width]"
            )
    if value is not None and value.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"value {list(value.shape)} and key {list(key.shape)} differ in their number of "
            "positions; each key needs one value"
        )
