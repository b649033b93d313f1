"""The operators of ``torch.ops.heedful``: PyTorch's checks and transforms."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, jacrev, vmap
from torch.library import opcheck
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.attention import attend
from heedful.attention.scores import Additive
from heedful.kernels import additive_operators as operators
from heedful.kernels import short_attention as short
from heedful.kernels import short_attention_operators as short_operators
from heedful.kernels.additive import plain_scores
from heedful.kernels.cross_entropy import cross_entropy
from heedful.kernels.dropout import dropout, plain_dropout
from tolerance import assert_near

compiled = pytest.mark.skipif(short.library() is None, reason="no C compiler")
OPERATORS = torch.ops.heedful
Given = tuple[Any, ...]

SHORT = [
    # B, H, G, Q, K, D, E; mask
    ((2, 4, 2, 5, 7, 8, 6), "pairs", torch.float32),
    ((2, 4, 2, 5, 7, 8, 6), "causal", torch.float32),
    ((2, 4, 4, 5, 7, 8, 6), "keys", torch.float64),
    ((1, 2, 2, 2, 3, 4, 4), None, torch.float32),  # too short for C
]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(7)


def short_given(
    shape: tuple[int, ...], kind: str | None, dtype: torch.dtype, needs: bool = True
) -> Given:
    batch, heads, groups, queries, keys, width, value_width = shape
    sizes = [(heads, queries, width), (groups, keys, width), (groups, keys, value_width)]
    parts = [torch.randn(batch, *size, dtype=dtype).requires_grad_(needs) for size in sizes]
    mask = None
    if kind in ("pairs", "keys"):
        mask = torch.rand((queries, keys) if kind == "pairs" else (batch, 1, 1, keys)) < 0.7
    return *parts, mask, kind == "causal", 0.4


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("case", SHORT)
def test_short_attention(case: Given, needs: bool) -> None:
    opcheck(OPERATORS.short_attention.default, short_given(*case, needs))


@pytest.mark.parametrize("case", SHORT)
def test_the_backward_of_short_attention(case: Given) -> None:
    given = short_given(*case, needs=False)
    context, weights = OPERATORS.short_attention(*given)
    back = (torch.randn_like(context), *given[:3], weights, given[-1])
    opcheck(OPERATORS.short_attention_backward.default, back)


def plain_short(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """PyTorch's math backend."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            query, key, value, mask, scale=scale, is_causal=causal, enable_gqa=True
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms_of_short_attention(dtype: torch.dtype) -> None:
    shape = (2, 4, 2, 5, 7, 8, 6)
    query, key, value, mask, *others = short_given(shape, "keys", dtype, needs=False)
    masks = torch.rand(3, 2, 1, 5, 7) < 0.8
    queries, values = torch.randn(3, *query.shape).to(dtype), torch.randn(3, *value.shape).to(dtype)

    def found(attention: Callable[..., Tensor], *, wide: bool) -> list[Tensor]:
        change = Tensor.double if wide else Tensor.clone
        q, k, v, q3, v3 = map(change, (query, key, value, queries, values))

        def loss(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            return attention(q, k, v, mask, *others).square().sum()

        def length(q: Tensor, k: Tensor) -> Tensor:
            return grad(loss, 1)(q, k, v, mask).square().sum()

        each, both = grad(loss, (0, 1, 2)), vmap(loss, (0, None, 0, 0))
        return [
            *each(q, k, v, mask),
            both(q3, k, v3, masks),
            vmap(loss, (None, None, 0, None))(q, k, v3, mask),
            *vmap(each, (0, None, 0, 0))(q3, k, v3, masks),
            *grad(lambda *given: both(*given, masks).sum(), (0, 1, 2))(q3, k, v3),
            *grad(length, (0, 1))(q, k),
            jacrev(lambda k: attention(q, k, v, mask, *others).sum((0, 1)))(k),
        ]

    def ours(*given: Any) -> Tensor:
        return short_operators.attention(*given)[0]

    results = found(ours, wide=False), found(plain_short, wide=True)
    for one, other in zip(*results, strict=True):
        assert_near(one, other, terms=64, dtype=dtype)


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=compiled), torch.float64])
def test_second_derivatives_of_short_attention(dtype: torch.dtype) -> None:
    given = short_given((1, 2, 1, 5, 4, 3, 2), "pairs", dtype)

    def found(attention: Callable[..., Tensor], parts: list[Tensor]) -> Sequence[Tensor]:
        context = attention(*parts, *given[3:])
        by = torch.autograd.grad(context.pow(3).sum(), parts, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in by), parts)

    wide = [part.detach().double().requires_grad_() for part in given[:3]]
    expected = found(plain_short, wide)
    if dtype == torch.float64:
        ours = found(lambda *given: short_operators.attention(*given)[0], wide)
    else:
        ours = found(short_operators.short_attention, list(given[:3]))
    for one, other in zip(ours, expected, strict=True):
        assert_near(one, other, terms=64, dtype=dtype)


@compiled
def test_batched_gradients_of_short_attention() -> None:
    """A batch of gradients has no address for C."""
    given = short_given((2, 2, 2, 5, 7, 8, 6), None, torch.float32)
    grads = torch.randn(3, 2, 2, 5, 6)
    found = [
        torch.autograd.grad(attention(*given), given[:3], grads, is_grads_batched=True)
        for attention in (short_operators.short_attention, plain_short)
    ]
    for one, other in zip(*found, strict=True):
        assert_near(one, other, terms=64)


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout(dtype: torch.dtype, needs: bool) -> None:
    words = torch.randint(-(1 << 62), 1 << 62, (9,))
    hidden = torch.randn(7, 5, dtype=dtype).T.requires_grad_(needs)
    opcheck(OPERATORS.dropout.default, (hidden, words, -20000, 1.3))


def test_transforms_of_dropout() -> None:
    hidden = torch.randn(3, 5, 7)
    words = torch.randint(-(1 << 62), 1 << 62, (3, 9))

    def dropped(hidden: Tensor) -> Tensor:
        torch.manual_seed(3)
        return dropout(hidden, 0.3)

    leaf = hidden.clone().requires_grad_()
    expected = dropped(leaf)
    torch.testing.assert_close(
        grad(lambda one: dropped(one).square().sum())(hidden),
        *torch.autograd.grad(expected.square().sum(), leaf),
    )
    mapped = vmap(dropped, randomness="same")(hidden)
    for index in range(3):
        assert torch.equal(mapped[index], dropped(hidden[index]))
    run = vmap(OPERATORS.dropout, (0, 0, None, None))
    for found, one, own in zip(run(hidden, words, 9, 2.0), hidden, words, strict=True):
        assert torch.equal(found, plain_dropout(one, own, 9, 2.0))


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(6, 4, 11), (1, 3, 2)])
def test_cross_entropy(sizes: tuple[int, int, int], dtype: torch.dtype, needs: bool) -> None:
    rows, width, symbols = sizes
    states = torch.randn(rows, width, dtype=dtype).requires_grad_(needs)
    table = torch.randn(symbols, width, dtype=dtype).requires_grad_(needs)
    given = states, table, torch.randint(symbols, (rows,)), 0.1
    opcheck(OPERATORS.cross_entropy.default, given)
    made = OPERATORS.cross_entropy(*given)[2:]
    opcheck(OPERATORS.cross_entropy_backward.default, (torch.tensor(2.0), *made, *given))


def plain_loss(states: Tensor, table: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(states @ table.T, labels, label_smoothing=0.1, reduction="sum")


def our_loss(states: Tensor, table: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(states, table, labels, 0.1)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms_of_cross_entropy(dtype: torch.dtype) -> None:
    states, table = torch.randn(3, 6, 4).to(dtype), torch.randn(11, 4).to(dtype)
    labels = torch.randint(11, (3, 6))

    def found(loss: Callable[..., Tensor], states: Tensor, table: Tensor) -> list[Tensor]:
        by_table = grad(lambda *given: grad(loss, 1)(*given).square().sum(), (0, 1))
        return [
            *grad(loss, (0, 1))(states[0], table, labels[0]),
            *vmap(grad(loss, (0, 1)), (0, None, 0))(states, table, labels),
            *by_table(states[0], table, labels[0]),
        ]

    expected = found(plain_loss, states.double(), table.double())
    for one, other in zip(found(our_loss, states, table), expected, strict=True):
        assert_near(one, other, terms=66, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivatives_of_cross_entropy(dtype: torch.dtype) -> None:
    """Second derivatives use the plain formula."""
    labels = torch.randint(11, (6,))
    start = [torch.randn(size, 4, dtype=dtype) for size in (6, 11)]

    def found(loss: Callable[..., Tensor], parts: list[Tensor]) -> Sequence[Tensor]:
        by = torch.autograd.grad(2 * loss(*parts, labels).square(), parts, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in by), parts)

    wide = [part.double().requires_grad_() for part in start]
    results = found(our_loss, [part.requires_grad_() for part in start]), found(plain_loss, wide)
    for one, other in zip(*results, strict=True):
        assert_near(one, other, terms=66, dtype=dtype)


def test_a_compiled_loss_contains_the_operator_for_all_lengths() -> None:
    torch.compiler.reset()
    compiled_loss = torch.compile(our_loss, fullgraph=True, dynamic=True, backend="aot_eager")
    table = torch.randn(11, 4, requires_grad=True)
    for rows in (6, 600):
        states = torch.randn(rows, 4, requires_grad=True)
        labels = torch.randint(11, (rows,))
        with torch.compiler.set_stance("default" if rows == 6 else "fail_on_recompile"):
            found = torch.autograd.grad(compiled_loss(states, table, labels), (states, table))
        expected = torch.autograd.grad(plain_loss(states, table, labels), (states, table))
        for one, other in zip(found, expected, strict=True):
            assert_near(one, other, terms=rows)


def additive_given(dtype: torch.dtype, needs: bool) -> list[Tensor]:
    """Queries, keys, values and v."""
    sizes = [(2, 5, 4), (2, 7, 4), (2, 7, 3), (4,)]
    return [torch.randn(size, dtype=dtype).requires_grad_(needs) for size in sizes]


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_additive_operators(dtype: torch.dtype, share: float, needs: bool) -> None:
    a, b, value, v = additive_given(dtype, needs)
    rest = torch.rand(2, 5, 7) < 0.7, 0.8, share, torch.tensor(5)
    opcheck(OPERATORS.additive_context.default, (a, b, value, v, *rest))
    if needs or share:
        return
    opcheck(OPERATORS.additive_scores.default, (a, b, v))
    grads = torch.randn(2, 5, 7, dtype=dtype), torch.randn(2, 5, 3, dtype=dtype)
    opcheck(OPERATORS.additive_scores_backward.default, (grads[0], a, b, v))
    opcheck(OPERATORS.additive_context_backward.default, (grads[1], a, b, value, v, *rest))


def plain_context(a: Tensor, b: Tensor, value: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = (0.8 * plain_scores(a, b, v)).masked_fill(~allowed, -1e30)
    return scores.softmax(-1).masked_fill(~allowed, 0.0) @ value


def our_context(*given: Tensor) -> Tensor:
    made: Tensor = operators.context(*given, 0.8, 0.0, torch.tensor(0))
    return made


def our_scores(a: Tensor, b: Tensor, value: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    made: Tensor = operators.scores(a, b, v)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("ours", "plain"),
    [(our_context, plain_context), (our_scores, lambda a, b, _, v, __: plain_scores(a, b, v))],
)
def test_transforms_of_additive_operators(
    ours: Callable[..., Tensor], plain: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    given = additive_given(dtype, needs=False)
    three = [torch.randn(3, *part.shape).to(dtype) for part in given]
    allowed = torch.rand(3, 1, 5, 7) < 0.8

    def found(attention: Callable[..., Tensor], *, wide: bool) -> list[Tensor]:
        change = Tensor.double if wide else Tensor.clone
        a, b, value, v = map(change, given)
        a3, b3, value3, v3 = map(change, three)

        def loss(*given: Tensor) -> Tensor:
            return attention(*given).square().sum()

        def length(*given: Tensor) -> Tensor:
            return sum(one.square().sum() for one in grad(loss, (0, 1, 3))(*given))  # type: ignore[return-value]

        each = grad(loss, (0, 1, 2, 3))
        return [
            *each(a, b, value, v, allowed[0]),
            vmap(attention, (0, None, 0, None, None))(a3, b, value3, v, allowed[0]),
            vmap(attention, (None, 0, None, None, 0))(a, b3, value, v, allowed),
            vmap(attention, (0, 0, 0, 0, None))(a3, b3, value3, v3, allowed[0]),
            *vmap(each, (0, 0, 0, None, 0))(a3, b3, value3, v, allowed),
            *grad(length, (0, 1, 3))(a, b, value, v, allowed[0]),
        ]

    results = found(ours, wide=False), found(plain, wide=True)
    for one, other in zip(*results, strict=True):
        assert_near(one, other, terms=280, dtype=dtype)


def test_transforms_of_long_additive_attention_use_little_memory() -> None:
    """The plain formula must not be used for long sequences inside ``torch.func``."""
    score, largest = Additive(64, 64, 64), 0
    query, key, value = (torch.randn(2, 70, 64) for _ in range(3))

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            made = func(*args, **(kwargs or {}))
            if isinstance(made, Tensor) and made.dim() > 3:
                largest = max(largest, made.numel())
            return made

    with Sizes():
        grad(lambda one: attend(one, key, value, score=score).sum())(query)
    assert largest < 70 * 70 * 64
