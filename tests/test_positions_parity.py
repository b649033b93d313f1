"""Positions within the attention against transformers and x-transformers: outputs and gradients.

Both sides get the same weights, at random, and the same inputs, in float64. A peer that computes in
float32 inside is met to that precision; ``TIGHT`` else.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BloomConfig, LlamaConfig, T5Config, Wav2Vec2BertConfig
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from x_transformers.x_transformers import AlibiPositionalBias, RotaryEmbedding
from x_transformers.x_transformers import apply_rotary_pos_emb as turn_interleaved

from heedful.attention import MultiHeadAttention, masks
from heedful.attention.positions import ALiBi, Rotary, Shaw, T5Buckets, ntk_base, rotary_angles
from heedful.attention.scores import Dot

B, L, D = 2, 9, 48
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
SINGLE = {"rtol": 1e-5, "atol": 1e-6}
PARTS = ("query_projection", "key_projection", "value_projection", "output_projection")


def copy_linear(into: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    with torch.no_grad():
        into.weight.copy_(weight)
        if bias is not None:
            into.bias.copy_(bias)


def copy_projections(ours: MultiHeadAttention, peers: list[nn.Linear]) -> None:
    for name, peer in zip(PARTS, peers, strict=True):
        copy_linear(getattr(ours, name), peer.weight, peer.bias)


def hidden_states(length: int = L) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, requires_grad=True)


def additive_causal(length: int) -> Tensor:
    return torch.full((1, 1, length, length), -1e30, dtype=torch.float64).triu(1)


def same(
    ours: tuple[Tensor, list[Tensor]],
    peers: tuple[Tensor, list[Tensor]],
    tolerance: dict[str, float],
) -> None:
    """The outputs agree, and the gradients of the inputs, which stand in the same order."""
    torch.testing.assert_close(ours[0], peers[0], **tolerance)
    weights = torch.linspace(-1, 1, ours[0].numel(), dtype=torch.float64).view_as(ours[0])
    grads = [torch.autograd.grad((out * weights).sum(), inputs) for out, inputs in (ours, peers)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


# Rotary


def llama_config(**more: Any) -> LlamaConfig:
    sizes: dict[str, Any] = {"hidden_size": D, "num_attention_heads": 6, "num_key_value_heads": 2}
    return LlamaConfig(**sizes, attn_implementation="eager", attention_bias=False, **more)


def angles_of_llama(config: LlamaConfig, length: int) -> Tensor:
    """With the peer's frequencies, in float64."""
    frequencies = LlamaRotaryEmbedding(config).inv_freq.double()
    return torch.arange(length).unsqueeze(-1) * torch.cat([frequencies, frequencies])


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_rotary_with_grouped_keys_equals_llamas(factor: float) -> None:
    torch.manual_seed(1)
    parameters = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": factor}
    config = llama_config(rope_parameters=parameters)
    peer = LlamaAttention(config, layer_idx=0).double().eval()
    rotary = Rotary(8, length_scale=factor)
    ours = MultiHeadAttention(D, 6, key_heads=2, positions=rotary, bias=False).double()
    copy_projections(ours, [peer.q_proj, peer.k_proj, peer.v_proj, peer.o_proj])
    x = hidden_states()
    angles = angles_of_llama(config, L).expand(B, L, 8)
    expected, _ = peer(x, (angles.cos(), angles.sin()), additive_causal(L))
    found = ours(x, x, mask=masks.causal())
    same(
        (found, [x, ours.query_projection.weight, ours.key_projection.weight]),
        (expected, [x, peer.q_proj.weight, peer.k_proj.weight]),
        SINGLE,  # The peer's softmax is in float32.
    )
    # The last three alone, as with a cache.
    last = ours(x[:, -3:], x, mask=masks.causal())
    torch.testing.assert_close(last, expected[:, -3:], **SINGLE)


def test_turning_is_llamas() -> None:
    # Powers of 16^(−1/4) are exact in float32, in which the peer holds its frequencies.
    config = llama_config(rope_parameters={"rope_type": "default", "rope_theta": 16.0})
    angles, places = angles_of_llama(config, L), torch.arange(L)
    q, k = (torch.randn(B, 3, L, 8, dtype=torch.float64, requires_grad=True) for _ in "qk")
    expected = apply_rotary_pos_emb(q, k, angles.cos(), angles.sin(), unsqueeze_dim=0)
    rotary = Rotary(8, base=16)
    for vectors, peers in zip((q, k), expected, strict=True):
        same((rotary.turn(vectors, places), [vectors]), (peers, [vectors]), TIGHT)


@pytest.mark.parametrize(("kind", "factor"), [("default", 1.0), ("linear", 2.5)])
def test_angles_are_llamas(kind: str, factor: float) -> None:
    parameters = {"rope_type": kind, "rope_theta": 500_000.0, "factor": factor}
    expected = angles_of_llama(llama_config(rope_parameters=parameters), 200)[:, :4]
    found = rotary_angles(torch.arange(200), 8, 500_000.0, factor)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("stretch", "longer"), [(1.0, 1.0), (2.0, 1.0), (1.0, 3.0)])
def test_interleaved_pairs_and_scales_are_x_transformers(stretch: float, longer: float) -> None:
    peer = RotaryEmbedding(8, interpolation_factor=stretch, base_rescale_factor=longer)
    frequencies, _ = peer(torch.arange(L))
    x = torch.randn(B, 3, L, 12, dtype=torch.float64)
    rotary = Rotary(8, ntk_base(8, longer), stretch, interleaved=True)
    expected = turn_interleaved(x, frequencies)
    torch.testing.assert_close(rotary.turn(x, torch.arange(L)), expected, **SINGLE)


# T5


@pytest.mark.parametrize("is_decoder", [False, True])
def test_buckets_equal_t5s(is_decoder: bool) -> None:
    torch.manual_seed(1)
    length = 150  # so that some pairs are further apart than the last bucket begins
    config = T5Config(
        d_model=D, d_kv=8, num_heads=6, is_decoder=is_decoder, attn_implementation="eager"
    )
    peer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double().eval()
    nn.init.normal_(peer.relative_attention_bias.weight)
    t5 = T5Buckets(6, bidirectional=not is_decoder)
    ours = MultiHeadAttention(D, 6, score=Dot(), positions=t5, bias=False).double()
    copy_projections(ours, [peer.q, peer.k, peer.v, peer.o])
    with torch.no_grad():
        t5.table.weight.copy_(peer.relative_attention_bias.weight)
    x = hidden_states(length)
    mask, causal = (masks.causal(), additive_causal(length)) if is_decoder else (None, None)
    expected = peer(x, causal)[0]
    same(
        (ours(x, x, mask=mask), [x, t5.table.weight]),
        (expected, [x, peer.relative_attention_bias.weight]),
        TIGHT,
    )
    last = ours(x[:, -3:], x, mask=mask)
    torch.testing.assert_close(last, expected[:, -3:], **TIGHT)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (32, 100), (16, 64), (8, 20), (64, 512)])
def test_every_bucket_is_t5s(buckets: int, reach: int, bidirectional: bool) -> None:
    offsets = torch.arange(-2 * reach, 2 * reach)
    expected = T5Attention._relative_position_bucket(offsets, bidirectional, buckets, reach)
    found = T5Buckets(1, buckets, reach, bidirectional).bucket(offsets)
    assert found.equal(expected)


# ALiBi


@pytest.mark.parametrize("heads", [1, 2, 5, 6, 8, 12, 13])
def test_alibi_is_x_transformers(heads: int) -> None:
    expected = AlibiPositionalBias(heads)(3, 7)
    found = ALiBi(heads).bias(torch.zeros(heads, 3, 2), 7, torch.arange(4, 7), 1.0)
    torch.testing.assert_close(found.view(heads, 3, 7), expected)


@pytest.mark.parametrize("symmetric", [True, False])
def test_alibi_equals_blooms(symmetric: bool) -> None:
    torch.manual_seed(1)
    heads = 6  # no power of two
    config = BloomConfig(hidden_size=D, n_head=heads, hidden_dropout=0.0, attention_dropout=0.0)
    peer = BloomAttention(config, layer_idx=0).double().eval()
    ours = MultiHeadAttention(D, heads, positions=ALiBi(heads, symmetric=symmetric)).double()
    names, fused = PARTS[:3], peer.query_key_value
    weights = fused.weight.view(heads, 3, D // heads, D).unbind(1)
    biases = fused.bias.view(heads, 3, D // heads).unbind(1)
    for name, weight, bias in zip(names, weights, biases, strict=True):
        copy_linear(getattr(ours, name), weight.flatten(0, 1), bias.flatten())
    copy_linear(ours.output_projection, peer.dense.weight, peer.dense.bias)
    x = hidden_states()
    # The peer adds m·j, which differs from −m (i − j) by a number for each query alone.
    alibi = build_alibi_tensor(torch.ones(B, L), heads, torch.float64)
    expected, _ = peer(x, torch.zeros_like(x), alibi, additive_causal(L))
    found = ours(x, x, mask=masks.causal())
    same((found, [x]), (expected, [x]), SINGLE)


# Shaw


@pytest.mark.parametrize("clip", [2, 30])
def test_shaws_keys_equal_wav2vec2_berts(clip: int) -> None:
    torch.manual_seed(1)
    config = Wav2Vec2BertConfig(
        hidden_size=D,
        num_attention_heads=6,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=clip,
        right_max_position_embeddings=clip,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    peer = Wav2Vec2BertSelfAttention(config).double().eval()
    shaw = Shaw(8, clip, values=False)
    ours = MultiHeadAttention(D, 6, positions=shaw).double()
    copy_projections(ours, [peer.linear_q, peer.linear_k, peer.linear_v, peer.linear_out])
    with torch.no_grad():
        shaw.key_table.copy_(peer.distance_embedding.weight)
    x = hidden_states()
    same(
        (ours(x, x), [x, shaw.key_table, ours.query_projection.weight]),
        (peer(x)[0], [x, peer.distance_embedding.weight, peer.linear_q.weight]),
        TIGHT,
    )
