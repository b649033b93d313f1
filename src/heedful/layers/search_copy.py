"""A model as it searches: its linear maps replaced by others, for instance of fewer bits."""

import copy
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from torch import Tensor, nn

from heedful.attention.normalizers import Normalizer
from heedful.layers.convolutional import NormalisedLinear


class _Searched(Protocol):
    """What is asked of a model: both bases of models that write have it."""

    projection: nn.Module | None

    @property
    def output_table(self) -> Tensor: ...

    @property
    def output_bias(self) -> Tensor | None: ...


Model = TypeVar("Model", bound=nn.Module)
Make = Callable[[Tensor, Tensor | None], nn.Module]
"""Makes a map of a weight ``[out, in]`` and a bias ``[out]``, if there is one."""


def search_copy(model: Model, make: Make) -> Model:
    """A model that writes, with other linear maps and output layer; the rest is shared.

    Tables of vectors, norms, recurrent cells, and the normalizers of attention stay as they are.
    The copy is in evaluation mode. Weights that change afterwards do not change it.

    Args:
        model: with ``output_table``, ``output_bias`` and ``projection``.
        make: makes the others.
    """
    shared = {id(one): one for one in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, cast(dict[int, Any], shared))
    written = cast(_Searched, copied)
    table = written.output_table
    written.projection = make(table, written.output_bias)
    _replace(copied, make, {id(table): written.projection})
    return copied.eval()


def _replace(module: nn.Module, make: Make, made: dict[int, nn.Module]) -> None:
    """Put others in the places of linear maps; a map that stands in two places stays one."""
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            key = id(child.weight)
            made.setdefault(key, make(child.weight, child.bias))
            setattr(module, name, made[key])
        elif isinstance(child, NormalisedLinear):
            now = child.now()
            setattr(module, name, make(now.weight, now.bias))
        elif not isinstance(child, Normalizer):
            _replace(child, make, made)
