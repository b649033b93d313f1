"""CTranslate2's layout: heedful's Transformer as its specification.

Shapes: H heads, V symbols, D width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.models.transformer import TransformerSettings

SYMBOLS = {PAD: "<pad>", UNKNOWN: "<unk>", BEGIN: "<s>", END: "</s>"}
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH"}


class Watched(NamedTuple):
    """The attention that is returned with an output."""

    layer: int
    """The layer of the decoder, counted from 0."""
    heads: tuple[int, ...] | None
    """The heads whose weights are averaged; all if None."""


def specification(
    weights: Mapping[str, Tensor], settings: TransformerSettings, watched: Watched
) -> Any:
    """A ``ctranslate2.specs.TransformerSpec`` with a model's weights, without vocabularies.

    Heads can be reordered together with the columns that read them. Watched heads are put first,
    because CTranslate2 averages over the first heads.
    """
    from ctranslate2 import specs

    common = {
        "pre_norm": settings.pre_norm,
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[settings.activation]),
    }
    heads = settings.decoder_heads or settings.heads
    encoder = specs.TransformerEncoderSpec(settings.layers, settings.heads, **common)
    decoder = specs.TransformerDecoderSpec(
        settings.decoder_layers or settings.layers,
        heads,
        alignment_layer=watched.layer,
        alignment_heads=heads if watched.heads is None else len(watched.heads),
        **common,
    )
    tensors = _Tensors(weights)
    source = "target" if settings.tied_embeddings == "all" else "source"
    encoder.embeddings[0].weight = tensors.array(f"{source}_embedding.weight")
    decoder.embeddings.weight = tensors.array("target_embedding.weight")
    written = "output" if settings.tied_embeddings == "none" else "target_embedding"
    decoder.projection.weight = tensors.array(f"{written}.weight")
    if settings.output_bias:
        decoder.projection.bias = tensors.array("bias")
    for side, part in (("encoder", encoder), ("decoder", decoder)):
        part.scale_embeddings = settings.scale_embeddings
        part.position_encodings.encodings = _positions(tensors, settings, side)
        if settings.pre_norm:
            tensors.norm(part.layer_norm, f"{side}_norm")
        for number, layer in enumerate(part.layer):
            order = None
            if part is decoder and number == watched.layer and watched.heads is not None:
                order = _first(watched.heads, heads, settings.hidden_size // heads)
            _layer(tensors, layer, f"{side}.{number}", order)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.unk_token = SYMBOLS[UNKNOWN]
    spec.config.bos_token = spec.config.decoder_start_token = SYMBOLS[BEGIN]
    spec.config.eos_token = SYMBOLS[END]
    spec.config.add_source_eos = True
    return spec


def symbol_names(pieces: Sequence[str]) -> list[str]:
    """A unique name for each symbol, by id: its piece, if no other symbol has the same."""
    names = list(SYMBOLS.values())
    taken = set(names)
    for number, piece in enumerate(pieces[len(names) :], start=len(names)):
        name = piece
        while name in taken:
            name += f"#{number}"
        taken.add(name)
        names.append(name)
    return names


class _Tensors:
    """The tensors of a model by name, as arrays."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights

    def array(self, *names: str, order: Tensor | None = None, axis: int = 0) -> Any:
        """The concatenated tensors, with rows or columns reordered if ``order`` is given."""
        parts = [self.weights[name].float() for name in names]
        if order is not None:
            parts = [part.index_select(axis, order) for part in parts]
        return torch.cat(parts).contiguous().numpy()

    def norm(self, part: Any, name: str) -> None:
        part.gamma, part.beta = self.array(f"{name}.weight"), self.array(f"{name}.bias")

    def linear(self, part: Any, *names: str, order: Tensor | None = None) -> None:
        """One linear map with the rows of all."""
        part.weight = self.array(*(f"{name}.weight" for name in names), order=order)
        part.bias = self.array(*(f"{name}.bias" for name in names), order=order)


def _layer(tensors: _Tensors, part: Any, name: str, order: Tensor | None) -> None:
    """A layer; ``order`` permutes the dimensions of its cross-attention heads."""
    own = f"{name}.self_attention"
    projections = [f"{own}.{one}_projection" for one in ("query", "key", "value")]
    tensors.linear(part.self_attention.linear[0], *projections)
    tensors.linear(part.self_attention.linear[1], f"{own}.output_projection")
    tensors.norm(part.self_attention.layer_norm, f"{name}.around_self.norm")
    if hasattr(part, "attention"):
        cross = f"{name}.cross_attention"
        query, *memory = [f"{cross}.{one}_projection" for one in ("query", "key", "value")]
        joined = f"{cross}.output_projection"
        tensors.linear(part.attention.linear[0], query, order=order)
        tensors.linear(part.attention.linear[1], *memory, order=order)
        tensors.linear(part.attention.linear[2], joined)
        part.attention.linear[2].weight = tensors.array(f"{joined}.weight", order=order, axis=1)
        tensors.norm(part.attention.layer_norm, f"{name}.around_cross.norm")
    tensors.linear(part.ffn.linear_0, f"{name}.feed_forward.expand")
    tensors.linear(part.ffn.linear_1, f"{name}.feed_forward.contract")
    tensors.norm(part.ffn.layer_norm, f"{name}.around_feed_forward.norm")


def _first(chosen: Sequence[int], heads: int, width: int) -> Tensor:
    """The dimensions of all heads ``[D]``, those of the chosen heads first."""
    order = [*chosen, *(head for head in range(heads) if head not in chosen)]
    return torch.arange(heads * width).view(heads, width)[order].flatten()


def _positions(tensors: _Tensors, settings: TransformerSettings, side: str) -> Any:
    """All position vectors ``[max_length, D]``; CTranslate2's default sinusoids differ."""
    if settings.positions.name == "learned":
        sides = {"encoder": "source", "decoder": "target"}
        return tensors.array(f"{sides[side]}_positions.table.weight")
    own = settings.positions.build_added(settings.hidden_size, settings.max_length)
    return own.vectors(torch.arange(settings.max_length)).numpy()
