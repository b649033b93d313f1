"""The neural Turing machine and the differentiable neural computer against their equations."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.attention import watch
from heedful.models import SequenceModel, SequenceSettings, build_sequence_model, registered

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

NTM, DNC = "neural-turing-machine", "differentiable-neural-computer"
SIZES = {"hidden_size": 7, "slots": 6, "slot_size": 4, "read_heads": 2}
MACHINES: dict[str, dict[str, Any]] = {
    "ntm": {"kind": NTM, **SIZES},
    "ntm feed-forward": {"kind": NTM, "controller": "feed-forward", **SIZES},
    "ntm, two write heads, far shifts": {"kind": NTM, "write_heads": 2, "shift_range": 2, **SIZES},
    "dnc": {"kind": DNC, **SIZES},
    "dnc feed-forward": {"kind": DNC, "controller": "feed-forward", **SIZES},
}
machines = pytest.mark.parametrize("name", MACHINES)


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    """The plain form of a model."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("plain_memories").plain
    sys.path.remove(str(BENCHMARKS))


def made(settings: dict[str, Any], inputs: int = 3, outputs: int = 2) -> SequenceModel:
    torch.manual_seed(5)
    return build_sequence_model(SequenceSettings.model_validate(settings), inputs, outputs)


def sequences(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


@machines
def test_outputs_and_gradients_are_those_of_the_equations(name: str, plain: Any) -> None:
    model = made(MACHINES[name]).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.8)
    inputs = sequences(2, 9, 3).requires_grad_()
    ours, theirs = model(inputs), plain(model)(inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    probe, leaves = sequences(2, 9, 2), [inputs, *model.parameters()]
    got, expected = (torch.autograd.grad((one * probe).sum(), leaves) for one in (ours, theirs))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@machines
def test_an_output_depends_on_no_later_input(name: str) -> None:
    model, inputs = made(MACHINES[name]).double(), sequences(1, 8, 3)
    other = inputs.clone()
    other[:, 5:] += 1
    changed = (model(inputs) - model(other)).abs().sum((0, 2))
    assert changed[:5].max() == 0
    assert changed[5:].min() > 0


@machines
@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_no_output_and_no_gradient_is_lost(name: str, scale: float) -> None:
    """Zero weights leave the memory empty; large ones give large β and γ, and gates of 0 and 1."""
    model = made(MACHINES[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= scale
    inputs = sequences(2, 12, 3).float().requires_grad_()
    outputs = model(inputs)
    assert outputs.isfinite().all()
    outputs.square().mean().backward()
    assert inputs.grad is not None
    for one in (inputs.grad, *(part.grad for part in model.parameters())):
        assert one is not None
        assert one.isfinite().all()


@machines
def test_each_step_shows_what_the_heads_read_and_write(name: str) -> None:
    model = made(MACHINES[name]).double()
    inputs = sequences(1, 5, 3)
    with watch(model) as seen:
        watched = model(inputs)
    torch.testing.assert_close(watched, model(inputs))
    assert set(seen) == set(model.attention_axes())
    heads = {"reading": 2, "writing": MACHINES[name].get("write_heads", 1)}
    for part, axes in model.attention_axes().items():
        assert len(seen[part]) == 5
        shape = (1, heads.get(part, 1), 6 if axes[0] == "slots" else 1, 6)
        for weights in seen[part]:
            assert weights.shape == shape
            assert weights.min() >= -1e-12
            if part != "usage":
                assert weights.sum(-1).max() <= 1 + 1e-9


def test_all_models_of_sequences_are_known() -> None:
    kinds = {one.model_fields["kind"].default for one in registered(SequenceSettings)}
    assert kinds == {NTM, DNC, "recurrent-sequence"}


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_baseline_is_torchs_network(cell: str) -> None:
    model = made({"kind": "recurrent-sequence", "cell": cell, "layers": 2, "hidden_size": 5})
    inputs = sequences(2, 4, 3).float()
    network: Any = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](3, 5, 2, batch_first=True)
    own: Any = model
    network.load_state_dict(own.stack.network.state_dict())
    torch.testing.assert_close(model(inputs), own.output(network(inputs)[0]))


def test_shifts_need_slots() -> None:
    with pytest.raises(ValidationError, match="shift_range 3 needs at least 7 slots, not 6"):
        made({**MACHINES["ntm"], "shift_range": 3})
