"""Steps of a search against teacher forcing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heedful.models.pairs import PairModel, Source
from tolerance import Reference, assert_rounded, reference


@torch.no_grad()
def assert_steps_are_teacher_forcing(
    model: PairModel,
    decodable: Any,
    source: Source,
    target: Tensor,
    *,
    expect: Callable[..., Reference] = reference,
) -> tuple[Source, Tensor]:
    """Compare logits of steps with those of all tokens at once, with rows reordered on the way.

    Args:
        model: the model.
        decodable: the model, or its fused form.
        source: three sources.
        target: BEGIN and tokens ``[3, T]``, T at least 3.
        expect: computes what is expected, and the tolerance.

    Returns:
        The sources and targets of the four rows in the end.
    """

    def forced(model: PairModel) -> list[Tensor]:
        return [model.teacher_force(source, target)]

    state, steps = decodable.start(source), []
    for place in range(target.shape[1]):
        if place == 2:  # the rows in another order, one of them twice
            rows = torch.tensor([2, 0, 1, 1])
            state, target = state.select(rows), target[rows]
            source = Source(*(part[rows] for part in source))
            steps = [step[rows] for step in steps]
        logits, state = decodable.step(target[:, place], state)
        steps.append(logits)
    assert_rounded([torch.stack(steps, 1)], expect(forced, model, terms=8))
    return source, target
