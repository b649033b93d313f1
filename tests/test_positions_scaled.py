"""Rotary scalings, positions of grids and Transformer-XL's, against peers in float64."""

import cmath
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, XLNetConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

from heedful.attention import MultiHeadAttention, attend, attention_weights, masks, scores, watch
from heedful.attention.positions import (
    GridRotary,
    Llama3,
    Rotary,
    RotaryScaling,
    TransformerXL,
    Yarn,
    grid_coordinates,
    multi_axis_angles,
    rotary_angles,
)

TIGHT = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(4)


def same(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, **TIGHT)
    weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    ours, theirs = (
        torch.autograd.grad((out * weights).sum(), inputs, retain_graph=True)
        for out in (found, expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **TIGHT)


def turned_one_by_one(vectors: Tensor, angles: Tensor) -> Tensor:
    """Each pair of ``[L, D]`` as a complex number, times e^(i angle); halves are paired."""
    half = vectors.shape[-1] // 2
    rows = []
    for place, vector in enumerate(vectors.tolist()):
        each = [
            complex(vector[pair], vector[pair + half]) * cmath.exp(1j * angles[place, pair].item())
            for pair in range(half)
        ]
        rows.append([one.real for one in each] + [one.imag for one in each])
    return torch.tensor(rows, dtype=torch.float64)


# Longer texts

SCALINGS: list[tuple[RotaryScaling, dict[str, Any]]] = [
    (Yarn(4.0, length=32), {"rope_type": "yarn", "factor": 4.0}),
    (
        Yarn(8.0, length=4096, fast=16.0, slow=2.0),
        {"rope_type": "yarn", "factor": 8.0, "beta_fast": 16, "beta_slow": 2},
    ),
    (
        Yarn(2.0, length=4096, attention_factor=0.7),
        {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0.7},
    ),
    (
        Llama3(8.0, length=8192),
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ),
    (
        Llama3(32.0, length=100, slow=0.5, fast=3.0),
        {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 0.5, "high_freq_factor": 3.0},
    ),
]


@pytest.mark.parametrize(("scaling", "theirs"), SCALINGS, ids=str)
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_scaled_frequencies_are_those_of_transformers(
    scaling: Any, theirs: dict[str, Any], base: float
) -> None:
    parameters = {
        **theirs,
        "rope_theta": base,
        "original_max_position_embeddings": scaling.length,
    }
    config = LlamaConfig(hidden_size=256, num_attention_heads=4, rope_parameters=parameters)
    expected, magnitude = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, torch.device("cpu"))
    found = rotary_angles(torch.tensor([1]), 64, base, scaling=scaling)[0]
    torch.testing.assert_close(found.float(), expected, rtol=2e-6, atol=0)
    assert scaling.magnitude == pytest.approx(magnitude)


def test_position_interpolation_is_a_length_scale() -> None:
    parameters = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
    config = LlamaConfig(hidden_size=256, num_attention_heads=4, rope_parameters=parameters)
    expected, _ = ROPE_INIT_FUNCTIONS["linear"](config, torch.device("cpu"))
    found = rotary_angles(torch.tensor([1]), 64, length_scale=4.0)[0]
    torch.testing.assert_close(found.float(), expected, rtol=2e-6, atol=0)


def test_scaled_vectors_are_rotated_and_longer() -> None:
    """The components beyond ``dim`` are unchanged."""
    scaling = Yarn(4.0, length=16)
    rotary, x = Rotary(6, scaling=scaling), torch.randn(5, 8, dtype=torch.float64)
    found = rotary.turn(x, torch.arange(3, 8))
    angles = rotary_angles(torch.arange(3, 8), 6, scaling=scaling)
    expected = turned_one_by_one(x[:, :6], angles) * scaling.magnitude
    torch.testing.assert_close(found, torch.cat([expected, x[:, 6:]], -1), **TIGHT)
    assert scaling.magnitude == pytest.approx(1.1386, abs=1e-4)


# Grids


@pytest.mark.parametrize("shared", [False, True])
def test_a_grids_pairs_follow_one_coordinate_each(shared: bool) -> None:
    grid = GridRotary(12, (2, 3, 4), sections=(1, 2, 3), shared=shared)
    x = torch.randn(24, 12, dtype=torch.float64)
    angles = torch.zeros(24, 6, dtype=torch.float64)
    for place in range(24):
        coordinates = (place // 12, place // 4 % 3, place % 4)
        pair = 0
        for axis, count in enumerate((1, 2, 3)):
            for number in range(count):
                exponent = pair / 6 if shared else number / count
                angles[place, pair] = coordinates[axis] * 10_000.0**-exponent
                pair += 1
    expected = turned_one_by_one(x, angles)
    torch.testing.assert_close(grid.turn(x, torch.arange(24)), expected, **TIGHT)


def test_sections_are_qwens() -> None:
    """Qwen2-VL cuts its frequencies for time, height and width into sections, as in the peer."""
    sections = [2, 3, 3]
    places = torch.randint(50, (3, 7))  # as the peer has them: an axis first
    frequencies = rotary_angles(torch.tensor([1]), 16)[0]
    freq = places.unsqueeze(-1) * frequencies
    expected = torch.cat([m[i % 3] for i, m in enumerate(freq.split(sections, dim=-1))], dim=-1)
    found = multi_axis_angles(places.T, sections, shared=True)
    torch.testing.assert_close(found, expected, **TIGHT)


def test_scores_on_a_grid_depend_on_differences_of_rows_and_columns() -> None:
    x = torch.randn(1, 8, dtype=torch.float64)
    grid = GridRotary(8, (5, 6))
    turned = grid.turn(x.expand(30, 8), torch.arange(30))
    found: dict[tuple[int, int], float] = {}
    coordinates = grid_coordinates(torch.arange(30), (5, 6)).tolist()
    for i, (row, column) in enumerate(coordinates):
        for j, (other_row, other_column) in enumerate(coordinates):
            score = float(turned[i] @ turned[j])
            known = found.setdefault((row - other_row, column - other_column), score)
            assert score == pytest.approx(known, abs=1e-9)


# Transformer-XL


def xlnet(width: int, heads: int) -> tuple[XLNetRelativeAttention, TransformerXL]:
    config = XLNetConfig(
        vocab_size=5, d_model=width, n_layer=1, n_head=heads, d_inner=4, dropout=0.0
    )
    peer = XLNetRelativeAttention(config).double().eval()
    for part in peer.parameters():
        nn.init.normal_(part)
    ours = TransformerXL(width // heads, heads).double()
    with torch.no_grad():
        ours.content_bias.copy_(peer.r_w_bias)
        ours.position_bias.copy_(peer.r_r_bias)
        ours.projection.copy_(peer.r.permute(1, 2, 0))
    return peer, ours


@pytest.mark.parametrize("queries", [7, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xl_is_xlnets(queries: int, causal: bool) -> None:
    """With memory: fewer queries than keys. Outputs and gradients, u and v included."""
    B, H, K, W = 2, 3, 7, 12
    peer, ours = xlnet(W, H)
    q = torch.randn(B, H, queries, W // H, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(B, H, K, W // H, dtype=torch.float64, requires_grad=True) for _ in "kv")
    # The peer's sinusoids, of distances K … −Q + 1, in float64.
    places = torch.arange(K, -queries, -1, dtype=torch.float64)
    frequencies = 10_000.0 ** (-torch.arange(0, W, 2, dtype=torch.float64) / W)
    sinusoids = XLNetModel.positional_embedding(places, frequencies, B)
    k_r = torch.einsum("ibh,hnd->ibnd", sinusoids, peer.r)
    mask = masks.causal() if causal else None
    theirs = None
    if causal:
        blocked = ~masks.causal().dense((queries, K))
        theirs = blocked.double()[:, :, None, None].expand(queries, K, B, 1)
    expected = peer.rel_attn_core(
        *(part.permute(2, 0, 1, 3) for part in (q, k, v)), k_r, attn_mask=theirs
    ).permute(1, 2, 0, 3)
    found = attend(q, k, v, positions=ours, mask=mask)
    same(found, expected, [q, k, v])
    weights = attention_weights(q, k, positions=ours, mask=mask)
    torch.testing.assert_close(weights @ v, expected, **TIGHT)
    cost = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    mine = torch.autograd.grad(
        (found * cost).sum(), [ours.content_bias, ours.position_bias, ours.projection]
    )
    other = torch.autograd.grad((expected * cost).sum(), [peer.r_w_bias, peer.r_r_bias, peer.r])
    for one, two in zip(mine, (*other[:2], other[2].permute(1, 2, 0)), strict=True):
        torch.testing.assert_close(one, two, **TIGHT)


def test_transformer_xl_in_heads_with_grouped_keys_and_a_cache() -> None:
    layer = MultiHeadAttention(16, 4, key_heads=2, positions=TransformerXL(4, 4)).double().eval()
    for part in layer.parameters():
        nn.init.normal_(part, std=0.5)
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    whole = layer(x, x, mask=masks.causal())
    with watch(layer):
        torch.testing.assert_close(layer(x, x, mask=masks.causal()), whole, **TIGHT)
    memory = layer.remember(x[:, :6])
    step = layer.read(x[:, 5:6], memory)
    torch.testing.assert_close(step, whole[:, 5:6], **TIGHT)


def test_one_head_without_a_dimension_of_heads() -> None:
    xl = TransformerXL(4, 1, position_dim=6).double()
    nn.init.normal_(xl.content_bias)
    nn.init.normal_(xl.position_bias)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    expected = attend(*(x.unsqueeze(1),) * 3, positions=xl).squeeze(1)
    torch.testing.assert_close(attend(x, x, x, positions=xl), expected, **TIGHT)


# Refused


def test_what_has_no_meaning_is_refused() -> None:
    x = torch.zeros(1, 2, 4)
    with pytest.raises(ValueError, match="use the score Dot or ScaledDot, not Additive"):
        attend(x, x, x, score=scores.Additive(4, 4, 4), positions=TransformerXL(4, 1))
    with pytest.raises(ValueError, match="use it without length_scale"):
        Rotary(4, length_scale=2.0, scaling=Yarn(2.0, 8))
    with pytest.raises(ValueError, match="factor must be at least 1"):
        Yarn(0.5, 8)
    with pytest.raises(ValueError, match=r"slow 2\.0 must be above 0 and below fast 1\.0"):
        Llama3(2.0, 8, fast=1.0, slow=2.0)
    with pytest.raises(ValueError, match="length must be at least 1"):
        Llama3(2.0, 0)
    with pytest.raises(ValueError, match="attention_factor must be above 0"):
        Yarn(2.0, 8, attention_factor=0.0)
    with pytest.raises(ValueError, match="cannot be divided equally among 2 axes"):
        GridRotary(6, (2, 2))
    with pytest.raises(ValueError, match=r"2 numbers that add up to 3"):
        GridRotary(6, (2, 2), sections=(1, 1))
    with pytest.raises(ValueError, match="each axis must have at least 1 place"):
        GridRotary(4, (2, 0))
    with pytest.raises(ValueError, match="2 axes expected"):
        multi_axis_angles(torch.zeros(3, 1, dtype=torch.long), (1, 1))
    with pytest.raises(ValueError, match="position_dim must be even"):
        TransformerXL(4, 1, position_dim=3)
