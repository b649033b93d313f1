"""Activation checkpointing changes memory, and no bit of losses, gradients and records."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from heedful.attention import watch
from heedful.kernels.dropout import drawing_from
from heedful.layers.checkpointing import checkpoint_layers
from heedful.layers.stacks import stacked_layers
from heedful.models.bytenet import ByteNet, ByteNetSettings
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.pairs import PairModel, Source
from heedful.runs.checkpoints import whole_checkpoints
from heedful.training import train
from heedful.training.operations import operation_counter
from test_guided import recipe as guided_recipe
from test_guided import rows_of_words, write
from test_inference import recurrent, transformer
from text_help import LANGUAGE, LOOP, RECIPES, write_data

SOURCE = Source(torch.randint(4, 300, (3, 7)), torch.tensor([7, 5, 2]))
TARGET = torch.randint(4, 300, (3, 6))


def losses_and_gradients(
    model: PairModel, generator: torch.Generator | None = None
) -> tuple[Tensor, ...]:
    torch.manual_seed(3)
    model.train()
    model.zero_grad()

    def loss() -> Tensor:
        with watch(model, keep_gradients=True) as seen:
            states = model.states(SOURCE, TARGET)
        weights = [one.square().sum() for calls in seen.values() for one in calls]
        total: Tensor = states.square().sum() + sum(weights)
        return total

    if generator is None:
        total = loss()
    else:
        with drawing_from(generator):
            total = loss()
    total.backward()
    gradients = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    return total.detach(), *gradients, torch.get_rng_state()


def models() -> dict[str, PairModel]:
    torch.manual_seed(1)
    small = {"hidden_size": 8, "embedding_size": 8, "max_length": 20, "dropout": 0.2}
    convolutional = ConvolutionalSettings.model_validate(
        {**small, "encoder_layers": 2, "decoder_layers": 2}
    )
    dilated = {"encoder_layers": 2, "decoder_layers": 2, "hidden_size": 8, "max_length": 20}
    return {
        "post-norm": transformer(dropout=0.3, attention_dropout=0.2),
        "pre-norm, shared positions": transformer(
            dropout=0.3, pre_norm=True, share_positions=True, positions="shaw"
        ),
        "convolutional": ConvolutionalEncoderDecoder(convolutional, 380, 380),
        "bytenet": ByteNet(ByteNetSettings.model_validate(dilated), 380, 380),
    }


@pytest.mark.parametrize("own", [False, True], ids=["PyTorch's numbers", "a thread's numbers"])
@pytest.mark.parametrize(
    "name", ["post-norm", "pre-norm, shared positions", "convolutional", "bytenet"]
)
def test_losses_gradients_and_random_numbers_are_identical(name: str, own: bool) -> None:
    plain, repeated = models()[name], models()[name]
    assert checkpoint_layers(repeated) == 4
    given = [torch.Generator().manual_seed(5) if own else None for _ in range(2)]
    expected = losses_and_gradients(plain, given[0])
    found = losses_and_gradients(repeated, given[1])
    assert len(expected) == len(found) > 10
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)
    if own:
        assert torch.equal(given[0].get_state(), given[1].get_state())  # type: ignore[union-attr]


def test_layers_are_computed_again_and_keep_nothing() -> None:
    """Each layer runs twice, and is seen and counted once."""
    model = transformer(dropout=0.1)
    calls: list[str] = []
    for name, layer in stacked_layers(model).items():
        layer.get_submodule("feed_forward").register_forward_hook(
            lambda *_, name=name: calls.append(name)
        )
    kept: list[int] = []

    def run() -> tuple[int, int]:
        calls.clear()
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: kept.append(tensor.numel()) or tensor,  # type: ignore[func-returns-value]
            lambda tensor: tensor,
        )
        with operation_counter() as counter:
            with hooks, watch(model) as seen:
                loss = model.states(SOURCE, TARGET).sum()
            loss.backward()
        assert [len(calls) for calls in seen.values()] == [1] * 6
        return sum(kept), counter.get_total_flops()

    everything, operations = run()
    assert len(calls) == 4
    kept.clear()
    assert checkpoint_layers(model) == 4
    less, same = run()
    assert sorted(calls) == sorted(2 * list(stacked_layers(model)))
    assert operations == same
    assert less < everything / 4
    calls.clear()
    with torch.no_grad():
        model.states(SOURCE, TARGET)
    assert len(calls) == 4


def test_search_and_names_of_tensors_are_as_before() -> None:
    plain, repeated = transformer().eval(), transformer().eval()
    checkpoint_layers(repeated)
    found = []
    for model in (plain, repeated):
        logits, state = model.step(torch.tensor([4, 5, 6]), model.start(SOURCE))
        found += [logits, model.step(torch.tensor([7, 8, 9]), state)[0]]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])
    assert plain.state_dict().keys() == repeated.state_dict().keys()


def test_models_without_layers_have_none() -> None:
    assert not stacked_layers(recurrent("bahdanau"))
    assert not stacked_layers(nn.ModuleList([nn.Linear(1, 1)]))
    assert checkpoint_layers(recurrent("bahdanau")) == 0


TASKS: dict[str, dict[str, Any]] = {
    "masked": RECIPES["masked"],
    "permutation": RECIPES["permutation"],
    "language-model": LANGUAGE,
}


def trained(recipe: dict[str, Any], folder: Path, data: Path, **more: Any) -> Any:
    """Weights of the last step, and figures without times."""
    train({**recipe, "training": {**recipe["training"], "threads": 1, **more}}, folder, data=data)
    weights = load_file(whole_checkpoints(folder / "checkpoints")[-1].path / "model.safetensors")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    timed = ("seconds", "tokens_per_second", "time", "mfu", "memory")
    figures = [
        {key: value for key, value in json.loads(line).items() if key not in timed}
        for line in lines
    ]
    return {name: tensor.tolist() for name, tensor in weights.items()}, figures


@pytest.mark.parametrize("name", TASKS)
def test_runs_of_all_tasks_are_identical(name: str, tmp_path: Path) -> None:
    write_data(tmp_path)
    expected = trained(TASKS[name], tmp_path / "plain", tmp_path)
    found = trained(TASKS[name], tmp_path / "again", tmp_path, activation_checkpointing=True)
    assert expected == found


def test_a_loss_on_weights_and_threads_are_identical(tmp_path: Path) -> None:
    write(tmp_path, rows_of_words(60, 1))
    model = {"layers": 2, "hidden_size": 8, "ffn_size": 8, "heads": 2, "dropout": 0.2}
    recipe = guided_recipe(4, model, {"weight": 0.5})
    for threads in (1, 2):
        more = {"threads": threads}
        expected = trained(recipe, tmp_path / f"plain-{threads}", tmp_path, **more)
        more["activation_checkpointing"] = True
        assert expected == trained(recipe, tmp_path / f"again-{threads}", tmp_path, **more)


def test_a_model_without_layers_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path)
    training = {**LOOP, "max_steps": 1, "activation_checkpointing": True}
    train({**RECIPES["attentive"], "training": training}, tmp_path / "run", data=tmp_path)
    said = capsys.readouterr()
    assert "activation_checkpointing has no effect" in said.out + said.err
