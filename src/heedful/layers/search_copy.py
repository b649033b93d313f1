"""Copies of models for search with replaced linear maps, for instance quantised ones."""

import copy
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from torch import Tensor, nn

from heedful.attention.normalizers import Normalizer
from heedful.layers.convolutional import NormalisedLinear


class _Searched(Protocol):
    """The protocol of models that can be copied for search."""

    projection: nn.Module | None

    @property
    def output_table(self) -> Tensor: ...

    @property
    def output_bias(self) -> Tensor | None: ...


Model = TypeVar("Model", bound=nn.Module)
Make = Callable[[Tensor, Tensor | None], nn.Module]
"""Builds a linear map from a weight ``[out, in]`` and a bias ``[out]`` or None."""


def search_copy(model: Model, make: Make) -> Model:
    """A copy of a model with replaced linear maps and output layer; the rest is shared.

    Embeddings, norms, recurrent cells, and the normalizers of attention are not replaced. The copy
    is in evaluation mode. Later changes of the model's linear weights do not affect it.

    Args:
        model: has ``output_table``, ``output_bias`` and ``projection``.
        make: builds the replacement of a linear map.
    """
    shared = {id(one): one for one in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, cast(dict[int, Any], shared))
    written = cast(_Searched, copied)
    table = written.output_table
    written.projection = make(table, written.output_bias)
    _replace(copied, make, {id(table): written.projection})
    return copied.eval()


def _replace(module: nn.Module, make: Make, made: dict[int, nn.Module]) -> None:
    """Replace linear maps; a map that is used twice gets one replacement."""
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
