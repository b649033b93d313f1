"""Normalizers and positions in recipes of Transformers: heedful's by name, and from plug-ins."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import heedful
from heedful.attention import watch
from heedful.attention.normalizers import Hard, SampledHard, build_normalizer, register_normalizer
from heedful.attention.normalizers import registry as normalizers
from heedful.attention.positions import (
    AddedPositions,
    Learned,
    RelativePositions,
    Rotary,
    register_position,
    register_relative_position,
)
from heedful.attention.positions import registry as positions
from heedful.attention.positions.base import offsets
from heedful.basics.errors import UserError
from heedful.inference.fusing import searched
from heedful.interop.layouts.encoder_decoder import refuse_parts
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.runs import registry
from heedful.runs.recipe import check_recipe
from stepping import assert_steps_are_teacher_forcing

ROOT = Path(__file__).parents[1]
NORMALIZER = ROOT / "examples" / "plugins" / "softplus.py"
POSITIONS = ROOT / "examples" / "plugins" / "binary_positions.py"
SIZES = {"layers": 1, "hidden_size": 8, "ffn_size": 8, "heads": 2, "max_length": 32}


class Decay(RelativePositions):
    """Less weight for what is farther away."""

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor:
        return -offsets(positions, keys).abs().to(query.dtype)


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples, in this process, for one test."""
    known: list[dict[str, Any]] = [normalizers._builders, positions._builders]
    before = [dict(one) for one in known]
    monkeypatch.setattr(registry, "_loaded", {})
    for file in (NORMALIZER, POSITIONS):
        registry.load_file(file)
    register_relative_position("decay", lambda width, heads: Decay())
    yield
    for one, own in zip(known, before, strict=True):
        one.clear()
        one.update(own)


def model_of(**given: object) -> Transformer:
    torch.manual_seed(1)
    return Transformer(TransformerSettings.model_validate({**SIZES, **given}), 20, 20).eval()


PARTS: list[dict[str, Any]] = [
    {"attention": {"normalizer": "softplus"}},
    {"attention": {"normalizer": "sparsemax"}},
    {"attention": {"normalizer": "entmax15"}},
    {"attention": {"normalizer": "entmax"}},
    {"attention": {"normalizer": "softmax-off-by-one"}},
    {"attention": {"normalizer": "sink-softmax"}},
    {"attention": {"normalizer": "sink-softmax", "score": "soft-capped"}},
    {"attention": {"normalizer": "softplus", "score": "additive"}},
    {"positions": "learned"},
    {"positions": "binary"},
    {"positions": "rotary"},
    {"positions": "decay"},
    {"positions": "transformer-xl"},
    {"positions": "binary", "attention": {"normalizer": "softplus"}},
]


@pytest.mark.parametrize("parts", PARTS, ids=str)
@torch.no_grad()
def test_steps_are_teacher_forcing(parts: dict[str, Any]) -> None:
    model = model_of(**parts)
    source = Source(torch.randint(4, 20, (3, 6)), torch.tensor([6, 4, 2]))
    target = torch.randint(4, 20, (3, 5))

    assert_steps_are_teacher_forcing(model, searched(model), source, target)


def test_every_attention_has_the_normalizer() -> None:
    model = model_of(attention={"normalizer": "sparsemax"})
    found = [part for name, part in model.named_modules() if name.endswith(".normalize")]
    assert [type(one).__name__ for one in found] == ["Sparsemax"] * 3
    source, target = Source(torch.tensor([[4, 5, 6]]), torch.tensor([3])), torch.tensor([[2, 7]])
    with watch(model) as seen:
        model.states(source, target)
    for name in ("encoder.0.self_attention", "decoder.0.cross_attention"):
        torch.testing.assert_close(seen[name][0].sum(-1), torch.ones_like(seen[name][0][..., 0]))


def test_self_attention_has_relative_positions() -> None:
    model = model_of(positions="rotary")
    found = {name for name, part in model.named_modules() if isinstance(part, Rotary)}
    assert found == {f"{side}.0.self_attention.positions" for side in ("encoder", "decoder")}
    tokens = Source(torch.tensor([[4, 5, 4, 5]]), torch.tensor([4]))
    plain, turned = model_of(), model
    turned.load_state_dict(plain.state_dict(), strict=False)
    target = torch.tensor([[2, 7]])
    assert not torch.allclose(plain.states(tokens, target), turned.states(tokens, target))


@pytest.mark.parametrize("part", [Learned(4, 9), positions.Sinusoidal(4)])
def test_positions_are_their_vectors(part: AddedPositions) -> None:
    embedded = torch.zeros(2, 3, 4)
    for first in (2, torch.tensor([2, 5])):
        expected = AddedPositions.forward(part, embedded, first)
        torch.testing.assert_close(part(embedded, first), expected)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"attention": {"normalizer": "sparsmax"}}, "did you mean 'sparsemax'?"),
        ({"attention": {"normalizer": "of-others"}}, "(load a plug-in with --plugin"),
        ({"attention": {"normalizer": "hard"}}, "'hard' passes no gradient"),
        ({"attention": {"normalizer": "sampled-hard"}}, "is trained by reward"),
        ({"attention": {"normalizer": "local-predictive"}}, "the vector of each query"),
        ({"attention": {"normalizer": "drawn"}}, "'drawn' draws weights at random"),
        ({"positions": "lerned"}, "did you mean 'learned'?"),
        ({"positions": "of-others"}, "(load a plug-in with --plugin FILE.py)"),
        ({"positions": "rotary", "hidden_size": 6}, "dim must be even"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_recipe_is_read(
    model: dict[str, Any], message: str
) -> None:
    register_normalizer("drawn", lambda heads: SampledHard())
    tables = {"data": {"train": ["a.tsv"], "max_tokens": 9}, "model": {**SIZES, **model}}
    with pytest.raises(UserError) as refused:
        check_recipe(tables, "the recipe")
    assert message in str(refused.value)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(UserError, match=r"normalizer 'softmax' .* is already registered"):
        register_normalizer("softmax", lambda heads: Hard())
    with pytest.raises(UserError, match=r"position 'rotary' .* is already registered"):
        register_position("rotary", Learned)
    with pytest.raises(UserError, match=r"position 'learned' .* is already registered"):
        register_relative_position("learned", lambda width, heads: Decay())
    assert type(build_normalizer("softplus")).__name__ == "Softplus"


@pytest.mark.parametrize("parts", [PARTS[0], {"positions": "binary"}, {"positions": "rotary"}])
def test_no_export_has_them(parts: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"model\.(attention\.normalizer|positions) = .*exports"):
        refuse_parts(TransformerSettings.model_validate({**SIZES, **parts}))


def test_they_train_and_resume(tmp_path: Path) -> None:
    lines = [f"the dog sees {number}\tthe dog sees {number}\n" for number in range(60)]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    training = {
        "max_steps": 4,
        "checkpoint_every": 2,
        "batch_tokens": 200,
        "warmup_steps": 1,
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    }
    tables = {
        "data": {"train": ["pairs.tsv"], "max_tokens": 30},
        "tokeniser": {"vocabulary_size": 356},
        "model": {**SIZES, "positions": "binary", "attention": {"normalizer": "softplus"}},
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
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert "source_positions.digits.weight" in whole
    assert len(heedful.load(tmp_path / "whole").predict(["the dog", ""])) == 2


@pytest.mark.parametrize("file", [NORMALIZER, POSITIONS])
def test_the_documented_parts_are_the_examples(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    shown = "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
    assert shown in (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
