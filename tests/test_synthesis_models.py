"""Models that synthesise speech: the papers' equations as loops, padding, steps."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import watch
from heedful.layers.speaking import Prenet, TimeConvolutions
from heedful.models import Source, SynthesisSettings, build_synthesis_model
from heedful.tasks.synthesis.guided_attention import guided_losses, is_complete, penalties
from heedful.tasks.synthesis.speaking import alignment_of, source_of, speak

BANDS, VOCABULARY = 5, 20
MODELS: dict[str, dict[str, Any]] = {
    "Tacotron 2": {"kind": "recurrent"},
    "one frame, one layer": {"kind": "recurrent", "frames_per_step": 1, "decoder_layers": 1,
                             "postnet_layers": 0, "encoder_convolutions": 0},
    "without memory": {"kind": "recurrent", "attention": {"score": "additive"}},
    "monotonic": {"kind": "recurrent", "attention": {"score": "energy", "normalizer": "monotonic"}},
    "sparsemax": {"kind": "recurrent", "attention": {"normalizer": "sparsemax"}},
    "Luong's score": {"kind": "recurrent", "attention": "luong-general"},
    "two heads": {"kind": "recurrent", "attention": {"score": "scaled-dot", "heads": 2}},
    "Transformer": {"kind": "transformer"},
    "Transformer, rotary": {"kind": "transformer", "pre_norm": False, "frames_per_step": 3,
                            "attention": {"positions": "rotary"}},
}  # fmt: skip


def made(name: str, **more: Any) -> Any:
    torch.manual_seed(3)
    table = {"frames_per_step": 2, "prenet_size": 6, "postnet_channels": 4, "postnet_layers": 2}
    table |= {"hidden_size": 8, **MODELS[name], **more}
    if table["kind"] == "recurrent":
        table |= {"embedding_size": 6, "encoder_size": 3}
    else:
        table |= {"layers": 1, "decoder_layers": 2, "ffn_size": 8, "heads": 4}
    settings = SynthesisSettings.model_validate(table)
    return build_synthesis_model(settings, BANDS, VOCABULARY).double().eval()


def texts(*lengths: int) -> Source:
    generator = torch.Generator().manual_seed(6)
    rows = [torch.randint(5, VOCABULARY, (one - 1,), generator=generator) for one in lengths]
    return source_of([row.tolist() for row in rows], torch.device("cpu"))


def frames(*lengths: int) -> tuple[Tensor, Tensor]:
    """Frames whose padding is not 0, and their number."""
    generator = torch.Generator().manual_seed(7)
    shape = len(lengths), max(lengths), BANDS
    return torch.randn(shape, generator=generator, dtype=torch.float64), torch.tensor(lengths)


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_teacher_forcing(name: str, always: bool) -> None:
    """With the pre-net's dropout, too, whose masks depend on the seed and the step only."""
    model, source = made(name, prenet_always=always), texts(6, 4, 2)
    given, lengths = frames(7, 6, 3)
    inputs = model.inputs(given)
    with torch.no_grad():
        forced = model.teacher_force(source, given, lengths, seed=5)
        state, found, stops = model.start(source, seed=5), [], []
        for place in range(inputs.shape[1]):
            some, stop, state = model.step(inputs[:, place], state)
            found.append(some)
            stops.append(stop)
    torch.testing.assert_close(torch.cat(found, 1), forced.coarse)
    torch.testing.assert_close(torch.stack(stops, 1), forced.stops)
    other = model.teacher_force(source, given, lengths, seed=6)
    assert torch.equal(other.coarse, forced.coarse) is not always


@pytest.mark.parametrize("name", MODELS)
def test_a_text_is_the_same_alone_and_beside_longer_ones(name: str) -> None:
    model, source = made(name), texts(6, 4, 2)
    given, lengths = frames(7, 6, 3)
    together = model.teacher_force(source, given, lengths)
    said = speak(model, source, [4, 2, 3])
    for row in range(3):
        own, length = lengths[row], int(source.lengths[row])
        one = Source(source.tokens[row : row + 1, :length], source.lengths[row : row + 1])
        alone = model.teacher_force(one, given[row : row + 1, :own], lengths[row : row + 1])
        torch.testing.assert_close(together.coarse[row, :own], alone.coarse[0, :own])
        torch.testing.assert_close(together.fine[row, :own], alone.fine[0, :own])
        assert not together.fine[row, own:].any()
        [spoken] = speak(model, one, [[4, 2, 3][row]])
        for this, that in zip(spoken[:3], said[row][:3], strict=True):
            torch.testing.assert_close(this, that)
        assert spoken.stopped == said[row].stopped


def test_speaking_is_teacher_forcing_on_its_own_frames() -> None:
    model, source = made("Tacotron 2"), texts(6)
    with torch.no_grad():
        [said] = speak(model, source, [5], seed=2)
        count = len(said.coarse)
        forced = model.teacher_force(source, said.coarse[None], torch.tensor([count]), seed=2)
    torch.testing.assert_close(said.coarse, forced.coarse[0])
    torch.testing.assert_close(said.frames, forced.fine[0])
    torch.testing.assert_close(said.weights.sum(1), torch.ones(len(said.weights)))


def lstm(network: Any, layer: int) -> Any:
    """The cell of a layer."""
    cell = torch.nn.LSTMCell(getattr(network, f"weight_ih_l{layer}").shape[1], 8).double()
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, kind).data = getattr(network, f"{kind}_l{layer}").data
    return cell


def test_the_decoder_is_the_paper() -> None:
    """Shen et al. 2018, section 2.2, with the scores of Chorowski et al. 2015 over the sum of all
    weights; without dropout."""
    model, source = made("Tacotron 2", prenet_dropout=0.0, dropout=0.0), texts(6)
    given, lengths = frames(7)
    annotations, decoder = model.encode(source)[0], model.decoder
    score = decoder.attention.score
    cells = [lstm(decoder.stack.network, layer) for layer in range(2)]
    zeros = torch.zeros(1, 8, dtype=torch.float64)
    states, context = [(zeros, zeros)] * 2, torch.zeros(1, 6, dtype=torch.float64)
    seen, last = torch.zeros(6, dtype=torch.float64), torch.zeros(1, BANDS, dtype=torch.float64)
    found, stops, alignment = [], [], []
    for step in range(4):
        x = last
        for layer in decoder.prenet.layers:
            x = torch.relu(x @ layer.weight.T + layer.bias)
        x = torch.cat([x, context], 1)
        for layer, cell in enumerate(cells):
            states[layer] = cell(x, states[layer])
            x = states[layer][0]
        half = score.filters.shape[-1] // 2
        around = F.pad(seen, (half, half))
        energies = []
        for place in range(6):
            features = score.filters[:, 0] @ around[place : place + 2 * half + 1]
            inside = score.query_projection(x[0]) + score.key_projection(annotations[place])
            inside = inside + score.feature_projection(features)
            energies.append(score.v @ torch.tanh(inside))
        weights = torch.stack(energies).softmax(0)
        seen, context = seen + weights, (weights @ annotations)[None]
        output = torch.cat([x, context], 1)
        found.append(decoder.frames(output).view(2, BANDS))
        stops.append(decoder.stop(output)[0, 0])
        alignment.append(weights)
        last = given[:, 2 * step + 1] if step < 3 else last
    with watch(model) as kept:
        forced = model.teacher_force(source, given, lengths)
    torch.testing.assert_close(forced.coarse[0], torch.cat(found))
    torch.testing.assert_close(forced.stops[0], torch.stack(stops))
    shown = alignment_of(kept["decoder.attention"])[0].double()
    torch.testing.assert_close(shown, torch.stack(alignment), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(forced.fine[0, :7], forced.coarse[0, :7] + plain_postnet(
        model.postnet, forced.coarse[0, :7]))  # fmt: skip


def plain_postnet(postnet: Any, coarse: Tensor) -> Tensor:
    """tanh on all convolutions but the last."""
    x = coarse
    for place, convolution in enumerate(postnet.convolutions):
        x = F.conv1d(x.T, convolution.weight, convolution.bias, padding=2).T
        if place < len(postnet.convolutions) - 1:
            x = torch.tanh(F.layer_norm(x, x.shape[1:], postnet.norms[place].weight,
                                        postnet.norms[place].bias))  # fmt: skip
    return x


def test_the_input_of_a_step_is_the_last_frame_of_the_step_before() -> None:
    model = made("Tacotron 2")
    given = torch.arange(1, 8.0)[None, :, None].expand(-1, -1, BANDS)
    assert model.inputs(given)[0, :, 0].tolist() == [0, 2, 4, 6]
    assert made("one frame, one layer").inputs(given)[0, :, 0].tolist() == [0, *range(1, 7)]


def test_the_dropout_of_the_prenet() -> None:
    """In inference a share of the values is 0, the same in all rows; in training it differs."""
    prenet = Prenet(3, 400, dropout=0.5, always=True)
    for layer in prenet.layers:
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.ones_(layer.bias)
    given = torch.zeros(2, 4, 3)
    found = prenet.eval()(given, seed=1)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0, 0], found[0, 1])
    assert set(found.unique().tolist()) == {0.0, 2.0}
    assert abs(float((found == 0).float().mean()) - 0.5) < 0.05
    trained = prenet.train()(given, seed=1)
    assert not torch.equal(trained[0], trained[1])
    never = Prenet(3, 8, dropout=0.5, always=False).eval()
    assert torch.equal(never(given, seed=1), never(given, seed=2))


def test_convolutions_do_not_see_padding() -> None:
    layer = TimeConvolutions([3, 4, 3], 5, activation="relu", dropout=0.0).double()
    given = torch.randn(2, 9, 3, dtype=torch.float64)
    found = layer(given, torch.tensor([9, 4]))
    alone = layer(given[1:, :4], torch.tensor([4]))
    torch.testing.assert_close(found[1, :4], alone[0])
    assert not found[1, 4:].any()


def test_gradients_reach_all_parameters() -> None:
    for name in MODELS:
        model, (given, lengths) = made(name), frames(7, 6)
        with watch(model, [model.alignment.module], keep_gradients=True) as seen:
            found = model.teacher_force(texts(6, 4), given, lengths)
        weights = alignment_of(seen[model.alignment.module])
        total = found.fine.square().sum() + found.stops.sum() + weights.square().sum()
        total.backward()
        without = [own for own, one in model.named_parameters() if one.grad is None]
        assert not without, (name, without)


def test_wrong_settings() -> None:
    for given, reason in (
        ({"attention": "none"}, "speech needs attention"),
        ({"attention": "hard-reinforce"}, "not available for speech"),
        ({"attention": {"heads": 2, "score": "location-aware"}}, "has one head"),
        ({"frames_per_step": 0}, "greater than or equal to 1"),
    ):
        with pytest.raises(ValueError, match=reason):
            SynthesisSettings.model_validate({"kind": "recurrent", **given})


# Guided attention


def test_guided_attention_is_the_formula() -> None:
    """Tachibana, Uenoyama, Aihara 2018, equation 8, as a loop."""
    generator = torch.Generator().manual_seed(1)
    steps, characters, width = torch.tensor([7, 4]), torch.tensor([4, 2]), 0.3
    weights = torch.rand(2, 7, 5, generator=generator, dtype=torch.float64)
    found = guided_losses(weights, steps, characters, width)
    table = penalties(steps, characters, width)
    for row, (T, N) in enumerate(zip(steps.tolist(), characters.tolist(), strict=True)):
        total = 0.0
        for t in range(T):
            for n in range(N + 1):  # END is at n = N
                W = 1 - math.exp(-((n / N - t / T) ** 2) / (2 * width**2))
                total += float(weights[row, t, n]) * W
                assert float(table[row, t, n]) == pytest.approx(W, abs=1e-6)
        assert float(found[row]) == pytest.approx(total / (T * (N + 1)), rel=1e-5)
    assert not table[1, 4:].any()
    assert not table[1, :, 3:].any()


def along(*places: int, tokens: int = 12) -> Tensor:
    return F.one_hot(torch.tensor(places), tokens).float()


@pytest.mark.parametrize(
    ("places", "stopped", "complete"),
    [
        (range(12), True, True),
        (range(12), False, False),
        ([0, 1, 2, 1, 2, 3, 5, 6, 8, 11], True, True),  # one back, two skipped
        ([0, 1, 2, 3, 4, 2, 3, 5, 6, 8, 11], True, False),  # two back
        ([0, 5, 10, 11], True, True),  # four skipped
        ([0, 6, 11], True, False),  # five skipped
        ([5, 6, 7, 8, 9, 10, 11], True, False),  # the beginning is missing
        (range(11), True, True),  # to the last character
        (range(10), True, False),  # the end is missing
    ],
)
def test_complete_alignments(places: Any, stopped: bool, complete: bool) -> None:
    assert is_complete(along(*places), stopped=stopped) is complete
