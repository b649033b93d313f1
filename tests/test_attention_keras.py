"""Attention against Keras on the torch backend: outputs and gradients.

Inputs are float64; where Keras multiplies matrices in float32 whatever it is given (its ``matmul``
on this backend), the comparison is that wide.
"""

import os
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

from heedful.attention import Attention, MultiHeadAttention, attention_weights, masks, scores, watch

B, Q, K, D = 2, 3, 4, 5


@pytest.fixture(scope="module")
def keras() -> Iterator[ModuleType]:
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = "torch"
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "torch":
        pytest.skip("keras was imported with another backend before")
    kind = keras.config.floatx()
    keras.config.set_floatx("float64")
    # Keras computes where a GPU is, if there is one.
    with keras.device("cpu:0"):
        yield keras
    keras.config.set_floatx(kind)
    if before is None:
        del os.environ["KERAS_BACKEND"]


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def close(found: Tensor, expected: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Outputs agree, and so do the gradients for each pair of (our, their) tensors."""
    within = {"rtol": 1e-8, "atol": 1e-10}
    if expected.dtype == torch.float32:
        within = {"rtol": 1e-4, "atol": 1e-6}
    expected = expected.double()
    torch.testing.assert_close(found, expected, **within)
    upstream = torch.randn_like(found)
    ours, theirs = (
        torch.autograd.grad((output * upstream).sum(), wanted, retain_graph=True)
        for output, wanted in zip((found, expected), zip(*pairs, strict=True), strict=True)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other.view_as(one), **within)


def some_mask() -> Tensor:
    allowed = torch.rand(B, K, generator=torch.Generator().manual_seed(4)) > 0.4
    allowed[:, 0] = True
    return allowed


def test_additive(keras: ModuleType) -> None:
    torch.manual_seed(1)
    q, k, v, allowed = rand(B, Q, D), rand(B, K, D), rand(B, K, D), some_mask()
    theirs = keras.layers.AdditiveAttention(use_scale=True, dtype="float64")
    expected, weights = theirs([q, v, k], mask=[None, allowed], return_attention_scores=True)
    score = scores.Additive(D, D, hidden_dim=D).double()
    with torch.no_grad():
        score.key_projection.weight.copy_(torch.eye(D))
        score.query_projection.weight.copy_(torch.eye(D))
        score.v.copy_(theirs.scale.value)
    found = Attention(score)(q, k, v, mask=allowed.unsqueeze(1))
    close(found, expected, [(q, q), (k, k), (v, v), (score.v, theirs.scale.value)])
    ours = attention_weights(q, k, score=score, mask=allowed.unsqueeze(1))
    assert weights.dtype == torch.float64
    close(ours, weights, [(q, q), (k, k), (score.v, theirs.scale.value)])


def test_dot(keras: ModuleType) -> None:
    torch.manual_seed(2)
    q, k, v, allowed = rand(B, Q, D), rand(B, K, D), rand(B, K, D), some_mask()
    expected = keras.layers.Attention(dtype="float64")([q, v, k], mask=[None, allowed])
    found = Attention(scores.Dot())(q, k, v, mask=allowed.unsqueeze(1))
    close(found, expected, [(q, q), (k, k), (v, v)])


def test_dot_with_a_causal_mask(keras: ModuleType) -> None:
    torch.manual_seed(3)
    q, v = rand(B, K, D), rand(B, K, D)
    expected = keras.layers.Attention(dtype="float64")([q, v], use_causal_mask=True)
    found = Attention(scores.Dot())(q, v, mask=masks.causal())
    close(found, expected, [(q, q), (v, v)])


def test_multi_head(keras: ModuleType) -> None:
    torch.manual_seed(4)
    heads, width = 2, 3
    q, k, allowed = rand(B, Q, D), rand(B, K, D), some_mask()
    theirs = keras.layers.MultiHeadAttention(heads, width, dtype="float64")
    mask = allowed.unsqueeze(1).expand(B, Q, K)
    expected, weights = theirs(q, k, attention_mask=mask, return_attention_scores=True)
    ours = MultiHeadAttention(D, heads, head_dim=width).double()
    # Theirs are [in, heads, width] and [heads, width, out].
    kernels = {
        part.path.split("/")[-2]: part.value for part in theirs.weights if "kernel" in part.path
    }
    for name in ("query", "key", "value"):
        linear = getattr(ours, f"{name}_projection")
        with torch.no_grad():
            linear.weight.copy_(kernels[name].flatten(1).T)
    with torch.no_grad():
        ours.output_projection.weight.copy_(kernels["attention_output"].flatten(0, 1).T)
    with watch(ours, keep_gradients=True) as seen:
        found = ours(q, k, mask=mask.unsqueeze(1))
    assert expected.dtype == torch.float64
    close(found, expected, [(q, q), (k, k)])
    close(ours(q, k, mask=mask.unsqueeze(1)), expected, [(q, q), (k, k)])
    close(seen[""][0], weights, [(q, q), (k, k)])
