"""Convolutional sequence-to-sequence: against plain PyTorch, steps, padding, search, learning."""

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import typer
from torch import Tensor
from typer.testing import CliRunner

from heedful.attention import watch
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.cli import plot, task_commands, train
from heedful.decoding import SearchOptions, search
from heedful.layers.convolutional import NormalisedLinear, scale_gradient
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.pairs import Source
from tolerance import Reference, assert_rounded, reference

LENGTHS = torch.tensor([6, 1, 4])
ROOT_HALF = 0.5**0.5
TERMS = 3 * 7 * 15
"""The longest sum: a gradient over all logits."""

torch.set_num_threads(1)
app = typer.Typer()
for command in (train, task_commands, plot):
    command.register(app)


def build(**options: object) -> ConvolutionalEncoderDecoder:
    torch.manual_seed(1)
    given = {
        "embedding_size": 5,
        "hidden_size": 6,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "max_length": 20,
    }
    settings = ConvolutionalSettings(**{**given, **options})
    model = ConvolutionalEncoderDecoder(settings, 15, 15).double().eval()
    for parameter in model.parameters():  # larger than they start, so that everything matters
        parameter.data.mul_(2).add_(0.1 * torch.randn_like(parameter))
    return model


def some_source(lengths: Tensor = LENGTHS) -> Source:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(4, 15, (len(lengths), int(lengths.max())), generator=generator)
    beyond = torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1)
    return Source(tokens.masked_fill(beyond, PAD), lengths)


def some_target(rows: int, length: int) -> Tensor:
    tokens = torch.randint(4, 15, (rows, length), generator=torch.Generator().manual_seed(3))
    tokens[:, 0] = BEGIN
    return tokens


def run_steps(model: ConvolutionalEncoderDecoder, source: Source, target: Tensor) -> Tensor:
    state, found = model.start(source), []
    for tokens in target.unbind(1):
        logits, state = model.step(tokens, state)
        found.append(logits)
    return torch.stack(found, 1)


def gradients_of(model: ConvolutionalEncoderDecoder, total: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} is not used"
    return {name: part.grad.clone() for name, part in model.named_parameters()}


def with_gradients(
    model: ConvolutionalEncoderDecoder, logits: Tensor, weights: Tensor
) -> list[Tensor]:
    """Logits, and the gradients of a weighted sum of them."""
    return [logits, *gradients_of(model, (logits * weights).sum()).values()]


def forced_logits(
    model: ConvolutionalEncoderDecoder, source: Source, target: Tensor, part: Any = ...
) -> Reference:
    """A part of the logits by teacher forcing, and the error that each may have."""
    return reference(
        lambda model: [model.teacher_force(source, target)[part]],
        model,
        terms=TERMS,
        dtype=torch.float64,
    )


def normed(map_: NormalisedLinear) -> Tensor:
    if map_.gain is None:
        return map_.weight
    rows = [g * v / v.square().sum().sqrt() for g, v in zip(map_.gain, map_.weight, strict=True)]
    return torch.stack(rows)


def as_conv1d(weight: Tensor, channels: int) -> Tensor:
    """``[2 D, D, k]`` as PyTorch's convolutions have it."""
    return weight.unflatten(1, (-1, channels)).transpose(1, 2)


def by_loops(model: ConvolutionalEncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """Logits ``[T, V]`` of one pair without padding: PyTorch's convolution, loops over positions.

    The encoder pads by (k − 1) // 2 before and the rest behind; the decoder pads k − 1 positions
    on either side and drops as many outputs at the end, as section 3.2 has it.
    """
    weight = functools.cache(normed)

    def linear(map_: NormalisedLinear, vectors: Tensor) -> Tensor:
        return vectors @ weight(map_).T + map_.bias

    k, hidden, layers = model.settings.kernel_size, model.settings.hidden_size, len(model.decoder)
    e = torch.stack([model.source_embedding.weight[token] for token in source])
    e = e + torch.stack([model.source_positions.table.weight[i] for i in range(len(source))])
    x = linear(model.encoder_enter, e).T.unsqueeze(0)  # [1, D, S]
    for layer in model.encoder:
        padded = F.pad(x, ((k - 1) // 2, k - 1 - (k - 1) // 2))
        kernel = as_conv1d(weight(layer.convolution), hidden)
        x = (F.glu(F.conv1d(padded, kernel, layer.convolution.bias), dim=1) + x) * ROOT_HALF
    z = linear(model.encoder_leave, x[0].T)
    z = z / layers + (z - z / layers).detach()
    g = torch.stack([model.target_embedding.weight[token] for token in target])
    g = g + torch.stack([model.target_positions.table.weight[i] for i in range(len(target))])
    x = linear(model.decoder_enter, g).T.unsqueeze(0)
    for layer in model.decoder:
        kernel = as_conv1d(weight(layer.convolution), hidden)
        both = F.conv1d(x, kernel, layer.convolution.bias, padding=k - 1)
        h = F.glu(both[:, :, : len(target)], dim=1)[0].T
        d = (linear(layer.query, h) + g) * ROOT_HALF
        rows = []
        for i in range(len(target)):
            a = torch.softmax(torch.stack([d[i].dot(z[j]) for j in range(len(source))]), 0)
            c = sum(a[j] * (z[j] + e[j]) * ROOT_HALF for j in range(len(source)))
            c = len(source) * (1 / len(source)) ** 0.5 * c
            rows.append((linear(layer.context, c) + h[i]) * ROOT_HALF)
        x = (torch.stack(rows).T.unsqueeze(0) + x) * ROOT_HALF
    return linear(model.decoder_leave, x[0].T) @ model.output_table.T


@pytest.mark.parametrize(
    ("kernel", "tied"),
    [
        pytest.param(1, "all", marks=pytest.mark.slow),
        (2, "all"),
        pytest.param(3, "all", marks=pytest.mark.slow),
        pytest.param(5, "all", marks=pytest.mark.slow),
        (3, "output"),
        (3, "none"),
    ],
)
@pytest.mark.parametrize("weight_norm", [True, False])
def test_outputs_and_gradients_are_the_papers(kernel: int, weight_norm: bool, tied: str) -> None:
    model = build(kernel_size=kernel, weight_norm=weight_norm, tied_embeddings=tied)
    source, target = some_source(), some_target(3, 5)
    weights = torch.randn(3, 5, 15, dtype=torch.float64)

    def defined(model: ConvolutionalEncoderDecoder) -> list[Tensor]:
        logits = torch.stack(
            [
                by_loops(model, row[:length].tolist(), line.tolist())
                for row, length, line in zip(source.tokens, source.lengths, target, strict=True)
            ]
        )
        return with_gradients(model, logits, weights)

    found = with_gradients(model, model.teacher_force(source, target), weights)
    assert_rounded(found, reference(defined, model, terms=TERMS, dtype=torch.float64))


def test_weights_are_normed_as_pytorch_does_it() -> None:
    torch.manual_seed(1)
    ours = NormalisedLinear(4, 3, variance=1, weight_norm=True).double()
    peer = torch.nn.Linear(4, 3).double()
    peer.load_state_dict({"weight": ours.weight, "bias": ours.bias})
    peer = torch.nn.utils.parametrizations.weight_norm(peer)
    x = torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(ours(x), peer(x))
    torch.testing.assert_close(ours(x), F.linear(x, ours.weight, ours.bias))  # at the start
    ours(x).square().sum().backward()
    peer(x).square().sum().backward()
    theirs = peer.parametrizations.weight
    torch.testing.assert_close(ours.gain.grad, theirs.original0.grad.squeeze(1))
    torch.testing.assert_close(ours.weight.grad, theirs.original1.grad)


def test_a_gradient_is_scaled_and_nothing_else() -> None:
    x = torch.tensor([3.0, -2.0], requires_grad=True)
    result = scale_gradient(x, 0.25)
    assert torch.equal(result, x)
    result.square().sum().backward()
    assert torch.equal(x.grad, torch.tensor([1.5, -1.0]))


def test_variance_is_kept_through_deep_stacks_at_the_start() -> None:
    """Sections 3.4 and 3.5: over twenty layers, of inputs so small that gates are half open."""
    torch.manual_seed(4)
    settings = ConvolutionalSettings(
        embedding_size=64, hidden_size=64, encoder_layers=20, dropout=0.0
    )
    model = ConvolutionalEncoderDecoder(settings, 100, 100).eval()
    hidden = 0.1 * torch.randn(2, 50, 64)
    variance = hidden.var().item()
    for layer in model.encoder:
        hidden = layer(hidden, torch.ones(2, 50, 1))
    assert 0.5 < hidden.var().item() / variance < 2


@pytest.mark.parametrize(
    ("kernel", "weight_norm"), list(itertools.product([1, 2, 3, 5], [True, False]))
)
def test_steps_give_the_logits_and_gradients_of_teacher_forcing(
    kernel: int, weight_norm: bool
) -> None:
    model, source, target = (
        build(kernel_size=kernel, weight_norm=weight_norm),
        some_source(),
        some_target(3, 7),
    )
    weights = torch.randn(3, 7, 15, dtype=torch.float64)

    def forced(model: ConvolutionalEncoderDecoder) -> list[Tensor]:
        return with_gradients(model, model.teacher_force(source, target), weights)

    found = with_gradients(model, run_steps(model, source, target), weights)
    assert_rounded(found, reference(forced, model, terms=TERMS, dtype=torch.float64))


@pytest.mark.parametrize("kernel", [2, 3, 5])
def test_padding_has_no_influence(kernel: int) -> None:
    model, source, target = build(kernel_size=kernel), some_source(), some_target(3, 5)
    weights = torch.randn(3, 5, 15, dtype=torch.float64)

    def unpadded(model: ConvolutionalEncoderDecoder) -> list[Tensor]:
        return with_gradients(model, model.teacher_force(source, target), weights)

    expected = reference(unpadded, model, terms=TERMS, dtype=torch.float64)
    more = F.pad(source.tokens, (0, 3), value=PAD)
    beyond = torch.arange(more.shape[1]) >= source.lengths.unsqueeze(1)
    other = Source(torch.where(beyond, torch.randint(4, 15, more.shape), more), source.lengths)
    found = with_gradients(model, model.teacher_force(other, target), weights)
    assert_rounded(found, expected)
    longer = model.teacher_force(source, F.pad(target, (0, 2), value=PAD))[:, :5]
    assert_rounded(with_gradients(model, longer, weights), expected)


def test_a_later_target_token_changes_no_earlier_logits() -> None:
    model, source, target = build(), some_source(), some_target(3, 6)
    before = model.teacher_force(source, target)
    expected = forced_logits(model, source, target, (slice(None), slice(3)))
    target[:, 3] = (target[:, 3] - 3) % 11 + 4
    after = model.teacher_force(source, target)
    assert_rounded([after[:, :3]], expected)
    assert not torch.isclose(after[:, 3], before[:, 3]).all(-1).any()


def test_selected_rows_go_on_as_they_would_alone() -> None:
    model, source, target = build(), some_source(), some_target(3, 5)
    state = model.start(source)
    for tokens in target[:, :3].unbind(1):
        _, state = model.step(tokens, state)
    rows = torch.tensor([2, 0, 0, 1])
    chosen = state.select(rows)
    found, _ = model.step(target[rows, 3], chosen)
    assert_rounded([found], forced_logits(model, source, target, (rows, 3)))
    assert state.select(torch.arange(3)).source is state.source
    with pytest.raises(TypeError, match="must come from start or step"):
        model.step(target[:, 0], object())


def test_watched_weights_are_those_of_every_decoder_layer() -> None:
    model, source, target = build(), some_source(), some_target(3, 5)
    assert model.alignment.module == "decoder.2.attention"
    assert set(model.attention_axes().values()) == {("target", "source")}
    with watch(model) as seen:
        watched = model.teacher_force(source, target)
    with watch(model) as seen_in_steps:
        run_steps(model, source, target)
    assert_rounded([watched], forced_logits(model, source, target))
    assert set(seen) == set(model.attention_axes())
    beyond = torch.arange(6) >= source.lengths.unsqueeze(1)
    for name, (weights,) in seen.items():
        assert weights.shape == (3, 1, 5, 6)
        torch.testing.assert_close(torch.cat(seen_in_steps[name], dim=-2), weights)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert weights.masked_select(beyond[:, None, None]).eq(0).all()


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_rounder_products_change_little(precision: torch.dtype) -> None:
    torch.manual_seed(6)
    model = ConvolutionalEncoderDecoder(ConvolutionalSettings(), 15, 15).eval()
    source, target = some_source(), some_target(3, 5)
    exact = model.teacher_force(source, target)
    with torch.autocast("cpu", dtype=precision):
        found = model.teacher_force(source, target)
        stepped = run_steps(model, source, target)
    for rounder in (found, stepped):
        assert (rounder.float() - exact).abs().max() < 0.1 * exact.std()


def expected_parameters(settings: ConvolutionalSettings, source: int, target: int) -> int:
    """As docs/systems.md writes it out."""
    e, d, k = settings.embedding_size, settings.hidden_size, settings.kernel_size
    g = int(settings.weight_norm)
    enter, leave, kernel = e * d + d + g * d, d * e + e + g * e, k * d * 2 * d + 2 * d + g * 2 * d
    encoder = enter + settings.encoder_layers * kernel + leave
    decoder = enter + settings.decoder_layers * (kernel + leave + enter) + leave
    tables = {"all": target, "output": source + target, "none": source + 2 * target}
    return (tables[settings.tied_embeddings] + 2 * settings.max_length) * e + encoder + decoder


@pytest.mark.parametrize("weight_norm", [True, False])
@pytest.mark.parametrize("tied", ["all", "output", "none"])
def test_parameters_are_the_formulas(weight_norm: bool, tied: str) -> None:
    settings = ConvolutionalSettings(
        embedding_size=7,
        hidden_size=9,
        kernel_size=5,
        weight_norm=weight_norm,
        tied_embeddings=tied,
        max_length=30,
    )
    target = 40 if tied == "all" else 33
    model = ConvolutionalEncoderDecoder(settings, 40, target)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == expected_parameters(settings, 40, target)


def test_the_docs_count_is_that_of_the_model() -> None:
    settings = ConvolutionalSettings(embedding_size=192, hidden_size=192, tied_embeddings="all")
    with torch.device("meta"):
        model = ConvolutionalEncoderDecoder(settings, 4000, 4000)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == expected_parameters(settings, 4000, 4000)
    page = Path(__file__).parents[1] / "docs" / "systems.md"
    assert f"{count:,}" in page.read_text(encoding="utf-8")


def test_learns_pairs_by_heart_and_search_finds_them() -> None:
    torch.manual_seed(5)
    settings = ConvolutionalSettings(
        embedding_size=32,
        hidden_size=32,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.1,
        max_length=20,
    )
    model = ConvolutionalEncoderDecoder(settings, 15, 15)
    source = some_source(torch.tensor([8, 3, 5, 8, 1]))
    target = some_target(5, 7)
    goal = torch.cat([target[:, 1:], torch.full((5, 1), END)], 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        optimiser.zero_grad()
        F.cross_entropy(
            model.teacher_force(source, target).flatten(0, 1), goal.flatten()
        ).backward()
        optimiser.step()
    model.eval()
    for beam in (1, 3):
        with torch.no_grad():
            found = search(
                model,
                source,
                rows=5,
                options=SearchOptions(beam=beam),
                max_lengths=torch.full((5,), 12),
            )
        assert [list(best[0].tokens) for best in found] == target[:, 1:].tolist()


def test_trains_translates_and_is_drawn_by_the_commands(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.tsv"
    lines = [f"{a} {b}\t{b.upper()} {a.upper()}\n" for a in "klmnop" for b in "qrstuv"]
    corpus.write_text("".join(lines), encoding="utf-8")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        """
[data]
max_tokens = 40
train = "corpus.tsv"
validation = "corpus.tsv"
[tokeniser]
vocabulary_size = 350
[model]
kind = "convolutional"
embedding_size = 16
hidden_size = 16
encoder_layers = 1
decoder_layers = 2
max_length = 64
[training]
max_steps = 6
batch_tokens = 200
warmup_steps = 2
validate_every = 3
threads = 1
[evaluation]
validation_pairs = 3
beam = 2
""",
        encoding="utf-8",
    )

    def heedful(*words: object, given: str = "") -> str:
        done = CliRunner().invoke(app, list(map(str, words)), input=given, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    run = tmp_path / "run"
    heedful("train", recipe, "--data", tmp_path, "--out", run)
    heedful("train", recipe, "--data", tmp_path, "--out", run, "--set", "training.max_steps=8")
    text = heedful("translate", run, "--json", given="k q\n\nm s\n")
    assert [json.loads(line)["source"] for line in text.splitlines()] == ["k q", "", "m s"]
    picture = tmp_path / "map.png"
    heedful("plot", run, "k q", "--output", picture)
    assert picture.stat().st_size > 1000
