"""Alignments and traces: rows that sum to one, words from tokens, exactness against the model."""

import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from heedful.basics.errors import UserError
from heedful.basics.symbols import END, PAD
from heedful.inference import Trace, Translator, WordAlignment
from heedful.inference.alignment import join, word_weights
from heedful.inference.batches import padded, source_of, target_in_of
from heedful.models.pairs import PairModel
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.viewing.page import export_html
from test_inference import MODELS, TOKENISERS, WORDS, sentences, transformer, translator


def reversible(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.sample(WORDS, chance.randint(2, 5))) for _ in range(count)]


def backwards(line: str) -> str:
    return " ".join(reversed(line.split()))


def learner() -> PairModel:
    shape = {
        "layers": 1,
        "hidden_size": 64,
        "ffn_size": 128,
        "heads": 4,
        "max_length": 64,
        "dropout": 0.0,
    }
    settings = TransformerSettings.model_validate({**shape, "pre_norm": True})
    return Transformer(settings, 380, 380)


def recurrent_learner() -> PairModel:
    return RecurrentEncoderDecoder(
        RecurrentSettings(embedding_size=48, hidden_size=48, dropout=0.0), 380, 380
    )


def test_words_sum_source_tokens_and_average_target_tokens() -> None:
    weights = torch.tensor(
        [
            [0.1, 0.2, 0.3, 0.4],
            [0.5, 0.1, 0.1, 0.3],
            [0.0, 0.0, 0.9, 0.1],
        ]
    )
    found = word_weights(weights, [0, 0, 1], [0, 0, 1])  # the fourth column is END's
    assert torch.allclose(found, torch.tensor([[0.45, 0.2], [0.0, 0.9]]))
    alignment = WordAlignment(found)
    assert alignment.links == [(0, 0), (1, 1)]
    assert alignment.pharaoh() == "0-0 1-1"
    assert alignment.weights(minimum=0.3) == pytest.approx({(0, 0): 0.45, (1, 1): 0.9})
    assert WordAlignment(torch.zeros(0, 3)).pharaoh() == ""
    assert torch.equal(word_weights(weights, [-1, 0, 0], [-1, -1, 0]), torch.tensor([[0.9]]))


def test_joined_parts_are_blocks_and_a_cut_word_is_shared() -> None:
    one, two = torch.ones(2, 2), torch.full((1, 2), 0.5)
    apart = join([one, two], [0, 2], [0, 2])
    assert apart.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0.5, 0.5]]
    shared = join([one, two], [0, 1], [0, 1])
    assert shared.tolist() == [[1, 1, 0], [0.5, 0.75, 0.25]]


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "luong-general"])
def test_an_alignment_covers_the_words_of_both_sides(name: str) -> None:
    lines = ["", *sentences(10)]
    found = translator(MODELS[name]()).translate(lines, alignments=True)
    assert found[0].alignment.soft.numel() == 0
    for one in found[1:]:
        words = len(one.text.split())
        assert one.alignment.soft.shape[0] == words
        if words:
            assert one.alignment.soft.shape[1] == len(one.source.split())
            assert bool((one.alignment.soft.sum(1) <= 1 + 1e-5).all())
            assert [target for _, target in one.alignment.links] == list(range(words))


@pytest.fixture(scope="module", params=["transformer", "bahdanau"])
def reverser(request: pytest.FixtureRequest) -> Translator:
    """A translator that has learnt to write the words in reverse order."""
    torch.manual_seed(1)
    model = {"transformer": learner, "bahdanau": recurrent_learner}[request.param]()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    steps, size = {"transformer": 250, "bahdanau": 150}[request.param], 40
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps, pct_start=0.1)
    lines = reversible(steps * size)
    for start in range(0, len(lines), size):
        batch = lines[start : start + size]
        sources = TOKENISERS.source.encode_batch(batch)
        targets = TOKENISERS.target.encode_batch([backwards(line) for line in batch])
        device = torch.device("cpu")
        logits = model.teacher_force(source_of(sources, device), target_in_of(targets, device))
        wanted = padded([[*tokens, END] for tokens in targets], device)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return translator(model)


def test_learnt_alignments_link_the_right_words(reverser: Translator) -> None:
    """The rows that are read belong to the words that are written: one row off fails here."""
    lines = reversible(50, seed=2)
    found = reverser.translate(lines, alignments=True)
    right = sum(one.text == backwards(line) for one, line in zip(found, lines, strict=True))
    assert right >= 45
    hits = total = 0
    for one in found:
        words = len(one.source.split())
        hits += sum(source == words - 1 - target for source, target in one.alignment.links)
        total += len(one.alignment.links)
    assert hits / total > 0.8


def test_a_model_without_attention_has_no_alignments() -> None:
    with pytest.raises(UserError, match="no attention"):
        translator(MODELS["none"]()).translate(["the cat"], alignments=True)


@pytest.mark.parametrize("name", MODELS)
def test_a_trace_holds_every_map_over_its_axes(name: str, tmp_path: Path) -> None:
    made = translator(MODELS[name]())
    trace = made.trace("the red house", "a tree")
    assert "".join(trace.axes["source"].labels) == "▁the▁red▁house</s>"
    assert trace.axes["target"].labels == ["<s>", *trace.decided[:-1]]
    assert {one.name for one in trace.maps} == set(made.models[0].attention_axes())
    assert len(trace.log_probabilities) == len(trace.decided)
    for one in trace.maps:
        sizes = len(trace.axes[one.query_axis]), len(trace.axes[one.key_axis])
        assert tuple(one.weights.shape[1:]) == sizes
        assert torch.allclose(one.weights.sum(-1), torch.ones(1), atol=1e-5)
    trace.save(tmp_path / "trace.safetensors")
    again = Trace.load(tmp_path / "trace.safetensors")
    assert (again.axes, again.decided) == (trace.axes, trace.decided)
    assert again.log_probabilities == trace.log_probabilities
    for one, other in zip(trace.maps, again.maps, strict=True):
        assert one.name == other.name
        assert torch.equal(one.weights, other.weights)


def test_a_trace_of_the_models_own_output() -> None:
    made = translator()
    written = made.translate(["the cat sat"])[0]
    trace = made.trace("the cat sat")
    assert trace.decided[:-1] == list(written.tokens)
    assert sum(trace.log_probabilities) == pytest.approx(written.log_probability, abs=1e-3)


def test_wrong_traces_are_the_users_error(tmp_path: Path) -> None:
    made = translator(transformer(max_length=8))
    with pytest.raises(UserError, match="empty"):
        made.trace("")
    with pytest.raises(UserError, match="more than the model's 7"):
        made.trace("the cat sat on the mat with a small red bird")
    with pytest.raises(UserError, match="no attention module 'x'"):
        made.trace("the cat", "a")["x"]
    for content in (b"", b"nonsense", b"\x02\0\0\0\0\0\0\0{}"):
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(UserError, match="broken"):
            Trace.load(tmp_path / "broken")
    with pytest.raises(UserError, match="absent"):
        Trace.load(tmp_path / "absent")


def test_paths_may_be_strings(tmp_path: Path) -> None:
    weights = torch.full((2, 3, 3), 1 / 3)
    trace = Trace.of({"text": ["a", "b", "c"]}, {"layer": ("text", "text", weights)})
    trace.save(str(tmp_path / "x.safetensors"))
    again = Trace.load(str(tmp_path / "x.safetensors"))
    assert torch.equal(again["layer"].weights, weights)
    export_html(again, str(tmp_path / "x.html"))
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


def test_a_trace_without_weights_says_how_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    Trace.of({"text": ["a"]}, {})
    assert "attn_implementation='eager'" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"map layer has no weights: .*output_attentions=True"):
        Trace.of({"text": ["a"]}, {"layer": ("text", "text", None)})
