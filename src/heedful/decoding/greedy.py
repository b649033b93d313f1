"""Greedy search: the most probable token at each step."""

from torch import Tensor

from heedful.decoding.decodable import Decodable, SelectableT, SourceT_contra
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.top import Total, best
from heedful.decoding.walk import walk


def greedy_search(
    decodable: Decodable[SourceT_contra, SelectableT],
    source: SourceT_contra,
    *,
    options: SearchOptions,
    max_lengths: Tensor,
) -> list[list[Hypothesis]]:
    """One hypothesis a source: the most probable token at each step."""
    found = walk(
        decodable.step,
        decodable.start(source),
        _choose,
        max_lengths,
        options,
    )
    return [[hypothesis] for hypothesis in found]


def _choose(logits: Tensor, first: int, rows: Tensor, step: int) -> tuple[Tensor, Total]:
    found = best(logits, 1, first)
    return found.tokens.squeeze(1), found.total
