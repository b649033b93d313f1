"""Rollout by hand, gradients by finite differences, traces of models that are not ours."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import heedful.attention.modules
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.evaluation.faithfulness import faithfulness
from heedful.inference import AttentionMap, Trace
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.relevance import rollout, weights_times_gradient
from heedful.models.aligner import AlignerSettings, WordAligner
from heedful.models.pairs import PairModel
from test_inference import MODELS, recurrent, sentences, transformer, translator

SOURCE, TARGET = [5, 9, 20, 7], [11, 8, 30]


def gradients(model: PairModel) -> list[AttentionMap]:
    """Weights × gradient of the target's log-probability."""

    def log_probability() -> Tensor:
        device = torch.device("cpu")
        states = source_of([SOURCE], device), target_in_of([TARGET], device)
        chosen = torch.tensor([*TARGET, END]).unsqueeze(1)
        return model.teacher_force(*states)[0].float().log_softmax(1).gather(1, chosen).sum()

    return weights_times_gradient(model, model.attention_axes(), log_probability)


def log_probability(model: PairModel) -> float:
    device = torch.device("cpu")
    with torch.no_grad():
        logits = model.teacher_force(source_of([SOURCE], device), target_in_of([TARGET], device))
    chosen = torch.tensor([[token] for token in (*TARGET, END)])
    return float(logits[0].log_softmax(1).gather(1, chosen).sum())


@pytest.mark.parametrize(
    "make", [transformer, lambda: recurrent("bahdanau"), lambda: recurrent("luong-general")]
)
def test_gradients_are_those_of_finite_differences(
    make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make().double().eval()  # type: ignore[operator]
    maps = gradients(model)
    with heedful.watch(model) as seen:
        log_probability(model)
    weights = {name: torch.cat(calls, dim=2)[0] for name, calls in seen.items()}
    assert [one.name for one in maps] == [f"{name} × gradient" for name in weights]
    real, calls = heedful.attention.modules.projected_weights, [0]
    nudge: tuple[int, Tensor] = (-1, torch.zeros(()))

    def nudged(*arguments: object) -> tuple[Tensor, object]:
        made, draw = real(*arguments)  # type: ignore[arg-type]
        calls[0] += 1
        return (made + nudge[1].view_as(made) if calls[0] - 1 == nudge[0] else made), draw

    monkeypatch.setattr(heedful.attention.modules, "projected_weights", nudged)
    stepwise = all(calls[0].shape[2] == 1 for calls in seen.values())
    for place, one in enumerate(maps):
        own = weights[one.name.removesuffix(" × gradient")]
        for head, query, key in ((0, 0, 0), (own.shape[0] - 1, 2, 1), (0, own.shape[1] - 1, 2)):
            total = []
            for step in (1e-6, -1e-6):  # hardly ever across a kink of ReLU
                if stepwise:
                    change = torch.zeros(own.shape[2], dtype=own.dtype)
                    change[key] = step
                    nudge = (query, change)
                else:
                    whole = torch.zeros_like(own)
                    whole[head, query, key] = step
                    nudge = (place, whole)
                calls[0] = 0
                with heedful.watch(model):  # watched, weights are made whole
                    total.append(log_probability(model))
            slope = (total[0] - total[1]) / 2e-6
            expected = max(0.0, float(own[head, query, key]) * slope)
            assert float(one.weights[head, query, key]) == pytest.approx(expected, abs=1e-6)
    assert any(float(one.weights.max()) > 1e-4 for one in maps)


def test_the_model_is_as_it_was_after_gradients() -> None:
    model = transformer().train()
    next(model.parameters()).requires_grad_(False)
    before = [(one.requires_grad, one.grad) for one in model.parameters()]
    with torch.inference_mode():
        gradients(model)
    assert [(one.requires_grad, one.grad) for one in model.parameters()] == before
    assert all(part.training for part in model.modules())


def test_rollout_of_equal_layers_is_a_power_and_keeps_sums() -> None:
    torch.manual_seed(1)
    layer = torch.rand(3, 5, 5).softmax(-1)
    cross = torch.rand(2, 4, 5).softmax(-1)
    trace = Trace.of(
        {"source": list("abcde"), "target": list("wxyz")},
        {
            "one": ("source", "source", layer),
            "two": ("source", "source", layer),
            "three": ("source", "source", layer),
            "cross": ("target", "source", cross),
        },
    )
    own, between = rollout(trace.maps)
    mixed = (layer.mean(0) + torch.eye(5)) / 2
    assert own.weights.shape == (3, 5, 5)
    assert torch.allclose(own.weights[2], torch.linalg.matrix_power(mixed, 3), atol=1e-6)
    assert torch.allclose(own.weights.sum(-1), torch.ones(3, 5), atol=1e-6)
    assert (between.query_axis, between.key_axis, between.kind) == ("target", "source", "rollout")
    assert torch.allclose(between.weights[0], cross.mean(0) @ own.weights[2], atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_trace_may_have_both_and_is_saved_with_them(name: str, tmp_path: Path) -> None:
    ours = translator(MODELS[name]())
    trace = ours.trace(sentences(1)[0], "a small tree.", relevance=True)
    kinds = [one.kind for one in trace.maps]
    plain = ours.trace(sentences(1)[0], "a small tree.").maps
    assert kinds.count("weights") == kinds.count("gradient") == len(plain)
    assert kinds.count("rollout") == (3 if name == "transformer" else 0)
    trace.save(tmp_path / "trace.safetensors")
    again = Trace.load(tmp_path / "trace.safetensors")
    for one, other in zip(again.maps, trace.maps, strict=True):
        assert (one.name, one.kind, one.query_axis) == (other.name, other.kind, other.query_axis)
        assert torch.equal(one.weights, other.weights)
    assert (again.words, again.title, again.alignment) == (
        trace.words,
        trace.title,
        trace.alignment,
    )
    target = ours.tokenisers.target
    assert again.words["target"] == [-1, *target.word_indices(target.encode("a small tree."))]
    assert len(again.words["source"]) == len(again.axes["source"])


def test_a_trace_of_another_librarys_model() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        attn_implementation="eager",
    )
    model = transformers.BertModel(config).eval()
    seen = model(torch.tensor([[1, 5, 7, 2]]), output_attentions=True).attentions
    trace = Trace.of(
        {"tokens": ["[CLS]", "a", "b", "[SEP]"]},
        {f"layer {i + 1}": ("tokens", "tokens", weights[0]) for i, weights in enumerate(seen)},
    )
    assert torch.equal(trace["layer 2"].weights, seen[1][0].detach())
    assert trace.decided == []
    assert rollout(trace.maps)[0].weights.shape == (2, 4, 4)


def test_weights_that_fit_no_axes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"map a: weights \[1, 2, 2\] do not fit"):
        Trace.of({"tokens": ["x"]}, {"a": ("tokens", "tokens", torch.ones(1, 2, 2))})
    with pytest.raises(ValueError, match="map a: unknown axis token; known axes are tokens"):
        Trace.of({"tokens": ["x"]}, {"a": ("token", "tokens", torch.ones(1, 1, 1))})
    with pytest.raises(ValueError, match="not finite"):
        Trace.of({"tokens": ["x"]}, {"a": ("tokens", "tokens", torch.full((1, 1, 1), torch.nan))})
    one = AttentionMap("a", "tokens", "tokens", torch.ones(1, 1, 1))
    assert one.kind == "weights"


def test_an_aligner_is_looked_at_but_not_tested_for_faithfulness() -> None:
    ours = translator(WordAligner(AlignerSettings(), 380, 380))
    trace = ours.trace("the cat", "a dog", relevance=True)
    assert [one.kind for one in trace.maps] == ["weights"]
    with pytest.raises(UserError, match="aligns words"):
        faithfulness(ours, "the cat", "a dog")
