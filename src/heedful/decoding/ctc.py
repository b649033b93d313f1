"""Outputs of connectionist temporal classification: the best path, and a search over prefixes.

A path has a symbol or a blank at each position. Its output is the path without repetitions of the
same symbol and then without blanks. The probability of an output is that of all its paths.

Graves et al. 2006, "Connectionist Temporal Classification: Labelling Unsegmented Sequence Data with
Recurrent Neural Networks"; the search by prefixes: Graves 2012, "Supervised Sequence Labelling with
Recurrent Neural Networks", section 7.5.1, with a beam as in Hannun et al. 2014, "First-Pass Large
Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent DNNs", algorithm 1.
Shapes: S positions, V symbols.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decoding.hypothesis import Hypothesis

_LEAST = math.log(1e-4)
"""Symbols that are less probable at a position are not considered there."""
_NONE = -math.inf


def best_path(emissions: Tensor, blank: int) -> Hypothesis:
    """The output of the most probable path; its log-probability is that of this path.

    Args:
        emissions: logarithms of probabilities ``[S, V]``.
        blank: the symbol of no output.

    Example:
        >>> paths = torch.tensor([[0.4, 0.6], [0.7, 0.3], [0.1, 0.9]]).log()
        >>> best_path(paths, blank=0).tokens
        (1, 1)
    """
    values, path = emissions.max(-1)
    kept = path.unique_consecutive()
    return _made(tuple(kept[kept != blank].tolist()), float(values.sum()))


class _Mass(NamedTuple):
    """Log-probabilities of a prefix's paths that end with a blank, and with its last symbol."""

    blank: float
    symbol: float

    @property
    def total(self) -> float:
        return _sum(self.blank, self.symbol)


def prefix_search(emissions: Tensor, blank: int, beam: int) -> list[Hypothesis]:
    """The most probable outputs that a search with so many prefixes finds, the best one first.

    Args:
        emissions: logarithms of probabilities ``[S, V]``.
        blank: the symbol of no output.
        beam: prefixes that are kept at each position.

    Example:
        >>> paths = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()
        >>> best, other = prefix_search(paths, blank=0, beam=4)
        >>> best.tokens, round(math.exp(best.log_probability), 2)
        ((1,), 0.64)
    """
    masses: dict[tuple[int, ...], _Mass] = {(): _Mass(0.0, _NONE)}
    for row in emissions.tolist():
        likely = [(symbol, own) for symbol, own in enumerate(row) if own >= _LEAST]
        silent = row[blank]
        after: dict[tuple[int, ...], _Mass] = {}
        for prefix, mass in masses.items():
            last = prefix[-1] if prefix else blank
            stays = _Mass(mass.total + silent, _NONE)
            if prefix:
                stays = stays._replace(symbol=mass.symbol + row[last])
            _add(after, prefix, stays)
            for symbol, own in likely:
                if symbol != blank:
                    # The same symbol again needs a blank before it.
                    before = mass.blank if symbol == last else mass.total
                    if before > _NONE:
                        _add(after, (*prefix, symbol), _Mass(_NONE, before + own))
        kept = sorted(after.items(), key=lambda item: (-item[1].total, item[0]))[:beam]
        masses = dict(kept)
    return [_made(prefix, mass.total) for prefix, mass in masses.items()]


def _add(masses: dict[tuple[int, ...], _Mass], prefix: tuple[int, ...], more: _Mass) -> None:
    own = masses.get(prefix)
    if own is not None:
        more = _Mass(_sum(own.blank, more.blank), _sum(own.symbol, more.symbol))
    masses[prefix] = more


def _sum(first: float, second: float) -> float:
    """log(exp(first) + exp(second))."""
    high, low = max(first, second), min(first, second)
    return high if low == _NONE else high + math.log1p(math.exp(low - high))


def _made(tokens: Sequence[int], log_probability: float) -> Hypothesis:
    return Hypothesis(tuple(tokens), log_probability, log_probability, ())


def positions_needed(tokens: Sequence[int]) -> int:
    """The fewest positions whose paths have this output: a blank separates equal symbols.

    Example:
        >>> positions_needed([7, 7, 8])
        4
    """
    return len(tokens) + sum(a == b for a, b in itertools.pairwise(tokens))


def log_probability(emissions: Tensor, tokens: Sequence[int], blank: int) -> float:
    """The logarithm of the probability of an output: the sum over all its paths.

    Args:
        emissions: logarithms of probabilities ``[S, V]``.
        tokens: the output.
        blank: the symbol of no output.
    """
    loss = torch.nn.functional.ctc_loss(
        emissions[:, None],
        torch.tensor([list(tokens)], dtype=torch.long),
        torch.tensor([len(emissions)]),
        torch.tensor([len(tokens)]),
        blank=blank,
        reduction="sum",
    )
    return -float(loss.detach())
