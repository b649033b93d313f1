"""A pass over modules that is made when a search begins: which of them one kernel can stand in for.

Models are written in plain PyTorch and know nothing of it.
"""

from collections.abc import Callable
from typing import Any

from heedful.decoding import Decodable
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


def searched(model: Any) -> Decodable[Any, Any]:
    """What a search goes through: the model, or what finds the same in less time.

    A model of a subclass, or with a method of its own, is searched by its own methods.
    """
    make = _FUSED.get(type(model))
    replaced = any(callable(getattr(type(model), name, None)) for name in vars(model))
    return model if make is None or replaced else make(model)
