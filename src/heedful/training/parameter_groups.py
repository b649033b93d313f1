"""Learning rates by layer: the same for all layers, or lower for layers nearer to the input.

Layer-wise decay is the "discriminative fine-tuning" of Howard and Ruder 2018, "Universal Language
Model Fine-tuning for Text Classification", section 3.2. Gradual unfreezing is section 3.3.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import nn

from heedful.basics.errors import UserError
from heedful.runs.settings import LoopSettings


@runtime_checkable
class _Layered(Protocol):
    """A model that knows the layer of each parameter."""

    def depth(self, name: str) -> int:
        """The depth of a parameter's layer, 0 at the input."""
        ...


class Group(NamedTuple):
    """Parameters with the same learning rate."""

    parameters: list[nn.Parameter]
    scale: float
    """Factor of the learning rate."""
    from_step: int
    """The first step, from 1, that updates them."""


def groups_of(model: nn.Module, settings: LoopSettings) -> list[Group]:
    """The model's trainable parameters by learning rate; in the model's order if all have the same.

    Raises:
        UserError: layer-wise rates are set, but the model does not know its layers.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decay, every = settings.layer_rates()
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
