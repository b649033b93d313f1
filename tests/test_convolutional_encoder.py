"""Kim's convolutional network against plain PyTorch, its equations and Keras."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heedful
from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.inference.classifier import Classifier as Predictor
from heedful.layers.max_norm import MaxNormLinear
from heedful.models.convolutional_encoder import (
    ConvolutionalEncoderSettings,
    ConvolutionalTextEncoder,
)
from heedful.models.encoders import Classifier, HeadedEncoder, sequences_of
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.tasks.texts.building import load_text_model, load_text_start
from heedful.tasks.texts.run import as_text_run
from heedful.training import train
from text_help import LABELLED, LOOP, encoder, write_data

VOCABULARY = 23
TEXTS = [[5, 6, 7, 8, 9, 10], [11], [], [12, 5, 5]]
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def keras() -> Iterator[ModuleType]:
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = "torch"
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "torch":
        pytest.skip("keras was imported with another backend before")
    kind = keras.config.floatx()
    keras.config.set_floatx("float64")
    with keras.device("cpu:0"):
        yield keras
    keras.config.set_floatx(kind)
    if before is None:
        del os.environ["KERAS_BACKEND"]


def made(**values: Any) -> HeadedEncoder:
    torch.manual_seed(2)
    given = {"embedding_size": 6, "feature_maps": 5, "filter_widths": [2, 3, 5], **values}
    network = ConvolutionalTextEncoder(
        ConvolutionalEncoderSettings.model_validate(given), VOCABULARY
    )
    for each in network.filters:
        nn.init.normal_(each.bias)  # type: ignore[arg-type, union-attr]
    return HeadedEncoder(network, {"own": Classifier(network.pooled_dim, 4, 0.0)}).double()


def by_equation(model: HeadedEncoder, text: list[int]) -> Tensor:
    """The logits of one text, an n-gram at a time (Kim 2014, equations 1 to 3)."""
    network: Any = model.encoder
    maxima = []
    for each, width in zip(network.filters, network.settings.filter_widths, strict=True):
        zeros = [torch.zeros(network.settings.embedding_size, dtype=torch.float64)] * (width - 1)
        vectors = [network.tokens.weight[token] for token in text]
        if network.fixed is not None:
            fixed = [network.fixed.weight[token] for token in text]
            channels = [[*zeros, *vectors, *zeros], [*zeros, *fixed, *zeros]]
        else:
            channels = [[*zeros, *vectors, *zeros]]
        grams = []
        for place in range(len(text) + width - 1 if text else 0):
            total = each.bias
            for channel in channels:
                window = torch.stack(channel[place : place + width])  # [h, E]
                total = total + torch.einsum("mek,ke->m", each.weight, window)
            grams.append(total.clamp(min=0))
        nothing = torch.zeros(network.settings.feature_maps, dtype=torch.float64)
        maxima.append(torch.stack(grams).amax(0) if grams else nothing)
    head: Any = model.heads["own"]
    return F.linear(torch.cat(maxima), head.output.weight, head.output.bias)


@pytest.mark.parametrize("multichannel", [False, True])
def test_outputs_and_gradients_are_the_papers(multichannel: bool) -> None:
    model = made(multichannel=multichannel)
    found = model.heads["own"](model.encoder(sequences_of(TEXTS)))
    right = torch.stack([by_equation(model, text) for text in TEXTS])
    torch.testing.assert_close(found, right, **CLOSE)
    parameters = [p for p in model.parameters() if p.requires_grad]
    upstream = torch.randn_like(found)
    for own, wanted in zip(
        torch.autograd.grad((found * upstream).sum(), parameters),
        torch.autograd.grad((right * upstream).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(own, wanted, **CLOSE)


def test_outputs_and_gradients_are_those_of_keras(keras: ModuleType) -> None:
    """Texts of one length: there, Keras has no masked maximum."""
    model, texts = made(), [[5, 6, 7, 8], [9, 10, 11, 5]]
    network: Any = model.encoder
    layers = keras.layers
    tokens = keras.Input((4,), dtype="int64")
    vectors = layers.Embedding(VOCABULARY, 6, name="words")(tokens)
    pooled = []
    for width in network.settings.filter_widths:
        padded = layers.ZeroPadding1D(width - 1)(vectors)
        features = layers.Conv1D(5, width, activation="relu", name=f"width{width}")(padded)
        pooled.append(layers.GlobalMaxPooling1D()(features))
    outputs = layers.Dense(4, name="output")(layers.Concatenate()(pooled))
    theirs = keras.Model(tokens, outputs)
    theirs.get_layer("words").set_weights([network.tokens.weight.detach().numpy()])
    pairs = [(network.tokens.weight, theirs.get_layer("words").trainable_variables[0].value)]
    for each, width in zip(network.filters, network.settings.filter_widths, strict=True):
        layer = theirs.get_layer(f"width{width}")
        kernel = each.weight.detach().permute(2, 1, 0).numpy()  # [M, E, h] -> [h, E, M]
        layer.set_weights([kernel, each.bias.detach().numpy()])
        pairs.append((each.bias, layer.trainable_variables[1].value))
    head: Any = model.heads["own"]
    theirs.get_layer("output").set_weights(
        [head.output.weight.detach().T.numpy(), head.output.bias.detach().numpy()]
    )
    pairs.append((head.output.bias, theirs.get_layer("output").trainable_variables[1].value))
    found = model.heads["own"](model.encoder(sequences_of(texts)))
    expected = theirs(torch.tensor(texts))
    # On this backend, Keras multiplies matrices in float32.
    within = {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(found, expected.double(), **within)
    upstream = torch.randn_like(found)
    ours = torch.autograd.grad((found * upstream).sum(), [own for own, _ in pairs])
    right = torch.autograd.grad((expected.double() * upstream).sum(), [one for _, one in pairs])
    for own, wanted in zip(ours, right, strict=True):
        torch.testing.assert_close(own, wanted.double(), **within)


@pytest.mark.parametrize("limit", [0.5, 3.0])
def test_long_rows_are_scaled_back_as_in_keras(keras: ModuleType, limit: float) -> None:
    torch.manual_seed(1)
    layer = MaxNormLinear(7, 5, limit).double()
    nn.init.normal_(layer.weight, std=1.2)
    before = layer.weight.detach().clone()
    constraint = keras.constraints.MaxNorm(limit, axis=0)
    expected = torch.as_tensor(constraint(before.T.contiguous())).T
    layer.constrain()
    torch.testing.assert_close(layer.weight.detach(), expected.double(), rtol=1e-6, atol=1e-7)
    short = before.norm(dim=1) <= limit
    assert torch.equal(layer.weight[short], before[short])


def test_a_text_alone_is_as_in_a_batch() -> None:
    model = made()
    together = model.encoder(sequences_of(TEXTS)).pooled
    assert together is not None
    for row, text in enumerate(TEXTS):
        alone = model.encoder(sequences_of([text])).pooled
        torch.testing.assert_close(together[row : row + 1], alone, **CLOSE)
    assert bool((together[2] == 0).all())  # an empty text


def test_both_texts_of_a_pair_are_read() -> None:
    model = made()
    (found,) = model.encoder(sequences_of([[5, 6]], [[7]])).pooled
    first, second = (model.encoder(sequences_of([text])).pooled[0] for text in ([5, 6], [7]))
    # Filters of width 2 see no n-gram with words of both: the zero vector is between them.
    torch.testing.assert_close(found[:5], torch.maximum(first, second)[:5], **CLOSE)


def test_weights_are_the_shares_of_the_maxima() -> None:
    model = made()
    network: Any = model.encoder
    with watch(model) as seen, watch(model, rows=[1]) as some:
        model.encoder(sequences_of(TEXTS))
    (weights,) = seen["encoder.pooling"]
    assert weights.shape == (4, 1, 3, 8)
    assert torch.equal(some["encoder.pooling"][0], weights[:, :, 1:2])
    for row, text in enumerate(TEXTS):
        for number, (each, width) in enumerate(
            zip(network.filters, network.settings.filter_widths, strict=True)
        ):
            right = torch.zeros(8, dtype=torch.float64)
            padded = F.pad(network.tokens.weight[text].mT, (width - 1, width - 1))
            if text:
                features = torch.relu(F.conv1d(padded[None], each.weight, each.bias))[0]
                for place in features.argmax(1).tolist():
                    tokens = [
                        at for at in range(place - width + 1, place + 1) if 0 <= at < len(text)
                    ]
                    for at in tokens:
                        right[1 + at] += 1 / len(tokens) / len(features)
            torch.testing.assert_close(weights[row, 0, number], right, rtol=1e-6, atol=1e-7)
    assert weights[0].sum(-1).tolist()[0] == pytest.approx([1.0] * 3)
    assert float(weights[2].sum()) == 0


def test_settings_are_checked() -> None:
    for widths in ([3, 3], [0], []):
        with pytest.raises(UserError, match="filter_widths"):
            check_recipe(
                encoder(
                    "classification",
                    LABELLED,
                    model={"kind": "convolutional-encoder", "filter_widths": widths},
                ),
                "the recipe",
            )
    with pytest.raises(UserError, match="head_max_norm is for labels and tags"):
        check_recipe(
            encoder(
                "masked",
                {"train": "a"},
                tokeniser={"kind": "words", "mask": True},
                head_max_norm=3.0,
            ),
            "the recipe",
        )


def test_a_run_learns_and_is_traced(tmp_path: Path) -> None:
    write_data(tmp_path)
    model = {
        "kind": "convolutional-encoder",
        "embedding_size": 6,
        "feature_maps": 8,
        "multichannel": True,
    }
    recipe = encoder(
        "classification",
        LABELLED,
        model=model,
        head_max_norm=0.3,
        vectors={"file": "vectors.txt"},
        training={**LOOP, "learning_rate": 0.1},
    )
    recipe["model"]["embedding_size"] = 8
    assert train(recipe, tmp_path / "run", data=tmp_path)
    run = as_text_run(open_run(tmp_path / "run"))
    found: Any = load_text_model(run)
    norms = found.heads["classification"].output.weight.norm(dim=1)
    assert bool((norms <= 0.3 + 1e-6).all())
    assert norms.max().item() == pytest.approx(0.3)
    fresh: Any = load_text_model(run, "last")
    load_text_start(run, fresh)
    fixed, trained = found.encoder.fixed.weight, found.encoder.tokens.weight
    known = (fresh.encoder.tokens.weight == fixed).all(1)
    assert int(known.sum()) > 3  # the words of the file start with equal vectors in both tables
    assert not torch.equal(fixed, trained)
    predictor = heedful.load(tmp_path / "run")
    assert isinstance(predictor, Predictor)
    trace = predictor.trace("the red dog sees", relevance=True)
    shown = trace["encoder.pooling"]
    assert trace.axes["filters"].labels == ["3-grams", "4-grams", "5-grams"]
    assert shown.weights.sum(-1).flatten().tolist() == pytest.approx([1.0] * 3)
