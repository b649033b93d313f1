"""Texts packed without padding, against padded batches: outputs and gradients in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import (
    Attention,
    LatentAttention,
    LinearAttention,
    MultiHeadAttention,
    attend_packed,
    masks,
)
from heedful.attention.positions import Rotary
from heedful.attention.scores import Additive

DIM = 8
MODULES: dict[str, Any] = {
    "rotary": lambda: MultiHeadAttention(DIM, 2, key_heads=1, positions=Rotary(4)),
    "linear": lambda: LinearAttention(DIM, 2),
    "additive": lambda: Attention(Additive(DIM, DIM, 3)),
    "latent": lambda: LatentAttention(DIM, 2, 3, rotary=Rotary(2)),
}
LENGTHS = torch.tensor([3, 0, 5, 3, 1, 5, 3])


def padded(packed: Tensor, lengths: Tensor) -> Tensor:
    texts = packed.split(lengths.tolist())
    return nn.utils.rnn.pad_sequence(list(texts), batch_first=True)


def gradients(result: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(result.sin().sum(), inputs))


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("causal", [False, True])
def test_texts_attend_to_themselves(kind: str, causal: bool) -> None:
    torch.manual_seed(1)
    module = MODULES[kind]().double()
    x = torch.randn(int(LENGTHS.sum()), DIM, dtype=torch.float64, requires_grad=True)
    mask = masks.causal() if causal else None
    found = attend_packed(module, x, LENGTHS, mask=mask)
    whole, both = padded(x, LENGTHS), masks.padding(LENGTHS)
    batch = module(whole, whole, mask=both & mask if mask is not None else both)
    expected = torch.cat([row[:length] for row, length in zip(batch, LENGTHS, strict=True)])
    torch.testing.assert_close(found, expected)
    inputs = [x, *module.parameters()]
    torch.testing.assert_close(gradients(found, *inputs), gradients(expected, *inputs))


def test_texts_attend_to_other_texts() -> None:
    """Also texts without keys, and without queries."""
    torch.manual_seed(2)
    module = MultiHeadAttention(DIM, 2, key_dim=5).double()
    others = torch.tensor([2, 4, 0, 2, 7, 1, 6])
    x = torch.randn(int(LENGTHS.sum()), DIM, dtype=torch.float64, requires_grad=True)
    key = torch.randn(int(others.sum()), 5, dtype=torch.float64, requires_grad=True)
    found = attend_packed(module, x, LENGTHS, key, others)
    batch = module(padded(x, LENGTHS), padded(key, others), mask=masks.padding(others))
    expected = torch.cat([row[:length] for row, length in zip(batch, LENGTHS, strict=True)])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, x, key), gradients(expected, x, key))
    wider = Attention(Additive(DIM, 5, 3)).double()
    assert attend_packed(wider, x[:0], LENGTHS[:0], key[:0], others[:0]).shape == (0, 5)
    assert attend_packed(wider, x[:0], LENGTHS[1:2], key[:2], others[:1]).shape == (0, 5)


def test_lengths_that_do_not_match_are_refused() -> None:
    module, x = MultiHeadAttention(DIM, 2), torch.zeros(4, DIM)
    with pytest.raises(ValueError, match=r"sum 5 do not match packed tokens \[4, 8\]"):
        attend_packed(module, x, torch.tensor([2, 3]))
    with pytest.raises(ValueError, match="must not be negative"):
        attend_packed(module, x, torch.tensor([5, -1]))
    with pytest.raises(ValueError, match="2 lengths of queries, and 1 of keys"):
        attend_packed(module, x, torch.tensor([1, 3]), x, torch.tensor([4]))
    with pytest.raises(ValueError, match="key_lengths without key"):
        attend_packed(module, x, torch.tensor([4]), key_lengths=torch.tensor([4]))
    with pytest.raises(TypeError, match="must be integers"):
        attend_packed(module, x, torch.tensor([4.0]))
