"""Steps that normalizers share: checks, conversion to float32, masking."""

import torch
from torch import Tensor

from heedful.attention.normalizers.base import Queries


def check_scores(scores: Tensor, allowed: Tensor | None) -> None:
    """Check the arguments of a normalizing function.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: scores have no dimension of keys, or ``allowed`` does not broadcast to them.
    """
    if not scores.is_floating_point():
        raise TypeError(f"scores must be of floating point, not {scores.dtype}")
    if scores.dim() < 1:
        raise ValueError("scores has shape []: expected [.., keys]")
    if allowed is None:
        return
    if allowed.dtype != torch.bool:
        raise TypeError(f"allowed must be boolean, not {allowed.dtype}")
    sizes, full = allowed.shape, scores.shape
    pairs = zip(reversed(sizes), reversed(full), strict=False)
    if len(sizes) > len(full) or any(size not in (1, whole) for size, whole in pairs):
        raise ValueError(f"allowed {list(sizes)} does not broadcast to scores {list(full)}")


def widened(scores: Tensor) -> Tensor:
    """Convert half-precision scores to float32; return others unchanged."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def filled(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Scores with the lowest finite number at masked keys.

    Not −∞: a row of −∞ would be NaN, also in its gradient.
    """
    if allowed is None:
        return scores
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)


def below_largest(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Subtract the largest allowed score of each row, at least in float32; masked keys are lowest.

    For functions that do not change if a constant is added to a row's scores: the largest then
    needs no gradient. There must be at least one key.
    """
    wide = filled(widened(scores), allowed)
    return (wide - wide.detach().amax(-1, keepdim=True)).clamp(min=torch.finfo(wide.dtype).min)


def finished(weights: Tensor, scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Weights in the scores' type; weights and gradients are exactly zero at masked keys."""
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    return weights.to(scores.dtype)


def required(queries: Queries | None, scores: Tensor, who: str, what: str) -> Queries:
    """The queries that a normalizer needs.

    Raises:
        ValueError: they are None, or their number differs from the rows of scores.
    """
    if queries is None:
        raise ValueError(f"{who} needs queries: it reads their {what} in addition to the scores")
    given = queries.positions if what == "positions" else queries.vectors[..., 0]
    if scores.dim() < 2 or given.shape[-1:] != scores.shape[-2:-1]:
        raise ValueError(
            f"{who}: queries' {what} {list(getattr(queries, what).shape)} do not match "
            f"scores {list(scores.shape)}; expected [.., queries, keys] for as many queries"
        )
    return queries
