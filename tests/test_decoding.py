"""Search against brute force, and its properties, on decodables small enough to enumerate."""

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding import (
    Ensemble,
    Hypothesis,
    NewSources,
    SearchOptions,
    greedy,
    length_penalty,
    search,
    search_loop,
)
from heedful.decoding.beam import Beams
from heedful.kernels.topk import top_k


@dataclass(frozen=True)
class TableState:
    sources: Tensor
    last: Tensor
    step: int

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.sources[rows], self.last[rows], self.step)


class Table:
    """Logits from a random table: of the source, the step, and the last two tokens."""

    def __init__(self, seed: int, vocabulary: int, sources: int, scale: float = 2.0) -> None:
        shape = (sources, 12, vocabulary, vocabulary, vocabulary)
        self.logits = scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        self.rows: list[int] = []

    def start(self, source: Tensor) -> TableState:
        return TableState(source, torch.full_like(source, BEGIN), 0)

    def step(self, tokens: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        assert len(tokens) == len(state.sources)
        self.rows.append(len(tokens))
        logits = self.logits[state.sources, state.step, state.last, tokens]
        return logits, TableState(state.sources, tokens, state.step + 1)

    def enumerate(
        self, source: int, max_length: int, exponent: float
    ) -> list[tuple[float, float, tuple[int, ...]]]:
        """Every possible output with its score and log-probability, best first."""
        log_probs = self.logits[source].double().log_softmax(-1)
        found = []
        ordinary = range(END + 1, log_probs.shape[-1])
        for length in range(max_length):
            for tokens in itertools.product(ordinary, repeat=length):
                total, before, last = 0.0, BEGIN, BEGIN
                for step, token in enumerate((*tokens, END)):
                    total += float(log_probs[step, before, last, token])
                    before, last = last, token
                found.append((total / ((5 + length + 1) / 6) ** exponent, total, tokens))
        return sorted(found, reverse=True)


def run(
    table: Table, sources: list[int], lengths: int | list[int] = 12, **options: object
) -> list[list[Hypothesis]]:
    lengths = [lengths] * len(sources) if isinstance(lengths, int) else lengths
    return search(
        table,
        torch.tensor(sources),
        rows=len(sources),
        options=SearchOptions.model_validate(options),
        max_lengths=torch.tensor(lengths),
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    exponent=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    nbest=st.integers(1, 6),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_a_wide_beam_is_exhaustive(
    seed: int, exponent: float, nbest: int, lengths: list[int]
) -> None:
    table = Table(seed, vocabulary=7, sources=3)
    found = run(
        table,
        list(range(len(lengths))),
        lengths,
        beam=3**5,
        nbest=nbest,
        length_penalty=exponent,
    )
    for source, length in enumerate(lengths):
        wanted = table.enumerate(source, length, exponent)[:nbest]
        assert [one.tokens for one in found[source]] == [tokens for _, _, tokens in wanted]
        for one, (score, total, _) in zip(found[source], wanted, strict=True):
            assert one.score == pytest.approx(score, abs=1e-4)
            assert one.log_probability == pytest.approx(total, abs=1e-4)
            assert sum(one.token_log_probabilities) == pytest.approx(total, abs=1e-4)
            assert len(one.token_log_probabilities) == len(one.tokens) + 1


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), beam=st.integers(1, 6), exponent=st.sampled_from([0.0, 1.0]))
def test_stopping_early_changes_nothing(seed: int, beam: int, exponent: float) -> None:
    """A search that never stops before every hypothesis has ended finds the same."""
    table = Table(seed, vocabulary=9, sources=4)
    options = {"beam": beam, "length_penalty": exponent}
    best = run(table, [0, 1, 2, 3], 10, **options, nbest=1)
    # With nbest = beam, a source may leave only when its whole beam has ended or cannot matter.
    everything = run(table, [0, 1, 2, 3], 10, **options, nbest=beam)
    assert [row[0] for row in best] == [row[0] for row in everything]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 11))
def test_beam_one_is_greedy(seed: int, length: int) -> None:
    table = Table(seed, vocabulary=12, sources=5)
    source, lengths = torch.arange(5), torch.full((5,), length)
    greedy = run(table, [0, 1, 2, 3, 4], length, beam=1)
    options = SearchOptions(beam=1)
    once = iter([NewSources(source, lengths, range(5))])
    steps = search_loop.run(table, partial(Beams, options), lambda: next(once, None))
    found = dict(itertools.chain.from_iterable(steps))
    beam = [found[row] for row in range(5)]
    assert [row[0].tokens for row in beam] == [row[0].tokens for row in greedy]
    for one, other in zip(beam, greedy, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=1e-5)
    log_probs = table.logits.log_softmax(-1)
    for row in range(5):  # and greedy is what its name says
        before, last, tokens = BEGIN, BEGIN, []
        for step in range(length):
            token = int(log_probs[row, step, before, last, END:].argmax()) + END
            if step == length - 1 or token == END:
                break
            tokens.append(token)
            before, last = last, token
        assert greedy[row][0].tokens == tuple(tokens)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "nbest": 4}, {"sample": True}])
def test_a_source_does_not_depend_on_its_batch(options: dict[str, object]) -> None:
    table = Table(3, vocabulary=10, sources=6)
    lengths = [3, 11, 5, 1, 8, 11]
    together = run(table, list(range(6)), lengths, **options)
    for row in range(6):
        alone = search(
            table,
            torch.tensor([row]),
            rows=1,
            options=SearchOptions.model_validate(options),
            max_lengths=torch.tensor(lengths[row : row + 1]),
            keys=[row],
        )
        assert [one.tokens for one in alone[0]] == [one.tokens for one in together[row]]
        assert [one.score for one in alone[0]] == pytest.approx(
            [one.score for one in together[row]], abs=1e-5
        )


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 6}, {"sample": True, "nbest": 3}])
def test_forced_length_and_symbols_never_produced(options: dict[str, object]) -> None:
    table = Table(4, vocabulary=8, sources=3)
    table.logits[..., :END] += 20  # the model would love to say PAD, UNKNOWN, BEGIN
    for hypotheses in run(table, [0, 1, 2], **options, forced_length=6):
        for one in hypotheses:
            assert len(one.tokens) == len(one.token_log_probabilities) == 6
            assert min(one.tokens) > END
    for hypotheses in run(table, [0, 1, 2], **options):
        for one in hypotheses:
            assert all(token > END for token in one.tokens)


@pytest.mark.parametrize("read_every", [2, 5, 100])
@pytest.mark.parametrize(
    "given", [{}, {"forced_length": 6}, {"sample": True, "seed": 4}, {"sample": True, "nbest": 3}]
)
def test_what_is_read_back_seldom_is_what_is_found(
    given: dict[str, Any], read_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a device, where reading at each step would wait for it."""
    table, limits = Table(5, 9, 8), torch.tensor([11, 4, 1, 9, 7, 11, 2, 11])
    options = SearchOptions(beam=1, **given)
    find = partial(search, source=torch.arange(8), rows=8, options=options, max_lengths=limits)
    expected = find(table)
    each = len(table.rows)
    monkeypatch.setitem(greedy.READ_EVERY, "cpu", read_every)
    assert find(table) == expected
    assert len(table.rows) - each <= 11  # no step after the longest output


def test_finished_sources_leave_the_batch() -> None:
    table = Table(5, vocabulary=9, sources=8)
    table.logits[..., END] = -50
    table.logits[4:, 2, :, :, END] = 50  # half of the sources end at the third step
    for options in ({"beam": 1}, {"beam": 4}):
        table.rows.clear()
        run(table, list(range(8)), 10, **options)
        width = options["beam"]
        assert table.rows[0] == 8
        assert table.rows[2] == 8 * width
        assert table.rows[3:] == [4 * width] * 7


def test_nbest_are_distinct_and_in_order() -> None:
    table = Table(6, vocabulary=20, sources=4)
    for row in run(table, [0, 1, 2, 3], beam=8, nbest=8):
        assert len({one.tokens for one in row}) == 8
        assert [one.score for one in row] == sorted((one.score for one in row), reverse=True)


def test_length_penalty_is_that_of_the_paper() -> None:
    assert length_penalty(1.0, 0.6) == 1.0
    assert length_penalty(7.0, 1.0) == pytest.approx(2.0)
    assert length_penalty(7.0, 0.0) == 1.0
    one = Hypothesis.finished([9] * 6, [-1.0] * 7, 1.0)
    assert one.score == pytest.approx(-3.5)


def test_an_ensemble_averages_probabilities() -> None:
    tables = [Table(seed, vocabulary=8, sources=2) for seed in (7, 8)]
    ensemble = Ensemble(tables)
    source = torch.tensor([0, 1])
    logits, _ = ensemble.step(torch.full((2,), BEGIN), ensemble.start(source))
    both = [table.step(torch.full((2,), BEGIN), table.start(source))[0] for table in tables]
    mean = (both[0].softmax(1) + both[1].softmax(1)) / 2
    assert torch.allclose(logits.exp(), mean, atol=1e-6)
    twice = Ensemble([tables[0], tables[0]])
    options = SearchOptions(beam=3, nbest=3)
    lengths = torch.tensor([9, 9])
    doubled = search(twice, source, rows=2, options=options, max_lengths=lengths)
    single = search(tables[0], source, rows=2, options=options, max_lengths=lengths)
    assert [[one.tokens for one in row] for row in doubled] == [
        [one.tokens for one in row] for row in single
    ]


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 4),
    width=st.integers(1, 1500),
    k=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_top_k_equals_torch(rows: int, width: int, k: int, seed: int) -> None:
    k = min(k, width)
    values = torch.randn(rows, width + 2, generator=torch.Generator().manual_seed(seed))[:, 2:]
    wanted = values.topk(k, dim=1)
    found = top_k(values, k)
    assert torch.equal(found[0], wanted.values)
    assert torch.equal(found[1], wanted.indices)


def test_probabilities_that_are_not_finite_are_an_error() -> None:
    table = Table(9, vocabulary=8, sources=2)
    table.logits[1] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        run(table, [0, 1], beam=3)


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="set beam to at least 9"):
        SearchOptions(nbest=9)
    with pytest.raises(ValueError, match="need sampling"):
        SearchOptions(temperature=0.5)


@pytest.mark.parametrize(
    "given",
    [
        {"sample": True, "temperature": 1e-40},
        {"sample": True, "temperature": math.inf},
        {"length_penalty": 1000},
        {"length_penalty": math.nan},
    ],
)
def test_numbers_that_overflow_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(reversed(given))):
        SearchOptions(**given)
