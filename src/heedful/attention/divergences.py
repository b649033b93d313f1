"""Kullback–Leibler and Jensen–Shannon divergence of distributions, as losses and as distances.

    KL(p ‖ q) = Σ p ln (p / q)        JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m),   m = ½ (p + q)

Kullback and Leibler 1951, "On Information and Sufficiency"; Lin 1991, "Divergence Measures Based on
the Shannon Entropy". The square root of JS is a metric (Endres and Schindelin 2003, "A New Metric
for Probability Distributions"). With ``0 ln 0 = 0``, no value and no gradient is NaN.
Shapes: C outcomes of a distribution (classes, symbols, keys).
"""

import math
from typing import Literal

import torch
from torch import Tensor

from heedful.basics.device import without_autocast

Given = Literal["logits", "log-probabilities", "weights"]
"""What distributions are given as."""
_GIVEN = ("logits", "log-probabilities", "weights")


def kullback_leibler(
    p: Tensor, q: Tensor, given: Given = "weights", mask: Tensor | None = None
) -> Tensor:
    """``KL(p ‖ q)`` over the last dimension, in nats.

    Args:
        p: distributions ``[.., C]``; both arguments can have gradients.
        q: distributions that ``p`` broadcasts with.
        given: ``logits``, which are normalized here; ``log-probabilities``; or ``weights``, at
            least 0 and used as they are.
        mask: booleans that broadcast to ``[.., C]``: only true outcomes count. Logits are
            normalized over these.

    Returns:
        ``[..]``: at least 0 for distributions; infinite where p is above 0 and q is 0 at the same
        outcome; 0 where no outcome counts. Half precision is computed and returned in float32. A
        weight of exactly 0 gets a zero gradient; gradients of an infinite divergence are not
        meaningful.

    Raises:
        TypeError: the distributions are not of floating point.
        ValueError: ``given`` is unknown.

    Example:
        >>> half, one = torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])
        >>> kullback_leibler(one, half), kullback_leibler(half, one)
        (tensor(0.6931), tensor(inf))
    """
    with without_autocast(p):
        log_p, log_q = _logs(p, given, mask), _logs(q, given, mask)
        return _mean_of_log_ratio(log_p, log_q)


def jensen_shannon(
    p: Tensor, q: Tensor, given: Given = "weights", mask: Tensor | None = None
) -> Tensor:
    """``JS(p, q)`` over the last dimension, in nats; symmetric.

    The arguments and errors are those of :func:`kullback_leibler`.

    Returns:
        ``[..]``: for distributions from 0, if they are equal, to ln 2, if they share no outcome.
        :func:`jensen_shannon_distance` is the metric.

    Example:
        >>> jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """
    with without_autocast(p):
        log_p, log_q = torch.broadcast_tensors(_logs(p, given, mask), _logs(q, given, mask))
        to_p = _mean_of_log_ratio(log_p, _log_mean(log_p, log_q))
        return (to_p + _mean_of_log_ratio(log_q, _log_mean(log_q, log_p))) / 2


def jensen_shannon_distance(
    p: Tensor, q: Tensor, given: Given = "weights", mask: Tensor | None = None
) -> Tensor:
    """The square root of the Jensen–Shannon divergence in bits, a metric.

    The arguments and errors are those of :func:`kullback_leibler`.

    Returns:
        ``[..]``, from 0 to 1. Its gradient is infinite where the distributions are equal, so use
        :func:`jensen_shannon` as a loss.

    Example:
        >>> jensen_shannon_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(1.)
    """
    # Rounding may give a divergence just outside its range.
    bits = jensen_shannon(p, q, given, mask) / math.log(2)
    return bits.clamp(min=0.0).sqrt()


def _logs(given: Tensor, kind: Given, mask: Tensor | None) -> Tensor:
    """Logarithms of the probabilities ``[.., C]``; −inf for 0 and for outcomes that do not count.

    Those entries pass no gradient.
    """
    if kind not in _GIVEN:
        raise ValueError(f"given = {kind!r}: use one of {', '.join(_GIVEN)}")
    if not given.is_floating_point():
        raise TypeError(f"distributions must be of floating point, not {given.dtype}")
    wide = given.float() if given.dtype in (torch.bfloat16, torch.float16) else given
    there = wide > (0.0 if kind == "weights" else -math.inf)
    there = there if mask is None else there & mask
    safe = wide.masked_fill(~there, 1.0 if kind == "weights" else 0.0)
    if kind == "weights":
        logs = safe.log()
    elif kind == "log-probabilities":
        logs = safe
    else:
        logs = safe - _log_total(safe, there)
    return logs.masked_fill(~there, -math.inf)


def _log_total(logits: Tensor, there: Tensor) -> Tensor:
    """The logarithm of the sum of exponentials of the entries that are ``there``; 0 for none."""
    logits, there = torch.broadcast_tensors(logits, there)
    none = ~there.any(-1, keepdim=True)
    return logits.masked_fill(~there & ~none, -math.inf).logsumexp(-1, keepdim=True)


def _log_mean(log_p: Tensor, log_q: Tensor) -> Tensor:
    """``ln ½ (p + q)`` where p is above 0, elsewhere 0."""
    none = log_p == -math.inf
    safe = torch.logaddexp(log_p.masked_fill(none, 0.0), log_q)
    return (safe - math.log(2)).masked_fill(none, 0.0)


def _mean_of_log_ratio(log_p: Tensor, log_q: Tensor) -> Tensor:
    """``Σ p (ln p − ln q)`` over the last dimension, without the entries where p is 0."""
    log_p, log_q = torch.broadcast_tensors(log_p, log_q)
    none = log_p == -math.inf
    safe_p, safe_q = log_p.masked_fill(none, 0.0), log_q.masked_fill(none, 0.0)
    return (safe_p.exp() * (safe_p - safe_q)).masked_fill(none, 0.0).sum(-1)
