"""Masks that are overwritten between forward and backward do not change gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from heedful.attention import attend, masks, normalizers, scores

SCORES: dict[str, Callable[[], scores.Score]] = {
    "additive": lambda: scores.Additive(64, 64, 64),
    "scaled dot": scores.ScaledDot,
}
MASKS: dict[str, Callable[[Tensor, Tensor], masks.Mask | Tensor]] = {
    "booleans": lambda pairs, _: pairs,
    "dense and causal": lambda pairs, _: masks.causal() & masks.Dense(pairs),
    "lengths": lambda _, lengths: masks.padding(lengths),
    "keys": lambda pairs, lengths: torch.arange(len(pairs)) < lengths[:, None, None],
}


@pytest.mark.parametrize("normalizer", [normalizers.Softmax, normalizers.Sparsemax])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("length", [3, 16, 70, 200])
@pytest.mark.parametrize("score", SCORES)
def test_a_mask_may_be_overwritten_before_backward(
    score: str, length: int, kind: str, normalizer: Callable[[], normalizers.Normalizer]
) -> None:
    """Additive attention made its mask anew from the changed tensors."""
    torch.manual_seed(4)
    one, other = SCORES[score](), normalizer()
    query, key, value = (torch.randn(2, length, 64, requires_grad=True) for _ in range(3))
    allowed = torch.rand(length, length) < 0.7
    lengths = torch.tensor([length, length // 2])
    expected: tuple[Tensor, ...] = ()
    for overwritten in (False, True):
        pairs, ends = allowed.clone(), lengths.clone()
        mask = MASKS[kind](pairs, ends)
        context = attend(query, key, value, score=one, mask=mask, normalize=other)
        if overwritten:
            pairs.fill_(True)
            ends.fill_(1)
            if isinstance(mask, Tensor):
                mask.fill_(True)
        found = torch.autograd.grad(context.square().sum(), (query, key, value))
        if overwritten:
            for gradient, before in zip(found, expected, strict=True):
                assert torch.equal(gradient, before)
        expected = found
