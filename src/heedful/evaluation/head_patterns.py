"""What the heads of a trace attend to: the share of their weights with a simple pattern.

Patterns of self-attention, for query i and key j: the previous or next token, the token itself, the
first or last token, other tokens with the same text, the token after an earlier one with the same
text (an induction head, which copies: Olsson et al. 2022, "In-context Learning and Induction
Heads"), a fixed distance. Of attention to another text: its last token, or its order. For any: an
even spread. Clark et al. 2019, "What Does BERT Look At?", section 3, describes such heads in BERT.
Heads that follow syntax are not recognised: that needs a parser.

Shapes: H heads, Q queries, K keys.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LEAST_SHARE = 0.4
"""A pattern with a smaller share is not named."""
_TIMES_CHANCE = 2.0
_EVEN = 0.97
_LONGEST_DISTANCE = 8
_IN_ORDER = 0.9


class HeadPattern(NamedTuple):
    """The pattern of a head.

    Example:
        >>> HeadPattern("previous token", 0.83).name
        'previous token'
    """

    name: str
    """Such as ``previous token``; ``mixed`` if no pattern has a share of at least 0.4."""
    share: float
    """The share of the weights that follow it, in [0, 1]: the mean over the queries that have such
    a key. For ``in order``, the correlation of queries with the mean positions they attend to; for
    ``even``, the entropy relative to its maximum."""


def head_patterns(
    weights: Tensor, queries: Sequence[str], keys: Sequence[str], *, same_text: bool
) -> list[HeadPattern]:
    """The most pronounced pattern of each head.

    A share counts only if it is at least twice that of even weights, and if at least a fifth of the
    queries (for distances, half of them) have such a key. Of several patterns, the one with the
    largest share is returned.

    Args:
        weights: ``[H, Q, K]``; negative weights count as 0. Rows need not sum to 1.
        queries: the texts of the queries.
        keys: the texts of the keys.
        same_text: whether queries and keys are positions of the same text.

    Raises:
        ValueError: the numbers of texts do not match the weights.

    Source: Clark et al. 2019, section 3; Olsson et al. 2022.

    Example:
        >>> head_patterns(torch.eye(4).roll(1, 0)[None, 1:], "bcd", "abcd", same_text=False)[0].name
        'in order'
    """
    heads, rows, columns = weights.shape
    if (rows, columns) != (len(queries), len(keys)):
        raise ValueError(
            f"weights {list(weights.shape)} do not belong to {len(queries)} queries and "
            f"{len(keys)} keys"
        )
    if not weights.numel():
        return [HeadPattern("mixed", 0.0)] * heads
    shares = weights.double().clamp(min=0)
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=1e-12)
    causal = same_text and rows == columns and not weights.triu(1).any()
    allowed = torch.ones(rows, columns, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    found = _even(shares, allowed)
    for name, chosen in _patterns(queries, keys, same_text=same_text):
        chosen = chosen & allowed
        asked = chosen.any(-1) & (allowed.sum(-1) > 1)
        if int(asked.sum()) < max(2, len(queries) * (0.5 if name[0].isdigit() else 0.2)):
            continue
        chance = (chosen.sum(-1) / allowed.sum(-1))[asked].double().mean()
        own = (shares * chosen).sum(-1)[:, asked].mean(-1)
        least = max(LEAST_SHARE, min(_TIMES_CHANCE * float(chance), 0.9))
        found = [
            _better(one, name, float(share), least) for one, share in zip(found, own, strict=True)
        ]
    return found if same_text else _in_order(found, shares)


def _better(before: HeadPattern, name: str, share: float, least: float) -> HeadPattern:
    share = min(share, 1.0)
    return HeadPattern(name, share) if share >= least and share > before.share else before


def _patterns(
    queries: Sequence[str], keys: Sequence[str], *, same_text: bool
) -> list[tuple[str, Tensor]]:
    """The keys ``[Q, K]`` that follow each pattern."""
    i, j = torch.arange(len(queries)).unsqueeze(1), torch.arange(len(keys)).unsqueeze(0)
    last = (j == len(keys) - 1).expand(len(queries), -1)
    if not same_text:
        return [("last token", last)]
    same = torch.tensor([[query == key for key in keys] for query in queries])
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    found = [
        ("itself", i == j),
        ("previous token", j == i - 1),
        ("next token", j == i + 1),
        ("first token", (j == 0) & (i > 0)),
        ("last token", last & (i < len(keys) - 1)),
        ("same token", same & (i != j)),
        ("token after the same token", after & (j <= i)),
    ]
    for distance in range(2, _LONGEST_DISTANCE + 1):
        found += [(f"{distance} tokens back", j == i - distance)]
        found += [(f"{distance} tokens ahead", j == i + distance)]
    return found


def _even(shares: Tensor, allowed: Tensor) -> list[HeadPattern]:
    """``even`` for heads whose rows are spread over all keys; else no pattern yet."""
    several = allowed.sum(-1) > 1
    if not several.any():
        return [HeadPattern("mixed", 0.0)] * len(shares)
    most = allowed[several].sum(-1).double().log()
    relative = (torch.special.entr(shares[:, several]).sum(-1) / most).mean(-1)
    return [
        HeadPattern("even", min(float(one), 1.0)) if one >= _EVEN else HeadPattern("mixed", 0.0)
        for one in relative
    ]


def _in_order(found: list[HeadPattern], shares: Tensor) -> list[HeadPattern]:
    """``in order`` for heads without a pattern whose attention moves with the queries."""
    _, rows, columns = shares.shape
    if rows < 3 or columns < 2:
        return found
    where = shares @ torch.arange(columns, dtype=torch.float64)
    steps = torch.arange(rows, dtype=torch.float64) - (rows - 1) / 2
    moved = where - where.mean(-1, keepdim=True)
    size = moved.norm(dim=-1) * math.sqrt(float(steps.square().sum()))
    correlation = (moved @ steps) / size.clamp(min=1e-9)
    return [
        HeadPattern("in order", min(float(one), 1.0))
        if before.name == "mixed" and one >= _IN_ORDER
        else before
        for before, one in zip(found, correlation, strict=True)
    ]
