"""On a CUDA card: kernels, masks, searches and trainings give what the processor gives."""

import copy
import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import heedful
from heedful.attention import MultiHeadAttention, attend, masks, normalizers, scores
from heedful.decoding import SearchOptions, search
from heedful.kernels.additive import additive_scores
from heedful.kernels.additive_selection import use_kernel
from heedful.models import Source, build_model
from heedful.models.recurrent import RecurrentSettings
from heedful.models.transformer import TransformerSettings
from text_help import RECIPES, write_data

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA card")


def gradients(call: Callable[..., Tensor], *parts: Tensor) -> list[Tensor]:
    """The result and its gradients, on the processor."""
    own = [part.detach().requires_grad_() for part in parts]
    out = call(*own)
    found = [out, *torch.autograd.grad(out.square().sum(), own)]
    return [one.detach().cpu().double() for one in found]


@pytest.mark.parametrize("shape", [(2, 16, 32, 16), (3, 37, 45, 20), (1, 1, 700, 3)])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_additive_scores_in_triton(shape: tuple[int, ...], spread: float) -> None:
    batch, queries, keys, units = shape
    torch.manual_seed(1)
    parts = [
        torch.randn(batch, queries, units) * spread,
        torch.randn(batch, keys, units) * spread,
        torch.randn(units),
    ]
    with use_kernel("plain"):
        expected = gradients(additive_scores, *(part.double() for part in parts))
    with use_kernel("triton"):
        found = gradients(additive_scores, *(part.cuda() for part in parts))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * theirs.abs().max().item())


MASKS: dict[str, Callable[[str], Any]] = {
    "none": lambda device: None,
    "causal": lambda device: masks.causal(),
    "window": lambda device: masks.window(5, 2),
    "padding": lambda device: masks.padding(torch.tensor([900, 2100], device=device)),
    "both": lambda device: masks.causal() & masks.padding(torch.tensor([9, 70], device=device)),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("width", [8, 32])
@pytest.mark.parametrize("length", [50, 2100])
@pytest.mark.parametrize("kind", ["plain", "sinks", "capped"])
def test_masks(name: str, width: int, length: int, kind: str) -> None:
    """Short ones by PyTorch's kernels, long ones by FlexAttention."""
    torch.manual_seed(2)
    parts = [torch.randn(2, 2, length, width) for _ in range(3)]
    results = []
    for device in ("cpu", "cuda"):
        given: dict[str, Any] = {"mask": MASKS[name](device)}
        if kind == "sinks":
            given["normalize"] = normalizers.SinkSoftmax(2).to(device)
        if kind == "capped":
            given["score"] = scores.SoftCapped(cap=2.0)
        call = functools.partial(attend, **given)
        results.append(gradients(call, *(part.to(device) for part in parts)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item())


def test_heads_in_float64_with_a_large_mask() -> None:
    torch.manual_seed(3)
    heads = MultiHeadAttention(16, 2).double()
    x = torch.randn(1, 2100, 16, dtype=torch.float64)
    expected = gradients(lambda x: heads(x, x, mask=masks.causal()), x)
    own = copy.deepcopy(heads).cuda()
    found = gradients(lambda x: own(x, x, mask=masks.causal()), x.cuda())
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "settings",
    [
        TransformerSettings(layers=2, hidden_size=16, ffn_size=16, heads=2),
        RecurrentSettings(hidden_size=12, embedding_size=8),
    ],
    ids=["transformer", "recurrent"],
)
def test_a_search_finds_the_same(settings: Any) -> None:
    torch.manual_seed(4)
    model = build_model(settings, 30, 30).double().eval()
    sources = torch.randint(4, 30, (5, 9))
    options = SearchOptions(beam=3)
    found = []
    for device in ("cpu", "cuda"):
        model.to(device)
        with torch.inference_mode():
            lengths = torch.full((5,), 9, device=device)
            source = Source(sources.to(device), lengths)
            given = {"rows": 5, "options": options, "max_lengths": lengths + 3}
            found.append([one[0].tokens for one in search(model, source, **given)])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", RECIPES)
def test_trainings_on_a_card(name: str, tmp_path: Path) -> None:
    """The losses of the processor; a stopped training resumes exactly."""
    write_data(tmp_path)

    def trained(folder: str, device: str) -> Path:
        training = {**RECIPES[name]["training"], "device": device}
        heedful.train({**RECIPES[name], "training": training}, tmp_path / folder, data=tmp_path)
        return tmp_path / folder

    losses = {}
    for device in ("cpu", "cuda"):
        lines = (trained(device, device) / "metrics.jsonl").read_text().splitlines()
        losses[device] = next(one["loss"] for one in map(json.loads, lines) if "loss" in one)
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=0.05)
    shutil.copytree(tmp_path / "cuda", tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "step-00000008")
    trained("parts", "cuda")
    one, other = (
        load_file(tmp_path / run / "checkpoints" / "step-00000008" / "model.safetensors")
        for run in ("cuda", "parts")
    )
    assert all(torch.equal(one[key], other[key]) for key in one)
