"""Placeholders in search: each exactly once, none invented, pairs in order."""

from dataclasses import dataclass
from itertools import chain

import pytest
import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding import NewSources, SearchOptions, search, search_stream
from heedful.decoding.kept_placeholders import KeptPlaceholders, Placeholders

KNOWN = Placeholders(first=4, singles=3, ordered=3, pairs=2)
"""Tokens 4 to 6 alone, 7 to 9 ordered, (10, 11) and (12, 13) pairs; 14 to 19 are words."""
VOCABULARY = 20


@dataclass
class State:
    """Which source each row reads."""

    rows: Tensor

    def select(self, rows: Tensor) -> "State":
        return State(self.rows[rows])

    can_join = True

    def join(self, other: "State") -> "State":
        return State(torch.cat([self.rows, other.rows]))


class Random:
    """Logits that follow from the last token and the source's own noise: it heeds nothing."""

    def __init__(self, seed: int, ends: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = 3 * torch.randn(VOCABULARY, VOCABULARY, generator=generator)
        self.table[:, END] += ends

    def start(self, source: Tensor) -> State:
        return State(torch.arange(len(source)))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.table[tokens], state


def kept(inner: Random, longest: int) -> KeptPlaceholders[Tensor]:
    def limits(source: Tensor) -> Tensor:
        return torch.full((len(source),), longest)

    return KeptPlaceholders(inner, KNOWN, lambda source: source, limits)


SOURCES = torch.tensor(
    [
        [14, 4, 15, 6, 0],
        [10, 14, 12, 5, 13],
        [15, 16, 17, 18, 0],
        [11, 10, 12, 13, 6],
        [7, 14, 8, 4, 9],
        [13, 14, 0, 0, 0],  # closes what it does not open: its part of a longer text
    ]
)
MUST = [{4, 6}, {5, 10, 12, 13}, set(), {6, 10, 11, 12, 13}, {4, 7, 8, 9}, {13}]


def check(tokens: list[int], must: set[int]) -> None:
    found = [token for token in tokens if 4 <= token <= 13]
    assert sorted(found) == sorted(must)
    ordered = [token for token in found if 7 <= token <= 9]
    assert ordered == sorted(ordered)
    open_pairs: list[int] = []
    for token in found:
        if token in (10, 12) and token + 1 in must:
            open_pairs.append(token)
        elif token in (11, 13) and token - 1 in must:
            assert open_pairs.pop() == token - 1


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("ends", [0.0, 8.0, -20.0])
@pytest.mark.parametrize("longest", [7, 30])
def test_each_placeholder_once_and_pairs_in_order(beam: int, ends: float, longest: int) -> None:
    """Whether the model would end at once or never, and where there is hardly any room."""
    for seed in range(20):
        found = search(
            kept(Random(seed, ends), longest),
            SOURCES,
            rows=len(SOURCES),
            options=SearchOptions(beam=beam),
            max_lengths=torch.full((len(SOURCES),), longest),
        )
        for (best, *_), must in zip(found, MUST, strict=True):
            check(best.tokens, must)
            assert len(best.tokens) < longest


def test_sampling_keeps_them_too() -> None:
    options = SearchOptions(sample=True, nbest=3)
    found = search(
        kept(Random(1), 12),
        SOURCES,
        rows=len(SOURCES),
        options=options,
        max_lengths=torch.full((len(SOURCES),), 12),
    )
    for hypotheses, must in zip(found, MUST, strict=True):
        for one in hypotheses:
            check(one.tokens, must)


def test_sources_that_join_find_what_they_find_alone() -> None:
    options = SearchOptions(beam=3)
    model = kept(Random(3), 15)
    given = iter(
        [NewSources(SOURCES[[row]], torch.tensor([15]), [row]) for row in range(len(MUST))]
    )
    steps = search_stream(model, lambda: next(given, None), options)
    joined = dict(chain.from_iterable(steps))
    for row in range(len(MUST)):
        alone = search(
            model, SOURCES[[row]], rows=1, options=options, max_lengths=torch.tensor([15])
        )
        assert joined[row][0].tokens == alone[0][0].tokens
        check(joined[row][0].tokens, MUST[row])


def test_without_placeholders_none_is_invented_and_nothing_else_changes() -> None:
    model = Random(5)
    plain = SOURCES[[2]]
    state = kept(model, 9).start(plain)
    logits, _ = kept(model, 9).step(torch.tensor([BEGIN]), state)
    expected = model.table[[BEGIN]].clone()
    expected[:, 4:14] = -torch.inf
    assert torch.equal(logits, expected)
