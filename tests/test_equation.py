"""The terms of the equation: the recorded weights follow from them; and models' stages in order."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import Attention, MultiHeadAttention, RecurrentAttention, masks, watch
from heedful.attention.normalizers import SoftmaxOffByOne
from heedful.attention.scores import Additive, Gaussian, LocationAware
from heedful.attention.settings import AttentionSettings
from heedful.basics.errors import UserError
from heedful.inference.architecture import Architecture, Stage, architecture_of
from heedful.inference.equation import Equation, EquationRow, equation_of
from heedful.inference.lens import lens_of
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from serving_help import VOCABULARY, translator
from test_serving_readers import TAGGER, WRITER


def recomputed(row: EquationRow) -> tuple[Tensor, Tensor]:
    """Weights and context from the terms alone, with loops over single numbers in float64."""
    scores = []
    for key, added, plain in zip(row.keys, row.added, row.scores, strict=True):
        if row.score == "dot":
            pairs = zip(row.query.tolist(), key.tolist(), strict=True)
            scores.append(row.scale * sum(q * k for q, k in pairs) + float(added))
        elif row.score == "additive":
            assert row.vector is not None
            parts = zip(row.vector.tolist(), row.query.tolist(), key.tolist(), strict=True)
            scores.append(sum(v * math.tanh(q + k) for v, q, k in parts) + float(added))
        else:
            scores.append(float(plain))
    assert row.softmax_scale is not None
    scale = row.softmax_scale
    powers = [
        math.exp(scale * score) if allowed else 0.0
        for score, allowed in zip(scores, row.allowed.tolist(), strict=True)
    ]
    total = sum(powers) + (0.0 if row.sink is None else math.exp(scale * row.sink))
    weights = torch.tensor([power / total if total else 0.0 for power in powers])
    return weights, weights @ row.values + row.added_context


def check(row: EquationRow) -> None:
    weights, context = recomputed(row)
    assert torch.allclose(weights, row.weights, atol=1e-5)
    assert torch.allclose(context, row.context, atol=1e-4)


def module_equation(module: nn.Module, call: Callable[[], object]) -> Equation:
    with torch.no_grad(), watch(module, terms=True) as seen:
        call()
    return Equation("module", seen.terms[""])


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"key_heads": 1},
        {"positions": "rotary"},
        {"positions": "alibi"},
        {"positions": "shaw"},
        {"normalize": SoftmaxOffByOne()},
        {"score": Additive(4, 4, hidden_dim=3)},
        {"score": Gaussian()},
    ],
    ids=["plain", "grouped", "rotary", "alibi", "shaw", "off-by-one", "additive", "gaussian"],
)
def test_the_terms_give_the_recorded_weights(parts: dict[str, Any]) -> None:
    torch.manual_seed(3)
    if "positions" in parts:
        settings = AttentionSettings.model_validate({"heads": 2, **parts})
        module = settings.build_self(8, "causal", bias=True, layer=1).eval()
        for own in module.parameters():
            nn.init.normal_(own, std=0.5)
    else:
        module = MultiHeadAttention(8, heads=2, **parts).eval()
    x = torch.randn(1, 6, 8)
    with torch.no_grad(), watch(module) as seen:
        module(x, x, mask=masks.causal())
    found = module_equation(module, lambda: module(x, x, mask=masks.causal()))
    assert (found.heads, found.queries) == (2, 6)
    for head in range(2):
        for query in range(6):
            row = found.row(head, query)
            assert row.allowed.tolist() == [key <= query for key in range(6)]
            assert torch.equal(row.weights, seen[""][0][0, head, query])
            check(row)
    kinds = {Additive: "additive", Gaussian: "other"}
    assert found.row(0, 5).score == kinds.get(type(module.score), "dot")


def test_added_masks_and_steps_are_part_of_the_terms() -> None:
    torch.manual_seed(4)
    module, key = Attention(), torch.randn(1, 3, 4)
    mask = torch.tensor([[0.5, -torch.inf, -1.0]])

    def steps() -> None:
        for _ in range(2):
            module(torch.randn(1, 1, 4), key, mask=mask)

    found = module_equation(module, steps)
    assert (found.heads, found.queries) == (1, 2)  # one query in each of two calls
    for query in range(2):
        row = found.row(0, query)
        assert row.allowed.tolist() == [True, False, True]
        assert torch.allclose(row.added, torch.tensor([0.5, 0.0, -1.0]), atol=1e-5)
        check(row)
    for head, query in ((1, 0), (-1, 0), (0, 2)):
        with pytest.raises(UserError, match=r"^no (head|query)"):
            found.row(head, query)


def test_the_equation_of_a_translator() -> None:
    one = translator()
    trace = one.trace("the small cat", "a dog")
    for attention in trace.maps:
        found = equation_of(attention.name, lambda: one.trace("the small cat", "a dog"))
        heads, queries, _ = attention.weights.shape
        assert (found.heads, found.queries) == (heads, queries)
        for head in range(heads):
            for query in range(queries):
                row = found.row(head, query)
                assert torch.allclose(row.weights, attention.weights[head, query], atol=1e-6)
                check(row)
    with pytest.raises(UserError, match=r"no attention module 'encoder'; the model has encoder\.0"):
        equation_of("encoder", lambda: one.trace("the small cat", "a dog"))


def test_the_equation_of_a_recurrent_translator() -> None:
    one = recurrent()
    trace = one.trace("the small cat", "a dog")
    (attention,) = trace.maps
    found = equation_of(attention.name, lambda: one.trace("the small cat", "a dog"))
    for query in range(attention.weights.shape[1]):
        row = found.row(0, query)
        assert row.score == "additive"
        assert torch.allclose(row.weights, attention.weights[0, query], atol=1e-6)
        check(row)


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_earlier_weights_are_part_of_what_is_added(stepwise: bool, masked: bool) -> None:
    torch.manual_seed(5)
    score = LocationAware(3, 5, hidden_dim=7, filters=2, width=3)
    module = RecurrentAttention(score).eval()
    query, key = torch.randn(1, 4, 3), torch.randn(1, 6, 5)
    mask = torch.tensor([True] * 5 + [False]) if masked else None

    def read() -> None:
        if not stepwise:
            module(query, key, mask=mask)
            return
        memory = module.remember(key)
        state = module.start(memory)
        for one in query.unbind(1):
            _, state = module.step(one, memory, state, mask)

    with torch.no_grad(), watch(module) as seen:
        read()
    weights = torch.cat(seen[""], 2)[0, 0]
    found = module_equation(module, read)
    assert (found.heads, found.queries) == (1, 4)
    for step in range(4):
        row = found.row(0, step)
        assert (row.score, row.past) == ("additive", True)
        assert torch.allclose(row.weights, weights[step], atol=1e-6)
        assert row.allowed.tolist() == [True] * 5 + [not masked]
        assert bool(row.added.any()) == (step > 0)  # there are no weights before the first step
        check(row)


def test_the_architecture_says_what_else_there_is() -> None:
    """An equation can be computed of exactly the modules that are listed."""
    for trace, lens in (
        (lambda: translator().trace("the small cat", "a dog"), True),
        (lambda: recurrent().trace("the small cat", "a dog"), False),
        (lambda: TAGGER.trace(["a", "cat"]), False),
        (lambda: WRITER.trace("a cat", ""), True),
    ):
        found = architecture_of(trace)
        maps = [one.name for one in trace().maps if one.kind == "weights"]
        assert list(found.equations) == maps
        for name in maps:
            assert equation_of(name, trace).queries
        assert found.lens == lens
        with contextlib.nullcontext() if lens else pytest.raises(UserError, match="no layers"):
            lens_of(trace)


def recurrent() -> Any:
    one = translator()
    torch.manual_seed(2)
    shape = {"hidden_size": 8, "embedding_size": 8}
    settings = RecurrentSettings.model_validate(shape)
    model = RecurrentEncoderDecoder(settings, VOCABULARY, VOCABULARY)
    return type(one)([model], one.tokenisers, notify=lambda text: None)


def names(stages: list[Stage]) -> list[str]:
    return [one.name for one in stages]


def test_stages_in_the_order_in_which_they_run() -> None:
    one = translator()
    found = architecture_of(lambda: one.trace("the small cat", "a dog"))
    assert list(found.lanes) == ["source", "target"]
    sources, targets = found.lanes["source"], found.lanes["target"]
    assert names(sources) == ["source_embedding", "source_positions", "encoder.0"]
    assert names(targets) == ["target_embedding", "target_positions", "decoder.0"]
    assert found.parameters == sum(part.numel() for part in one.model.parameters())
    layer = targets[-1]
    assert (layer.title, layer.kind) == ("Decoder layer 1", "layer")
    assert layer.maps == ("decoder.0.self_attention", "decoder.0.cross_attention")
    parts = [part.name.removeprefix("decoder.0.") for part in layer.parts]
    assert parts == [
        "self_attention", "around_self", "cross_attention", "around_cross", "feed_forward",
        "around_feed_forward",
    ]  # fmt: skip
    trace = one.trace("the small cat", "a dog")
    assert sources[0].shape == (len(trace.axes["source"]), 32)
    assert targets[0].shape == (len(trace.axes["target"]), 32)
    assert layer.parameters == sum(part.numel() for part in one.model.decoder[0].parameters())
    hooks = [part for part in one.model.modules() if part._forward_hooks or part._forward_pre_hooks]
    assert not hooks


def test_stages_of_other_models() -> None:
    def kinds(found: Architecture) -> dict[str, list[str]]:
        return {axis: [one.kind for one in own] for axis, own in found.lanes.items()}

    found = architecture_of(lambda: recurrent().trace("the small cat", "a dog"))
    assert names(found.lanes["source"]) == ["source_embedding", "encoder"]
    assert kinds(found)["source"] == ["embedding", "recurrent"]
    assert names(found.lanes["target"])[-2:] == ["decoder", "output"]
    found = architecture_of(lambda: WRITER.trace("a cat", ""))
    assert kinds(found) == {"text": ["embedding", "layer", "norm"]}
    assert [part.kind for part in found.lanes["text"][1].parts] == [
        "other", "attention", "other", "other",
    ]  # fmt: skip
    found = architecture_of(lambda: TAGGER.trace(["a", "cat"]))
    assert "heads.tagging" in names(found.lanes["text"])
    assert "heads.masked" not in names(found.lanes["text"])  # of another task
