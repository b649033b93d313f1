"""The delta rule: its forms against a loop and transformers, its limits, its place in recipes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

import heedful
from heedful.attention import DeltaAttention, LinearAttention, MultiHeadAttention, masks, watch
from heedful.attention.delta import delta_attend, delta_step, delta_weights
from heedful.attention.feature_maps import DpfpFeatures, ReluFeatures, SiluFeatures
from heedful.attention.short_convolution import ShortConvolution
from heedful.basics.errors import UserError
from heedful.layers.caches import SumCache
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.runs.attention_summary import attention_lines, summarise_attention
from heedful.runs.recipe import check_recipe

F, DV = 4, 3
decays = pytest.mark.parametrize("decay", [False, True])
SIZES = {"layers": 2, "hidden_size": 16, "ffn_size": 8, "heads": 2, "max_length": 40, "dropout": 0}


def inputs(length: int, *leading: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Features, values, strengths and log decays, as leaves; keys have length 1."""
    query, key = (torch.randn(*leading, length, F, dtype=dtype) for _ in range(2))
    value = torch.randn(*leading, length, DV, dtype=dtype)
    strength = torch.rand(*leading, length, dtype=dtype)
    decay = -torch.rand(*leading, length, dtype=dtype)
    made = (query, nn.functional.normalize(key, dim=-1), value, strength, decay)
    return [one.requires_grad_() for one in made]


def loop(query: Tensor, key: Tensor, value: Tensor, strength: Tensor, decay: Tensor) -> Tensor:
    """The equations of the paper, position by position, with its transposed matrix W = Sᵀ."""
    W = value.new_zeros(*value.shape[:-2], DV, F)
    contexts = []
    for t in range(query.shape[-2]):
        k, v = key[..., t, :], value[..., t, :]
        W = W * decay[..., t].exp()[..., None, None]
        before = (W * k.unsqueeze(-2)).sum(-1)
        mixed = strength[..., t, None] * v + (1 - strength[..., t, None]) * before
        W = W + (mixed - before).unsqueeze(-1) * k.unsqueeze(-2)
        contexts.append((W * query[..., t, :].unsqueeze(-2)).sum(-1))
    return torch.stack(contexts, -2)


def same(ours: Tensor, theirs: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    probe = torch.randn_like(ours)
    got, expected = (
        torch.autograd.grad(one, leaves, probe, retain_graph=True) for one in (ours, theirs)
    )
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    length=st.integers(1, 13),
    chunk=st.integers(1, 16),
    decay=st.booleans(),
)
def test_all_forms_are_the_loop(seed: int, length: int, chunk: int, decay: bool) -> None:
    torch.manual_seed(seed)
    *leaves, rates = inputs(length, 2, 1)
    own = rates if decay else None
    expected = loop(*leaves, rates if decay else torch.zeros_like(rates))
    leaves_used = [*leaves, rates] if decay else leaves
    same(delta_attend(*leaves, log_decay=own, chunk=chunk), expected, leaves_used)
    weights = delta_weights(leaves[0], leaves[1], leaves[3], log_decay=own)
    same(weights @ leaves[2], expected, leaves_used)
    state, contexts = None, []
    for t in range(length):
        step = [one[..., t : t + 1, :] for one in leaves[:3]]
        gone = None if own is None else own[..., t : t + 1]
        context, state = delta_step(
            *step, leaves[3][..., t : t + 1], log_decay=gone, state=state, chunk=chunk
        )
        contexts.append(context)
    same(torch.cat(contexts, -2), expected, leaves_used)


@decays
def test_transformers_computes_the_same(decay: bool) -> None:
    torch.manual_seed(1)
    query, key, value, strength, rates = inputs(70, 2, 3, dtype=torch.float32)
    rates = rates if decay else torch.zeros_like(rates)
    turned = [one.transpose(1, 2) for one in (query, key, value)]
    theirs, last = torch_recurrent_gated_delta_rule(
        *turned, rates.transpose(1, 2), strength.transpose(1, 2), output_final_state=True
    )
    ours, state = delta_step(query * F**-0.5, key, value, strength, log_decay=rates, chunk=16)
    torch.testing.assert_close(ours, theirs.transpose(1, 2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state.S, last, rtol=1e-4, atol=1e-5)


@decays
def test_gradients_are_those_of_finite_differences(decay: bool) -> None:
    torch.manual_seed(0)
    *leaves, rates = inputs(5, 1)

    def call(*given: Tensor) -> Tensor:
        return delta_attend(*given[:4], log_decay=given[4] if decay else None, chunk=2)

    torch.autograd.gradcheck(call, [*leaves, rates] if decay else leaves)
    torch.autograd.gradgradcheck(call, [*leaves, rates] if decay else leaves)


def test_a_value_replaces_the_one_of_its_key() -> None:
    keys = torch.eye(3).repeat(2, 1)
    values = torch.randn(6, DV)
    contexts = delta_attend(keys, keys, values, torch.ones(6), chunk=4)
    torch.testing.assert_close(contexts, values)
    torch.testing.assert_close(delta_step(keys, keys, values, torch.ones(6))[1].S, values[3:])


def test_a_state_carries_on() -> None:
    *leaves, rates = inputs(9, 2)
    whole, last = delta_step(*leaves, log_decay=rates, chunk=4)
    first, middle = delta_step(*(x[:, :5] for x in leaves), log_decay=rates[:, :5])
    second, end = delta_step(*(x[:, 5:] for x in leaves), log_decay=rates[:, 5:], state=middle)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(end.S, last.S)


def test_what_comes_later_changes_nothing() -> None:
    *leaves, rates = (one.detach() for one in inputs(11, 2))
    before = delta_attend(*leaves, log_decay=rates, chunk=4)
    for part in (*leaves, rates):
        part[:, 6:] = part[:, 6:].flip(1) * 0.5
    after = delta_attend(*leaves, log_decay=rates, chunk=4)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_computed_in_float32(dtype: torch.dtype) -> None:
    leaves = [one.detach().to(dtype) for one in inputs(7, 2)]
    ours = delta_attend(*leaves[:4], log_decay=leaves[4])
    wide = [one.float() for one in leaves]
    expected = delta_attend(*wide[:4], log_decay=wide[4])
    assert ours.dtype == dtype
    assert torch.equal(ours, expected.to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(delta_attend(*wide[:4], log_decay=wide[4]), expected)


def test_long_decay_stays_finite() -> None:
    *leaves, rates = inputs(300, 1, dtype=torch.float32)
    strong = (rates * 500).detach().requires_grad_()
    context = delta_attend(*leaves, log_decay=strong)
    context.square().sum().backward()
    assert all(torch.isfinite(one).all() for one in (context, strong.grad, leaves[1].grad))


def test_dpfp_is_the_products_written_out() -> None:
    x = torch.randn(2, 3, dtype=torch.float64)
    r = torch.cat([x, -x], -1).clamp(min=0)
    for nu in (1, 2):
        expected = [r[:, i] * r[:, (i - j) % 6] for j in range(1, nu + 1) for i in range(6)]
        torch.testing.assert_close(DpfpFeatures(nu)(x), torch.stack(expected, -1))
    with pytest.raises(ValueError, match="nu must be at least 1, not 0"):
        DpfpFeatures(0)


@decays
@pytest.mark.parametrize("features", [SiluFeatures, ReluFeatures, DpfpFeatures])
def test_the_module_writes_masks_and_is_watched(
    decay: bool, features: Callable[[], nn.Module]
) -> None:
    torch.manual_seed(0)
    module = DeltaAttention(8, 2, feature_map=features(), decay=decay, chunk=2).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    causal = masks.causal()
    whole = module(x, x, mask=causal)
    with watch(module) as seen:
        torch.testing.assert_close(module(x, x, mask=causal), whole)
    (weights,) = next(iter(seen.values()))
    assert weights.shape == (2, 2, 5, 5)
    assert not weights.triu(1).any()
    with watch(module, rows=[3]) as some:
        module(x, x, mask=causal)
    torch.testing.assert_close(next(iter(some.values()))[0], weights[:, :, 3:4])
    memory, parts = None, []
    for t in range(5):
        part, memory = module.step(x[:, t : t + 1], x[:, t : t + 1], memory=memory)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    # A key that is masked writes nothing: the result is that without it.
    exists = torch.tensor([True, False, True, True, True])
    masked = module(x, x, mask=causal & masks.padding(torch.tensor([5, 5])))
    torch.testing.assert_close(masked, whole)
    left = x[:, exists]
    without = module(x, x, mask=causal & exists.expand(2, 1, 1, 5))
    torch.testing.assert_close(without[:, exists], module(left, left, mask=causal))
    with watch(module), pytest.raises(ValueError, match="DeltaAttention holds sums"):
        module.step(x, x)
    with pytest.raises(ValueError, match="writes one position after another"):
        module(x, x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: delta_attend(q, q[1:], q[1:], q[1:, 0]), "keys of equal shape"),
        (lambda q: delta_attend(q, q, q[:-1], q[:, 0]), "each key needs one value"),
        (lambda q: delta_attend(q, q, q, q), r"strength \[5, 4\]: expected \[5\]"),
        (lambda q: delta_attend(q, q, q, q[:, 0], log_decay=q), "log_decay"),
        (lambda q: delta_attend(q, q, q, q[:, 0], chunk=0), "chunk must be at least 1"),
        (
            lambda q: delta_attend(q, q, q, q[:, 0], state=delta_step(*[q[:, :2]] * 3, q[:, 0])[1]),
            r"expected \[.., 4, 4\]",
        ),
        (lambda q: DeltaAttention(8, 3), "not a multiple of heads 3"),
    ],
)
def test_wrong_values_are_told(call: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.randn(5, 4))


# In recipes


def gpt(attention: dict[str, Any]) -> Gpt:
    torch.manual_seed(0)
    return Gpt(GptSettings.model_validate({**SIZES, "attention": attention}), 20).eval()


def test_layers_choose_the_delta_rule() -> None:
    model = gpt({"kind": "delta", "layers": [{"numbers": [2], "kind": "gated-delta"}]})
    first, second = (model.layers[n].self_attention for n in (0, 1))
    assert isinstance(first, DeltaAttention)
    assert (first.decay_projection is None, second.decay_projection is None) == (True, False)
    assert attention_lines(summarise_attention(gpt({"kind": "delta", "feature_map": "dpfp"}))) == [
        (
            "attention",
            "Delta + DpfpFeatures, 2 heads: sums in time linear in the length (2 modules)",
        )
    ]
    table = {**SIZES, "attention": {"decoder": {"kind": "gated-delta"}}}
    pair = Transformer(TransformerSettings.model_validate(table), 20, 20)
    kinds = [type(layer.self_attention) for layer in (pair.encoder[0], pair.decoder[0])]
    assert kinds == [MultiHeadAttention, DeltaAttention]


@pytest.mark.parametrize("convolution", [0, 1, 4])
@pytest.mark.parametrize("kind", ["linear", "delta", "gated-delta"])
def test_steps_are_teacher_forcing(kind: str, convolution: int) -> None:
    model = gpt({"kind": kind, "convolution": convolution})
    tokens = torch.randint(4, 20, (2, 9))
    with torch.no_grad():
        expected = model.logits(model.states(tokens))
        state = model.start(tokens[:, :4])
        for t in range(3, 9):
            logits, state = model.step(tokens[:, t], state)
            torch.testing.assert_close(logits, expected[:, t], rtol=1e-4, atol=1e-5)
    assert isinstance(next(iter(state.caches)), SumCache)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_convolution_is_that_of_torch(size: int) -> None:
    torch.manual_seed(1)
    convolution = ShortConvolution(6, size).double()
    theirs = nn.Conv1d(6, 6, size, groups=6, padding=size - 1, bias=False).double()
    with torch.no_grad():
        theirs.weight.copy_(convolution.weight.flip(0).T.unsqueeze(1))
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    expected = theirs(x.mT)[..., :4].mT
    result, last = convolution(x)
    same(result, expected, [x])
    first, middle = convolution(x[:, :3])
    second, end = convolution(x[:, 3:], middle)
    torch.testing.assert_close(torch.cat([first, second], 1), result)
    torch.testing.assert_close(end, last)


def test_a_key_is_found_by_the_one_before_it() -> None:
    """With the convolution that shifts keys by one, a query reads the value after an equal key."""
    module = DeltaAttention(4, 1, feature_map=ReluFeatures(), convolution=2, bias=False)
    with torch.no_grad():
        for part in ("query", "key", "value", "output"):
            getattr(module, f"{part}_projection").weight.copy_(torch.eye(4))
        module.strength_projection.bias.fill_(20)
        assert module.convolution is not None
        module.convolution.weight.zero_()
        module.convolution.weight[0, :4] = module.convolution.weight[1, 4:8] = 1  # queries, keys
        module.convolution.weight[0, 8:] = 1
    text = torch.eye(4)[[0, 1, 2, 3, 0]].unsqueeze(0)
    result = module(text, text, mask=masks.causal())
    torch.testing.assert_close(result[0, -1], torch.eye(4)[1], atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="queries and keys are those of the same positions"):
        module(text[:, :2], text)
    linear = LinearAttention(4, 1, convolution=2)
    with pytest.raises(ValueError, match="call the module, or step"):
        linear.remember(text)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"attention": {"kind": "delta", "score": "dot"}}, "the delta rule sums keys and values"),
    ({"attention": {"kind": "linear", "feature_map": "silu"}}, "'silu' may be negative"),
    ({"attention": {"kind": "delta"}}, "for attention that is causal"),
    ({"attention": {"cross": {"kind": "delta"}}}, "attention.kind is for self-attention"),
    ({"attention": {"feature_map": "dpfp"}}, "where kind = 'linear' or 'delta'"),
    ({"attention": {"convolution": 4}}, "where kind = 'linear' or 'delta'"),
    ({"attention": {"cross": {"convolution": 4}}}, "attention.convolution is for self-attention"),
    ({"attention": {"decoder": {"kind": "delta", "feature_map": {"name": "dpfp", "nu": 0}}}}, "nu"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=str)
def test_settings_without_a_meaning_are_refused(model: dict[str, Any], message: str) -> None:
    recipe = {"data": {"train": ["a.tsv"], "max_tokens": 9}, "model": {**SIZES, **model}}
    with pytest.raises(UserError) as refused:
        check_recipe(recipe, "the recipe")
    assert message in str(refused.value)


def test_it_trains_and_generates(tmp_path: Any) -> None:
    (tmp_path / "train.txt").write_text("the quick brown fox jumps over the lazy dog " * 40)
    attention = {"kind": "gated-delta", "layers": [{"numbers": [1], "kind": "delta"}]}
    attention["convolution"] = 3
    recipe = {
        "task": "language-model",
        "context": 8,
        "samples": 0,
        "data": {"train": "train.txt", "validation": "train.txt", "documents": "whole"},
        "tokeniser": {"kind": "characters"},
        "model": {"kind": "gpt", **SIZES, "attention": attention},
        "training": {"batch_tokens": 32, "threads": 1, "max_steps": 3, "schedule": "constant"},
    }
    heedful.train(recipe, tmp_path / "run", data=tmp_path)
    generator = heedful.load_generator(tmp_path / "run")
    assert generator.generate("the ", max_tokens=4)[0].text
    trace = generator.trace("the ", "fox")
    assert [one.kind for one in trace.maps].count("weights") == 2


def test_linear_attention_takes_dpfp() -> None:
    model = gpt({"kind": "linear", "feature_map": {"name": "dpfp", "nu": 2}})
    assert isinstance(model.layers[0].self_attention, LinearAttention)
    state = model.start(torch.randint(4, 20, (2, 5)))
    assert next(iter(state.caches)).state.S.shape == (2, 2, 32, 8)
