"""A pass over modules when a search begins: replaces whole layers by fused kernels.

Models are written in plain PyTorch and do not depend on it.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from heedful.decoding import Decodable
from heedful.inference.fusing.cached import reads_in_place
from heedful.inference.fusing.decoder import FusedDecoder, fused_decoder
from heedful.inference.fusing.encoder import FusedEncoder, fused_encoder
from heedful.inference.fusing.gpt import FusedGpt
from heedful.inference.fusing.transformer import searched_transformer
from heedful.models.gpt import Gpt
from heedful.models.transformer import Transformer

__all__ = ["FusedDecoder", "FusedEncoder", "fused_decoder", "fused_encoder", "searched"]

_FUSED: dict[type, Callable[[Any], Decodable[Any, Any]]] = {
    Transformer: searched_transformer,
    Gpt: FusedGpt,
}


_STARTS = (Transformer.start, Gpt.start)
"""Methods that take ``in_place``."""


class _InPlace:
    """A model that is searched by its own methods, over keys and values where steps leave them."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def start(self, given: Any) -> Any:
        return self.model.start(given, in_place=reads_in_place(self.model.output_table))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        found: tuple[Tensor, Any] = self.model.step(tokens, state)
        return found


def searched(model: Any) -> Decodable[Any, Any]:
    """The decodable for a search: a fused form with the same results, or the model itself.

    Subclasses of the models, and models with overridden methods, are never fused.
    """
    make = _FUSED.get(type(model))
    replaced = any(callable(getattr(type(model), name, None)) for name in vars(model))
    fused = model if make is None or replaced else make(model)
    own = getattr(type(fused), "start", None) in _STARTS and "start" not in vars(fused)
    return _InPlace(model) if own else fused
