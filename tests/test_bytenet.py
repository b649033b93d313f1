"""ByteNet: against plain convolutions, steps, padding, search, learning, the commands."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.cli import plot, task_commands, train
from heedful.decoding import SearchOptions, search
from heedful.layers.dilated import DilatedBlock
from heedful.models.bytenet import ByteNet, ByteNetSettings
from heedful.models.bytenet_language import ByteNetLanguageModel, ByteNetLanguageSettings
from heedful.models.pairs import Source
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe

LENGTHS = torch.tensor([6, 1, 4])
UNITS = ("relu", "multiplicative")

torch.set_num_threads(1)
app = typer.Typer()
for command in (train, task_commands, plot):
    command.register(app)


def disturbed(model: nn.Module) -> Any:
    """Weights that all matter, biases and gains too."""
    model.double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model


def build(**options: Any) -> ByteNet:
    torch.manual_seed(1)
    given = {"hidden_size": 6, "encoder_layers": 3, "decoder_layers": 4, "dilations": [1, 2, 3]}
    return disturbed(ByteNet(ByteNetSettings(**{**given, **options}), 15, 15))


def build_language_model(**options: Any) -> ByteNetLanguageModel:
    torch.manual_seed(1)
    given = {"hidden_size": 6, "layers": 4, "dilations": [1, 2, 3]}
    return disturbed(ByteNetLanguageModel(ByteNetLanguageSettings(**{**given, **options}), 15))


def some_source(lengths: Tensor = LENGTHS) -> Source:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(4, 15, (len(lengths), int(lengths.max())), generator=generator)
    beyond = torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1)
    return Source(tokens.masked_fill(beyond, PAD), lengths)


def some_target(rows: int, length: int) -> Tensor:
    tokens = torch.randint(4, 15, (rows, length), generator=torch.Generator().manual_seed(3))
    tokens[:, 0] = BEGIN
    return tokens


def run_steps(model: Any, source: Any, tokens: Tensor) -> Tensor:
    state, found = model.start(source), []
    for column in tokens.unbind(1):
        logits, state = model.step(column, state)
        found.append(logits)
    return torch.stack(found, 1)


def with_gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    """Logits, and the gradients of a weighted sum of them."""
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(4)).double()
    model.zero_grad()
    (logits * weights).sum().backward()
    found = {name: part.grad for name, part in model.named_parameters()}
    assert all(part is not None for part in found.values())
    return {"logits": logits.detach(), **{name: part.clone() for name, part in found.items()}}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, part in found.items():
        torch.testing.assert_close(part, expected[name], rtol=1e-9, atol=1e-10, msg=name)


def normal(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Layer normalization of channels ``[1, C, L]``, by its definition."""
    mean = x.mean(1, keepdim=True)
    variance = (x - mean).square().mean(1, keepdim=True)
    scaled = (x - mean) / (variance + 1e-5).sqrt()
    return scaled * norm.weight[:, None] + norm.bias[:, None]


def pointwise(linear: nn.Linear, x: Tensor) -> Tensor:
    """A 1 × 1 convolution of channels ``[1, C, L]``."""
    return F.conv1d(x, linear.weight.unsqueeze(2), linear.bias)


def plain_block(block: DilatedBlock, x: Tensor, unit: str, causal: bool) -> Tensor:
    """A block of one row without padding ``[1, W, L]``, from Figure 3 of the paper."""
    kernel, dilation = block.kernel, block.dilation
    a = pointwise(block.enter, torch.relu(normal(block.first_norm, x)))
    h = a if unit == "multiplicative" else torch.relu(normal(block.second_norm, a))
    # PyTorch has [out, in, k]; ours is over windows: first the channels of the first position.
    weight = block.convolution.weight.unflatten(1, (kernel, -1)).transpose(1, 2)
    reach = (kernel - 1) * dilation
    left = reach if causal else (kernel - 1) // 2 * dilation
    padded = F.pad(h, (left, reach - left))
    convolved = F.conv1d(padded, weight, block.convolution.bias, dilation=dilation)
    if unit == "relu":
        return x + pointwise(block.leave, torch.relu(normal(block.third_norm, convolved)))
    g1, g2, g3, u = (
        (part - part.mean(1, keepdim=True))
        / (part.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        * block.unit.gain[i][:, None]
        + block.unit.bias[i][:, None]
        for i, part in enumerate(convolved.chunk(4, dim=1))
    )
    g1, g2, g3, u = g1.sigmoid(), g2.sigmoid(), g3.sigmoid(), u.tanh()
    return x + pointwise(block.leave, g1 * torch.tanh(g2 * h + g3 * u))


def plain_readout(model: Any, x: Tensor) -> Tensor:
    """Logits ``[T, V]`` of channels ``[1, W, T]``."""
    states = torch.relu(normal(model.readout.norm, pointwise(model.readout.linear, x)))
    return states[0].T @ model.output_table.T


def plain_logits(model: ByteNet, source: list[int], target: list[int]) -> Tensor:
    """Logits ``[T, V]`` of one pair: the source padded to ⌈a |s|⌉ + b, then nothing to read."""
    settings = model.settings
    count = math.ceil(settings.length_ratio * len(source)) + settings.length_offset
    tokens = source + [PAD] * (count - len(source))
    # A lookup of PAD gives its vector no gradient.
    x = model.source_embedding(torch.tensor(tokens)).T.unsqueeze(0)
    for block in model.encoder:
        x = plain_block(block, x, settings.unit, causal=False)
    s = normal(model.encoder_norm, x)
    e = torch.stack([model.target_embedding.weight[token] for token in target]).T.unsqueeze(0)
    s = torch.cat([s, s.new_zeros(1, s.shape[1], len(target))], 2)[:, :, : len(target)]
    joined = torch.cat([model.from_target.weight, model.from_source.weight], 1).unsqueeze(2)
    x = F.conv1d(torch.cat([e, s], 1), joined, model.from_target.bias)
    for block in model.decoder:
        x = plain_block(block, x, settings.unit, causal=True)
    return plain_readout(model, x)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel_size": 1, "tied_embeddings": "output"},
        {"kernel_size": 2, "length_ratio": 1.0},
        {"kernel_size": 4, "length_offset": 5, "tied_embeddings": "all"},
    ],
    ids=str,
)
def test_outputs_and_gradients_are_the_papers(unit: str, options: dict[str, Any]) -> None:
    """The target of 9 tokens is longer than every representation but the longest."""
    model = build(unit=unit, **options)
    source, target = some_source(), some_target(3, 9)
    rows = zip(source.tokens, source.lengths, target, strict=True)
    plain = [plain_logits(model, row[:n].tolist(), line.tolist()) for row, n, line in rows]
    expected = with_gradients(model, torch.stack(plain))
    assert_same(with_gradients(model, model.teacher_force(source, target)), expected)
    assert_same(with_gradients(model, run_steps(model, source, target)), expected)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("options", [{}, {"kernel_size": 2, "tied_embeddings": True}], ids=str)
def test_the_language_model_is_the_papers(unit: str, options: dict[str, Any]) -> None:
    model, tokens = build_language_model(unit=unit, **options), some_target(2, 11)
    rows = []
    for line in tokens.masked_fill(tokens == BEGIN, END):
        x = model.tokens.weight[line].T.unsqueeze(0)
        for block in model.blocks:
            x = plain_block(block, x, unit, causal=True)
        rows.append(plain_readout(model, x))
    expected = with_gradients(model, torch.stack(rows))
    found = with_gradients(model, model.logits(model.states(tokens)))
    assert_same(found, expected)
    state, stepped = model.start(tokens[:, :5]), []
    for column in tokens[:, 4:].unbind(1):
        logits, state = model.step(column, state)
        stepped.append(logits)
    torch.testing.assert_close(torch.stack(stepped, 1), expected["logits"][:, 4:])


def test_padding_has_no_influence() -> None:
    model, source, target = build(), some_source(), some_target(3, 5)
    expected = with_gradients(model, model.teacher_force(source, target))
    more = F.pad(source.tokens, (0, 3), value=PAD)
    beyond = torch.arange(more.shape[1]) >= source.lengths.unsqueeze(1)
    other = Source(torch.where(beyond, torch.randint(4, 15, more.shape), more), source.lengths)
    assert_same(with_gradients(model, model.teacher_force(other, target)), expected)
    longer = model.teacher_force(source, F.pad(target, (0, 2), value=PAD))[:, :5]
    assert_same(with_gradients(model, longer), expected)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = Source(source.tokens[row : row + 1, :length], source.lengths[row : row + 1])
        found = model.teacher_force(alone, target[row : row + 1])
        torch.testing.assert_close(found[0], expected["logits"][row])


def test_a_later_token_changes_no_earlier_logits() -> None:
    model, source, target = build(), some_source(), some_target(3, 6)
    language = build_language_model()
    before = model.teacher_force(source, target), language.logits(language.states(target))
    target[:, 3] = (target[:, 3] - 3) % 11 + 4
    after = model.teacher_force(source, target), language.logits(language.states(target))
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new[:, :3], old[:, :3], rtol=0, atol=1e-14)
        assert not torch.isclose(new[:, 3:], old[:, 3:]).all(-1).any()


def test_the_first_token_is_read_as_far_as_the_dilations_reach() -> None:
    """A causal stack with k = 3 and dilations 1, 2 and 4 reads 1 + 2 · 7 positions."""
    model = build_language_model(layers=3, dilations=[1, 2, 4])
    tokens = some_target(1, 20)
    before = model.states(tokens)
    tokens[:, 0] = 9
    same = (model.states(tokens) == before).all(-1)[0]
    assert not same[:15].any()
    assert same[15:].all()


def test_the_whole_source_is_read_at_every_position() -> None:
    model, source = build(), some_source(torch.tensor([8]))
    before = model.encode(source)
    source.tokens[0, 4] = (source.tokens[0, 4] - 3) % 11 + 4
    assert not torch.isclose(model.encode(source), before).all(-1).any()


def test_the_representation_is_never_a_position_too_long() -> None:
    """In floating point, 1.1 · 10 is a little more than 11."""
    model = build(length_ratio=1.1, length_offset=2)
    assert model.encode(some_source(torch.tensor([10]))).shape[1] == 13


def test_selected_rows_go_on_as_they_would_alone() -> None:
    model, source, target = build(), some_source(), some_target(3, 5)
    expected = model.teacher_force(source, target)
    state = model.start(source)
    for tokens in target[:, :3].unbind(1):
        _, state = model.step(tokens, state)
    rows = torch.tensor([2, 0, 0, 1])
    chosen = state.select(rows)
    found, _ = model.step(target[rows, 3], chosen)
    torch.testing.assert_close(found, expected[rows, 3])
    assert chosen.representation is state.representation  # not copied at each step
    with pytest.raises(TypeError, match="must come from start or step"):
        model.step(target[:, 0], object())
    language = build_language_model()
    one = language.start(target[:, :4])
    found, _ = language.step(target[rows, 3], one.select(rows))
    torch.testing.assert_close(found, language.logits(language.states(target))[rows, 3])
    with pytest.raises(ValueError, match="T at least 1"):
        language.start(target[:, :0])


def test_a_step_keeps_only_what_its_convolutions_read() -> None:
    model, source = build(), some_source()
    state = model.start(source)
    for _ in range(20):
        _, state = model.step(torch.full((3,), 7), state)
    assert [part.shape[1] for part in state.past] == [2, 4, 6, 2]


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("unit", UNITS)
def test_rounder_products_change_little(precision: torch.dtype, unit: str) -> None:
    torch.manual_seed(6)
    sizes = {"hidden_size": 64, "encoder_layers": 3, "decoder_layers": 3}
    model = ByteNet(ByteNetSettings(**sizes, unit=unit), 15, 15).eval()
    source, target = some_source(), some_target(3, 5)
    exact = model.teacher_force(source, target)
    with torch.autocast("cpu", dtype=precision):
        found = model.teacher_force(source, target)
        stepped = run_steps(model, source, target)
    for rounder in (found, stepped):
        assert (rounder.float() - exact).abs().max() < 0.1 * exact.std()


def expected_parameters(settings: ByteNetSettings, source: int, target: int) -> int:
    """As docs/systems.md writes it out."""
    w, d, k = settings.hidden_size, settings.hidden_size // 2, settings.kernel_size
    ends = 2 * w + (w * d + d) + (d * w + w)
    if settings.unit == "relu":
        block = ends + (k * d * d + d) + 4 * d
    else:
        block = ends + (k * d * 4 * d + 4 * d) + 8 * d
    blocks = (settings.encoder_layers + settings.decoder_layers) * block
    maps = 2 * w + w * w + (w * w + w) + (w * w + w + 2 * w)
    tables = {"all": target, "output": source + target, "none": source + 2 * target}
    return tables[settings.tied_embeddings] * w + blocks + maps


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("tied", ["all", "output", "none"])
def test_parameters_are_the_formulas(unit: str, tied: str) -> None:
    settings = ByteNetSettings(
        hidden_size=10, kernel_size=5, unit=unit, tied_embeddings=tied, encoder_layers=3
    )
    target = 40 if tied == "all" else 33
    model = ByteNet(settings, 40, target)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == expected_parameters(settings, 40, target)


def test_the_docs_count_is_that_of_the_model() -> None:
    settings = ByteNetSettings(hidden_size=1600, encoder_layers=30, decoder_layers=30)
    with torch.device("meta"):
        model = ByteNet(settings, 323, 296)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == expected_parameters(settings, 323, 296)
    page = Path(__file__).parents[1] / "docs" / "systems.md"
    assert f"{count:,}" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("unit", UNITS)
def test_learns_pairs_by_heart_and_search_finds_them(unit: str) -> None:
    """The last pair's target is far longer than its representation."""
    torch.manual_seed(5)
    settings = ByteNetSettings(hidden_size=32, encoder_layers=3, decoder_layers=3, unit=unit)
    model = ByteNet(settings, 15, 15)
    source = some_source(torch.tensor([8, 3, 5, 8, 1]))
    target = some_target(5, 7)
    goal = torch.cat([target[:, 1:], torch.full((5, 1), END)], 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(120):
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


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"hidden_size": 9}, "model.hidden_size.*9 is odd.*use 10"),
        ({"dilations": []}, "model.dilations"),
        ({"dilations": [1, 0]}, r"model.dilations"),
        ({"length_ratio": 0.5}, "model.length_ratio"),
        ({"dilation": [1]}, "did you mean 'dilations'"),
        ({"unit": "gated"}, "model.unit"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_one_clear_line(model: dict[str, Any], message: str) -> None:
    tables = {"data": {"train": "a.tsv"}, "model": {"kind": "bytenet", **model}}
    with pytest.raises(UserError, match=message) as error:
        check_recipe(tables, "recipe.toml")
    assert "\n" not in str(error.value)


def test_its_recipes_are_beside_those_it_is_compared_with() -> None:
    def recipe(name: str) -> Any:
        return check_recipe(read_recipe(find_recipe(name)), name)

    pairs = recipe("multi30k-bytenet")
    assert pairs.model.kind == "bytenet"
    assert pairs.training == recipe("multi30k-convolutional").training
    characters = recipe("tinyshakespeare-bytenet")
    assert characters.model.kind == "bytenet-language-model"
    assert characters.tokeniser == recipe("tinyshakespeare-characters").tokeniser


RECIPE = """
[data]
max_tokens = 40
train = "corpus.tsv"
validation = "corpus.tsv"
[tokeniser]
vocabulary_size = 350
[model]
kind = "bytenet"
hidden_size = 16
encoder_layers = 2
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
"""
LANGUAGE_RECIPE = """
task = "language-model"
context = 16
[data]
train = "text.txt"
validation = "text.txt"
[tokeniser]
kind = "characters"
[model]
kind = "bytenet-language-model"
hidden_size = 16
layers = 2
[training]
max_steps = 6
batch_tokens = 200
validate_every = 3
threads = 1
"""


def heedful(*words: object, given: str = "") -> Any:
    return CliRunner().invoke(app, list(map(str, words)), input=given)


def weights(run: Path, step: int) -> bytes:
    last = open_run(run).checkpoints()[-1]
    assert last.step == step
    return (last.path / "model.safetensors").read_bytes()


def test_trains_resumes_and_translates_and_says_that_it_does_not_attend(tmp_path: Path) -> None:
    lines = [f"{a} {b}\t{b.upper()} {a.upper()}\n" for a in "klmnop" for b in "qrstuv"]
    (tmp_path / "corpus.tsv").write_text("".join(lines), encoding="utf-8")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    for run, steps in ((whole, 6), (halves, 3), (halves, 6)):
        shown = heedful(
            *("train", recipe, "--data", tmp_path, "--out", run),
            *("--set", f"training.max_steps={steps}", "--set", "training.schedule='constant'"),
        )
        assert shown.exit_code == 0, shown.output
    assert weights(whole, 6) == weights(halves, 6)
    shown = heedful("translate", whole, "--json", given="k q\n\nm s\n")
    assert [json.loads(line)["source"] for line in shown.stdout.splitlines()] == ["k q", "", "m s"]
    shown = heedful("plot", whole, "k q", "--output", tmp_path / "map.png")
    assert isinstance(shown.exception, UserError)
    assert "has no attention" in str(shown.exception)
    assert "\n" not in str(shown.exception)


def test_the_language_model_trains_and_generates(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 20, encoding="utf-8")
    recipe, run = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(LANGUAGE_RECIPE, encoding="utf-8")
    shown = heedful("train", recipe, "--data", tmp_path, "--out", run)
    assert shown.exit_code == 0, shown.output
    # More tokens than the context: the model begins again with the last half of it.
    shown = heedful("generate", run, "--prompt", "to be", "--max-tokens", "40", "--seed", "1")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("to be")
