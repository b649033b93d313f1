"""Sampling: each token is drawn from the model's distribution, or from its most probable part.

Temperature divides the logits; top-k: Fan et al. 2018, "Hierarchical Neural Story Generation";
top-p: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration".
Shapes: N rows, W columns that may be chosen.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.decoding.decodable import Decodable, SelectableT
from heedful.decoding.greedy import GreedySearch
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.search_loop import NewSources, SourceT
from heedful.kernels.topk import Total, top_k


def sample(
    decodable: Decodable[SourceT, SelectableT], given: NewSources[SourceT], options: SearchOptions
) -> list[list[Hypothesis]]:
    """``options.nbest`` independent samples per source, best score first; two may be equal.

    Each sample has its own random numbers, derived from the seed, its source's key and its rank, so
    that it does not depend on the other sources in the batch.
    """
    count, rows = options.nbest, len(given.keys)
    repeats = torch.arange(rows, device=given.max_lengths.device).repeat_interleave(count)
    state = decodable.start(given.source)
    if count > 1:
        state = state.select(repeats)
    uniform = _Uniform(options.seed, [(key, rank) for key in given.keys for rank in range(count)])

    def choose(logits: Tensor, first: int, rows: Tensor, step: int) -> tuple[Tensor, Total]:
        drawn = draw(logits[:, first:], uniform.at(step, logits.device)[rows], options)
        return drawn + first, Total.of(logits)

    found: list[list[Hypothesis]] = [[] for _ in range(rows)]
    walk = GreedySearch(options, choose, repeats.device)
    walk.add(given.max_lengths[repeats])
    while len(walk.tokens):
        check_cancelled()
        logits, state = decodable.step(walk.tokens, state)
        selected, finished = walk.advance(logits.float())
        for row, hypotheses in finished:
            found[row // count] += hypotheses
        if selected is not None and len(selected):
            state = state.select(selected)
    return [sorted(own, key=lambda one: -one.score) for own in found]


def draw(logits: Tensor, uniform: Tensor, options: SearchOptions) -> Tensor:
    """Columns ``[N]`` drawn from ``logits [N, W]`` by ``uniform [N]`` numbers in [0, 1).

    The inverse of the cumulative distribution at ``uniform``, after temperature, top-k and top-p.
    """
    columns: Tensor | None = None
    if options.top_k is not None and options.top_k < logits.shape[1]:
        logits, columns = top_k(logits, options.top_k)
    elif options.top_p < 1.0:
        logits, columns = logits.sort(dim=1, descending=True)
    probabilities = (logits / options.temperature).softmax(1)
    if options.top_p < 1.0:
        before = probabilities.cumsum(1) - probabilities
        # The most probable column remains, also if top_p is 0 in float32.
        outside = (before >= options.top_p) & (before > 0)
        probabilities = probabilities.masked_fill(outside, 0.0)
    cumulative = probabilities.cumsum(1)  # [N, W]
    total = cumulative[:, -1:]
    # Strictly below the total despite rounding, so that no column with probability 0 is chosen.
    wanted = torch.minimum(uniform.unsqueeze(1) * total, total.nextafter(torch.zeros_like(total)))
    chosen = torch.searchsorted(cumulative, wanted, right=True)
    return (chosen if columns is None else columns.gather(1, chosen)).squeeze(1)


class _Uniform:
    """Uniform numbers in [0, 1), one per row and step, from one generator per row."""

    def __init__(self, seed: int, keys: Sequence[tuple[int, int]]) -> None:
        self._generators = [np.random.default_rng([seed, *key]) for key in keys]
        self._block = torch.empty(0, 0)
        self._start = 0

    def at(self, step: int, device: torch.device) -> Tensor:
        """The numbers ``[N]`` of a step; steps must be requested in order."""
        if step >= self._start + len(self._block):
            drawn = [generator.random(64, dtype=np.float32) for generator in self._generators]
            self._block = torch.from_numpy(np.stack(drawn, axis=1)).to(device)  # [64, N]
            self._start = step
        return self._block[step - self._start]
