"""Sources that enter a search as others leave it find what they find by themselves."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.basics.symbols import BEGIN
from heedful.decoding import Ensemble, Hypothesis, NewSources, SearchOptions, search, search_stream
from heedful.decoding.beam_tree import BeamTree

SOURCES, STEPS, VOCABULARY = 12, 12, 9


@dataclass(frozen=True)
class AgedState:
    """Rows of a table, each at its own step."""

    sources: Tensor
    last: Tensor
    steps: Tensor

    can_join = True

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.sources[rows], self.last[rows], self.steps[rows])

    def join(self, other: Self) -> Self:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(torch.cat(both) for both in pairs))


@dataclass(frozen=True)
class AloneState(AgedState):
    """As that, but nobody may join."""

    can_join = False


class Table:
    """Logits from a random table: of the source, the step, and the last two tokens."""

    def __init__(self, seed: int, kind: type[AgedState] = AgedState) -> None:
        shape = (SOURCES, STEPS, VOCABULARY, VOCABULARY, VOCABULARY)
        self.logits = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        self.kind = kind
        self.rows: list[int] = []

    def start(self, source: Tensor) -> AgedState:
        return self.kind(source, torch.full_like(source, BEGIN), torch.zeros_like(source))

    def step(self, tokens: Tensor, state: AgedState) -> tuple[Tensor, AgedState]:
        assert len(tokens) == len(state.sources)
        self.rows.append(len(tokens))
        logits = self.logits[state.sources, state.steps, state.last, tokens]
        return logits, self.kind(state.sources, tokens, state.steps + 1)


def supplies(groups: Sequence[Sequence[int]], limits: Sequence[int]) -> Any:
    """Gives the groups, one each time it is asked, in that order; an empty one is None."""
    left = list(groups)

    def supply() -> NewSources[Tensor] | None:
        own = left.pop(0) if left else []
        if not own:
            return None
        return NewSources(torch.tensor(own), torch.tensor([limits[row] for row in own]), own)

    return supply


def found_in(*args: Any, **given: Any) -> Iterator[tuple[int, list[Hypothesis]]]:
    """What a stream finds, one after another."""
    return chain.from_iterable(search_stream(*args, **given))


def alone(table: Any, row: int, limit: int, options: SearchOptions) -> list[Hypothesis]:
    lengths = torch.tensor([limit])
    return search(table, torch.tensor([row]), rows=1, options=options, max_lengths=lengths)[0]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beam=st.sampled_from([1, 2, 5]),
    exponent=st.sampled_from([0.0, 1.0]),
    all_of_them=st.booleans(),
    forced=st.sampled_from([None, None, 4]),
    cuts=st.lists(st.integers(0, 4), min_size=3, max_size=30),
    kind=st.sampled_from([AgedState, AgedState, AloneState]),
)
def test_each_source_finds_what_it_finds_alone(
    seed: int,
    beam: int,
    exponent: float,
    all_of_them: bool,
    forced: int | None,
    cuts: list[int],
    kind: type[AgedState],
) -> None:
    table, chance = Table(seed, kind), random.Random(seed)
    limits = [chance.randint(1, STEPS) for _ in range(SOURCES)]
    order = chance.sample(range(SOURCES), SOURCES)
    groups: list[list[int]] = []
    for count in cuts:
        if count or (groups and groups[-1]):  # nothing now: the search goes on while it can
            groups.append([order.pop() for _ in range(min(count, len(order)))])
    groups = [group for group in groups if group] if kind is AloneState else groups
    groups.append(order)
    options = SearchOptions(
        beam=beam, nbest=beam if all_of_them else 1, length_penalty=exponent, forced_length=forced
    )
    supply, found = supplies(groups, limits), {}
    while len(found) < SOURCES:  # it ends when nothing is given while nothing is under way
        for key, hypotheses in found_in(table, supply, options):
            assert key not in found
            found[key] = hypotheses
    for row in range(SOURCES):
        assert found[row] == alone(table, row, limits[row], options)


@pytest.mark.parametrize("beam", [1, 4])
def test_waiting_sources_enter_as_others_leave(beam: int) -> None:
    table, under_way, most = Table(4), set[int](), 0
    limits = [3, 11, 5, 1, 8, 11, 2, 2, 9, 4, 4, 7]
    left = list(range(SOURCES))

    def supply() -> NewSources[Tensor] | None:
        own = [left.pop(0) for _ in range(min(len(left), 4 - len(under_way)))]
        under_way.update(own)
        lengths = torch.tensor([limits[row] for row in own])
        return NewSources(torch.tensor(own), lengths, own) if own else None

    order = []
    for key, _ in found_in(table, supply, SearchOptions(beam=beam)):
        most = max(most, len(under_way))
        under_way.remove(key)
        order.append(key)
    assert sorted(order) == list(range(SOURCES))
    assert order != sorted(order)
    assert most == 4
    assert max(table.rows) <= 4 * beam


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_not_wanted_leaves(beam: int) -> None:
    table, unwanted = Table(5), set[int]()
    table.logits[..., 3] = -50  # nobody ends before the limit
    limits, options = [6] + [12] * 11, SearchOptions(beam=beam)
    found = {}
    supply = supplies([[0, 1], [2], [3], [4, 5, 6]], limits)
    stream = found_in(table, supply, options, wanted=lambda key: key not in unwanted)
    for key, hypotheses in stream:
        found[key] = hypotheses
        unwanted |= {2, 4}  # when source 0 is found
    assert set(found) == {0, 1, 3, 5, 6}
    for row in found:
        assert found[row] == alone(table, row, limits[row], options)


def test_an_ensemble_joins_if_all_members_do() -> None:
    limits, options = [5, 9, 3, 12, 8, 7] * 2, SearchOptions(beam=3)
    groups = [[0, 1, 2], [3], [4, 5, 6, 7], [8, 9, 10, 11]]
    steps = []
    for kinds in ((AgedState, AgedState), (AgedState, AloneState)):
        tables = [Table(seed, kind) for seed, kind in enumerate(kinds, start=6)]
        ensemble = Ensemble(tables)
        found = dict(found_in(ensemble, supplies(groups, limits), options))
        steps.append(len(tables[0].rows))
        for row in range(SOURCES):
            own = alone(ensemble, row, limits[row], options)
            assert [one.tokens for one in found[row]] == [one.tokens for one in own]
    assert steps[0] < steps[1]


def test_sampling_goes_batch_by_batch() -> None:
    table, options = Table(8), SearchOptions(sample=True, nbest=2, seed=3)
    limits = [5, 9, 3, 12, 8, 7] * 2
    found = dict(found_in(table, supplies([[0, 1, 2], [3, 4]], limits), options))
    again = dict(found_in(table, supplies([[4, 1], [0, 2, 3]], limits), options))
    assert set(found) == {0, 1, 2, 3, 4}
    assert {key: [one.tokens for one in own] for key, own in found.items()} == {
        key: [one.tokens for one in own] for key, own in again.items()
    }


def test_no_more_is_remembered_than_what_is_under_way_can_reach() -> None:
    """An endless stream: the tree of choices is as deep as the longest output, not the stream."""
    table, deepest = Table(9), 0
    left = iter(range(300))

    def supply() -> NewSources[Tensor] | None:
        number = next(left, None)
        if number is None:
            return None
        return NewSources(torch.tensor([number % SOURCES]), torch.tensor([STEPS]), [number])

    kept = BeamTree.keep

    def watched(self: BeamTree, steps: int) -> None:
        nonlocal deepest
        kept(self, steps)
        deepest = max(deepest, len(self))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BeamTree, "keep", watched)
        found = dict(found_in(table, supply, SearchOptions(beam=2)))
    assert len(found) == 300
    assert 0 < deepest <= STEPS
    for number in range(SOURCES, 300):
        assert found[number] == found[number % SOURCES]


def test_what_does_not_fit_is_refused() -> None:
    table, options = Table(1), SearchOptions()

    def given_as(*parts: Any) -> Iterator[Any]:
        once = iter([NewSources(*parts)])
        return found_in(table, lambda: next(once, None), options)

    with pytest.raises(ValueError, match="2 maximal lengths for 1 sources"):
        next(given_as(torch.tensor([0, 1]), torch.tensor([3, 3]), [0]))
    with pytest.raises(ValueError, match="at least 1"):
        next(given_as(torch.tensor([0]), torch.tensor([0]), [0]))
    table.logits[1] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        dict(given_as(torch.tensor([0, 1]), torch.tensor([3, 3]), [0, 1]))
