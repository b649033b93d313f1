"""Search that chooses one token a step for each row alone: greedy search and sampling.

Shapes: N rows, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding.decodable import SelectableT
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.top import Total

Choose = Callable[[Tensor, int, Tensor, int], tuple[Tensor, Total]]
"""``(logits [N, V], first token offered, which rows [N], step) -> chosen tokens [N]``, and what the
rows' logits come to; steps count from 0."""

# Dropping a row copies the state of all the others, so that waits until this share has ended.
_ENDED_SHARE = 8


def walk(
    step_of: Callable[[Tensor, SelectableT], tuple[Tensor, SelectableT]],
    state: SelectableT,
    choose: Choose,
    max_lengths: Tensor,
    options: SearchOptions,
) -> list[Hypothesis]:
    """Choose token after token until each row has ended; one hypothesis a row.

    ``step_of`` is a decodable's ``step`` and ``state`` what it has after its ``start``.
    ``max_lengths [N]`` are in tokens, END included: at the last step END is given. PAD, UNKNOWN and
    BEGIN are never offered to ``choose``.
    """
    device, forced_length = max_lengths.device, options.forced_length
    first = END if forced_length is None else END + 1
    rows = torch.arange(len(max_lengths), device=device)
    tokens = torch.full_like(rows, BEGIN)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    trail: list[tuple[Tensor, Tensor, Tensor]] = []
    steps = int(max_lengths.max()) if forced_length is None else forced_length
    for step in range(steps):
        logits, state = step_of(tokens, state)
        logits = logits.float()
        tokens, total = choose(logits, first, rows, step)
        if forced_length is None:
            tokens = tokens.masked_fill(max_lengths[rows] == step + 1, END)
        chosen = total.log_probabilities(logits.gather(1, tokens.unsqueeze(1))).squeeze(1)
        trail.append((rows, tokens, chosen))
        ended = ended | (tokens == END)
        count = int(ended.sum())
        if count == len(rows):
            break
        if count * _ENDED_SHARE >= len(rows):
            kept = (~ended).nonzero().squeeze(1)
            state = state.select(kept)
            rows, tokens, ended = rows[kept], tokens[kept], ended[kept]
    return _read(trail, len(max_lengths), options.length_penalty)


def _read(
    trail: list[tuple[Tensor, Tensor, Tensor]], rows: int, exponent: float
) -> list[Hypothesis]:
    """The hypotheses of ``rows`` from each step's rows, tokens and log-probabilities."""
    tokens: list[list[int]] = [[] for _ in range(rows)]
    chosen: list[list[float]] = [[] for _ in range(rows)]
    ended = [False] * rows
    for step in trail:
        for row, token, value in zip(*(part.tolist() for part in step), strict=True):
            if ended[row]:
                continue
            chosen[row].append(value)
            if token == END:
                ended[row] = True
            else:
                tokens[row].append(token)
    return [Hypothesis.finished(*both, exponent) for both in zip(tokens, chosen, strict=True)]
