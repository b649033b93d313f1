"""Fused layers, in one call of C, against the modules."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from command_help import run_command
from heedful.attention import MultiHeadAttention, watch
from heedful.decoding import SearchOptions, search
from heedful.inference.fusing import FusedDecoder, cached, searched
from heedful.kernels import program
from heedful.layers.bfloat16_linear import Bfloat16Linear, bfloat16_copy
from heedful.layers.int8_linear import int8_copy, largest_input
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from tolerance import Reference, assert_rounded, reference

pytestmark = pytest.mark.skipif(program.library() is None, reason="there is no compiler")

WIDEST = 700
"""Terms of the longest product."""


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
    return stirred(model)


def stirred(model: Any) -> Any:
    """Set norms and biases to random values, so that they have an effect."""
    for parameter in model.parameters():
        parameter.mul_(1.3).add_(0.1 * torch.randn_like(parameter))
    if model.output_bias is not None:
        model.output_bias.normal_()
    return model


def forced(model: Transformer, source: Source, tokens: Tensor) -> Reference:
    """Logits ``[B, V]`` of the last step from the modules in float64."""

    def last(model: Transformer) -> list[Tensor]:
        return [model.teacher_force(source, tokens)[:, -1]]

    return reference(last, model, terms=WIDEST)


def source_of(rows: int) -> Source:
    lengths = torch.randint(1, 13, (rows,))
    lengths[0] = 12
    tokens = torch.randint(4, 301, (rows, 12)).masked_fill(torch.arange(12) >= lengths[:, None], 0)
    return Source(tokens, lengths)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pre_norm": True, "activation": "silu"},
        {"activation": "gelu-tanh", "decoder_ffn_size": 700, "output_bias": True},
        {"hidden_size": 36, "heads": 3, "ffn_size": 50, "decoder_layers": 3, "decoder_heads": 2},
        {"hidden_size": 320, "heads": 5, "ffn_size": 300, "tied_embeddings": "none", "layers": 1},
    ],
)
@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (1, 3), (5, 2), (37, 2), (230, 3)])
def test_steps_match_the_modules(settings: Any, rows: int, threads: int) -> None:
    model, source = translator(**settings), source_of(rows)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    tokens = torch.randint(4, 301, (rows, 20))
    state = searched(model).start(source)
    assert state.fused is not None
    for place in range(20):
        logits, state = searched(model).step(tokens[:, place], state)
        if place == 10:
            chosen = torch.randint(rows, (rows,))
            state, tokens = state.select(chosen), tokens[chosen]
            source = Source(source.tokens[chosen], source.lengths[chosen])
    torch.set_num_threads(before)
    assert logits.shape == (rows, 301)
    some = torch.arange(0, rows, max(1, rows // 30))  # of every block of rows
    source = Source(source.tokens[some], source.lengths[some])
    assert_rounded([logits[some]], forced(model, source, tokens[some]))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_language_model_steps_match_the_modules(bias: bool, pre_norm: bool) -> None:
    settings = GptSettings(
        layers=3, hidden_size=24, heads=2, ffn_size=40, bias=bias, pre_norm=pre_norm
    )
    model = stirred(Gpt(settings, 77).eval())
    tokens = torch.randint(4, 77, (3, 40))
    state = searched(model).start(tokens[:, :8])
    assert state.fused is not None
    for place in range(7, 40):
        logits, state = searched(model).step(tokens[:, place], state)
    expected = reference(
        lambda model: [model.logits(model.states(tokens))[:, -1]], model, terms=WIDEST
    )
    assert_rounded([logits], expected)
    assert searched(model).start(tokens).fused is state.fused


def written(model: Transformer, source: Source, threads: int) -> Tensor:
    """Logits of the last of six steps for some rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        state = searched(model).start(source)
        for place in range(6):
            logits, state = searched(model).step(
                torch.full((len(source.lengths),), 4 + place), state
            )
        return logits
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_results_are_identical_for_any_number_of_threads(rows: int, precision: str) -> None:
    model, source = translator(), source_of(rows)
    if precision == "int8":
        if program.library().heedful_int8_max_input() < largest_input():  # type: ignore[union-attr]
            pytest.skip("this processor's whole numbers are others than PyTorch's")
        model = int8_copy(model)
    elif precision == "bfloat16":
        model = bfloat16_copy(model)
    expected = written(model, source, 1)
    for threads in (2, 3, 5):
        assert torch.equal(written(model, source, threads), expected)


@pytest.mark.parametrize("rows", [2, 7, 100])
@pytest.mark.parametrize("rounded", [False, True])
def test_a_rows_result_does_not_depend_on_the_batch(rows: int, rounded: bool) -> None:
    model, source = (
        translator(hidden_size=36, heads=3, ffn_size=300, output_bias=True),
        source_of(rows),
    )
    model = bfloat16_copy(model) if rounded else model
    found = written(model, source, 2)
    for row in (0, rows // 2, rows - 1):
        alone = Source(source.tokens[row : row + 1], source.lengths[row : row + 1])
        assert torch.equal(written(model, alone, 1)[0], found[row])


def test_concurrent_calls_are_independent() -> None:
    models = [translator(), translator(hidden_size=40), translator(ffn_size=64)]
    sources = [source_of(rows) for rows in (1, 3, 70)]
    expected = [written(*two, 1) for two in zip(models, sources, strict=True)]
    with ThreadPoolExecutor(3) as callers:
        for _ in range(10):
            found = callers.map(without_fusing, models, sources, [2] * 3)
            assert all(torch.equal(*two) for two in zip(found, expected, strict=True))


def without_fusing(model: Transformer, source: Source, threads: int) -> Tensor:
    with torch.no_grad():  # which is a thread's own
        return written(model, source, threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_it_works_in_a_forked_process() -> None:
    model, source = translator(), source_of(3)
    expected = written(model, source, 2)
    child = os.fork()
    if not child:  # which has no other thread than this one
        signal.alarm(60)
        os._exit(0 if torch.equal(written(model, source, 2), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(written(model, source, 2), expected)


def last_logits(model: Transformer, source: Source, tokens: Tensor, fused: bool) -> Tensor:
    """Logits after a step for each column of ``tokens [N, T]``, fused or from the modules."""
    state = searched(model).start(source)
    assert (state.fused is not None) == fused
    for place in range(tokens.shape[1]):
        logits, state = searched(model).step(tokens[:, place], state)
    return logits


@pytest.mark.parametrize(("rows", "threads"), [(1, 2), (39, 2), (230, 1)])
@pytest.mark.parametrize("dim", [32, 36])
def test_int8_steps_match_int8_modules(
    dim: int, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program.library().heedful_int8_max_input() != largest_input():  # type: ignore[union-attr]
        pytest.skip("this processor's whole numbers are others than PyTorch's")
    model = int8_copy(translator(hidden_size=dim, ffn_size=70, output_bias=True))
    source, tokens = source_of(rows), torch.randint(4, 301, (rows, 6))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)

    found = last_logits(model, source, tokens, fused=True)
    monkeypatch.setattr(cached, "can_step", lambda like: False)
    expected = last_logits(model, source, tokens, fused=False)
    torch.set_num_threads(before)
    # A sum that is rounded otherwise may be the next whole number, which is a hundredth of a row.
    scale, error = expected.abs().amax(), (found - expected).abs()
    assert error.amax() < 0.05 * scale
    assert error.median() < 0.003 * scale


@pytest.mark.parametrize(("rows", "threads"), [(1, 2), (39, 2), (230, 1)])
@pytest.mark.parametrize(("dim", "heads", "inner"), [(32, 4, 70), (36, 4, 300), (34, 2, 51)])
def test_bfloat16_steps_match_the_rounded_modules(
    dim: int, heads: int, inner: int, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = translator(hidden_size=dim, heads=heads, ffn_size=inner, output_bias=True)
    source, tokens = source_of(rows), torch.randint(4, 301, (rows, 6))
    # Rounded weights magnify errors as the exact ones do.
    allowed = forced(exact, source, tokens).allowed
    model = bfloat16_copy(exact)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found = last_logits(model, source, tokens, fused=True)

    library = program.library()
    assert library is not None
    paired = bool(library.heedful_bfloat16_pairs())
    monkeypatch.setattr(cached, "can_step", lambda like: False)
    monkeypatch.setattr(
        Bfloat16Linear,
        "forward",
        lambda own, x: linear(x.bfloat16().float() if paired else x, own.weight, own.bias),
    )
    expected = last_logits(model, source, tokens, fused=False)
    if paired:  # some inputs are rounded the other way, by one step of bfloat16
        unrounded = last_logits(exact, source, tokens, fused=False)
        share = 0.3 if rows > 1 else 1.0  # a single row has few roundings to average over
        assert (found - expected).norm() < share * (expected - unrounded).norm()
    else:
        assert_rounded([found], Reference([expected.double()], allowed))


def test_a_bfloat16_row_does_not_depend_on_batch_or_threads() -> None:
    model, source = bfloat16_copy(translator(hidden_size=36, ffn_size=70)), source_of(40)
    alone = Source(source.tokens[:1], source.lengths[:1])
    found = [written(model, one, threads)[0] for one in (source, alone) for threads in (1, 2, 3)]
    assert all(torch.equal(one, found[0]) for one in found)


def test_an_int8_row_with_nan_gives_nan() -> None:
    if program.library().heedful_int8_max_input() < largest_input():  # type: ignore[union-attr]
        pytest.skip("this processor's whole numbers are others than PyTorch's")
    model = int8_copy(translator())
    model.decoder[1].around_cross.norm.bias[3] = torch.nan
    state = searched(model).start(source_of(2))
    assert state.fused is not None
    logits, _ = searched(model).step(torch.tensor([5, 6]), state)
    assert logits.isnan().all()


def test_changed_weights_are_noticed() -> None:
    model, source = translator(), source_of(3)
    tokens = torch.tensor([2, 2, 2])
    first = searched(model).start(source).fused
    assert searched(model).start(source).fused is first
    for weight in (
        model.decoder[1].feed_forward.expand.weight,
        model.decoder[0].around_self.norm.bias,
    ):
        weight[0] += 1.0
        logits, state = searched(model).step(tokens, searched(model).start(source))
        assert state.fused is not first
        assert_rounded([logits], forced(model, source, tokens.unsqueeze(1)))


@pytest.mark.parametrize("fused_too", [True, False])
def test_an_optimiser_step_is_noticed(fused_too: bool) -> None:
    model, source = translator(), source_of(3)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused_too)
    tokens = torch.tensor([2, 2, 2])
    searched(model).step(tokens, searched(model).start(source))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimiser.step()
    logits, _ = searched(model).step(tokens, searched(model).start(source))
    assert_rounded([logits], forced(model, source, tokens.unsqueeze(1)))


def test_other_optimisers_are_not_hooked(tmp_path: Path) -> None:
    """Optimisers are only hooked once a model is fused, and only steps on its weights count."""
    script = (
        "import heedful, torch, heedful.models.gpt, heedful.models.transformer\n"
        "from torch.optim import optimizer\n"
        "print(len(optimizer._global_optimizer_post_hooks))"
    )
    program = tmp_path / "hooks.py"
    program.write_text(script)
    done = run_command(program=program)
    assert done.stdout == "0\n", done.stderr
    model, source = translator(), source_of(3)
    first = searched(model).start(source).fused
    # Memory of a model that is gone may be its own.
    several = [torch.nn.Parameter(torch.ones(3)) for _ in range(50)]
    held = cached._optimised._storages
    other = next(one for one in several if one.untyped_storage().data_ptr() not in held)
    other.grad = torch.ones(3)
    torch.optim.SGD([other], lr=0.1).step()
    assert searched(model).start(source).fused is first
    weight = model.decoder[0].feed_forward.expand.weight
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1, fused=True).step()
    assert searched(model).start(source).fused is not first


def test_hooks_on_embeddings_are_called() -> None:
    source, tokens = source_of(3), torch.tensor([2, 2, 2])
    for name in ("source_embedding", "target_embedding", "target_positions"):
        model = translator(tied_embeddings="none")
        searched(model).step(tokens, searched(model).start(source))
        seen: list[object] = []
        handle = getattr(model, name).register_forward_hook(lambda *_, s=seen: s.append(1))
        searched(model).step(tokens, searched(model).start(source))
        assert seen, name
        handle.remove()
        assert isinstance(searched(model).start(source).fused, FusedDecoder)
    model = stirred(Gpt(GptSettings(layers=1, hidden_size=8, heads=2), 30).eval())
    model.embeddings.tokens.register_forward_hook(lambda *_: None)
    assert searched(model).start(torch.tensor([[3, 4]])).fused is None


def test_a_replaced_method_is_called() -> None:
    model = translator()
    assert searched(model) is not model
    steps, step = [], model.step

    def counted(tokens: Tensor, state: Any) -> Any:
        steps.append(len(tokens))
        return step(tokens, state)

    model.step = counted  # type: ignore[method-assign]
    limits = torch.full((2,), 6)
    search(searched(model), source_of(2), rows=2, options=SearchOptions(), max_lengths=limits)
    assert steps


def test_unsupported_modules_are_not_fused() -> None:
    source = source_of(3)
    assert searched(translator(activation="gelu")).start(source).fused is None
    rotary = Gpt(GptSettings(layers=1, hidden_size=8, heads=2, positions="rotary"), 30).eval()
    assert searched(rotary).start(torch.tensor([[3, 4]])).fused is None
    model = translator()
    assert searched(model.train()).start(source).fused is None
    model.eval().decoder[0].feed_forward.dropout.train()
    assert searched(model).start(source).fused is None
    model.eval()
    handle = model.decoder[1].around_cross.register_forward_hook(lambda *_: None)
    assert searched(model).start(source).fused is None
    handle.remove()
    assert isinstance(searched(model).start(source).fused, FusedDecoder)
    model.decoder[1].feed_forward.expand = nn.Sequential(model.decoder[1].feed_forward.expand)
    assert searched(model).start(source).fused is None
    model = translator()
    with torch.enable_grad():
        assert searched(model).start(source).fused is None


def test_unreadable_tensors_are_not_passed_to_c() -> None:
    model, source = translator(), source_of(3)
    with pytest.raises(IndexError):
        searched(model).start(
            Source(source.tokens.index_fill(0, torch.tensor([1]), 301), source.lengths)
        )
    state = searched(model).start(source)
    for bad in (301, -1):
        with pytest.raises(IndexError):
            searched(model).step(torch.tensor([5, bad, 5]), state)
    with torch.inference_mode():
        made_there = translator()
        assert searched(made_there).start(source).fused is None
        assert searched(model).start(source).fused is not None


def test_integers_of_other_widths() -> None:
    model, source = translator(), source_of(3)
    narrow = Source(source.tokens.int(), source.lengths.int())
    found, _ = searched(model).step(
        torch.tensor([5, 6, 7], dtype=torch.int), searched(model).start(narrow)
    )
    expected, _ = searched(model).step(torch.tensor([5, 6, 7]), searched(model).start(source))
    assert torch.equal(found, expected)


def test_modules_continue_after_the_last_position_embedding() -> None:
    model, source = translator(max_length=8), source_of(2)
    places = len(model.target_positions.table)
    state = searched(model).start(source)
    tokens = torch.randint(4, 301, (2, places + 2))
    for place in range(places + 2):
        logits, state = searched(model).step(tokens[:, place], state)
    assert_rounded([logits], forced(model, source, tokens))


def test_watching_during_a_search_returns_the_weights() -> None:
    model, source = translator(), source_of(3)
    tokens = torch.randint(4, 301, (3, 4))
    state = searched(model).start(source)
    for place in range(3):
        _, state = searched(model).step(tokens[:, place], state)
    with watch(model) as seen:
        logits, state = searched(model).step(tokens[:, 3], state)
    assert_rounded([logits], forced(model, source, tokens))
    assert seen["decoder.1.self_attention"][0].shape == (3, 4, 1, 4)
    assert seen["decoder.1.cross_attention"][0].shape == (3, 4, 1, 12)
    again, _ = searched(model).step(tokens[:, 0], state)
    more = torch.cat([tokens, tokens[:, :1]], dim=1)
    assert_rounded([again], forced(model, source, more))


def test_fewer_heads_of_keys() -> None:
    model, source = translator(), source_of(4)
    for layer in model.decoder:
        for name in ("self_attention", "cross_attention"):
            heads = MultiHeadAttention(32, 4, key_heads=2).eval()
            setattr(layer, name, heads)
    tokens = torch.randint(4, 301, (4, 6))
    state = searched(model).start(source)
    assert state.fused is not None
    for place in range(6):
        logits, state = searched(model).step(tokens[:, place], state)
    assert_rounded([logits], forced(model, source, tokens))


def test_search_raises_for_nan() -> None:
    model, source = translator(), source_of(2)
    model.decoder[0].feed_forward.contract.bias[3] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        search(
            searched(model),
            source,
            rows=2,
            options=SearchOptions(beam=2),
            max_lengths=torch.tensor([9, 9]),
        )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize(("rows", "longest"), [(1, 1), (3, 240), (90, 33), (7, 97)])
def test_the_encoder_matches_the_modules(
    rows: int, longest: int, pre_norm: bool, threads: int
) -> None:
    model = translator(pre_norm=pre_norm, max_length=300, hidden_size=40, heads=5)
    lengths = torch.randint(1, longest + 1, (rows,))
    lengths[rows // 2] = longest
    tokens = torch.randint(4, 301, (rows, longest))
    source = Source(tokens.masked_fill(torch.arange(longest) >= lengths[:, None], 0), lengths)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found = searched(model).start(source).sources.in_place()
    torch.set_num_threads(before)
    double = Transformer(model.settings, 301, 301).double().eval()
    double.load_state_dict(model.state_dict())
    exact, plain = double.encode(source)[0], model.encode(source)[0]
    there = (torch.arange(longest) < lengths[:, None])[:, None, :, None]
    for own, memory, module in zip(found, exact, plain, strict=True):
        key, value, mask = own.gather()
        assert mask is not None
        assert torch.equal(mask.transpose(2, 3), there)
        for got, expected, other in zip((key, value), memory, module, strict=True):
            error, rounding = (((part - expected) * there).abs().amax() for part in (got, other))
            assert error < 4 * rounding + 1e-6


def test_watched_or_large_encoders_are_not_fused() -> None:
    model, source = translator(max_length=700), source_of(3)
    exact = model.encode(source)[0][1].key
    with watch(model) as seen:
        key, _, _ = searched(model).start(source).sources.in_place()[1].gather()
    torch.testing.assert_close(key, exact, rtol=1e-4, atol=1e-4)
    assert len(seen["encoder.1.self_attention"]) == 1
    long = Source(torch.full((1, 600), 5), torch.tensor([600]))
    key, _, _ = searched(model).start(long).sources.in_place()[0].gather()
    assert torch.equal(key, model.encode(long)[0][0].key)
