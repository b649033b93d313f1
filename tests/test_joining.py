"""Rows that join a Transformer's search in progress, with the fused step and with modules."""

import random
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch

from heedful.attention import watch
from heedful.decoding import Hypothesis, NewSources, SearchOptions, search, search_stream
from heedful.inference.fusing import cached as fused_forms
from heedful.inference.fusing import searched
from heedful.kernels import program
from heedful.kernels import topk as tops
from heedful.layers import caches
from heedful.layers.int8_linear import int8_copy, largest_input
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings

pytestmark = pytest.mark.skipif(program.library() is None, reason="there is no compiler")
COUNT = 36


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    torch.manual_seed(3)
    with torch.no_grad():
        yield


def translator(**settings: Any) -> Transformer:
    sizes = {
        "layers": 2,
        "hidden_size": 32,
        "ffn_size": 48,
        "heads": 4,
        "max_length": 64,
        **settings,
    }
    model = Transformer(TransformerSettings.model_validate(sizes), 301, 301).eval()
    for parameter in model.parameters():
        parameter.mul_(1.3).add_(0.1 * torch.randn_like(parameter))
    return model


def source_of(rows: int) -> Source:
    lengths = torch.randint(1, 13, (rows,))
    lengths[0] = 12
    tokens = torch.randint(4, 301, (rows, 12)).masked_fill(torch.arange(12) >= lengths[:, None], 0)
    return Source(tokens, lengths)


def part(source: Source, rows: list[int]) -> Source:
    lengths = source.lengths[rows]
    return Source(source.tokens[rows, : int(lengths.max())], lengths)


def streamed(
    model: Any, source: Source, limits: torch.Tensor, options: SearchOptions, seed: int = 1
) -> dict[int, list[Hypothesis]]:
    """Search sources in any order and number, at most ten at a time."""
    chance, under_way = random.Random(seed), set[int]()
    left = chance.sample(range(COUNT), COUNT)

    def supply() -> NewSources[Source] | None:
        own = [left.pop() for _ in range(min(len(left), chance.randint(0, 10 - len(under_way))))]
        if not own and not under_way and left:
            own = [left.pop()]
        under_way.update(own)
        return NewSources(part(source, own), limits[own], own) if own else None

    found = {}
    for key, hypotheses in chain.from_iterable(search_stream(searched(model), supply, options)):
        under_way.remove(key)
        found[key] = hypotheses
    return found


def same(found: dict[int, list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert sorted(found) == list(range(len(expected)))
    for row, others in enumerate(expected):
        assert [one.tokens for one in found[row]] == [one.tokens for one in others]
        for one, two in zip(found[row], others, strict=True):
            assert one.score == pytest.approx(two.score, rel=1e-5, abs=1e-4)
            steps = one.token_log_probabilities
            assert steps == pytest.approx(two.token_log_probabilities, abs=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam=1),
        SearchOptions(beam=5, nbest=3),
        SearchOptions(beam=4, forced_length=20),
        SearchOptions(beam=2, length_penalty=0.0),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"pre_norm": True, "positions": "learned"}])
def test_a_stream_matches_batches(
    options: SearchOptions, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = translator(**settings), source_of(COUNT)
    limits = torch.randint(1, 40, (COUNT,))
    joins = []
    join = caches.LayerCaches.join

    def counted(self: Any, other: Any) -> Any:
        joins.append(len(other._lineage._index))
        return join(self, other)

    monkeypatch.setattr(caches.LayerCaches, "join", counted)
    found = streamed(model, source, limits, options)
    assert len(joins) > 5
    expected = search(searched(model), source, rows=COUNT, options=options, max_lengths=limits)
    same(found, expected)
    monkeypatch.setattr(fused_forms, "can_step", lambda like: False)
    monkeypatch.setattr(tops, "library", lambda: None)
    joins.clear()
    same(found, search(searched(model), source, rows=COUNT, options=options, max_lengths=limits))
    same(streamed(model, source, limits, options), expected)
    assert not joins  # what moves its caches goes batch by batch


def test_int8_and_a_stream() -> None:
    if not largest_input():
        pytest.skip("no products of whole numbers")
    model, source = int8_copy(translator()), source_of(COUNT)
    limits, options = torch.randint(1, 40, (COUNT,)), SearchOptions(beam=3)
    expected = search(searched(model), source, rows=COUNT, options=options, max_lengths=limits)
    same(streamed(model, source, limits, options), expected)


@pytest.mark.parametrize("layers", [1, 2])
def test_joined_rows_are_identical_to_single_rows(layers: int) -> None:
    """Bitwise in float32: 6 rows are a multiple of the tile height in C."""
    model, source = translator(layers=layers), source_of(24)
    groups = [part(source, list(range(first, first + 6))) for first in range(0, 24, 6)]
    tokens = torch.randint(4, 301, (24, 40))
    own = [searched(model).start(group) for group in groups]
    together = None
    for step in range(32):
        number, enters = divmod(step, 8)
        if not enters:
            begun = searched(model).start(groups[number])
            assert begun.can_join
            together = begun if together is None else together.join(begun)
            assert together.can_join
        assert together is not None
        rows = range(number + 1)
        given = [tokens[6 * row : 6 * row + 6, step - 8 * row] for row in rows]
        alone = []
        for row in rows:
            logits, own[row] = searched(model).step(given[row], own[row])
            alone.append(logits)
        logits, together = searched(model).step(torch.cat(given), together)
        assert torch.equal(logits, torch.cat(alone))


def test_unused_steps_are_dropped() -> None:
    """One row continues while many come and go: memory stays proportional to what is read."""
    model, source = translator(), source_of(24)
    state = searched(model).start(part(source, [0]))
    for step in range(60):
        _, state = searched(model).step(torch.full((len(state.sources._rows),), 7 + step), state)
        if step % 2:
            state = state.select(torch.tensor([0]))  # the many leave
        state = state.join(searched(model).start(source))
        cached = next(iter(state.caches))
        held = sum(len(key) for key, _ in cached.steps.parts)
        assert held <= 2 * state.caches._lineage.read + 2 * len(state.sources._rows)
        tokens = sum(group[0].parts[0][0].shape[0] for group in state.sources._groups)
        assert tokens <= 2 * int(state.sources._lengths.sum())
    state = state.select(torch.tensor([0]))
    logits, _ = searched(model).step(torch.tensor([9]), state)
    written = torch.tensor([[*range(7, 67), 9]])
    forced = model.teacher_force(part(source, [0]), written)[:, -1]
    torch.testing.assert_close(logits, forced, rtol=1e-4, atol=1e-4)
    state = searched(model).start(source).join(searched(model).start(part(source, [1, 2])))
    state = state.select(torch.tensor([24, 25]))
    for _ in range(3):
        _, state = searched(model).step(torch.tensor([5, 6]), state)
    state = state.join(searched(model).start(part(source, [3])))
    assert len(next(iter(state.caches)).steps.parts) == 3
    assert len(state.sources._groups) == 2


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_modules_continue_unsupported_searches(positions: Any) -> None:
    model, source = translator(positions=positions, max_length=300), source_of(5)
    tokens = torch.randint(4, 301, (5, 262))
    state = searched(model).start(part(source, [0, 1]))
    for step in range(20):
        _, state = searched(model).step(tokens[:2, step], state)
    state = state.join(searched(model).start(part(source, [2, 3, 4])))
    for step in range(20, 262):  # sinusoids are 256 until more are asked for
        given = torch.cat([tokens[:2, step], tokens[2:, step - 20]])
        logits, state = searched(model).step(given, state)
        if step == 40:
            with watch(model) as seen:
                watched, _ = searched(model).step(given, state.select(torch.arange(5)))
                assert not state.can_join
            assert seen
            fast, _ = searched(model).step(given, state.select(torch.arange(5)))
            torch.testing.assert_close(watched, fast, rtol=1e-4, atol=1e-4)
    first = model.teacher_force(part(source, [0, 1]), tokens[:2])[:, -1]
    others = model.teacher_force(part(source, [2, 3, 4]), tokens[2:, :242])[:, -1]
    torch.testing.assert_close(logits, torch.cat([first, others]), rtol=1e-3, atol=1e-3)


def test_sources_too_long_for_the_fused_encoder_can_join() -> None:
    model = translator(max_length=600)
    source = source_of(COUNT)
    long = torch.randint(4, 301, (COUNT, 520))
    long[:, :12] = source.tokens
    lengths = source.lengths.clone()
    lengths[::5] = 520
    there = Source(long.masked_fill(torch.arange(520) >= lengths[:, None], 0), lengths)
    limits, options = torch.randint(1, 20, (COUNT,)), SearchOptions(beam=2)
    expected = search(searched(model), there, rows=COUNT, options=options, max_lengths=limits)
    same(streamed(model, there, limits, options), expected)


def test_only_new_rows_can_join() -> None:
    model, source = translator(), source_of(4)
    state, other = searched(model).start(source), searched(model).start(source)
    _, other = searched(model).step(torch.full((4,), 2), other)
    with pytest.raises(ValueError, match="not after 1"):
        state.join(other)
