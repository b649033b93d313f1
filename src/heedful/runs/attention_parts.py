"""Which attention parts a model was trained with: checkpoints record them, loading compares them.

A recipe names scores, normalizers and positions of heedful. A part that was replaced in Python can
have the same tensors or none, so its checkpoint would load into the recipe's model without an error
and compute something else.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from heedful.attention import normalizers, positions, scores
from heedful.basics.errors import UserError
from heedful.runs.checkpoints import Checkpoint, load_model_tensors, require_shapes

M = TypeVar("M", bound=nn.Module)

PARTS = "parts"
"""The key of a checkpoint's state."""

_KINDS = (scores.Score, normalizers.Normalizer, positions.RelativePositions)


def parts_of(model: nn.Module) -> dict[str, str]:
    """Module name → class, of attention's parts and of all modules that are not heedful's."""
    found = {}
    for name, module in model.named_modules():
        kind = type(module)
        package = kind.__module__.partition(".")[0]
        if package not in ("heedful", "torch"):
            found[name] = f"{kind.__module__}.{kind.__qualname__}"
        elif isinstance(module, _KINDS):
            found[name] = kind.__qualname__
    return found


def require_parts(model: nn.Module, point: Checkpoint) -> None:
    """Refuse a checkpoint that was trained with other parts than the model has.

    Checkpoints from before parts were recorded are taken.

    Raises:
        UserError: a part differs; the message names it.
    """
    trained: Any = point.state.get(PARTS)
    if trained is None:
        return
    own = parts_of(model)
    for name in sorted({*own, *trained}):
        if own.get(name) != trained.get(name):
            raise UserError(
                f"checkpoint {point.path} was trained with {_said(trained.get(name))} as {name}, "
                f"where the recipe's model has {_said(own.get(name))}: build that model in Python "
                "and load the checkpoint's weights into it"
            )


def load_weights(model: Callable[[], M], outline: Callable[[], nn.Module], point: Checkpoint) -> M:
    """A model with the weights of a checkpoint.

    Args:
        model: builds it.
        outline: builds it on the device ``meta``; its shapes are compared before memory is taken.
        point: the checkpoint.

    Raises:
        UserError: the checkpoint is damaged or of another model, or the model is larger than the
            memory.
    """
    require_shapes(outline(), point.shapes(), point.path)
    built = model()
    require_parts(built, point)
    load_model_tensors(built, point.weights(), point.path)
    return built


def _said(kind: str | None) -> str:
    return "no part" if kind is None else kind
