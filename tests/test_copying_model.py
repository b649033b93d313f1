"""Copying of source tokens (See et al. 2017): the mixture, its gradients, search, training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import heedful
from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.basics.symbols import END, PAD, UNKNOWN
from heedful.decoding import SearchOptions, search
from heedful.inference.fusing import searched
from heedful.interop.layouts.encoder_decoder import refuse_parts
from heedful.layers.int8_linear import Int8Linear
from heedful.layers.search_copy import search_copy
from heedful.models.copy_mixture import Copied, mixture
from heedful.models.copying import CopyingTransformer
from heedful.models.pairs import PairModel, Source
from heedful.models.registry import build_model
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.runs.recipe import check_recipe
from stepping import assert_steps_are_teacher_forcing

SIZES = {"layers": 2, "hidden_size": 8, "ffn_size": 8, "heads": 2, "max_length": 32}
SOURCE = Source(torch.tensor([[7, 9, 7, 3], [5, 3, 0, 0], [8, 11, 3, 0]]), torch.tensor([4, 2, 3]))
TARGET = torch.tensor([[2, 9, 7], [2, 5, 5], [2, 12, 8]])


def model_of(**given: Any) -> CopyingTransformer:
    torch.manual_seed(1)
    settings = TransformerSettings.model_validate({**SIZES, "copy_source": True, **given})
    model = build_model(settings, 20, 20)
    assert type(model) is CopyingTransformer
    return model


def by_loops(logits: Tensor, weights: Tensor, gate: Tensor, tokens: Tensor) -> Tensor:
    """Equation 9 as it is written."""
    rows = []
    for own, attention, g, source in zip(logits, weights, gate, tokens, strict=True):
        p = 1 / (1 + torch.exp(-g[0]))
        vocabulary = torch.exp(own) / torch.exp(own).sum()
        chances = []
        for word in range(len(own)):
            copied = sum(a for a, token in zip(attention, source, strict=True) if token == word)
            chances.append(torch.log(p * vocabulary[word] + (1 - p) * copied))
        rows.append(torch.stack(chances))
    return torch.stack(rows)


def test_the_mixture_is_equation_9_with_its_gradients() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    gate = torch.randn(3, 1, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([[1, 2, 1, 5], [0, 0, 0, 0], [4, 3, 2, 1]])

    def ours(logits: Tensor, scores: Tensor, gate: Tensor) -> Tensor:
        return mixture(logits, Copied(scores.softmax(-1), gate, tokens))

    def theirs(logits: Tensor, scores: Tensor, gate: Tensor) -> Tensor:
        return by_loops(logits, scores.softmax(-1), gate, tokens)

    given = (logits, scores, gate)
    torch.testing.assert_close(ours(*given), theirs(*given))
    torch.testing.assert_close(ours(*given).exp().sum(-1), torch.ones(3, dtype=torch.float64))
    assert torch.autograd.gradcheck(ours, given)
    by = torch.randn(3, 6, dtype=torch.float64)
    for own, other in zip(
        torch.autograd.grad(ours(*given), given, by),
        torch.autograd.grad(theirs(*given), given, by),
        strict=True,
    ):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("gate", [-200.0, 0.0, 200.0])
def test_vanishing_probabilities_have_finite_logarithms_and_gradients(gate: float) -> None:
    logits = torch.tensor([[500.0, -500.0, 0.0]], requires_grad=True)
    weights = torch.tensor([[1.0, 0.0]], requires_grad=True)
    gates = torch.full((1, 1), gate, requires_grad=True)
    logs = mixture(logits, Copied(weights, gates, torch.tensor([[1, 2]])))
    assert logs.isfinite().all()
    for gradient in torch.autograd.grad(logs.sum(), (logits, weights, gates)):
        assert gradient.isfinite().all()


def test_only_tokens_of_the_source_are_copied() -> None:
    model = model_of().eval()
    with torch.no_grad():
        model.gate.zero_()
        model.gate_bias.fill_(-40.0)  # copies only
        chances = model.teacher_force(SOURCE, TARGET).exp()
    for row, tokens in zip(chances, SOURCE.tokens, strict=True):
        there = torch.zeros(20, dtype=torch.bool)
        there[tokens[tokens != PAD]] = True
        torch.testing.assert_close(row[:, there].sum(-1), torch.ones(3))
        assert row[:, PAD].max() < 1e-6


def test_steps_are_teacher_forcing() -> None:
    model = model_of().eval()
    assert_steps_are_teacher_forcing(model, searched(model), SOURCE, TARGET)


def test_losses_are_those_of_the_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(dropout=0.0).double()
    labels = torch.tensor([[9, 7, 3], [5, 5, 3], [12, 3, 0]])
    real = labels != PAD
    logs = model.teacher_force(SOURCE, TARGET)[real]
    exact = -logs.gather(1, labels[real].unsqueeze(1)).squeeze(1)
    smooth = (0.9 * exact - 0.1 * logs.mean(1)).sum()
    wanted = torch.autograd.grad(smooth, list(model.parameters()), allow_unused=True)
    for chunk in (2, 512):
        monkeypatch.setattr("heedful.models.copy_mixture._CHUNK", chunk)
        found, each = model.losses(SOURCE, TARGET, labels, real, 0.1)
        torch.testing.assert_close(found, smooth)
        torch.testing.assert_close(each, exact.detach())
        own = torch.autograd.grad(found, list(model.parameters()), allow_unused=True)
        for one, other in zip(own, wanted, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
        with torch.no_grad():
            torch.testing.assert_close(model.losses(SOURCE, TARGET, labels, real, 0.1)[0], smooth)


def test_losses_of_other_models_are_those_of_their_logits() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerSettings.model_validate({**SIZES, "dropout": 0.0}), 20, 20)
    labels = torch.tensor([[9, 7, 3], [5, 5, 3], [12, 3, 0]])
    real = labels != PAD
    found, _ = PairModel.losses(model, SOURCE, TARGET, labels, real, 0.1)
    logits = model.teacher_force(SOURCE, TARGET)[real]
    wanted = torch.nn.functional.cross_entropy(
        logits, labels[real], label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(found, wanted)


@torch.no_grad()
def test_a_wide_beam_finds_the_most_probable_output() -> None:
    model = model_of(layers=1).eval()
    source = Source(SOURCE.tokens[:1], SOURCE.lengths[:1])
    words = [UNKNOWN, *range(END + 1, 20)]
    rows = torch.tensor([[2, one, two] for one in words for two in words])
    wide = Source(source.tokens.expand(len(rows), -1), source.lengths.expand(len(rows)))
    logs = model.teacher_force(wide, rows)
    outputs = {(): float(logs[0, 0, END])}
    for row, (_, one, two) in zip(logs, rows.tolist(), strict=True):
        outputs[one,] = float(row[0, one] + row[1, END])
        outputs[one, two] = float(row[0, one] + row[1, two] + row[2, END])
    options = SearchOptions(beam=400, length_penalty=0.0)
    found = search(model, source, rows=1, options=options, max_lengths=torch.tensor([3]))[0][0]
    best = max(outputs, key=lambda tokens: outputs[tokens])
    assert tuple(found.tokens) == best


def test_watchers_see_what_is_copied() -> None:
    model = model_of().eval()
    with watch(model) as seen:
        model.states(SOURCE, TARGET)
    weights = seen["copying"][0]
    assert weights.shape == (3, 1, 3, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 3))
    assert not weights[1, :, :, 2:].any()
    assert model.attention_axes()["copying"] == ("target", "source")


@torch.no_grad()
def test_a_quantised_copy_copies() -> None:
    model = model_of(hidden_size=32, ffn_size=32).eval()
    copied = search_copy(model, Int8Linear)
    logs = copied.teacher_force(SOURCE, TARGET)
    torch.testing.assert_close(logs.exp().sum(-1), torch.ones(3, 3))
    torch.testing.assert_close(
        logs.exp(), model.teacher_force(SOURCE, TARGET).exp(), atol=0.05, rtol=0
    )


def test_what_cannot_copy_is_refused() -> None:
    given = {**SIZES, "copy_source": True, "tied_embeddings": "none"}
    settings = TransformerSettings.model_validate(given)
    with pytest.raises(ValueError, match="one vocabulary for both sides"):
        build_model(settings, 20, 21)
    tables = {"data": {"train": ["a.tsv"], "max_tokens": 9}, "tokeniser": {"joint": False}}
    model = {**SIZES, "copy_source": True, "tied_embeddings": "none"}
    with pytest.raises(UserError, match=r"tokeniser\.joint"):
        check_recipe({**tables, "model": model}, "the recipe")
    with pytest.raises(UserError, match=r"model\.copy_source = true: exports"):
        refuse_parts(TransformerSettings.model_validate({**SIZES, "copy_source": True}))


def test_training_resumes_exactly(tmp_path: Path) -> None:
    lines = [f"the dog sees {number}\tder Hund sieht {number}\n" for number in range(60)]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    training = {
        "max_steps": 4,
        "checkpoint_every": 2,
        "batch_tokens": 200,
        "warmup_steps": 1,
        "precision": "float32",
        "device": "cpu",
    }
    tables = {
        "data": {"train": ["pairs.tsv"], "max_tokens": 30},
        "tokeniser": {"vocabulary_size": 356},
        "model": {**SIZES, "layers": 1, "copy_source": True},
        "training": training,
    }
    heedful.train(tables, tmp_path / "whole", data=tmp_path)
    half = {**tables, "training": {**training, "max_steps": 2}}
    heedful.train(half, tmp_path / "parts", data=tmp_path)
    heedful.train(tables, tmp_path / "parts", data=tmp_path)
    whole, parts = (
        load_file(tmp_path / run / "checkpoints" / "step-00000004" / "model.safetensors")
        for run in ("whole", "parts")
    )
    assert "gate" in whole
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert len(heedful.load(tmp_path / "whole").predict(["the dog", "", "a b"])) == 3


def test_copying_learns_to_repeat_tokens_never_seen_in_targets() -> None:
    """Sources of tokens from the whole vocabulary; targets repeat them.

    Training has only tokens below 100, the test only tokens above it.
    """

    def correct(copy_source: bool) -> float:
        torch.manual_seed(3)
        settings = TransformerSettings.model_validate(
            {**SIZES, "layers": 1, "hidden_size": 32, "ffn_size": 32, "heads": 4, "dropout": 0.0,
             "copy_source": copy_source}
        )  # fmt: skip
        model = build_model(settings, 200, 200)
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(250):
            loss = losses(model, torch.randint(4, 100, (32, 4)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        words = torch.randint(100, 200, (64, 4))
        with torch.no_grad():
            logits = model.teacher_force(*batch(words)[:2])
        return float((logits[:, :4].argmax(-1) == words).float().mean())

    def batch(words: Tensor) -> tuple[Source, Tensor, Tensor]:
        rows = len(words)
        ends, begins = torch.full((rows, 1), END), torch.full((rows, 1), 2)
        labels = torch.cat([words, ends], 1)
        source = Source(labels, torch.full((rows,), 5))
        return source, torch.cat([begins, words], 1), labels

    def losses(model: PairModel, words: Tensor) -> Tensor:
        source, target_in, labels = batch(words)
        return model.losses(source, target_in, labels, labels != PAD, 0.0)[0] / labels.numel()

    with_copying, without = correct(True), correct(False)
    assert without < 0.1
    assert with_copying > 0.3
