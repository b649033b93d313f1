"""MultiHeadAttention from nn.MultiheadAttention and back: equal results and gradients."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import (
    MultiHeadAttention,
    heads,
    masks,
    normalizers,
    positions,
    scores,
    watch,
)

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"bias": False},
    "other widths": {"kdim": 6, "vdim": 10},
    "other keys, without biases": {"kdim": 6, "bias": False},
    "sequence first": {"batch_first": False},
    "a key of zeros": {"add_zero_attn": True},
    "one head": {"num_heads": 1},
}


def theirs_of(kind: str, **more: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    given = {"embed_dim": 8, "num_heads": 2, "batch_first": True, "dtype": torch.float64}
    module = nn.MultiheadAttention(**given | KINDS[kind] | more)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module


def inputs(module: nn.MultiheadAttention) -> list[Tensor]:
    """Query, key and value, batch first."""
    torch.manual_seed(1)
    widths = (module.embed_dim, module.kdim, module.vdim)
    shapes = [(3, length, width) for length, width in zip((4, 5, 5), widths, strict=True)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def result(module: nn.MultiheadAttention, given: list[Tensor], **masking: Any) -> Tensor:
    """Batch first."""
    if not module.batch_first:
        given = [part.transpose(0, 1) for part in given]
    out: Tensor = module(*given, **masking)[0]
    return out if module.batch_first else out.transpose(0, 1)


PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [True] + [False] * 4])
MASKS: dict[str, dict[str, Tensor]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "numbers for keys": {"key_padding_mask": torch.arange(15.0, dtype=torch.float64).view(3, 5)},
    "matrix": {"attn_mask": torch.ones(4, 5, dtype=torch.bool).triu(2)},
    "numbers": {"attn_mask": torch.arange(20.0, dtype=torch.float64).view(4, 5) / 9},
    "each head": {"attn_mask": torch.arange(120).view(6, 4, 5) % 7 == 0},
    "both": {"attn_mask": torch.ones(4, 5, dtype=torch.bool).triu(2), "key_padding_mask": PADDING},
    "numbers and padding": {
        "attn_mask": torch.arange(20.0, dtype=torch.float64).view(4, 5) / 9,
        "key_padding_mask": PADDING,
    },
}


@pytest.mark.parametrize("masking", MASKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_results_and_gradients_are_equal(kind: str, masking: str) -> None:
    theirs = theirs_of(kind)
    ours, given = MultiHeadAttention.from_torch(theirs), inputs(theirs)
    back = ours.to_torch(batch_first=theirs.batch_first)
    masked = dict(MASKS[masking])
    if masking == "each head":
        masked["attn_mask"] = masked["attn_mask"][: 3 * theirs.num_heads]
    expected = result(theirs, given, **masked)
    aim = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, [*given, *theirs.parameters()], aim)
    same = ours(*given, mask=masks.from_torch(**masked, heads=theirs.num_heads))
    torch.testing.assert_close(same, expected)
    found = torch.autograd.grad(same, [*given, *ours.parameters()], aim)
    for one, other in zip(found[:3], gradients[:3], strict=True):
        torch.testing.assert_close(one, other)
    learnt = dict(zip(dict(ours.named_parameters()), found[3:], strict=True))
    wanted = dict(zip(dict(theirs.named_parameters()), gradients[3:], strict=True))
    for name, gradient in wanted.items():
        torch.testing.assert_close(_ours(name, learnt), gradient)
    again = result(back, given, **masked)
    torch.testing.assert_close(again, expected, rtol=0, atol=0)
    assert {name: part.shape for name, part in back.state_dict().items()} == {
        name: part.shape for name, part in theirs.state_dict().items()
    }


def _ours(name: str, learnt: dict[str, Tensor]) -> Tensor:
    """The gradient of PyTorch's parameter from those of ours."""
    kind = name.rpartition(".")[2].rpartition("_")[2]
    if name.startswith("out_proj"):
        return learnt[f"output_projection.{kind}"]
    parts = {"q": "query", "k": "key", "v": "value"}
    if name[0] in parts:
        return learnt[f"{parts[name[0]]}_projection.weight"]
    return torch.cat([learnt[f"{part}_projection.{kind}"] for part in parts.values()])


def test_weights_that_are_watched_are_theirs() -> None:
    theirs = theirs_of("plain").eval()
    ours, given = MultiHeadAttention.from_torch(theirs), inputs(theirs)
    _, weights = theirs(*given, key_padding_mask=PADDING, average_attn_weights=False)
    with watch(ours) as seen:
        ours(*given, mask=masks.from_torch(key_padding_mask=PADDING))
    torch.testing.assert_close(seen[""][0], weights)


def test_dropout_is_kept_and_has_the_same_distribution() -> None:
    theirs = theirs_of("plain", dropout=0.5)
    ours, given = MultiHeadAttention.from_torch(theirs), inputs(theirs)
    assert ours.training
    assert ours.dropout == ours.to_torch().dropout == 0.5
    many = [part.detach().expand(3000, -1, -1) for part in (one[:1] for one in given)]
    expected, found = theirs(*many)[0], ours(*many)
    assert not torch.equal(found[0], found[1])
    torch.testing.assert_close(found.mean(0), expected.mean(0), atol=0.15, rtol=0.1)
    torch.testing.assert_close(found.std(0), expected.std(0), atol=0.15, rtol=0.1)
    torch.testing.assert_close(ours.eval()(*given), theirs.eval()(*given)[0])


def test_device_type_mode_and_frozen_weights_are_kept() -> None:
    state = torch.random.get_rng_state()
    theirs = theirs_of("plain", dtype=torch.bfloat16).eval()
    theirs.in_proj_weight.requires_grad = False
    torch.random.set_rng_state(state)
    ours = MultiHeadAttention.from_torch(theirs, normalize=normalizers.SinkSoftmax(2))
    assert {part.dtype for part in ours.parameters()} == {torch.bfloat16}
    assert torch.equal(torch.random.get_rng_state(), state), "conversion draws no numbers"
    assert not ours.training
    assert not ours.query_projection.weight.requires_grad
    assert ours.query_projection.bias.requires_grad
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    assert not back.training
    assert not back.in_proj_weight.requires_grad
    assert back.in_proj_bias.requires_grad
    assert back.out_proj.weight.dtype == torch.bfloat16
    with torch.no_grad():
        ours.query_projection.weight.zero_()
    assert theirs.in_proj_weight.any(), "weights are copied"
    meta = MultiHeadAttention.from_torch(theirs_of("plain").to("meta"))
    assert meta.query_projection.weight.device.type == meta.to_torch().in_proj_weight.device.type
    assert meta.query_projection.weight.is_meta


def test_other_parts_take_the_weights() -> None:
    theirs = theirs_of("plain")
    given = inputs(theirs)
    sparse = MultiHeadAttention.from_torch(theirs, normalize=normalizers.Sparsemax())
    with watch(sparse) as seen:
        sparse(*given)
    assert (seen[""][0] == 0).any()
    assert torch.equal(sparse.query_projection.weight, theirs.in_proj_weight[:8])
    with pytest.raises(ValueError, match="do not fit the parts"):
        MultiHeadAttention.from_torch(theirs, key_heads=1)


def test_what_cannot_be_expressed_is_refused() -> None:
    with pytest.raises(ValueError, match="add_bias_kv appends a learned key"):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True))
    with pytest.raises(TypeError, match=r"expected an nn\.MultiheadAttention, not Linear"):
        MultiHeadAttention.from_torch(nn.Linear(2, 2))  # type: ignore[arg-type]
    frozen = MultiHeadAttention(8, 2)
    frozen.key_projection.weight.requires_grad = False
    with pytest.raises(ValueError, match=r"some weights .* are frozen"):
        frozen.to_torch()


OTHERS: dict[str, dict[str, Any]] = {
    "score Dot": {"score": scores.Dot()},
    "normalizer Sparsemax": {"normalize": normalizers.Sparsemax()},
    "normalizer Softmax with these settings": {"normalize": normalizers.Softmax(2.0)},
    "positions": {"positions": positions.Rotary(4)},
    "mask of its own": {"mask": masks.window(1)},
    "query_key_norm": {"query_key_norm": heads.QueryKeyNorm(4)},
    "mixing of heads": {"mixing": heads.TalkingHeads(2)},
    "gate": {"gate": heads.OutputGate(8, 2, 4)},
    "heads that share": {"key_heads": 1},
    "head_dim 3 other": {"head_dim": 3},
    "aggregate 'mean'": {"aggregate": "mean"},
    "shared_key_value": {"shared_key_value": True},
}


@pytest.mark.parametrize("reason", OTHERS)
def test_what_pytorch_cannot_compute_is_refused(reason: str) -> None:
    layer = MultiHeadAttention(8, 2, **OTHERS[reason])
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(ValueError, match=f"nn.MultiheadAttention has no {reason}"):
        layer.to_torch()
    assert all(torch.equal(part, before[name]) for name, part in layer.state_dict().items())


def test_masks_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="booleans or numbers"):
        masks.from_torch(torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="heads=4"):
        masks.from_torch(torch.ones(6, 2, 3, dtype=torch.bool), heads=4)
    with pytest.raises(ValueError, match="expected"):
        masks.from_torch(torch.ones(3, dtype=torch.bool))
    assert masks.from_torch() is None
