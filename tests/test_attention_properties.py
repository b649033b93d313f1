"""What holds for attention of every kind: gradients, masked rows, order, causality, errors."""

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.attention import (
    Attention,
    MultiHeadAttention,
    attend,
    attention_weights,
    masks,
    normalizers,
    scores,
    watch,
)
from heedful.attention.normalizers import Queries, Softmax

DQ, DK, DV = 4, 4, 3
SCORES: dict[str, Callable[[], scores.Score]] = {
    "dot": scores.Dot,
    "scaled dot": scores.ScaledDot,
    "general": lambda: scores.General(DQ, DK),
    "additive": lambda: scores.Additive(DQ, DK, hidden_dim=5),
    "concat": lambda: scores.Concat(DQ, DK, hidden_dim=5),
}
every_score = pytest.mark.parametrize("kind", SCORES)


def inputs(
    queries: int, keys: int, *leading: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    shapes = ((queries, DQ), (keys, DK), (keys, DV))
    return [torch.randn(*leading, *shape, dtype=dtype, requires_grad=True) for shape in shapes]


def run(attention: torch.nn.Module, watched: bool, *arguments: Tensor, mask: object) -> Tensor:
    with watch(attention, None if watched else [], keep_gradients=True):
        return attention(*arguments, mask=mask)


@every_score
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_finite_differences(kind: str, masked: bool) -> None:
    torch.manual_seed(1)
    score = SCORES[kind]().double()
    mask = torch.tensor([[True, False, True], [False, False, False]]) if masked else None
    names = [name for name, _ in score.named_parameters()]
    arguments = [*inputs(2, 3, 2), *(part.detach().requires_grad_() for part in score.parameters())]

    def scored(query: Tensor, key: Tensor, value: Tensor, *weights: Tensor) -> Tensor:
        parameters = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(score, parameters, (query, key)) + 0 * value.sum()

    def weighed(*given: Tensor) -> Tensor:
        return Softmax()(scored(*given), mask)

    def attended(query: Tensor, key: Tensor, value: Tensor, *weights: Tensor) -> Tensor:
        module = Attention(score)
        parameters = {f"score.{name}": part for name, part in zip(names, weights, strict=True)}
        return torch.func.functional_call(module, parameters, (query, key, value, mask))

    for function in (scored, weighed, attended):
        assert torch.autograd.gradcheck(function, arguments)


def modules(kind: str, dtype: torch.dtype, dropout: float) -> list[torch.nn.Module]:
    one = Attention(SCORES[kind](), dropout=dropout)
    many = MultiHeadAttention(
        2 * DQ, 2, head_dim=DQ, key_dim=2 * DK, score=SCORES[kind](), dropout=dropout
    )
    return [one.to(dtype), many.to(dtype)]


@every_score
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_a_query_that_may_attend_to_nothing_gets_zero(
    kind: str, dtype: torch.dtype, dropout: float
) -> None:
    torch.manual_seed(2)
    allowed = torch.tensor([[True, True, False], [False, False, False]])
    for module, training, watched in itertools.product(
        modules(kind, dtype, dropout), (True, False), (True, False)
    ):
        module.train(training)
        width = DQ if isinstance(module, Attention) else 2 * DQ
        query, key, value = (
            torch.randn(2, length, width, dtype=dtype, requires_grad=True) for length in (2, 3, 3)
        )
        with watch(module, None if watched else []) as seen:
            context = module(query, key, value, mask=allowed)
        assert context.isfinite().all()
        nothing = torch.zeros(width, dtype=dtype)
        if isinstance(module, MultiHeadAttention):
            nothing = module.output_projection.bias  # The context is zero before the projection.
        assert context[:, 1].eq(nothing).all()
        for weights in seen.get("", []):
            assert weights[..., 1, :].eq(0).all()
        context.square().sum().backward()
        for part in (query, key, value, *module.parameters()):
            assert part.grad is not None
            assert part.grad.isfinite().all()
        assert query.grad[:, 1].eq(0).all()
        assert key.grad[:, 2].eq(0).all()
        assert value.grad[:, 2].eq(0).all()


@every_score
@pytest.mark.parametrize("watched", [False, True])
def test_no_gradient_at_all_where_everything_is_masked(kind: str, watched: bool) -> None:
    attention = Attention(SCORES[kind]().double())
    parts = inputs(2, 3, 2)
    context = run(attention, watched, *parts, mask=masks.padding(torch.tensor([0, 0])))
    assert context.eq(0).all()
    context.sum().backward()
    for part in (*parts, *attention.parameters()):
        assert part.grad is not None
        assert part.grad.eq(0).all()


@every_score
def test_masked_rows_pass_anomaly_detection(kind: str) -> None:
    """No NaN arises within the backward pass either, only to be masked later."""
    attention = Attention(SCORES[kind]().double())
    with torch.autograd.set_detect_anomaly(True):
        for watched in (False, True):
            mask = masks.padding(torch.tensor([0, 2]))
            run(attention, watched, *inputs(2, 3, 2), mask=mask).sum().backward()


@every_score
def test_a_flat_mask_is_one_for_all_queries(kind: str) -> None:
    attention = Attention(SCORES[kind]().double())
    parts = inputs(2, 3, 2, 2)
    for flat in (torch.tensor([True, False, True]), torch.tensor(False), torch.tensor(True)):
        expected = run(attention, False, *parts, mask=flat.expand(2, 2, 2, 3))
        for watched in (False, True):
            torch.testing.assert_close(run(attention, watched, *parts, mask=flat), expected)


def test_no_keys_and_no_queries() -> None:
    for kind, watched in itertools.product(SCORES, (False, True)):
        attention = Attention(SCORES[kind]().double())
        context = run(attention, watched, *inputs(2, 0, 2), mask=None)
        assert context.shape == (2, 2, DV)
        assert context.eq(0).all()
        assert run(attention, watched, *inputs(0, 3, 2), mask=None).shape == (2, 0, DV)
        assert run(attention, watched, *inputs(1, 3, 0), mask=None).shape == (0, 1, DV)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_rows_sum_to_one_and_masked_weights_are_zero(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(SCORES)))
    queries, keys = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    bits = data.draw(st.lists(st.booleans(), min_size=queries * keys, max_size=queries * keys))
    factor = data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    allowed = torch.tensor(bits).view(queries, keys)
    query, key, _ = inputs(queries, keys, 2)
    weights = attention_weights(factor * query, key, score=SCORES[kind]().double(), mask=allowed)
    assert weights.ge(0).all()
    assert weights.masked_select(~allowed).eq(0).all()
    expected = allowed.any(-1).double().expand(2, -1)
    torch.testing.assert_close(weights.sum(-1), expected)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_the_order_of_keys_with_their_values_does_not_matter(data: st.DataObject) -> None:
    kind, watched = data.draw(st.sampled_from(sorted(SCORES))), data.draw(st.booleans())
    keys = data.draw(st.integers(1, 6))
    order = torch.tensor(data.draw(st.permutations(range(keys))))
    attention = Attention(SCORES[kind]().double())
    query, key, value = inputs(3, keys, 2)
    allowed = torch.rand(2, 3, keys) > 0.3
    before = run(attention, watched, query, key, value, mask=allowed)
    after = run(attention, watched, query, key[:, order], value[:, order], mask=allowed[..., order])
    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-12)


@every_score
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("found_there", [0.0, -7.5, 1e6, -1e300])
def test_masked_keys_have_exactly_no_influence(
    kind: str, watched: bool, found_there: float
) -> None:
    torch.manual_seed(3)
    attention = Attention(SCORES[kind]().double())
    query, key, value = (part.detach() for part in inputs(3, 5, 2))
    mask = masks.padding(torch.tensor([4, 2]))
    before = run(attention, watched, query, key, value, mask=mask)
    beyond = (torch.arange(5) >= torch.tensor([[4], [2]])).unsqueeze(-1)
    key, value = key.masked_fill(beyond, found_there), value.masked_fill(beyond, found_there)
    assert run(attention, watched, query, key, value, mask=mask).equal(before)


@every_score
@pytest.mark.parametrize("watched", [False, True])
def test_a_causal_query_knows_nothing_of_later_keys(kind: str, watched: bool) -> None:
    torch.manual_seed(4)
    attention = Attention(SCORES[kind]().double())
    query, key, value = inputs(5, 5, 2)
    whole = run(attention, watched, query, key, value, mask=masks.causal())
    for length in range(1, 6):
        part = [x[:, :length] for x in (query, key, value)]
        prefix = run(attention, watched, *part, mask=masks.causal())
        torch.testing.assert_close(prefix, whole[:, :length], rtol=1e-10, atol=1e-12)
        # With the keys before it remembered, the last query alone gives the same (a cache).
        part[0] = part[0][:, -1:]
        last = run(attention, watched, *part, mask=masks.causal())
        torch.testing.assert_close(last[:, 0], whole[:, length - 1], rtol=1e-10, atol=1e-12)


@every_score
def test_reading_what_was_remembered_equals_forward(kind: str) -> None:
    for module in modules(kind, torch.float64, 0.0):
        width = DQ if isinstance(module, Attention) else 2 * DQ
        query = torch.randn(2, 3, width, dtype=torch.float64)
        key = torch.randn(2, 4, width, dtype=torch.float64)
        memory = module.remember(key)
        for position in range(3):
            one = query[:, position : position + 1]
            torch.testing.assert_close(
                module.read(one, memory), module(query, key)[:, position : position + 1]
            )


@every_score
def test_leading_dimensions_broadcast(kind: str) -> None:
    score = SCORES[kind]().double()
    query, (_, key, value) = inputs(2, 3)[0], inputs(2, 3, 4, 5)
    for mask in (None, torch.tensor([True, False, True]), torch.tensor(True)):
        found = attend(query, key, value, score=score, mask=mask)
        assert found.shape == (4, 5, 2, DV)
        alone = attend(query, key[1, 2], value[1, 2], score=score, mask=mask)
        torch.testing.assert_close(found[1, 2], alone)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("kind", ["scaled dot", "additive"])
def test_dropout_keeps_the_mean_and_acts_in_training_only(kind: str, watched: bool) -> None:
    torch.manual_seed(5)
    attention = Attention(SCORES[kind](), dropout=0.4)
    query, key = torch.randn(1, 1, DQ).expand(4000, 1, DQ), torch.randn(1, 6, DK)
    value, key = torch.randn(1, 6, DV).expand(4000, 6, DV), key.expand(4000, 6, DK)
    with torch.no_grad():
        kept = run(attention.eval(), watched, query, key, value, mask=None)
        dropped = run(attention.train(), watched, query, key, value, mask=None)
    assert not torch.allclose(kept, dropped)
    torch.testing.assert_close(dropped.mean(0), kept[0], rtol=0, atol=0.08)


class Doubled(Softmax):
    """A normalizer that no fused kernel knows."""

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return 2 * super().forward(scores, allowed)

    def softmax_scale(self) -> None:
        return None


def test_a_normalizer_of_ones_own_is_used_on_both_paths() -> None:
    query, key, value = inputs(2, 3, 2)
    twice = 2 * attend(query, key, value)
    torch.testing.assert_close(attend(query, key, value, normalize=Doubled()), twice)
    for watched in (False, True):
        found = run(Attention(normalize=Doubled()), watched, query, key, value, mask=None)
        torch.testing.assert_close(found, twice)


def test_a_part_that_says_nothing_is_refused() -> None:
    query, key, value = inputs(2, 3)
    with pytest.raises(NotImplementedError, match="Score does not implement `compare`"):
        attend(query, key, value, score=scores.Score())
    with pytest.raises(NotImplementedError, match="Normalizer does not implement"):
        attend(query, key, value, normalize=normalizers.Normalizer())


WRONG: list[tuple[str, type[Exception], str, Callable[[Tensor, Tensor, Tensor], object]]] = [
    (
        "integers",
        TypeError,
        "key must be of floating point",
        lambda q, k, v: attend(q, k.long(), v),
    ),
    ("a vector", ValueError, r"query has shape \[4\]", lambda q, k, v: attend(q[0, 0], k, v)),
    ("values", ValueError, "each key needs one value", lambda q, k, v: attend(q, k, v[:, 1:])),
    (
        "batches",
        ValueError,
        "leading dimensions differ",
        lambda q, k, v: attend(q, k[:1].expand(3, -1, -1), v),
    ),
    ("widths", ValueError, "equal widths", lambda q, k, v: attend(q[..., 1:], k, v)),
    (
        "integer mask",
        TypeError,
        "must be boolean",
        lambda q, k, v: attend(q, k, v, mask=torch.ones(2, 3, dtype=torch.int64)),
    ),
    (
        "mask",
        ValueError,
        r"mask \[3, 2\] does not broadcast",
        lambda q, k, v: attend(q, k, v, mask=torch.ones(3, 2) > 0),
    ),
    (
        "big mask",
        ValueError,
        "does not broadcast",
        lambda q, k, v: attend(q, k, v, mask=torch.ones(1, 2, 2, 3) > 0),
    ),
    (
        "lengths",
        ValueError,
        "does not broadcast",
        lambda q, k, v: attend(q, k, v, mask=masks.padding(torch.tensor([1, 2, 3]))),
    ),
    (
        "dropout",
        ValueError,
        r"must be in \[0, 1\), not 1.0",
        lambda q, k, v: attend(q, k, v, dropout=1.0),
    ),
    ("module dropout", ValueError, "not -0.1", lambda q, k, v: Attention(dropout=-0.1)),
    (
        "no values",
        ValueError,
        "each key needs one value",
        lambda q, k, v: MultiHeadAttention(4, 2).double()(q, k, k[:, 1:]),
    ),
    ("heads", ValueError, "not a multiple", lambda q, k, v: MultiHeadAttention(6, 4)),
    ("no head", ValueError, "at least 1", lambda q, k, v: MultiHeadAttention(6, 0)),
]


@pytest.mark.parametrize(
    ("error", "said", "call"), [x[1:] for x in WRONG], ids=[x[0] for x in WRONG]
)
def test_wrong_input_is_refused(
    error: type[Exception], said: str, call: Callable[[Tensor, Tensor, Tensor], object]
) -> None:
    with pytest.raises(error, match=said):
        call(*inputs(2, 3, 2))


@pytest.mark.parametrize("kind", ["general", "additive", "concat"])
def test_scores_with_weights_name_a_wrong_width(kind: str) -> None:
    query, key, value = inputs(2, 3, 2)
    score = SCORES[kind]().double()
    for function in (attend, lambda q, k, v, score: attention_weights(q, k, score=score)):
        with pytest.raises(ValueError, match=r"query has shape .* expected \[\.\., 4\]"):
            function(query[..., 1:], key, value, score=score)
        with pytest.raises(ValueError, match=r"key has shape .* expected \[\.\., 4\]"):
            function(query, key[..., 1:], value, score=score)
