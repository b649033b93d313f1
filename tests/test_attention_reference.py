"""Attention against what we did not write, and against the equations as loops: outputs, gradients.

All in float64. "Both paths" are the fused one, and the plain one that is taken under ``watch``.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right

from heedful.attention import Attention, MultiHeadAttention, masks, scores, watch
from heedful.attention.masks import Mask

B, Q, K, DQ, DK, DV = 3, 4, 5, 6, 7, 2


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def some_mask() -> Tensor:
    """[B, Q, K], no row of it all false."""
    allowed = torch.rand(B, Q, K, generator=torch.Generator().manual_seed(1)) > 0.4
    allowed[..., 0] |= ~allowed.any(-1)
    return allowed


def same(found: Callable[[], Tensor], expected: Callable[[], Tensor], inputs: list[Tensor]) -> None:
    """Outputs and all gradients agree; each input has one."""
    results = []
    for function in (found, expected):
        output = function()
        weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        results.append((output, *torch.autograd.grad((output * weights).sum(), inputs)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def both_paths(
    attention: nn.Module, *arguments: Tensor, mask: Mask | Tensor | None = None
) -> list[Callable[[], Tensor]]:
    def watched() -> Tensor:
        with watch(attention, keep_gradients=True):
            return attention(*arguments, mask=mask)

    return [lambda: attention(*arguments, mask=mask), watched]


@pytest.mark.parametrize("leading", [(B,), (2, B), ()])
@pytest.mark.parametrize("masked", ["no", "dense", "keys"])
@pytest.mark.parametrize(("score", "scale"), [(scores.ScaledDot(), None), (scores.Dot(), 1.0)])
def test_dot_products_equal_torchs(
    score: scores.Score, scale: float | None, masked: str, leading: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    q, k, v = rand(*leading, Q, DQ), rand(*leading, K, DQ), rand(*leading, K, DV)
    mask = None if masked == "no" else some_mask()[: leading[-1] if leading else 1]
    if mask is not None and not leading:
        mask = mask[0]
    if mask is not None and masked == "keys":
        mask = mask[..., :1, :]
        mask = mask | ~mask.any(-1, keepdim=True)

    def torchs() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)

    for ours in both_paths(Attention(score), q, k, v, mask=mask):
        same(ours, torchs, [q, k, v])


@pytest.mark.parametrize("queries", [K, 2, 1])
def test_causal_is_torchs_counted_from_the_end(queries: int) -> None:
    torch.manual_seed(2)
    q, k, v = rand(B, 2, queries, DQ), rand(B, 2, K, DQ), rand(B, 2, K, DV)

    def torchs() -> Tensor:
        if queries == K:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        bias = causal_lower_right(queries, K)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    for ours in both_paths(Attention(), q, k, v, mask=masks.causal()):
        same(ours, torchs, [q, k, v])


def literal(energy: Callable[[Tensor, Tensor], Tensor], allowed: Tensor) -> Callable[..., Tensor]:
    """The equation as loops over batch, queries and keys, with ``exp`` and a sum."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = []
        for b in range(B):
            for i in range(Q):
                keys = [j for j in range(K) if allowed[b, i, j]]
                e = torch.stack([energy(q[b, i], k[b, j]) for j in keys]).exp()
                rows.append(
                    sum((e[n] / e.sum()) * v[b, j] for n, j in enumerate(keys)) + 0 * v[b, 0]
                )
        return torch.stack(rows).view(B, Q, -1)

    return attend


def test_additive_is_bahdanaus_equation() -> None:
    torch.manual_seed(3)
    score = scores.Additive(DQ, DK, hidden_dim=4).double()
    W1, W2, v_a = score.key_projection.weight, score.query_projection.weight, score.v
    q, k, v, allowed = rand(B, Q, DQ), rand(B, K, DK), rand(B, K, DV), some_mask()
    loop = literal(lambda one, other: v_a @ torch.tanh(W1 @ other + W2 @ one), allowed)
    for ours in both_paths(Attention(score), q, k, v, mask=allowed):
        same(ours, lambda: loop(q, k, v), [q, k, v, W1, W2, v_a])


def test_concat_is_luongs_equation() -> None:
    torch.manual_seed(4)
    score = scores.Concat(DQ, DK, hidden_dim=4).double()
    q, k, v, allowed = rand(B, Q, DQ), rand(B, K, DK), rand(B, K, DV), some_mask()
    loop = literal(
        lambda one, other: score.v @ torch.tanh(score.weight @ torch.cat([one, other])), allowed
    )
    for ours in both_paths(Attention(score), q, k, v, mask=allowed):
        same(ours, lambda: loop(q, k, v), [q, k, v, score.weight, score.v])


def test_general_is_torchs_bilinear_form() -> None:
    torch.manual_seed(5)
    score = scores.General(DQ, DK).double()
    bilinear = nn.Bilinear(DQ, DK, 1, bias=False).double()
    del bilinear.weight
    q, k, v, allowed = rand(B, Q, DQ), rand(B, K, DK), rand(B, K, DV), some_mask()

    def torchs() -> Tensor:
        bilinear.weight = score.weight.unsqueeze(0)
        pairs = (
            q.unsqueeze(2).expand(B, Q, K, DQ).contiguous(),
            k.unsqueeze(1).expand(B, Q, K, DK).contiguous(),
        )
        energies = bilinear(*pairs).squeeze(-1)
        return torch.softmax(energies.masked_fill(~allowed, -torch.inf), -1) @ v

    for ours in both_paths(Attention(score), q, k, v, mask=allowed):
        same(ours, torchs, [q, k, v, score.weight])


def torchs_twin(ours: MultiHeadAttention, key_dim: int, value_dim: int) -> nn.MultiheadAttention:
    """PyTorch's module with the same weights."""
    dim = ours.output_projection.out_features
    bias = ours.output_projection.bias is not None
    twin = nn.MultiheadAttention(
        dim, ours.heads, bias=bias, batch_first=True, kdim=key_dim, vdim=value_dim
    ).double()
    projections = (ours.query_projection, ours.key_projection, ours.value_projection)
    with torch.no_grad():
        if twin.in_proj_weight is not None:
            twin.in_proj_weight.copy_(torch.cat([part.weight for part in projections]))
        else:
            twin.q_proj_weight.copy_(projections[0].weight)
            twin.k_proj_weight.copy_(projections[1].weight)
            twin.v_proj_weight.copy_(projections[2].weight)
        twin.out_proj.weight.copy_(ours.output_projection.weight)
        if bias:
            twin.in_proj_bias.copy_(torch.cat([part.bias for part in projections]))
            twin.out_proj.bias.copy_(ours.output_projection.bias)
    return twin


def gradients_like(twin: nn.MultiheadAttention) -> list[Tensor]:
    """The twin's gradients in the order of our parameters: weights of q, k, v, output; biases."""
    weights = (
        list(twin.in_proj_weight.grad.chunk(3))
        if twin.in_proj_weight is not None
        else [twin.q_proj_weight.grad, twin.k_proj_weight.grad, twin.v_proj_weight.grad]
    )
    weights.append(twin.out_proj.weight.grad)
    if twin.in_proj_bias is None:
        return weights
    return [*weights, *twin.in_proj_bias.grad.chunk(3), twin.out_proj.bias.grad]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("key_dim", "value_dim"), [(8, 8), (7, 5)])
@pytest.mark.parametrize("watched", [False, True])
def test_multi_head_attention_is_torchs(
    key_dim: int, value_dim: int, bias: bool, watched: bool
) -> None:
    torch.manual_seed(6)
    ours = MultiHeadAttention(8, 2, key_dim=key_dim, value_dim=value_dim, bias=bias).double()
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.5)
    twin = torchs_twin(ours, key_dim, value_dim)
    q, k, v = rand(B, Q, 8), rand(B, K, key_dim), rand(B, K, value_dim)
    allowed = some_mask()
    with watch(ours, names=[""] if watched else [], keep_gradients=True) as seen:
        found = ours(q, k, v, mask=allowed.unsqueeze(1))
    expected, weights = twin(
        q,
        k,
        v,
        attn_mask=(~allowed).repeat_interleave(2, dim=0),
        need_weights=True,
        average_attn_weights=False,
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    if watched:
        torch.testing.assert_close(seen[""][0], weights, rtol=1e-10, atol=1e-12)

    upstream = torch.randn_like(expected)
    inputs = torch.autograd.grad((expected * upstream).sum(), [q, k, v], retain_graph=True)
    (expected * upstream).sum().backward(inputs=list(twin.parameters()))
    (found * upstream).sum().backward()
    torch.testing.assert_close([q.grad, k.grad, v.grad], list(inputs), rtol=1e-9, atol=1e-11)
    projections = [
        ours.query_projection,
        ours.key_projection,
        ours.value_projection,
        ours.output_projection,
    ]
    found_gradients = [part.weight.grad for part in projections]
    if bias:
        found_gradients += [part.bias.grad for part in projections]
    torch.testing.assert_close(found_gradients, gradients_like(twin), rtol=1e-9, atol=1e-11)


def test_multi_head_attention_takes_any_score_in_each_head() -> None:
    torch.manual_seed(7)
    score = scores.Additive(4, 4, hidden_dim=3)
    ours = MultiHeadAttention(8, 2, score=score).double()
    q, k = rand(B, Q, 8), rand(B, K, 8)
    allowed = some_mask()

    def by_head() -> Tensor:
        contexts = []
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            one = Attention(score)
            projected = [
                linear(x)[..., part]
                for linear, x in (
                    (ours.query_projection, q),
                    (ours.key_projection, k),
                    (ours.value_projection, k),
                )
            ]
            contexts.append(one(*projected, mask=allowed))
        return ours.output_projection(torch.cat(contexts, -1))

    for mine in both_paths(ours, q, k, mask=allowed.unsqueeze(1)):
        same(mine, by_head, [q, k, *score.parameters(), ours.query_projection.weight])
