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


def occupation(emissions: Tensor, tokens: Sequence[int], blank: int) -> Tensor:
    """Where the tokens of an output are: the probability, given the output, that its path is at a
    state at each position, ``[2 · L + 1, S]`` in float64.

    The states are a blank, the first token, a blank, the second token, and so on; the last one is
    the blank after all tokens.

    Args:
        emissions: logarithms of probabilities ``[S, V]``.
        tokens: the output, L tokens.
        blank: the symbol of no output.

    Raises:
        ValueError: no path has this output.

    Source: Graves et al. 2006, section 4.1, equations 6 to 14: α β / p, by state.

    Example:
        >>> paths = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
        >>> occupation(paths, [1], blank=0)  # the paths 1 1, 0 1 and 1 0
        tensor([[0.3333, 0.0000],
                [0.6667, 0.6667],
                [0.0000, 0.3333]], dtype=torch.float64)
    """
    needed = positions_needed(tokens)
    if needed > len(emissions):
        raise ValueError(f"{len(emissions)} positions; the output needs {needed}")
    states = torch.full((2 * len(tokens) + 1,), blank)
    states[1::2] = torch.tensor(list(tokens), dtype=torch.long)
    likely = emissions.double().cpu()[:, states]  # [S, 2 · L + 1]
    # A path may pass over a blank between two different tokens.
    passes = torch.zeros(len(states), dtype=torch.bool)
    passes[3::2] = states[3::2] != states[1:-2:2]
    forward = _reached(likely, passes)
    # Read from the end, a blank is passed over to the token before it.
    backward = _reached(likely.flip(0, 1), passes.roll(-2).flip(0)).flip(0, 1)
    both = forward + backward - likely
    return (both - both.logsumexp(1, keepdim=True)).exp().T


def _reached(likely: Tensor, passes: Tensor) -> Tensor:
    """The logarithm of the probability of all paths that begin in one of the first two states and
    are at a state at a position, ``[S, states]``."""
    reached = torch.full_like(likely, _NONE)
    reached[0, :2] = likely[0, :2]
    for place in range(1, len(likely)):
        before = reached[place - 1]
        one = torch.nn.functional.pad(before[:-1], (1, 0), value=_NONE)
        two = torch.nn.functional.pad(before[:-2], (2, 0), value=_NONE)
        two = two[: len(before)].masked_fill(~passes, _NONE)
        reached[place] = torch.stack([before, one, two]).logsumexp(0) + likely[place]
    return reached
