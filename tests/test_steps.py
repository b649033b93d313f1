"""Search in C: one query per row over steps read in place, and top-k of long rows. Compared with
the plain references in float64, and with searches without compiled code."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.attention import Memory, MultiHeadAttention, watch
from heedful.attention.masks import padding
from heedful.attention.positions import ALiBi, RelativePositions, Rotary, Shaw, T5Buckets
from heedful.attention.step_memory import StepMemory
from heedful.decoding import SearchOptions, search
from heedful.inference.fusing import cached as fused_forms
from heedful.inference.fusing import searched
from heedful.kernels import cached_attention as kernel
from heedful.kernels import topk as tops
from heedful.kernels.cached_attention import Steps, can_step
from heedful.kernels.topk import Total, best, plain_best
from heedful.layers.caches import LayerCaches, StepCache
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from tolerance import assert_near, assert_rounded, reference

compiled = pytest.mark.skipif(
    kernel.library() is None or tops.library() is None, reason="there is no compiler"
)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    torch.manual_seed(3)
    with torch.no_grad():
        yield


def made(rows: list[int], positions: list[int], groups: int, width: int, value: int) -> Steps:
    made_steps = Steps()
    for r, p in zip(rows, positions, strict=True):
        key, values = torch.randn(r, p, groups, width), torch.randn(r, p, groups, value)
        made_steps.append(key.transpose(1, 2), values.transpose(1, 2))
    return made_steps


@compiled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("heads", "groups", "width", "value"),
    [(1, 1, 1, 1), (2, 2, 4, 3), (4, 2, 32, 32), (6, 1, 17, 40), (8, 8, 64, 64)],
)
def test_reading_matches_softmax_attention(
    heads: int, groups: int, width: int, value: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_SMALL", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    rows = 7
    parts = made([3, 9, 1, 5], [1, 2, 1, 30], groups, width, value)
    index = (
        torch.stack([torch.randint(part[0].shape[0], (rows,)) for part in parts.parts])
        .repeat_interleave(torch.tensor([1, 2, 1, 30]), dim=0)
        .T
    )
    query = 3 * torch.randn(rows, heads, width)
    for lengths in (None, torch.tensor([34, 1, 0, 8, 9, 16, 33])):
        bias = torch.randn(rows, heads, 34) if lengths is None else torch.randn(heads, 34)
        each = heads // groups
        key, values = (part.repeat_interleave(each, dim=1) for part in parts.gather(index))
        there = torch.ones(rows, 34, dtype=torch.bool)
        if lengths is not None:
            there = torch.arange(34) < lengths[:, None]

        def exact(
            query: Tensor,
            key: Tensor,
            values: Tensor,
            bias: Tensor,
            there: Tensor = there,
        ) -> list[Tensor]:
            scores = 0.3 * (query.unsqueeze(2) @ key.mT) + bias.unsqueeze(-2)  # [N, H, 1, T]
            scores = scores.masked_fill(~there[:, None, None], -torch.inf)
            return [(scores.softmax(-1).nan_to_num() @ values).squeeze(2)]

        terms = max(width, 34)
        for added in (torch.zeros(1), bias):
            right = reference(exact, query, key, values, added, terms=terms)
            given = bias if added is bias else None
            for read in (parts.read, parts.plain_read):
                assert_rounded([read(query, index, lengths, 0.3, bias=given)], right)
    torch.set_num_threads(before)


@compiled
@pytest.mark.parametrize("shared", [1, 5, 40])
def test_values_may_be_a_part_of_the_keys(shared: int) -> None:
    """Latent attention stores one vector per position."""
    parts = made([3, 2], [4, 20], 1, 40, 0)
    index = torch.cat([torch.randint(3, (5, 4)), torch.randint(2, (5, 20))], 1)
    query, lengths = torch.randn(5, 3, 40), torch.tensor([24, 1, 7, 0, 19])
    found = parts.read(query, index, lengths, 0.3, shared=shared)
    key = parts.gather(index)[0].squeeze(1).double()
    scores = 0.3 * query.double() @ key.mT
    there = torch.arange(24) < lengths[:, None, None]
    weights = scores.masked_fill(~there, -torch.inf).softmax(-1).nan_to_num()
    torch.testing.assert_close(found.double(), weights @ key[..., :shared], rtol=1e-4, atol=1e-5)
    plain = parts.plain_read(query, index, lengths, 0.3, None, shared)
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)


@compiled
@pytest.mark.parametrize("shared", [0, 5])
def test_shared_components_must_match_the_keys(shared: int) -> None:
    parts = made([1], [2], 1, 4, 0)
    with pytest.raises(ValueError, match="shared components do not match"):
        parts.read(
            torch.zeros(1, 1, 4), torch.zeros(1, 2, dtype=torch.long), None, 1.0, None, shared
        )


@compiled
def test_large_and_distant_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = made([1], [5], 1, 1, 1)
    parts.parts[0][0].copy_(torch.tensor([-3e30, -200.0, 0.0, 88.0, 90.0]).view(1, 5, 1, 1))
    index = torch.zeros(1, 5, dtype=torch.long)
    found = parts.read(torch.ones(1, 1, 1), index, None, 1.0)
    weights = torch.tensor([-torch.inf, -290, -90, -2, 0]).double().softmax(0)
    expected = (weights * parts.parts[0][1].flatten().double()).sum()
    torch.testing.assert_close(found.double().item(), expected.item(), rtol=1e-6, atol=1e-7)


def test_wrong_shapes_raise() -> None:
    parts = made([2], [3], 1, 4, 4)
    if kernel.library() is None:
        pytest.skip("there is no compiler")
    for query, index in (
        (torch.zeros(2, 1, 4), torch.zeros(2, 2, dtype=torch.long)),
        (torch.zeros(2, 1, 4), torch.zeros(2, 3, dtype=torch.int)),
        (torch.zeros(2, 1, 5), torch.zeros(2, 3, dtype=torch.long)),
    ):
        with pytest.raises(ValueError, match=r"expected|do not match"):
            parts.read(query, index, None, 1.0)


@compiled
@pytest.mark.parametrize("shape", [(5, 7), (3, 127), (3, 128), (4, 1000), (9, 8000), (1, 40_003)])
@pytest.mark.parametrize("k", [1, 2, 6])
@pytest.mark.parametrize("threads", [1, 2])
def test_top_k_matches_the_reference(
    shape: tuple[int, int], k: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tops, "_SMALL", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    for logits in (
        10 * torch.randn(shape),
        torch.randn(shape).round(),  # many are equal
        torch.linspace(-5e4, 30, shape[1]).expand(shape).contiguous(),
        torch.randn(shape[0], shape[1] + 3)[:, :-3],  # rows that do not lie one after another
        torch.where(torch.rand(shape) < 0.2, torch.randn(shape), -torch.inf).index_fill(
            1, torch.tensor([5]), 1.0
        ),
    ):
        found, plain = best(logits, k, 4 if k < 3 else 1), plain_best(logits, k, 4 if k < 3 else 1)
        assert torch.equal(found.logits, plain.logits)
        there = found.logits > -torch.inf
        again = logits.gather(1, found.tokens)
        assert torch.equal(again[there], found.logits[there])
        assert all(len(set(row.tolist())) == k for row in found.tokens)  # beside −∞, too
        exact = logits.double().log_softmax(1).gather(1, found.tokens)
        # PyTorch adds up a row in single precision, which is the plain form's error.
        for total, error in ((found.total, 2e-6), (plain.total, 4e-5)):
            own = total.log_probabilities(found.logits).double()
            torch.testing.assert_close(own[there], exact[there], rtol=1e-6, atol=error)
    torch.set_num_threads(before)


@compiled
def test_nan_gives_nan() -> None:
    logits = torch.zeros(3, 300)
    logits[0, 7], logits[1, 9] = torch.nan, torch.inf
    found = best(logits, 2, 4)
    bad = found.total.log_probabilities(found.logits)
    assert bad[0].isnan().all()
    assert not bad[1].isfinite().any()
    assert bad[2].isfinite().all()
    with pytest.raises(ValueError, match="297 is more than"):
        best(logits, 297, 4)


@compiled
def test_total_is_exact_with_a_dominant_logit() -> None:
    logits = torch.full((1, 50), 0.0)
    logits[0, 3] = 20.0
    exact = logits.double().log_softmax(1)[:, 3]
    found = best(logits, 1, 0)
    own = found.total.log_probabilities(found.logits)[:, 0].double()
    torch.testing.assert_close(own, exact, rtol=0.7, atol=0)  # of 1e-7: one bit there is
    assert Total.of(logits).log_probabilities(logits).max() <= 0


@compiled
@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize(
    "positions", [None, Rotary(8), ALiBi(4), T5Buckets(4), Shaw(8, 4, values=False)]
)
def test_heads_read_steps_like_memory(
    key_heads: int, positions: RelativePositions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for parameter in [] if positions is None else positions.parameters():
        torch.nn.init.normal_(parameter)
    heads = MultiHeadAttention(32, 4, key_heads=key_heads, positions=positions).eval()
    caches_of = LayerCaches(1, 3, in_place=True)
    (cache,) = caches_of
    assert isinstance(cache, StepCache)
    inputs = torch.randn(3, 20, 32)
    for place in range(20):
        now = inputs[:, place : place + 1]
        memory = cache.append(heads.remember(now, first=place))
        assert isinstance(memory, StepMemory)
        found = heads.read(now, memory)
        whole = heads(now, inputs[:, : place + 1])
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)
    with monkeypatch.context() as changed:
        changed.setattr(Steps, "gather", None)  # they are read where they are
        heads.read(now, memory)
    with watch(heads) as seen:
        watched = heads.read(now, memory)
    torch.testing.assert_close(watched, found, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(seen[""][0].sum(-1), torch.ones(3, 4, 1))
    lengths = torch.tensor([1, 20, 7])
    part = heads.read(now, StepMemory(memory.steps, memory.rows, lengths))
    masked = heads(now, inputs, mask=padding(lengths))
    torch.testing.assert_close(part, masked, rtol=1e-5, atol=1e-5)


def test_positions_that_change_values_use_gathered_keys() -> None:
    positions = Shaw(4, 2, values=True)
    for parameter in positions.parameters():
        torch.nn.init.normal_(parameter)
    heads = MultiHeadAttention(8, 2, positions=positions).eval()
    parts, inputs = Steps(), torch.randn(2, 6, 8)
    parts.append(*heads.remember(inputs))
    index = torch.arange(2)[:, None].expand(2, 6)
    found = heads.read(inputs[:, -1:], StepMemory(parts, index))
    torch.testing.assert_close(found, heads(inputs[:, -1:], inputs))


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable compiled code."""
    monkeypatch.setattr(fused_forms, "can_step", lambda like: False)
    monkeypatch.setattr(tops, "library", lambda: None)


def translator(**settings: Any) -> tuple[Transformer, Source]:
    sizes = {
        "layers": 2,
        "hidden_size": 32,
        "ffn_size": 48,
        "heads": 4,
        "max_length": 64,
        **settings,
    }
    model = Transformer(TransformerSettings.model_validate(sizes), 300, 300).eval()
    lengths = torch.tensor([9, 1, 5, 12])
    tokens = torch.randint(4, 300, (4, 12)).masked_fill(torch.arange(12) >= lengths[:, None], 0)
    return model, Source(tokens, lengths)


@compiled
@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(),
        SearchOptions(beam=5, nbest=3),
        SearchOptions(beam=4, forced_length=40),
        SearchOptions(sample=True, nbest=3, seed=5, top_k=20),
    ],
)
def test_searches_match_without_compiled_code(
    pre_norm: bool, options: SearchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = translator(pre_norm=pre_norm)
    for parameter in model.parameters():
        parameter.mul_(1.5)

    def found() -> list[list[Any]]:
        limits = torch.tensor([20, 33, 5, 40])
        return search(searched(model), source, rows=4, options=options, max_lengths=limits)

    fast = found()
    assert can_step(source.tokens.float())
    with torch.enable_grad():
        assert not can_step(source.tokens.float())
    plain(monkeypatch)
    same = 0
    for own, other in zip(fast, found(), strict=True):
        for one, two in zip(own, other, strict=True):
            if one.tokens == two.tokens:
                same += 1
                assert one.score == pytest.approx(two.score, abs=1e-4)
    # A draw at the edge between two tokens, or a near tie, is decided by rounding.
    assert same >= 0.7 * sum(map(len, fast))


@compiled
def test_a_selected_state_is_independent() -> None:
    model, source = translator()
    tokens = [torch.randint(4, 300, (4,)) for _ in range(3)]
    state = searched(model).start(source)
    for own in tokens:
        _, state = searched(model).step(own, state)
    rows = torch.tensor([2, 2, 0])
    other = state.select(rows)
    following = torch.tensor([7, 8, 9])
    logits, other = searched(model).step(following, other)
    mine, _ = searched(model).step(torch.tensor([11, 12, 13, 14]), state)
    begun = torch.stack([torch.full((4,), 2), *tokens[1:]], dim=1)
    begun[:, 0] = tokens[0]
    forced = model.teacher_force(source, torch.cat([begun, torch.tensor([[11, 12, 13, 14]]).T], 1))
    torch.testing.assert_close(mine, forced[:, -1], rtol=1e-4, atol=1e-4)
    chosen = Source(source.tokens[rows], source.lengths[rows])
    forced = model.teacher_force(chosen, torch.cat([begun[rows], following[:, None]], 1))
    torch.testing.assert_close(logits, forced[:, -1], rtol=1e-4, atol=1e-4)


@compiled
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_language_model_continues_its_prompt(positions: str) -> None:
    settings = GptSettings(layers=2, hidden_size=16, heads=2, max_length=64, positions=positions)  # type: ignore[arg-type]
    model = Gpt(settings, 50).eval()
    tokens = torch.randint(4, 50, (3, 40))
    state = searched(model).start(tokens[:, :8])
    for place in range(7, 40):
        logits, state = searched(model).step(tokens[:, place], state)
        if place == 20:
            rows = torch.tensor([2, 0, 2, 1])
            state, tokens = state.select(rows), tokens[rows]
    expected = model.logits(model.states(tokens))[:, -1]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("firsts", [None, torch.tensor([2, 0, 4])])
def test_steps_use_the_formula_without_a_compiler(
    firsts: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, query = made([3] * 6, [1] * 6, 2, 4, 4), torch.randn(3, 4, 4)
    index, lengths = torch.randint(3, (3, 6)), torch.tensor([3, 0, 2])
    bias = torch.randn(4, 6)
    found = parts.read(query, index, lengths, 0.5, firsts, bias=bias)
    monkeypatch.setattr(kernel, "library", lambda: None)
    assert_near(parts.read(query, index, lengths, 0.5, firsts, bias=bias), found, terms=6)


def test_autocast_and_other_dtypes_use_the_formula() -> None:
    assert not can_step(torch.zeros(1, dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_step(torch.zeros(1))


@compiled
def test_steps_of_several_positions_are_gathered_for_a_mask() -> None:
    (cache,) = LayerCaches(1, 2, in_place=True)
    memory = cache.append(Memory(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4)))
    assert isinstance(memory, Memory)
    assert memory.key.shape == (2, 1, 3, 4)


def test_steps_have_gradients_if_required() -> None:
    """C has no gradients, so the query's gradient would be missing."""
    layer, hidden = MultiHeadAttention(16, heads=4), torch.randn(3, 5, 16)
    memory, steps = layer.remember(hidden, hidden), Steps()
    steps.append(*memory)
    rows = StepMemory(steps, torch.arange(3).unsqueeze(1).expand(3, 5))
    found = []
    for read in (rows, memory):
        query = hidden[:, :1].clone().requires_grad_()
        with torch.enable_grad():
            found += torch.autograd.grad(layer.read(query, read).square().sum(), query)
    assert_near(found[0], found[1], terms=16)


def test_steps_with_gradients_are_not_fused() -> None:
    """Also if the search began without gradients."""
    model = Gpt(GptSettings(layers=2, hidden_size=16, heads=2, max_length=8), 11).eval()
    tokens, weight = torch.tensor([[2, 3], [4, 5]]), model.embedding.weight
    state = searched(model).start(tokens)
    with torch.enable_grad():
        logits, _ = searched(model).step(tokens[:, -1], state)
        (found,) = torch.autograd.grad(logits.square().sum(), weight)
        # The keys and values of the first tokens were made without gradients.
        expected = model.logits(model.states(tokens))[:, -1]
    assert_near(logits.detach(), expected.detach(), terms=64)
    assert found.any()


@compiled
def test_models_own_searches_read_in_place() -> None:
    class Own(Transformer):
        """Searched by its own methods, as every subclass."""

    own, source = translator()
    model = Own(own.settings, 300, 300).eval()
    replaced, _ = translator()
    replaced.states = replaced.states  # type: ignore[method-assign]
    for one in (own, model, replaced):
        caches = searched(one).start(source).caches
        assert all(isinstance(cache, StepCache) for cache in caches)
        assert not any(isinstance(cache, StepCache) for cache in one.start(source).caches)
