"""Models that transcribe sounds: the papers' equations as loops, padding, steps of a search."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.models import Sounds, SpeechSettings, build_speech_model

FEATURES, VOCABULARY = 5, 11
MODELS: dict[str, dict[str, Any]] = {
    "listen, attend and spell": {"kind": "recurrent"},
    "location-aware": {"kind": "recurrent", "attention": {"score": "location-aware"},
                       "outputs": "both"},
    "convolutions, GRU, Luong": {"kind": "recurrent", "cell": "gru", "convolutions": 1,
                                 "pyramid_layers": 0, "attention": "luong-general"},
    "monotonic": {"kind": "recurrent", "attention": {"score": "energy", "normalizer": "monotonic"}},
    "none": {"kind": "recurrent", "attention": "none", "decoder_layers": 2},
    "CTC": {"kind": "recurrent", "outputs": "ctc"},
    "Transformer": {"kind": "transformer", "outputs": "both"},
    "rotary": {"kind": "transformer", "positions": "rotary", "tied_embeddings": "none"},
    "Transformer, CTC": {"kind": "transformer", "outputs": "ctc"},
    "Conformer": {"kind": "transformer", "encoder": "conformer", "outputs": "both",
                  "kernel_size": 3},
    "Conformer, rotary": {"kind": "transformer", "encoder": "conformer", "positions": "rotary",
                          "kernel_size": 5, "outputs": "ctc"},
}  # fmt: skip
SPELLING = [name for name, own in MODELS.items() if own.get("outputs") != "ctc"]


def made(name: str, **more: Any) -> Any:
    torch.manual_seed(3)
    table = {"dropout": 0.0, "channels": 3, "hidden_size": 8, **MODELS[name], **more}
    if table["kind"] == "transformer":
        table |= {"layers": 1, "decoder_layers": 1, "ffn_size": 8, "heads": 2}
    else:
        table |= {"embedding_size": 5, "encoder_size": 4}
    settings = SpeechSettings.model_validate(table)
    return build_speech_model(settings, FEATURES, VOCABULARY).double().eval()


def sounds(*lengths: int) -> Sounds:
    """Sounds whose padding is not 0."""
    generator = torch.Generator().manual_seed(6)
    shape = len(lengths), max(lengths), FEATURES
    frames = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Sounds(frames, torch.tensor(lengths))


def targets(rows: int, length: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    found = torch.randint(4, VOCABULARY, (rows, length), generator=generator)
    found[:, 0] = 2
    return found


@pytest.mark.parametrize("name", SPELLING)
def test_steps_are_teacher_forcing(name: str) -> None:
    model, target, heard = made(name), targets(3), sounds(13, 8, 5)
    with torch.no_grad():
        state, steps = model.start(heard), []
        for place in range(4):
            logits, state = model.step(target[:, place], state)
            steps.append(logits)
        forced = model.teacher_force(heard, target)
    torch.testing.assert_close(torch.stack(steps, 1), forced)


@pytest.mark.parametrize("name", MODELS)
def test_a_sound_is_the_same_alone_and_beside_longer_ones(name: str) -> None:
    model, together = made(name), sounds(13, 8, 5, 1)
    found = model.listen(together)
    for row, length in enumerate(together.lengths.tolist()):
        one = Sounds(together.frames[row : row + 1, :length], together.lengths[row : row + 1])
        alone = model.listen(one)
        count = int(alone.lengths)
        assert count == found.lengths[row] == model.positions(length)
        torch.testing.assert_close(found.vectors[row, :count], alone.vectors[0, :count])
        if model.has_decoder:
            target = targets(4)[row : row + 1]
            torch.testing.assert_close(
                model.teacher_force(together, targets(4))[row], model.teacher_force(one, target)[0]
            )


def test_listen_attend_and_spell_is_the_paper() -> None:
    """Chan et al. 2016, equations 5 and 7 to 11, with the decoder of Bahdanau et al. 2015."""
    model = made("listen, attend and spell", pyramid_layers=1, encoder_layers=2)
    given, target = sounds(5), targets(1, 3)
    lower, upper = (network.network for network in model.encoder.networks)
    low, _ = lower(given.frames)
    low = F.pad(low, (0, 0, 0, 1))
    joined = torch.stack([torch.cat([low[0, 2 * i], low[0, 2 * i + 1]]) for i in range(3)])
    annotations = upper(joined[None])[0][0]  # [3, A]
    decoder, logits = model.decoder, []
    state = [torch.zeros(1, 8, dtype=torch.float64)] * 2
    score, network = decoder.attention.score, decoder.stack.network
    for token in target[0]:
        word = model.target_embedding(token)[None]
        query = score.query_projection(state[0])
        energies = torch.tanh(query + score.key_projection(annotations)) @ score.v
        context = (energies.softmax(0) @ annotations)[None]
        cell = torch.nn.LSTMCell(network.input_size, 8).double()
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(cell, kind).data = getattr(network, f"{kind}_l0").data
        state = list(cell(torch.cat([word, context], 1), tuple(state)))
        parts = zip(decoder.readout.maps, (state[0], word, context), strict=True)
        wide = sum((one(part) for one, part in parts), torch.zeros(()))
        logits.append(model.output(wide.view(1, -1, 2).amax(-1))[0])
    torch.testing.assert_close(model.teacher_force(given, target)[0], torch.stack(logits))


@pytest.mark.parametrize("name", ["location-aware", "Transformer", "CTC"])
def test_emissions_are_probabilities(name: str) -> None:
    model = made(name)
    found = model.emissions(model.listen(sounds(13, 8)))
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(found.shape[:2]))


def test_gradients_reach_all_parameters() -> None:
    for name in MODELS:
        model = made(name)
        heard = model.listen(sounds(13, 8))
        total = heard.vectors.sum() * 0
        if model.ctc is not None:
            total = total + model.emissions(heard)[..., 5].sum()
        if model.has_decoder:
            target = targets(2)
            total = total + model.logits(model.spell(heard, target))[..., 4].sum()
        total.backward()
        without = [name for name, own in model.named_parameters() if own.grad is None]
        assert not without, (name, without)


def test_without_a_decoder_there_is_no_table() -> None:
    model = made("Transformer, CTC")
    assert not [name for name, _ in model.named_parameters() if "embedding" in name]
    assert model.attention_axes() == {"transformer.encoder.0.self_attention": ("time", "time")}
    with pytest.raises(ValueError, match="no output for CTC"):
        made("rotary").emissions(made("rotary").listen(sounds(5)))


def test_wrong_settings() -> None:
    for given, reason in (
        ({"pyramid_layers": 3}, "must be smaller than encoder_layers = 3"),
        ({"attention": "hard-reinforce"}, "not available for sounds"),
        ({"attention": "luong-dot"}, "width"),
    ):
        with pytest.raises(ValueError, match=reason):
            SpeechSettings.model_validate({"kind": "recurrent", **given})
