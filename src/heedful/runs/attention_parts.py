"""The attention parts of a trained model: checkpoints record them, loading compares them.

A recipe names heedful's scores, normalizers and positions. A part that was replaced in Python may
have the same tensors, or none. Its checkpoint would then load into the recipe's model without an
error, but compute something else.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from heedful.attention import normalizers, positions, scores
from heedful.basics.errors import UserError
from heedful.runs.checkpoints import Checkpoint, load_model_tensors, require_shapes
from heedful.runs.sharded_tensors import class_of

M = TypeVar("M", bound=nn.Module)

PARTS = "parts"
"""The key in a checkpoint's state."""

_KINDS = (scores.Score, normalizers.Normalizer, positions.RelativePositions)


def parts_of(model: nn.Module) -> dict[str, str]:
    """Module name → class, for attention parts and for all modules from outside heedful."""
    found = {}
    for name, module in model.named_modules():
        kind = class_of(module)
        package = kind.__module__.partition(".")[0]
        if package not in ("heedful", "torch"):
            found[name] = f"{kind.__module__}.{kind.__qualname__}"
        elif isinstance(module, _KINDS):
            found[name] = kind.__qualname__
    return found


def require_parts(model: nn.Module, point: Checkpoint) -> None:
    """Reject a checkpoint that was trained with other parts than the model has.

    Checkpoints of versions that did not record parts are accepted.

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
                f"checkpoint {point.path} was trained with {_name(trained.get(name))} as {name}, "
                f"where the recipe's model has {_name(own.get(name))}: build that model in Python "
                "and load the checkpoint's weights into it"
            )


def load_weights(model: Callable[[], M], outline: Callable[[], nn.Module], point: Checkpoint) -> M:
    """A model with the weights of a checkpoint.

    Args:
        model: builds the model.
        outline: builds it on the device ``meta``, to compare shapes before memory is allocated.
        point: the checkpoint.

    Raises:
        UserError: the checkpoint is damaged or belongs to another model, or the model does not fit
            into memory.
    """
    require_shapes(outline(), point.shapes(), point.path)
    built = model()
    require_parts(built, point)
    load_model_tensors(built, point.weights(), point.path)
    return built


def _name(kind: str | None) -> str:
    return "no part" if kind is None else kind
