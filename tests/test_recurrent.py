"""The recurrent encoder–decoder as a whole: steps, padding, watching, selection, learning."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.models.pairs import Source
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings, RecurrentState
from heedful.models.recurrent_rows import SourceRows

CELLS = ("rnn", "gru", "lstm")
ATTENTIONS = (
    ("none", None),
    ("bahdanau", None),
    *itertools.product(
        ("luong-dot", "luong-general", "luong-concat", "luong-local-p"), (True, False)
    ),
    ("hard-reinforce", None),
    ("hard-gumbel", None),
)
ATTENTIVE = ATTENTIONS[1:]
LENGTHS = torch.tensor([6, 1, 4])


def combinations() -> Iterator[RecurrentSettings]:
    for cell, (attention, feeding), both, (encoder, decoder) in itertools.product(
        CELLS, ATTENTIONS, (False, True), ((1, 1), (2, 2), (1, 2), (2, 1))
    ):
        if attention == "luong-dot" and both:
            continue
        yield RecurrentSettings(
            cell=cell,
            embedding_size=4,
            hidden_size=5,
            encoder_layers=encoder,
            decoder_layers=decoder,
            bidirectional=both,
            attention=attention,
            input_feeding=feeding,
        )


def name_of(settings: RecurrentSettings) -> str:
    directions = "both" if settings.bidirectional else "one"
    feeding = "-unfed" if settings.input_feeding is False else ""
    layers = f"{settings.encoder_layers}+{settings.decoder_layers}"
    return f"{settings.cell}-{settings.attention}{feeding}-{directions}-{layers}"


def small(
    attention: str = "bahdanau", feeding: bool | None = None, **others: object
) -> RecurrentSettings:
    given = {
        "embedding_size": 4,
        "hidden_size": 5,
        "bidirectional": attention != "luong-dot",
        "attention": attention,
        "input_feeding": feeding,
    }
    return RecurrentSettings(**{**given, **others})


def build(settings: RecurrentSettings, seed: int = 1) -> RecurrentEncoderDecoder:
    torch.manual_seed(seed)
    return RecurrentEncoderDecoder(settings, 12, 15).double().eval()


def some_source(lengths: Tensor = LENGTHS, seed: int = 2) -> Source:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 12, (len(lengths), int(lengths.max())), generator=generator)
    beyond = torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1)
    return Source(tokens.masked_fill(beyond, PAD), lengths)


def some_target(rows: int, length: int, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 15, (rows, length), generator=generator)
    tokens[:, 0] = BEGIN
    return tokens


def run_steps(
    model: RecurrentEncoderDecoder, source: Source, target: Tensor, rows: Tensor | None = None
) -> Tensor:
    state, found = model.start(source), []
    state = state if rows is None else state.select(rows)
    for tokens in target.unbind(1):
        logits, state = model.step(tokens, state)
        found.append(logits)
    return torch.stack(found, 1)


def gradients_of(model: RecurrentEncoderDecoder, total: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} is not used"
    return {name: part.grad.clone() for name, part in model.named_parameters()}


@pytest.mark.parametrize("settings", list(combinations()), ids=name_of)
def test_steps_give_the_logits_and_gradients_of_teacher_forcing(
    settings: RecurrentSettings,
) -> None:
    model, source, target = build(settings), some_source(), some_target(3, 4)
    forced = model.teacher_force(source, target)
    stepped = run_steps(model, source, target)
    assert forced.shape == (3, 4, 15)
    torch.testing.assert_close(stepped, forced, rtol=1e-10, atol=1e-12)
    weights = torch.randn(forced.shape, dtype=forced.dtype)
    by_force = gradients_of(model, (forced * weights).sum())
    by_steps = gradients_of(model, (stepped * weights).sum())
    torch.testing.assert_close(by_steps, by_force, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("attention", "feeding"), ATTENTIONS)
def test_padding_has_no_influence(cell: str, attention: str, feeding: bool | None) -> None:
    model = build(small(attention, feeding, cell=cell, encoder_layers=2, decoder_layers=2))
    source, target = some_source(), some_target(3, 5)
    expected = model.teacher_force(source, target)
    weights = torch.randn(expected.shape, dtype=expected.dtype)
    gradients = gradients_of(model, (expected * weights).sum())

    more = F.pad(source.tokens, (0, 3), value=PAD)
    beyond = torch.arange(more.shape[1]) >= source.lengths.unsqueeze(1)
    other = Source(torch.where(beyond, torch.randint(4, 12, more.shape), more), source.lengths)
    found = model.teacher_force(other, target)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    again = gradients_of(model, (found * weights).sum())
    torch.testing.assert_close(again, gradients, rtol=1e-9, atol=1e-12)

    for row, length in enumerate(source.lengths.tolist()):
        alone = Source(source.tokens[row : row + 1, :length], source.lengths[row : row + 1])
        found = model.teacher_force(alone, target[row : row + 1])
        torch.testing.assert_close(found[0], expected[row], rtol=1e-12, atol=1e-13)


def test_a_later_target_token_changes_no_earlier_logits() -> None:
    for attention, feeding in ATTENTIONS:
        model, source, target = build(small(attention, feeding)), some_source(), some_target(3, 5)
        before = model.teacher_force(source, target)
        target[:, 3] = (target[:, 3] - 3) % 11 + 4
        after = model.teacher_force(source, target)
        torch.testing.assert_close(after[:, :3], before[:, :3], rtol=1e-12, atol=1e-13)
        assert not torch.allclose(after[:, 3:], before[:, 3:])


@pytest.mark.parametrize(("attention", "feeding"), ATTENTIVE)
def test_watched_weights_join_along_the_queries(attention: str, feeding: bool | None) -> None:
    model, source, target = build(small(attention, feeding)), some_source(), some_target(3, 5)
    assert model.alignment is not None
    name = model.alignment.module
    assert name in dict(model.named_modules())
    assert model.attention_axes() == {name: ("target", "source")}
    plain = model.teacher_force(source, target)
    with watch(model) as seen:
        watched = model.teacher_force(source, target)
    with watch(model) as seen_in_steps:
        run_steps(model, source, target)
    torch.testing.assert_close(watched, plain, rtol=1e-12, atol=1e-13)
    weights = torch.cat(seen[name], dim=-2)
    assert weights.shape == (3, 1, 5, 6)
    torch.testing.assert_close(torch.cat(seen_in_steps[name], dim=-2), weights)
    assert all(part.shape == (3, 1, 1, 6) for part in seen_in_steps[name])
    if attention != "luong-local-p":  # whose Gaussian comes after the softmax
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    beyond = torch.arange(6) >= source.lengths.unsqueeze(1)
    assert weights.masked_select(beyond[:, None, None]).eq(0).all()


def test_without_attention_there_is_nothing_to_watch() -> None:
    model = build(small("none"))
    assert model.alignment is None
    assert model.attention_axes() == {}
    with watch(model) as seen:
        model.teacher_force(some_source(), some_target(3, 2))
    assert len(seen) == 0


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("attention", "feeding"), ATTENTIONS)
def test_selected_rows_go_on_as_they_would_alone(
    cell: str, attention: str, feeding: bool | None
) -> None:
    model = build(small(attention, feeding, cell=cell, decoder_layers=2))
    source, target = some_source(), some_target(3, 4)
    expected = run_steps(model, source, target)
    state = model.start(source)
    for tokens in target[:, :2].unbind(1):
        _, state = model.step(tokens, state)
    rows = torch.tensor([2, 0, 0, 2])
    state = state.select(rows)
    for position in (2, 3):
        logits, state = model.step(target[rows, position], state)
        torch.testing.assert_close(logits, expected[rows, position], rtol=1e-10, atol=1e-12)


def test_rows_of_a_search_copy_no_memory() -> None:
    model = build(small())
    first = model.start(some_source(torch.tensor([6, 1, 4, 3])))
    state = first.select(torch.arange(4).repeat_interleave(2))
    swapped = state.select(torch.tensor([1, 0, 3, 3, 4, 5, 6, 7]))
    one_gone = swapped.select(torch.tensor([6, 0, 1, 1, 4]))
    for later in (state, swapped, one_gone):
        assert all(a is b for a, b in zip(later.memory, first.memory, strict=True))
    assert one_gone.rows.sources.tolist() == [3, 0, 0, 0, 2]
    half = one_gone.select(torch.tensor([4, 1, 2]))
    assert half.rows.sources.tolist() == [1, 0, 0]
    assert all(torch.equal(a, b[[0, 2]]) for a, b in zip(half.memory, first.memory, strict=True))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_rows_stand_beside_each_other_and_come_back(
    sources: list[int], data: st.DataObject
) -> None:
    rows = SourceRows.of(torch.tensor(sources), 5)
    memory, known = torch.arange(5), torch.tensor(sources)
    for _ in range(3):
        x = torch.randn(len(known), 3)
        beside = rows.spread(x)
        assert beside.shape[0] == len(memory)
        torch.testing.assert_close(rows.collect(beside), x)
        torch.testing.assert_close(rows.collect(beside + memory[:, None, None]), x + known[:, None])
        torch.testing.assert_close(rows.copied(memory), known)
        indices = st.lists(st.integers(0, len(known) - 1), min_size=1, max_size=12)
        chosen = torch.tensor(data.draw(indices))
        rows, left = rows.select(chosen)
        memory, known = memory if left is None else memory[left], known[chosen]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("attention", "feeding"), ATTENTIONS)
def test_rows_of_one_source_read_it_together_as_each_would_alone(
    cell: str, attention: str, feeding: bool | None
) -> None:
    model = build(small(attention, feeding, cell=cell, decoder_layers=2))
    source, target = some_source(), some_target(7, 4)
    rows = torch.tensor([0, 2, 1, 0, 0, 2, 1])
    alone = Source(source.tokens[rows], source.lengths[rows])
    weights = torch.randn(7, 4, 15, dtype=torch.float64)
    forced = model.teacher_force(alone, target)
    by_force = gradients_of(model, (forced * weights).sum())
    found = run_steps(model, source, target, rows)
    torch.testing.assert_close(found, forced, rtol=1e-10, atol=1e-12)
    together = gradients_of(model, (found * weights).sum())
    torch.testing.assert_close(together, by_force, rtol=1e-9, atol=1e-12)
    with torch.inference_mode():
        quickly = run_steps(model, source, target, rows)
    torch.testing.assert_close(quickly, forced, rtol=1e-10, atol=1e-12)
    with watch(model) as seen:
        torch.testing.assert_close(run_steps(model, source, target, rows), found)
    assert all(part.shape == (7, 1, 1, 6) for calls in seen.values() for part in calls)


def test_a_state_of_another_model_is_refused() -> None:
    class Other:
        def select(self, rows: Tensor) -> "Other":
            return self

    with pytest.raises(TypeError, match="Other"):
        build(small()).step(torch.tensor([BEGIN]), Other())


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cell", CELLS)
def test_autocast_on_the_cpu_stays_near_float32(cell: str, precision: torch.dtype) -> None:
    for attention, feeding in ATTENTIONS[:-2]:  # A hard choice may fall otherwise by rounding.
        settings = small(attention, feeding, cell=cell, dropout=0.0, decoder_layers=2)
        model = build(settings).float().train()
        source, target = some_source(), some_target(3, 4)
        expected = model.teacher_force(source, target)
        with torch.autocast("cpu", precision):
            found = model.teacher_force(source, target)
            stepped = run_steps(model, source, target)
        torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
        torch.testing.assert_close(stepped.float(), expected, rtol=0.05, atol=0.05)
        found.float().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_dropout_acts_in_training_only() -> None:
    model = build(small(dropout=0.5, encoder_layers=2, decoder_layers=2))
    source, target = some_source(), some_target(3, 4)
    torch.testing.assert_close(
        model.teacher_force(source, target), model.teacher_force(source, target), rtol=0, atol=0
    )
    model.train()
    readouts = model.states(source, target)
    assert 0.3 < readouts.eq(0).double().mean() < 0.7
    assert not torch.equal(readouts, model.states(source, target))


def reversal_batch(rows: int) -> tuple[Source, Tensor, Tensor]:
    """Random digits; the target is the source backwards."""
    digits = torch.randint(4, 12, (rows, 5))
    end, begin = torch.full((rows, 1), END), torch.full((rows, 1), BEGIN)
    turned = digits.flip(1)
    source = Source(torch.cat([digits, end], 1), torch.full((rows,), 6))
    return source, torch.cat([begin, turned], 1), torch.cat([turned, end], 1)


@pytest.mark.parametrize(
    "attention",
    [
        "bahdanau",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("luong-general", "luong-local-p", "hard-gumbel")
        ),
    ],
)
def test_learns_to_turn_a_sequence_round_and_where_to_look(attention: str) -> None:
    torch.manual_seed(5)
    settings = small(
        attention, embedding_size=32, hidden_size=32, dropout=0.0, tied_embeddings="output"
    )
    model = RecurrentEncoderDecoder(settings, 12, 12)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300 if attention == "hard-gumbel" else 200):
        source, target_in, target_out = reversal_batch(32)
        logits = model.teacher_force(source, target_in)
        loss = F.cross_entropy(logits.flatten(0, 1), target_out.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    source, target_in, target_out = reversal_batch(200)
    with torch.no_grad(), watch(model) as seen:
        right = model.teacher_force(source, target_in).argmax(-1).eq(target_out)
    assert right.double().mean() > 0.95
    looked_at = torch.cat(seen["decoder.attention"], -2)[:, 0, :5].argmax(-1)
    # A recurrent annotation knows its neighbours, so a word beside the right one will do.
    assert (looked_at - torch.arange(4, -1, -1)).abs().le(1).double().mean() > 0.8


def test_the_state_is_made_of_plain_rows() -> None:
    state = build(small(cell="lstm", decoder_layers=2)).start(some_source())
    assert isinstance(state, RecurrentState)
    assert [[tuple(part.shape) for part in layer] for layer in state.hidden] == [[(3, 5)] * 2] * 2


GATED = pytest.mark.parametrize("attention", ["bahdanau", "hard-gumbel", {"heads": 1}], ids=str)


@GATED
def test_steps_of_a_gated_decoder_are_teacher_forcing(attention: Any) -> None:
    settings = small(attention, cell="lstm", context_gate=True)
    model, source, target = build(settings), some_source(), some_target(3, 4)
    forced, stepped = model.teacher_force(source, target), run_steps(model, source, target)
    torch.testing.assert_close(stepped, forced, rtol=1e-10, atol=1e-12)
    gradients = gradients_of(model, forced.square().sum())
    assert gradients["decoder.context_gate.weight"].abs().sum() > 0


@GATED
def test_a_gate_of_one_half_halves_the_contexts(attention: Any) -> None:
    """Xu et al. 2015, section 4.2.1: β c instead of c, in the cell and in the readout."""
    gated: Any = build(small(attention, context_gate=True))
    plain: Any = build(small(attention))
    state = gated.state_dict()
    gate = state.pop("decoder.context_gate.weight"), state.pop("decoder.context_gate.bias")
    plain.load_state_dict(state)
    with torch.no_grad():
        gate[0].zero_()
        gate[1].zero_()
        plain.decoder.stack.weights("ih", 0)[0][:, 4:] /= 2
        plain.decoder.readout.maps[2].weight /= 2
    source, target = some_source(), some_target(3, 4)
    torch.testing.assert_close(
        gated.teacher_force(source, target), plain.teacher_force(source, target)
    )


@pytest.mark.parametrize("attention", ["none", "luong-general"])
def test_a_gate_needs_contexts_before_the_cell(attention: str) -> None:
    with pytest.raises(ValidationError, match="context_gate"):
        small(attention, context_gate=True)
