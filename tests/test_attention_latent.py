"""Latent attention: transformers' DeepSeek, a loop over the equations, and both of its forms."""

import pytest
import torch
from torch import Tensor, nn
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from heedful.attention import LatentAttention, heads, masks, normalizers, watch
from heedful.attention.positions import Rotary, rotary_angles

B, H, L, DIM, C, D, R = 2, 4, 7, 24, 5, 6, 4
SINGLE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


def scattered(layer: nn.Module) -> nn.Module:
    """In float64 with random parameters, so that none is one or zero."""
    layer = layer.double().eval()
    for part in layer.parameters():
        nn.init.normal_(part, std=0.5)
    return layer


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def gradients(context: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(context.sin().sum(), x, retain_graph=True)[0]


@pytest.mark.parametrize("compressed", [None, 8])
@pytest.mark.parametrize("interleaved", [False, True])
def test_it_is_deepseeks(compressed: int | None, interleaved: bool) -> None:
    config = DeepseekV3Config(
        hidden_size=DIM, num_attention_heads=H, num_key_value_heads=H, q_lora_rank=compressed,
        kv_lora_rank=C, qk_rope_head_dim=R, qk_nope_head_dim=D, v_head_dim=D,
        attn_implementation="eager", rope_interleave=interleaved,
    )  # fmt: skip
    peer = scattered(DeepseekV3Attention(config, layer_idx=0))
    rotary = Rotary(R, interleaved=interleaved)
    ours = LatentAttention(DIM, H, C, head_dim=D, rotary=rotary, query_latent_size=compressed)
    ours.double().eval()
    expansion = peer.kv_b_proj.weight.view(H, 2 * D, C)
    pairs = [
        (ours.key_projection.weight, peer.kv_a_proj_with_mqa.weight),
        (ours.latent_norm.weight, peer.kv_a_layernorm.weight),
        (ours.key_expansion.weight, expansion[:, :D].reshape(-1, C)),
        (ours.value_expansion.weight, expansion[:, D:].reshape(-1, C)),
        (ours.output_projection.weight, peer.o_proj.weight),
    ]
    if compressed:
        linear, norm = ours.query_compression
        pairs += [(linear.weight, peer.q_a_proj.weight), (norm.weight, peer.q_a_layernorm.weight)]
    query = peer.q_b_proj if compressed else peer.q_proj
    pairs.append((ours.query_projection.weight, query.weight))
    with torch.no_grad():
        for own, other in pairs:
            own.copy_(other)
    assert sum(own.numel() for own, _ in pairs) == sum(p.numel() for p in ours.parameters())
    x = random(B, L, DIM)
    angles = rotary_angles(torch.arange(L), R).repeat(1, 2).expand(B, L, R)
    causal = torch.full((1, 1, L, L), -1e30, dtype=torch.float64).triu(1)
    expected, _ = peer(x, (angles.cos(), angles.sin()), causal)
    found = ours(x, x, mask=masks.causal())
    torch.testing.assert_close(found, expected, **SINGLE)  # Their norm computes in float32.
    torch.testing.assert_close(gradients(found, x), gradients(expected, x), **SINGLE)
    memory = ours.remember(x)
    assert memory.key.numel() + memory.value.numel() == B * L * (C + R)
    steps = [ours.read(x[:, [t]], ours.remember(x[:, : t + 1])) for t in range(L)]
    torch.testing.assert_close(torch.cat(steps, 1), found, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("normalize", [None, normalizers.Entmax15()])
def test_it_is_the_equations_without_positions(normalize: nn.Module | None) -> None:
    gate = heads.OutputGate(DIM, H, D, "head")
    ours = scattered(LatentAttention(DIM, H, C, normalize=normalize, gate=gate, bias=True))
    x, other = random(B, 3, DIM), random(B, L, DIM)
    rows = []
    for b in range(B):
        for query in x[b]:
            contexts = []
            latents = ours.key_projection(other[b])
            latents = ours.latent_norm.weight * (
                latents / (latents.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            )
            for j in range(H):
                part = slice(j * D, (j + 1) * D)
                q = ours.query_projection(query)[part]
                key = latents @ ours.key_expansion.weight[part].T
                value = latents @ ours.value_expansion.weight[part].T
                e = key @ q / D**0.5
                weights = e.softmax(-1) if normalize is None else normalize(e)
                contexts.append(weights @ value)
            context = gate(query[None, None], torch.stack(contexts)[None, :, None]).flatten()
            rows.append(ours.output_projection(context))
    found, expected = ours(x, other), torch.stack(rows).view(B, 3, DIM)
    torch.testing.assert_close(found, expected)
    for one in (x, other):
        torch.testing.assert_close(gradients(found, one), gradients(expected, one))


@pytest.mark.parametrize("latent", [2, 20])
def test_both_forms_are_equal(latent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, gradients and weights; with a mask for each head, and positions of each row."""
    ours = scattered(LatentAttention(DIM, H, latent, rotary=Rotary(R)))
    x = random(B, L, DIM)
    first = torch.tensor([3, 9])
    results, given = [], (None, masks.causal(), torch.rand(B, H, 4, L) > 0.3)
    for absorbs in (True, False):
        monkeypatch.setattr(LatentAttention, "absorbs", lambda *_, to=absorbs: to)
        found = []
        for mask in given:
            memory = ours.remember(x, first=first)
            with watch(ours) as seen:
                context = ours.read(x[:, -4:], memory, mask, first=first + 3)
            plain = ours.read(x[:, -4:], memory, mask, first=first + 3)
            torch.testing.assert_close(plain, context)
            assert seen[""][0].shape == (B, H, 4, L)
            found += [context, seen[""][0], gradients(context, x)]
        results.append(found)
    torch.testing.assert_close(*results)


def test_the_form_with_fewer_multiplications_is_computed() -> None:
    ours = LatentAttention(512, 8, 256, head_dim=64)
    assert ours.absorbs(1, 100)
    assert not ours.absorbs(100, 100)
    assert LatentAttention(512, 8, 32, head_dim=64).absorbs(100, 100)


def test_wrong_sizes_and_other_values_are_refused() -> None:
    for given in ({"latent_size": 0}, {"heads": 0}, {"query_latent_size": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            LatentAttention(**{"dim": 8, "heads": 2, "latent_size": 3} | given)
    with pytest.raises(ValueError, match="not a multiple of heads 3"):
        LatentAttention(8, 3, 2)
    ours, x = LatentAttention(8, 2, 3), torch.zeros(1, 4, 8)
    with pytest.raises(ValueError, match="leave out value"):
        ours(x, x, torch.ones(1, 4, 8))
