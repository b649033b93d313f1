"""Linearized attention: its three forms against one another and against a plain recurrence."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.attention import masks, watch
from heedful.attention.feature_maps import EluPlusOne, ReluFeatures
from heedful.attention.linear import (
    LinearState,
    linear_attend,
    linear_read,
    linear_state,
    linear_step,
    linear_weights,
)
from heedful.attention.linear_heads import LinearAttention

D, DV = 4, 3
MAPS: dict[str, Callable[[], nn.Module]] = {"elu + 1": EluPlusOne, "relu": ReluFeatures}
every_map = pytest.mark.parametrize("kind", MAPS)


def inputs(
    queries: int, keys: int, *leading: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    shapes = ((queries, D), (keys, D), (keys, DV))
    return [torch.randn(*leading, *shape, dtype=dtype, requires_grad=True) for shape in shapes]


def naive(
    query: Tensor, key: Tensor, value: Tensor, phi: Callable[[Tensor], Tensor], seen: Tensor
) -> Tensor:
    """The sums written out, a query and a key at a time; ``seen [Q, K]``."""
    contexts = []
    for i in range(query.shape[-2]):
        total = value.new_zeros(*value.shape[:-2], DV)
        weight = value.new_zeros(*value.shape[:-2], 1)
        for j in range(key.shape[-2]):
            if seen[i, j]:
                fits = (phi(query[..., i, :]) * phi(key[..., j, :])).sum(-1, keepdim=True)
                total = total + fits * value[..., j, :]
                weight = weight + fits
        contexts.append(
            torch.where(weight == 0, 0.0, total / torch.where(weight == 0, 1.0, weight))
        )
    return torch.stack(contexts, -2)


def same(ours: Tensor, theirs: Tensor, *leaves: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    probe = torch.randn_like(ours)
    got = torch.autograd.grad(ours, leaves, probe, retain_graph=True)
    expected = torch.autograd.grad(theirs, leaves, probe, retain_graph=True)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def recurrent(query: Tensor, key: Tensor, value: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    state, contexts = None, []
    for at in range(query.shape[-2]):
        place = slice(at, at + 1)
        context, state = linear_step(
            query[..., place, :], key[..., place, :], value[..., place, :], state, feature_map=phi
        )
        contexts.append(context)
    return torch.cat(contexts, -2)


@every_map
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 5), (5, 3), (1, 4)])
def test_it_is_the_sums_written_out(kind: str, causal: bool, queries: int, keys: int) -> None:
    torch.manual_seed(0)
    phi = (lambda x: F.elu(x) + 1) if kind == "elu + 1" else F.relu
    leaves = inputs(queries, keys, 2)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    mask = masks.causal() if causal else None
    if causal:
        seen = seen.tril(keys - queries)
    expected = naive(*leaves, phi, seen)
    for chunk in (1, 2, 64):
        ours = linear_attend(*leaves, feature_map=MAPS[kind](), mask=mask, chunk=chunk)
        same(ours, expected, *leaves)
    whole = linear_weights(*leaves[:2], feature_map=MAPS[kind](), mask=mask) @ leaves[2]
    same(whole, expected, *leaves)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    length=st.integers(1, 13),
    chunk=st.integers(1, 16),
    kind=st.sampled_from([*MAPS]),
)
def test_chunked_is_whole_is_recurrent(seed: int, length: int, chunk: int, kind: str) -> None:
    torch.manual_seed(seed)
    phi, leaves = MAPS[kind](), inputs(length, length, 2)
    chunked = linear_attend(*leaves, feature_map=phi, mask=masks.causal(), chunk=chunk)
    whole = linear_weights(*leaves[:2], feature_map=phi, mask=masks.causal()) @ leaves[2]
    same(chunked, whole, *leaves)
    same(chunked, recurrent(*leaves, phi), *leaves)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    length=st.integers(2, 12),
    chunk=st.integers(1, 6),
    data=st.data(),
)
def test_what_comes_later_changes_nothing(
    seed: int, length: int, chunk: int, data: st.DataObject
) -> None:
    torch.manual_seed(seed)
    prefix = data.draw(st.integers(1, length - 1))
    query, key, value = (part.detach() for part in inputs(length, length, 2))
    mask = masks.causal()
    before = linear_attend(query, key, value, mask=mask, chunk=chunk)
    for part in (query, key, value):
        part[:, prefix:] = 100 * torch.randn_like(part[:, prefix:])
    after = linear_attend(query, key, value, mask=mask, chunk=chunk)
    assert torch.equal(before[:, :prefix], after[:, :prefix])
    short = [part[:, :prefix] for part in (query, key, value)]
    torch.testing.assert_close(
        linear_attend(*short, mask=mask, chunk=chunk), before[:, :prefix], rtol=1e-10, atol=1e-12
    )


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), causal=st.booleans(), kind=st.sampled_from([*MAPS]))
def test_masked_keys_have_exactly_no_influence(seed: int, causal: bool, kind: str) -> None:
    torch.manual_seed(seed)
    query, key, value = inputs(6, 6, 2)
    lengths = torch.randint(0, 7, (2,))
    mask = masks.padding(lengths)
    mask = mask & masks.causal() if causal else mask
    phi = MAPS[kind]()
    context = linear_attend(query, key, value, feature_map=phi, mask=mask, chunk=4)
    padded = torch.arange(6) >= lengths[:, None]
    other_key, other_value = (
        torch.where(padded[..., None], 50 * torch.randn_like(part), part).detach()
        for part in (key, value)
    )
    changed = linear_attend(query, other_key, other_value, feature_map=phi, mask=mask, chunk=4)
    assert torch.equal(context, changed)
    context.sum().backward()
    assert not key.grad[padded].any()
    assert not value.grad[padded].any()
    assert all(part.grad.isfinite().all() for part in (query, key, value))
    assert not context[lengths == 0].any()
    assert not query.grad[lengths == 0].any()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_weights_sum_to_one_and_follow_the_keys_order(seed: int) -> None:
    torch.manual_seed(seed)
    query, key, value = inputs(4, 5, 2)
    torch.testing.assert_close(linear_weights(query, key).sum(-1), torch.ones(2, 4).double())
    order = torch.randperm(5)
    torch.testing.assert_close(
        linear_attend(query, key[:, order], value[:, order]), linear_attend(query, key, value)
    )


@every_map
@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding(torch.tensor([3, 0]))])
def test_gradients_are_those_of_finite_differences(kind: str, mask: masks.Mask | None) -> None:
    torch.manual_seed(1)
    phi = MAPS[kind]()

    def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return linear_attend(query, key, value, feature_map=phi, mask=mask, chunk=2)

    assert torch.autograd.gradcheck(attended, inputs(3, 4, 2))
    assert torch.autograd.gradgradcheck(attended, inputs(2, 2, 2))


@every_map
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_to_attend_to_is_zero(kind: str, dtype: torch.dtype, causal: bool) -> None:
    torch.manual_seed(2)
    phi = MAPS[kind]()
    query, key, value = inputs(3, 3, 2, dtype=dtype)
    mask = masks.padding(torch.tensor([0, 3]))
    mask = mask & masks.causal() if causal else mask
    context = linear_attend(query, key, value, feature_map=phi, mask=mask)
    context.sum().backward()
    assert context.dtype == dtype
    assert not context[0].any()
    for part in (query, key, value):
        assert part.grad.isfinite().all()
        assert not part.grad[0].any()
    # Features that are all zero: nothing fits, though all may be attended to.
    far = [torch.full_like(part, -200.0).requires_grad_() for part in (query, key)]
    lost = linear_attend(*far, value, feature_map=phi, mask=masks.causal() if causal else None)
    if kind == "relu" or dtype != torch.float64:
        assert not lost.any()
    lost.sum().backward()
    assert all(part.grad.isfinite().all() for part in (*far, value))


@pytest.mark.parametrize("size", [-20.0, -30.0, -42.0, -50.0, -60.0])
def test_gradients_stay_finite_where_features_vanish(size: float) -> None:
    query, key, value = (
        torch.full((3, D), size, requires_grad=True),
        torch.full((3, D), size, requires_grad=True),
        torch.full((3, DV), 1e4, requires_grad=True),
    )
    context = linear_attend(query, key, value)
    context.sum().backward()
    assert context.isfinite().all()
    assert all(part.grad.isfinite().all() for part in (query, key, value))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_halves_are_summed_in_float32(dtype: torch.dtype, autocast: bool) -> None:
    torch.manual_seed(3)
    query, key, value = inputs(700, 700, dtype=dtype)
    exact = linear_attend(query.double(), key.double(), value.double(), mask=masks.causal())
    given = [part.float() for part in (query, key, value)] if autocast else [query, key, value]
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        made = linear_attend(*given, mask=masks.causal())
        state = linear_state(*given[1:])
    unit = torch.finfo(torch.float32 if autocast else dtype).eps
    assert (made.double() - exact).abs().max() <= 10 * unit * exact.abs().max()
    assert state.S.dtype == state.z.dtype == torch.float32
    expected = EluPlusOne()(key.double()).sum(0)
    torch.testing.assert_close(state.z.double(), expected, rtol=1e-5, atol=0)


def test_elu_plus_one_is_torchs() -> None:
    vectors = torch.linspace(-9, 9, 41, dtype=torch.float64, requires_grad=True)
    same(EluPlusOne()(vectors), F.elu(vectors) + 1, vectors)
    far = torch.tensor([-30.0, 1000.0], requires_grad=True)
    features = EluPlusOne()(far)
    torch.testing.assert_close(features[0].double(), torch.tensor(-30.0).double().exp())
    features.sum().backward()
    assert far.grad.isfinite().all()


def test_a_map_of_ones_own_may_widen() -> None:
    def squares(vectors: Tensor) -> Tensor:
        return (vectors.unsqueeze(-1) * vectors.unsqueeze(-2)).flatten(-2)  # φ(q)·φ(k) = (q·k)²

    torch.manual_seed(4)
    query, key, value = inputs(5, 5, 2)
    similar = (query @ key.mT).square().tril()
    expected = similar / similar.sum(-1, keepdim=True) @ value
    ours = linear_attend(query, key, value, feature_map=squares, mask=masks.causal(), chunk=2)
    same(ours, expected, query, key, value)


def test_a_state_carries_on() -> None:
    torch.manual_seed(5)
    leaves = inputs(9, 9, 2)
    whole = linear_attend(*leaves, mask=masks.causal(), chunk=4)
    early, late = ([part[:, piece] for part in leaves] for piece in (slice(5), slice(5, 9)))
    state = linear_state(*early[1:])
    same(linear_attend(*late, mask=masks.causal(), chunk=3, state=state), whole[:, 5:], *leaves)
    context, after = linear_step(*late, state)
    same(context, whole[:, 5:], *leaves)
    all_of_it = linear_state(*leaves[1:])
    torch.testing.assert_close(after, all_of_it)
    read = linear_read(leaves[0], after)
    same(read, linear_attend(*leaves), *leaves)
    same(linear_attend(late[0], *late[1:], state=state), read[:, 5:], *leaves)
    order = torch.tensor([1, 0, 1])
    chosen = linear_read(leaves[0][order], after.select(order))
    torch.testing.assert_close(chosen, read[order])


def test_leading_dimensions_and_booleans_broadcast() -> None:
    torch.manual_seed(6)
    query, key, value = torch.randn(2, 3, 5, D), torch.randn(3, 6, D), torch.randn(1, 6, DV)
    allowed = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])[:, None, None]  # [2, 1, 1, 6]
    for causal in (False, True):
        mask = masks.as_mask(allowed) & masks.causal() if causal else allowed
        one = linear_attend(query, key, value, mask=mask, chunk=2)
        same_mask = masks.padding(torch.tensor([6, 4]))
        other = linear_weights(query, key, mask=same_mask & masks.causal() if causal else same_mask)
        torch.testing.assert_close(one, other @ value)
    flat = torch.tensor([True, False, True, True, False, True])
    kept = linear_attend(query, key[:, flat], value[:, flat])
    torch.testing.assert_close(linear_attend(query, key, value, mask=flat), kept)


def test_no_positions() -> None:
    for mask in (None, masks.causal()):
        assert linear_attend(*inputs(0, 0, 2), mask=mask).shape == (2, 0, DV)
        assert linear_attend(*inputs(0, 3, 2), mask=mask).shape == (2, 0, DV)
        assert not linear_attend(*inputs(3, 0, 2), mask=mask).any()


@pytest.mark.parametrize("causal", [False, True])
def test_compiles_whole_with_lengths_that_change(causal: bool) -> None:
    torch.manual_seed(7)
    torch._dynamo.reset()

    def attended(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
        mask = masks.padding(lengths)
        mask = mask & masks.causal() if causal else mask
        return linear_attend(query, key, value, mask=mask, chunk=4)

    compiled = torch.compile(attended, fullgraph=True, dynamic=True, backend="eager")
    lengths = torch.tensor([3, 2])
    for length in (9, 12, 11, 10, 13):
        leaves = inputs(length, length, 2)
        with torch.compiler.set_stance("default" if length == 9 else "fail_on_recompile"):
            made = compiled(*leaves, lengths)
        same(made, attended(*leaves, lengths), *leaves)


# The module


def modules() -> LinearAttention:
    torch.manual_seed(8)
    return LinearAttention(8, 2, key_dim=6, value_dim=5, head_dim=3, chunk=2).double()


def test_the_module_is_heads_side_by_side() -> None:
    layer = modules()
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((4, 8), (4, 6), (4, 5)))
    projected = (
        layer.query_projection(query),
        layer.key_projection(key),
        layer.value_projection(value),
    )
    for mask in (None, masks.causal()):
        heads = [
            linear_attend(*(part[..., 3 * h : 3 * h + 3] for part in projected), mask=mask)
            for h in range(2)
        ]
        expected = layer.output_projection(torch.cat(heads, -1))
        torch.testing.assert_close(layer(query, key, value, mask=mask), expected)


def test_remember_and_read_and_step() -> None:
    layer = modules()
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((4, 8), (4, 6), (4, 5)))
    mask = masks.padding(torch.tensor([4, 2]))
    memory = layer.remember(key, value, mask)
    assert isinstance(memory, LinearState)
    torch.testing.assert_close(layer.read(query, memory), layer(query, key, value, mask=mask))
    whole = layer(query, key, value, mask=masks.causal())
    state, results = None, []
    for at in (slice(0, 2), slice(2, 3), slice(3, 4)):
        result, state = layer.step(query[:, at], key[:, at], value[:, at], state)
        results.append(result)
    torch.testing.assert_close(torch.cat(results, 1), whole)


@pytest.mark.parametrize("mask", [None, masks.causal() & masks.padding(torch.tensor([4, 2]))])
def test_watching_changes_nothing(mask: masks.Mask | None) -> None:
    layer = modules()
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((3, 8), (4, 6), (4, 5)))
    plain = layer(query, key, value, mask=mask)
    with watch(layer, keep_gradients=True) as seen:
        torch.testing.assert_close(layer(query, key, value, mask=mask), plain)
    (weights,) = seen[""]
    assert weights.shape == (2, 2, 3, 4)
    assert weights.requires_grad
    with watch(layer, rows=[0, -1]) as seen:
        torch.testing.assert_close(layer(query, key, value, mask=mask), plain)
    torch.testing.assert_close(seen[""][0], weights[..., [0, 2], :].detach())
    with (
        watch(layer),
        pytest.raises(ValueError, match="no weights to watch"),
    ):
        layer.read(query, layer.remember(key, value))


def test_a_module_under_autocast_and_compiled() -> None:
    torch._dynamo.reset()
    layer = LinearAttention(8, 2).eval()
    tokens = torch.randn(2, 5, 8)
    plain = layer(tokens, tokens, mask=masks.causal())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(
            layer(tokens, tokens, mask=masks.causal()).float(), plain, atol=0.05, rtol=0.05
        )
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
    torch.testing.assert_close(compiled(tokens, tokens, mask=masks.causal()), plain)


# Wrong input


def zeros(queries: int, keys: int) -> list[Tensor]:
    return [torch.zeros(2, queries, 2), torch.zeros(2, keys, 2), torch.zeros(2, keys, 3)]


STATE = LinearState(torch.zeros(2, 3), torch.zeros(2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: linear_attend(*zeros(4, 4), mask=masks.window(2)), "Window .*no|differs"),
        (lambda: linear_attend(*zeros(4, 4), mask=~masks.causal()), "differs"),
        (lambda: linear_attend(*zeros(4, 4), mask=masks.causal() | masks.block(2)), "differs"),
        (lambda: linear_attend(*zeros(4, 4), mask=torch.ones(4, 4).bool()), "differs"),
        (lambda: linear_attend(*zeros(4, 4), mask=torch.ones(5).bool()), "does not broadcast"),
        (lambda: linear_attend(*zeros(4, 4), chunk=0), "chunk"),
        (lambda: linear_attend(torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(2, 3)), "widths"),
        (
            lambda: linear_attend(
                *zeros(4, 4), state=LinearState(torch.zeros(3, 3), torch.zeros(3))
            ),
            "state",
        ),
        (lambda: linear_state(*zeros(4, 4)[1:], mask=masks.causal()), "causal"),
        (lambda: linear_read(torch.zeros(2, 3), STATE), "features"),
        (lambda: linear_step(*zeros(1, 2)), "one key for each query"),
        (lambda: LinearAttention(8, 3), "heads"),
        (lambda: LinearAttention(8, 0), "heads"),
        (lambda: LinearAttention(8, 2, chunk=0), "chunk"),
    ],
)
def test_wrong_values_are_told(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: linear_attend(*zeros(4, 4), mask=torch.zeros(4)),
        lambda: linear_attend(*zeros(4, 4), mask=torch.zeros(4).int()),
        lambda: linear_attend(*(part.long() for part in zeros(4, 4))),
    ],
)
def test_wrong_types_are_told(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()
