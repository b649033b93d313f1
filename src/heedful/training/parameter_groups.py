"""How fast each part of a model learns: all alike, or deeper layers slower, and later.

Layer-wise decay is the "discriminative fine-tuning" of Howard and Ruder 2018, "Universal Language
Model Fine-tuning for Text Classification", section 3.2; gradual unfreezing is of section 3.3.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import nn

from heedful.basics.errors import UserError
from heedful.runs.settings import LoopSettings


@runtime_checkable
class _Layered(Protocol):
    """A model that says how deep its parameters are."""

    def depth(self, name: str) -> int:
        """The depth of a parameter's layer, 0 at the input."""
        ...


class Group(NamedTuple):
    """Parameters that learn at one pace."""

    parameters: list[nn.Parameter]
    scale: float
    """Of the learning rate."""
    from_step: int
    """The first step, from 1, that changes them."""


def groups_of(model: nn.Module, settings: LoopSettings) -> list[Group]:
    """The model's trainable parameters by pace, in their order where all learn alike.

    Raises:
        UserError: layers are to differ in a model that does not say what its layers are.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decay, every = settings.pace()
    if decay == 1.0 and not every:
        return [Group(list(trained.values()), 1.0, 1)]
    if not isinstance(model, _Layered):
        raise UserError("training.layer_decay and unfreeze_every need a model of layers")
    depths = {name: model.depth(name) for name in trained}
    top = max(depths.values())
    return [
        Group(
            [trained[name] for name, own in depths.items() if own == depth],
            decay ** (top - depth),
            1 + every * (top - depth),
        )
        for depth in sorted(set(depths.values()))
    ]
