"""Attention within texts of different lengths that are packed one after another, without padding.

Packed texts are ``[T, dim]``, T the sum of their lengths. Texts of equal lengths are computed as
one batch, so that the work is the sum of the squared lengths, not B times the square of the longest
one. FlashAttention calls the same layout variable-length (Dao et al. 2022, "FlashAttention: Fast
and Memory-Efficient Exact Attention with IO-Awareness").
Shapes: B texts, T and S tokens of all texts.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heedful.attention.checking import check_inputs
from heedful.attention.masks import Mask


def attend_packed(
    attention: Callable[..., Tensor],
    query: Tensor,
    lengths: Tensor,
    key: Tensor | None = None,
    key_lengths: Tensor | None = None,
    *,
    mask: Mask | None = None,
) -> Tensor:
    """The results ``[T, dim]`` of each text's own queries and keys.

    Equal to the attention of a padded batch with ``masks.padding(key_lengths)``, in outputs and
    gradients. A text without keys gets what the module returns for queries that may attend to
    nothing. The module is called once for each pair of lengths that occurs. The lengths are read by
    Python, so that this is not for ``torch.compile(fullgraph=True)``.

    Args:
        attention: a module of this library, such as ``MultiHeadAttention`` or ``LinearAttention``;
            called with ``[n, L, dim]``.
        query: the queries of all texts ``[T, dim]``.
        lengths: their numbers in each text, integers ``[B]`` ≥ 0, with sum T.
        key: the keys and values of all texts ``[S, key_dim]``; the queries by default.
        key_lengths: their numbers, with sum S; ``lengths`` by default.
        mask: a mask of positions within a text, such as ``causal()`` or a window.

    Raises:
        TypeError: the lengths are not integers.
        ValueError: the sum of the lengths differs from the number of rows, there are lengths of
            keys but no keys, or shapes do not match.

    Source: the layout of Dao et al. 2022's implementation.

    Example:
        >>> from heedful.attention import MultiHeadAttention, masks
        >>> heads, x = MultiHeadAttention(8, heads=2), torch.randn(7, 8)
        >>> both = attend_packed(heads, x, torch.tensor([5, 2]), mask=masks.causal())
        >>> torch.allclose(both[5:], heads(x[None, 5:], x[None, 5:], mask=masks.causal())[0])
        True
    """
    of_self = key is None
    if of_self and key_lengths is not None:
        raise ValueError("key_lengths without key: texts attend to themselves")
    key = query if key is None else key
    key_lengths = lengths if key_lengths is None else key_lengths
    check_inputs(query=query, key=key)
    starts = [_starts(*pair) for pair in ((query, lengths), (key, key_lengths))]
    if len(lengths) != len(key_lengths):
        raise ValueError(f"{len(lengths)} lengths of queries, and {len(key_lengths)} of keys")
    pairs, texts = torch.stack([lengths, key_lengths], 1).unique(dim=0, return_inverse=True)
    places, results = [], []
    for number, (queries, keys) in enumerate(pairs.tolist()):
        if not queries:
            continue
        chosen = (texts == number).nonzero().squeeze(1)
        rows = _rows(starts[0][chosen], queries)
        given = query[rows]
        memory = given if of_self else key[_rows(starts[1][chosen], keys)]
        named: dict[str, Any] = {} if mask is None else {"mask": mask}
        results.append(attention(given, memory, **named).flatten(0, 1))
        places.append(rows.flatten())
    if not results:
        return attention(query.unsqueeze(0), key.unsqueeze(0)).squeeze(0)
    order = torch.cat(places).argsort()
    return torch.cat(results)[order]


def _starts(packed: Tensor, lengths: Tensor) -> Tensor:
    """The row of each text's first token."""
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, not {lengths.dtype}")
    if packed.dim() != 2 or lengths.dim() != 1 or int(lengths.sum()) != len(packed):
        raise ValueError(
            f"lengths {list(lengths.shape)} with sum {int(lengths.sum())} do not match packed "
            f"tokens {list(packed.shape)}: expected [T, dim], T the sum of the lengths"
        )
    if bool((lengths < 0).any()):
        raise ValueError("lengths must not be negative")
    return lengths.cumsum(0) - lengths


def _rows(starts: Tensor, length: int) -> Tensor:
    """The rows ``[n, length]`` of n texts."""
    return starts.unsqueeze(1) + torch.arange(length, device=starts.device)
