"""Checks of one table [model.attention] in the models: gradients, steps of a search, padding."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attention_tables import sizes
from heedful.attention import watch
from heedful.inference.fusing import searched
from heedful.models.bert import Bert, BertSettings
from heedful.models.encoders import sequences_of
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerSettings
from stepping import assert_steps_are_teacher_forcing
from tolerance import Reference, assert_rounded, reference


def expect(run: Callable[..., Sequence[Tensor]], model: nn.Module, *, terms: int = 8) -> Reference:
    """What a model of toy size computes, with a tolerance.

    A model in float64 is its own reference: its rounding errors, below 1e-10, are not measured,
    because a fault in a mask or a position changes the results by far more than 1e-7.
    """
    if next(model.parameters()).dtype == torch.float32:
        return reference(run, model, terms=terms)
    exact = [part.detach() for part in run(model)]
    return Reference(exact, [1e-7 * float(part.abs().max()) for part in exact])


def check_gradients(model: nn.Module, output: Tensor, attention: dict[str, Any]) -> None:
    """Every parameter of an attention has a finite gradient."""
    located = "location" in str(attention.get("score"))
    output.square().sum().backward()
    found = {name: own.grad for name, own in model.named_parameters() if "attention" in name}
    assert found
    for name, gradient in found.items():
        if located and "key_projection" in name:  # a location score reads the number of keys only
            continue
        assert gradient is not None, name
        assert gradient.isfinite().all(), name


def check_transformer(attention: dict[str, Any], dtype: torch.dtype = torch.float32) -> None:
    """Steps of a search are teacher forcing; weights of padding are 0."""
    torch.manual_seed(1)
    settings = TransformerSettings.model_validate(sizes(attention))
    model = Transformer(settings, 20, 20).to(dtype)
    source = Source(torch.randint(4, 20, (3, 6)), torch.tensor([6, 4, 2]))
    target = torch.randint(4, 20, (3, 5))
    check_gradients(model, model.teacher_force(source, target), attention)
    model.eval()

    source, target = assert_steps_are_teacher_forcing(
        model, searched(model), source, target, expect=expect
    )

    def forced(model: Transformer) -> list[Tensor]:
        return [model.teacher_force(source, target)]

    with torch.no_grad(), watch(model) as seen:
        watched = model.teacher_force(source, target)
    assert_rounded([watched], expect(forced, model))
    for name, (query, _) in model.attention_axes().items():
        weights = seen[name][0]
        assert weights.shape[:3] == (4, attention["heads"], 6 if query == "source" else 5)
        if "cross" in name:
            assert not weights[0, :, :, 2:].any(), "padding has weight"


def check_gpt(attention: dict[str, Any], dtype: torch.dtype = torch.float32) -> None:
    """Steps of a generation are the states of the whole text."""
    torch.manual_seed(1)
    gpt = Gpt(GptSettings.model_validate(sizes(attention)), 20).to(dtype)
    tokens = torch.randint(4, 20, (3, 6))
    check_gradients(gpt, gpt.states(tokens), attention)
    gpt.eval()

    def forced(gpt: Gpt) -> list[Tensor]:
        return [gpt.logits(gpt.states(tokens))[:, 2:]]

    with torch.no_grad():
        decodable = searched(gpt)
        state, steps = decodable.start(tokens[:, :3]), []
        for place in range(2, 6):
            logits, state = decodable.step(tokens[:, place], state)
            steps.append(logits)
    assert_rounded([torch.stack(steps, 1)], expect(forced, gpt))


def check_bert(attention: dict[str, Any], dtype: torch.dtype = torch.float32) -> None:
    """A sentence beside a longer one has the states that it has alone."""
    torch.manual_seed(1)
    bert = Bert(BertSettings.model_validate(sizes(attention)), 20).to(dtype)
    both, alone = sequences_of([[7, 8, 9, 10], [5]]), sequences_of([[5]])
    check_gradients(bert, bert(both).states[0], attention)
    bert.eval()

    def read(bert: Bert) -> list[Tensor]:
        return [bert(both).states[1:, :3]]

    with torch.no_grad():
        assert_rounded([bert(alone).states], expect(read, bert))
