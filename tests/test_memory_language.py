"""The language model of end-to-end memory networks: against a loop over the paper's equations."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import BEGIN, END
from heedful.models import LanguageSettings, build_language_model
from heedful.models.memory_language import MemoryLanguageModel, MemoryLanguageSettings

VOCABULARY = 20
TEXTS = torch.tensor([[BEGIN, 7, 9, 11, 8, 7, 13], [END, 14, 15, 5, 19, 19, 6]])


def made(**given: Any) -> MemoryLanguageModel:
    torch.manual_seed(3)
    settings = MemoryLanguageSettings(**{"hidden_size": 6, "hops": 3, "memory": 4, **given})
    model = MemoryLanguageModel(settings, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return model


def by_the_equations(model: MemoryLanguageModel, text: Tensor) -> Tensor:
    """Logits ``[T, V]`` of one text, token by token, hop by hop, fact by fact."""
    own, times = model.settings, model.attention.positions
    here = own.memory - 1  # the row of offset 0
    rows = []
    for place in range(len(text)):
        state = torch.full((own.hidden_size,), 0.1, dtype=torch.float64)
        facts = range(max(0, place - own.memory + 1), place + 1)
        for _ in range(own.hops):
            keys = [model.keys.weight[text[i]] + times.key_table[here + i - place] for i in facts]
            values = [
                model.values.weight[text[i]] + times.value_table[here + i - place] for i in facts
            ]
            weights = torch.stack([state @ key for key in keys]).softmax(0)
            read = sum(weight * value for weight, value in zip(weights, values, strict=True))
            linear = model.carry.weight @ state + read
            units = torch.arange(own.hidden_size) < round(own.relu_share * own.hidden_size)
            state = torch.where(units, linear.relu(), linear)
        rows.append(model.output.weight @ state)
    return torch.stack(rows)


@pytest.mark.parametrize(
    "given", [{}, {"memory": 1, "hops": 1}, {"memory": 30}, {"relu_share": 0.0}, {"relu_share": 1}]
)
def test_it_is_the_papers_equations(given: dict[str, Any]) -> None:
    model = made(**given)
    found = model.logits(model.states(TEXTS))
    plain = TEXTS.masked_fill(TEXTS == BEGIN, END)
    expected = torch.stack([by_the_equations(model, text) for text in plain])
    torch.testing.assert_close(found, expected)
    probe, parameters = torch.randn_like(expected), list(model.parameters())
    got = torch.autograd.grad(found, parameters, probe)
    wanted = torch.autograd.grad(expected, parameters, probe, materialize_grads=True)
    for (name, _), one, other in zip(model.named_parameters(), got, wanted, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("prompt", [1, 3, 6])
def test_stepping_gives_the_whole_text(prompt: int) -> None:
    model = made()
    whole = model.logits(model.states(TEXTS))
    state = model.start(TEXTS[:, :prompt])
    for place in range(prompt - 1, TEXTS.shape[1]):
        logits, state = model.step(TEXTS[:, place], state)
        torch.testing.assert_close(logits, whole[:, place])
        assert state.tokens.shape[1] <= 4  # no more than it reads
    rows = torch.tensor([1, 0, 1])
    chosen = model.start(TEXTS[:, :prompt]).select(rows)
    logits, _ = model.step(TEXTS[rows, prompt - 1], chosen)
    torch.testing.assert_close(logits, whole[rows, prompt - 1])


def test_older_tokens_than_the_memory_do_not_count() -> None:
    model = made(memory=3)
    changed = TEXTS.clone()
    changed[:, 0] = 16
    before, after = (model.states(one) for one in (TEXTS, changed))
    assert not torch.equal(before[:, 2], after[:, 2])
    torch.testing.assert_close(before[:, 3:], after[:, 3:], rtol=0, atol=0)


def test_it_keeps_to_the_contract_of_language_models() -> None:
    model: Any = made()
    with pytest.raises(ValueError, match="expected"):
        model.start(TEXTS[:, :0])
    assert model.embedding is model.keys
    assert model.output_bias is None
    assert [model.depth(f"{name}.weight") for name in ("values", "carry", "output")] == [0, 1, 2]
    with watch(model, model.attention_axes()) as seen:
        model.states(TEXTS[:1])
    assert model.attention_axes() == {"attention": ("text", "text", "hops")}
    assert [tuple(one.shape) for one in seen["attention"]] == [(1, 1, 7, 7)] * 3


def test_parts_of_its_attention_are_chosen() -> None:
    given = {"kind": "memory-language-model", "attention": {"normalizer": "sparsemax"}}
    model: Any = build_language_model(LanguageSettings.model_validate(given), VOCABULARY)
    assert type(model.attention.normalize).__name__ == "Sparsemax"
    assert model.states(TEXTS).isfinite().all()
    with pytest.raises(ValidationError, match="one head"):
        LanguageSettings.model_validate({**given, "attention": {"positions": "alibi"}})
