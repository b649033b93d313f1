"""Sizes on paper against the papers' tables, transformers' models, and a real training step."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from heedful.cli.main import main
from heedful.models import build_encoder
from heedful.models.encoders import sequences_of
from heedful.models.gpt import SIZES, Gpt, GptSettings
from heedful.runs.model_size import count_parameters, on_meta
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from heedful.tasks.size_description import describe_size
from heedful.tasks.size_on_paper import (
    CARDS,
    PETAFLOP_DAY,
    Assumptions,
    paper_sizes,
    size_on_paper,
)
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.part import part_of
from heedful.training.on_paper import step_cost
from heedful.training.operations import operation_counter


@functools.cache
def paper_model(name: str) -> nn.Module:
    """The model of a size on the device ``meta``."""
    task, size = paper_sizes()[name]
    recipe = check_recipe({"task": task, "data": {"train": "none"}, **size.tables}, name)
    return on_meta(spec_named(task).sketch(recipe).build)


# Brown et al. 2020: table D.1 (total compute in petaFLOP/s-days and FLOPs, millions of parameters)
# and table 2.1 (layers, width, width of a head).
GPT_3 = {
    "small": (2.60, 2.25e20, 125, 12, 768, 64),
    "medium": (7.42, 6.41e20, 356, 24, 1024, 64),
    "large": (15.8, 1.37e21, 760, 24, 1536, 96),
    "xl": (27.5, 2.38e21, 1320, 24, 2048, 128),
    "2.7b": (55.2, 4.77e21, 2650, 32, 2560, 80),
    "6.7b": (139, 1.20e22, 6660, 32, 4096, 128),
    "13b": (268, 2.31e22, 12850, 40, 5140, 128),
    "175b": (3640, 3.14e23, 174600, 96, 12288, 128),
}


@pytest.mark.parametrize("name", GPT_3)
def test_gpt_3_has_the_papers_parameters_and_training(name: str) -> None:
    days, flops, millions, layers, width, head = GPT_3[name]
    size = SIZES[f"gpt3-{name}"]
    assert size["layers"] == layers
    assert size["hidden_size"] == pytest.approx(width, rel=0.004)  # 5,140 is no multiple of 128
    assert size["hidden_size"] // size["heads"] == head
    parameters = count_parameters(paper_model(f"gpt3-{name}"))
    assert parameters / 1e6 == pytest.approx(millions, rel=0.004)
    tokens = paper_sizes()[f"gpt3-{name}"][1].tokens
    assert tokens == 300e9
    assert 6 * parameters * tokens == pytest.approx(flops, rel=0.007)
    assert 6 * parameters * tokens / PETAFLOP_DAY == pytest.approx(days, rel=0.007)


@pytest.mark.parametrize("name", ["gpt2-small", "gpt3-medium"])
def test_the_exact_count_is_that_of_the_formula(name: str) -> None:
    found = size_on_paper(name, Assumptions(batch=2))
    model, length = found["model"], found["assumptions"]["length"]
    layers, dim = SIZES[model["size"]]["layers"], SIZES[model["size"]]["hidden_size"]
    products = 12 * layers * dim**2 + found["vocabulary"] * dim
    forward = 2 * products + 4 * layers * length * dim  # scores and contexts, all pairs
    operations = found["operations_per_token"]
    assert operations["forward"] == forward
    assert operations["training"] == 3 * forward
    assert operations["with_checkpointing"] == 4 * forward - 2 * found["vocabulary"] * dim
    assert operations["6n"] == 6 * found["parameters"]


def theirs(config: Any, kind: str) -> int:
    with torch.device("meta"):
        model = getattr(transformers, kind)(config)
    return sum(one.numel() for one in model.parameters())


def test_parameters_are_those_of_transformers() -> None:
    gpt = {"small": (12, 768), "medium": (24, 1024), "large": (36, 1280), "xl": (48, 1600)}
    for name, (layers, width) in gpt.items():
        config: Any = transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64)
        own = count_parameters(paper_model(f"gpt2-{name}"))
        assert own == theirs(config, "GPT2LMHeadModel")
    for name, (layers, width) in {"base": (12, 768), "large": (24, 1024)}.items():
        config = transformers.BertConfig(
            num_hidden_layers=layers, hidden_size=width, num_attention_heads=width // 64,
            intermediate_size=4 * width,
        )  # fmt: skip
        own = count_parameters(paper_model(f"bert-{name}"))
        assert own == theirs(config, "BertForPreTraining")
    assert count_parameters(paper_model("llama-7b")) == 6_738_415_616
    assert count_parameters(paper_model("llama3-8b")) == 8_030_261_248
    assert theirs(transformers.LlamaConfig(), "LlamaForCausalLM") == 6_738_415_616


def test_the_papers_rounded_numbers_of_parameters() -> None:
    """Millions: Radford et al. 2018; Devlin et al. 2019, section 3; Vaswani et al. 2017, table 3;
    Touvron et al. 2023, table 2; billions of the GPT-2 paper are of another count."""
    millions = {"bert-base": 110, "bert-large": 340, "transformer-big": 213, "gpt-1": 117}
    millions |= {"llama-7b": 6700, "llama-13b": 13000, "llama-33b": 32500, "llama-65b": 65200}
    for name, expected in millions.items():
        assert count_parameters(paper_model(name)) / 1e6 == pytest.approx(expected, rel=0.012)
    # 65 needs 40,000 symbols, see docs/systems.md
    assert count_parameters(paper_model("transformer-base")) / 1e6 == pytest.approx(65, rel=0.03)


def test_bert_base_has_the_training_of_table_d_1_of_gpt_3() -> None:
    found = size_on_paper("bert-base", Assumptions(tokens=250 * 10**9))
    assert found["training"]["6nd"] == pytest.approx(1.64e20, rel=0.01)
    # Hidden tokens only are predicted, so that the table's rows are not used for each token.
    assert 0.7 < found["training"]["operations"] / found["training"]["6nd"] < 1.1
    own = size_on_paper("bert-base", Assumptions())
    assert own["training"]["tokens"] == 131_072_000_000


@pytest.mark.parametrize(("name", "flops", "seconds"), [
    ("transformer-base", 3.3e18, 12 * 3600), ("transformer-big", 2.3e19, 3.5 * 86400),
])  # fmt: skip
def test_the_transformers_training_took_the_papers_time(
    name: str, flops: float, seconds: float
) -> None:
    """Table 2 of Vaswani et al. 2017 has time · 8 cards · 9.5 TFLOP/s, all that the cards could
    compute; the model's own operations are a plausible share of it."""
    assert seconds * 8 * CARDS["p100"] == pytest.approx(flops, rel=0.01)
    found = size_on_paper(name, Assumptions(speed=CARDS["p100"], cards=8, mfu=1.0))["training"]
    utilisation = found["seconds"] / seconds
    assert 0.25 < utilisation < 0.5
    again = Assumptions(speed=CARDS["p100"], cards=8, mfu=utilisation, price=1.5)
    training = size_on_paper(name, again)["training"]
    assert training["seconds"] == pytest.approx(seconds)
    assert training["cost"] == pytest.approx(8 * seconds / 3600 * 1.5)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_what_is_kept_is_what_a_real_step_keeps(norm: str) -> None:
    """Numbers of a step on the CPU, whose fused attention keeps a number for each query."""
    given = {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": 160, "dropout": 0.0}
    given |= {"attention_dropout": 0.0, "norm": norm, "gated": norm == "rms"}
    settings = GptSettings.model_validate(given)
    tokens = torch.randint(4, 50, (2, 150))
    kept: dict[int, torch.UntypedStorage] = {}

    def loss(model: Gpt, read: torch.Tensor) -> torch.Tensor:
        logits = model.logits(model.states(read))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), read.flatten())

    real = Gpt(settings, 50)
    own = {one.untyped_storage()._cdata for one in real.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with operation_counter() as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
            found = loss(real, tokens)
        forward = counter.get_total_flops()
    expected = sum(one.nbytes() for one in kept.values())
    meta = on_meta(lambda: Gpt(settings, 50))
    cost = step_cost(meta, lambda: loss(meta, torch.zeros(2, 150, dtype=torch.long)))
    assert cost.forward == forward
    assert cost.backward == 2 * forward
    assert cost.saved == pytest.approx(expected, rel=0.01)
    assert cost.checkpointed is not None
    assert cost.checkpointed < cost.saved
    assert found.isfinite()


def test_memory_is_sixteen_bytes_a_parameter_and_activations() -> None:
    found = size_on_paper("wikitext2-llama-tiny", Assumptions(batch=3, precision="float32"))
    memory, parameters = found["memory"], found["parameters"]
    assert memory["weights"] == memory["gradients"] == 4 * parameters
    assert memory["optimiser"] == 8 * parameters
    assert memory["training"] == 16 * parameters + memory["activations"]
    half = size_on_paper("wikitext2-llama-tiny", Assumptions(batch=3, checkpointing=True))["memory"]
    assert half["activations"] == memory["activations"] // 2
    assert half["training"] == 16 * parameters + half["activations_with_checkpointing"]
    assert found["training"]["tokens"] == 4000 * 2048


OTHER = ["wikitext2-lstm", "mr-structured", "snli-decomposable", "multi30k-convolutional",
         "multi30k-recurrent-bahdanau-gru", "ewt-bert-tiny", "trec-perceiver-bytes"]  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_other_recipes_have_a_size(name: str) -> None:
    found = size_on_paper(name, Assumptions(length=9))
    assert 0 < found["operations_per_token"]["forward"] < found["operations_per_token"]["training"]
    assert f"{found['parameters']:,}" in describe_size(found)


@pytest.mark.parametrize(("name", "share"), [
    ("snli-decomposable", 0.5), ("xquad-bidirectional-attention", 0.1),
])  # fmt: skip
def test_both_texts_of_a_row_are_counted(name: str, share: float) -> None:
    """The operations are those of a row with two texts, made as for predictions."""
    length = 33
    recipe: Any = check_recipe(read_recipe(find_recipe(name)), name)
    found = size_on_paper(name, Assumptions(length=length))["operations_per_token"]["forward"]
    first = round(share * (length - 3))
    batch = sequences_of([[5] * first], [[5] * (length - 3 - first)])
    encoder: Any = build_encoder(recipe.model, recipe.tokeniser.vocabulary_size)
    ((task, own),) = recipe.heads().items()
    (head,) = part_of(task).layers(task, own, encoder, 2, recipe).values()
    with operation_counter() as counter, torch.no_grad():
        head.eval()(encoder.eval()(batch))
    assert found * length == pytest.approx(counter.get_total_flops(), rel=1e-6)


def test_a_recurrent_model_is_counted_product_by_product() -> None:
    """Two LSTM layers and the table: each number of a matrix is multiplied once for each token."""
    found = size_on_paper("wikitext2-lstm", Assumptions(length=9))
    width, symbols = found["model"]["hidden_size"], found["vocabulary"]
    assert found["operations_per_token"]["forward"] == 2 * (2 * 8 * width**2 + symbols * width)


WRONG = [
    (["--size", "gpt-5"], "no size 'gpt-5'"),
    (["--json"], "give either a run or --size"),
    (["runs/x", "--size", "gpt2-small"], "give either a run or --size"),
    (["--size", "gpt2-small", "--card", "abacus"], "--card abacus: known are"),
    (["--size", "gpt2-small", "--card", "a100", "--flops-per-second", "3"], "give either --card"),
    (["--size", "gpt2-small", "--mfu", "1.5"], "--mfu 1.5"),
    (["--size", "gpt2-small", "--cards", "0"], "--cards 0"),
    (["--size", "gpt2-small", "--length", "2000"], "at most 1,024 tokens in gpt2"),
    (["--size", "mnist-perceiver", "--length", "3"], "28 × 28 pixels in grey has one size"),
    (["--size", "wikitext2-lstm", "--checkpointing"], "--checkpointing is for"),
    (["--size", "gpt2-small", "--strategy", "ddp"], "--strategy needs the speed of a card"),
    (
        ["--size", "gpt2-small", "--strategy", "ddp", "--card", "h100", "--cards", "12"],
        "--cards 12: give a multiple of the 8",
    ),
    (["--size", "gpt2-small", "--link", "3"], "--link and --network need --strategy"),
    (["--size", "gpt2-small", "--spread", "1"], "--spread 1: expected"),
]


def info(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """Run the command; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["heedful", "info", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_is_wrong_is_one_line(
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert info(monkeypatch, *options) == 2
    written = capsys.readouterr().err
    assert message in written
    assert written.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["RUN", "--price", "5"], "--price has no effect with a run"),
        (
            ["--size", "gpt2-small", "--accept-changes"],
            "--accept-changes has no effect with --size",
        ),
        (["--size", "gpt2-small", "--spread", "0.5"], "--spread has no effect with a size without"),
        (["--size", "gpt2-small", "--batch", "1" + "0" * 34], "--batch 1e+34: expected a number"),
        (
            ["--size", "gpt2-small", "--tokens", "0.3"],
            "--tokens 0.3: expected a number of at least",
        ),
    ],
)
def test_options_without_effect_are_refused(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert info(monkeypatch, *arguments) == 2
    assert says in capsys.readouterr().err


def test_the_command_prints_text_or_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--tokens", "1e9", "--card", "a100", "--mfu", "0.5", "--price", "2", "--cards", "4"]
    assert info(monkeypatch, "--size", "gpt2-small", *options, "--json") == 0
    training = json.loads(capsys.readouterr().out)["training"]
    seconds = training["operations"] / (0.5 * 312e12 * 4)
    assert training["seconds"] == pytest.approx(seconds)
    assert training["cost"] == pytest.approx(seconds * 4 / 3600 * 2)
    assert info(monkeypatch, "--size", "gpt2-small", *options) == 0
    text = capsys.readouterr().out
    for part in ("124,439,808", "1,000,000,000 tokens", "4 cards of 3.12e+14 FLOP/s", "MFU of 0.5"):
        assert part in text


def test_the_command_predicts_a_step_on_many_cards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--size", "gpt2-small", "--tokens", "1e9", "--card", "a100", "--cards", "16"]
    assert info(monkeypatch, *given, "--json") == 0
    alone = json.loads(capsys.readouterr().out)["training"]
    more = ["--strategy", "fsdp", "--network", "2", "--cards-per-machine", "4", "--spread", "0.05"]
    assert info(monkeypatch, *given, *more, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    step, memory = found["cluster"], found["memory"]
    assert step["computing_seconds"] < step["step_seconds"]
    assert step["efficiency"] == step["computing_seconds"] / step["step_seconds"]
    assert found["training"]["seconds"] == pytest.approx(alone["seconds"] / step["efficiency"])
    assert (step["machines"], step["network_bytes_per_second"]) == (4, 2e9)
    assert step["memory"]["weights"] == memory["weights"] // 16
    assert info(monkeypatch, *given, *more) == 0
    text = capsys.readouterr().out
    for part in ("with fsdp on 16 cards in 4 machines", "% of 16 times one card", "GiB gathered"):
        assert part in text


def test_the_docs_have_every_size_with_its_parameters() -> None:
    text = (Path(__file__).parents[1] / "docs" / "sizes.md").read_text(encoding="utf-8")
    for name in paper_sizes():
        assert f"`{name}`" in text
        assert f"{count_parameters(paper_model(name)):,}" in text, name
