"""A subclass that overrides what a part does is obeyed, on fast paths too."""

from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.attention import MultiHeadAttention, attend, attention_weights, normalizers, scores
from heedful.attention.overrides import describes
from heedful.attention.positions import ALiBi, RelativePositions, Shaw


class ShiftedDot(scores.ScaledDot):
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return super().compare(query, key) * torch.arange(key.shape[-2])


class ShiftedAdditive(scores.Additive):
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return super().compare(query, key) * torch.arange(key.shape[-2])


class ShiftedCosine(scores.Cosine):
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return super().compare(query, key) * torch.arange(key.shape[-2])


class Squared(normalizers.Softmax):
    def forward(self, *given: Any, **more: Any) -> Tensor:
        return super().forward(*given, **more).square()


class Further(RelativePositions):
    def compare(self, score: Any, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        return super().compare(score, query, key, positions) * torch.arange(key.shape[-2])


class FurtherAlibi(ALiBi):
    def compare(self, score: Any, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        return super().compare(score, query, key, positions) * torch.arange(key.shape[-2])


class Adding(RelativePositions):
    def context(self, weights: Tensor, positions: Tensor) -> Tensor:
        return weights.sum(-1, keepdim=True) * positions.unsqueeze(-1)


PARTS: dict[str, dict[str, Any]] = {
    "scaled dot": {"score": ShiftedDot()},
    "additive": {"score": ShiftedAdditive(64, 64, 64)},
    "cosine": {"score": ShiftedCosine()},
    "softmax": {"normalize": Squared()},
    "softmax of additive": {"score": scores.Additive(64, 64, 64), "normalize": Squared()},
    "positions": {"positions": Further()},
    "alibi": {"positions": FurtherAlibi(4)},
    "shaw": {"positions": Shaw(64, 3, values=False), "score": ShiftedDot()},
    "shaw and values": {"positions": Shaw(64, 3)},
    "context": {"positions": Adding()},
}


@pytest.mark.parametrize("length", [3, 16, 70, 150])
@pytest.mark.parametrize("name", PARTS)
@torch.no_grad()
def test_the_context_is_that_of_the_weights(name: str, length: int) -> None:
    torch.manual_seed(2)
    parts = PARTS[name]
    query, key, value = (torch.randn(2, 4, length, 64) for _ in range(3))
    weights = attention_weights(query, key, **parts)
    expected = weights @ value
    positions = parts.get("positions")
    if positions is not None:
        added = positions.context(weights, torch.arange(length))
        expected = expected if added is None else expected + added
    torch.testing.assert_close(attend(query, key, value, **parts), expected, rtol=1e-4, atol=1e-4)


def test_a_method_of_one_object_is_obeyed() -> None:
    score = scores.ScaledDot()
    query, key, value = (torch.randn(2, 4, 16, 64) for _ in range(3))
    usual = attend(query, key, value, score=score)
    score.compare = lambda one, other: 3 * (one @ other.transpose(-1, -2))  # type: ignore[method-assign]
    found = attend(query, key, value, score=score)
    torch.testing.assert_close(found, (3 * (query @ key.transpose(-1, -2))).softmax(-1) @ value)
    assert not torch.allclose(found, usual)


def test_parts_of_the_library_keep_their_fast_paths() -> None:
    for score in (scores.Dot(), scores.ScaledDot(), scores.Cosine()):
        assert describes(score, "dot_scale", "compare")
    for other in (scores.Additive(4, 4, 4), scores.Concat(4, 4, 4)):
        assert describes(other, "tanh_vector", "compare")
    assert describes(normalizers.Softmax(), "softmax_scale", "forward")
    for positions in (ALiBi(4), Shaw(4, 2), Shaw(4, 2, values=False)):
        assert describes(positions, "bias", "compare")
        assert describes(positions, "changes_values", "context")


@torch.no_grad()
def test_heads_and_steps_obey_too() -> None:
    torch.manual_seed(3)
    hidden = torch.randn(2, 16, 32)
    heads = MultiHeadAttention(32, 4, score=ShiftedDot())
    plain = MultiHeadAttention(32, 4)
    plain.load_state_dict(heads.state_dict())
    assert not torch.allclose(heads(hidden, hidden), plain(hidden, hidden))
