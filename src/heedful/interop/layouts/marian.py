"""Marian's layout (``MarianMTModel``): a post-norm Transformer with sinusoidal positions.

Shapes: V symbols of heedful, W rows of the file's table, D width, F inner width.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_POSITIONS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder_decoder import (
    check_sinusoids,
    halves,
    layer_entries,
    logits_bias,
    read_sizes,
    refuse_parts,
    written_sizes,
)
from heedful.interop.layouts.entries import (
    Entry,
    Places,
    permuted,
    symbols,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.transformer import TransformerSettings

IMPORTED = (
    ImportRow(
        ("marian",),
        ("MarianMTModel",),
        "translation",
        "`heedful translate`, `view`, `serve`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "encoder-decoder",
        'Transformer (`model.kind = "transformer"`), post-norm',
        "`MarianMTModel`",
        '`positions = "sinusoidal"`; `tied_embeddings` other than `"inputs"`; one vocabulary or '
        "two",
    ),
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_ELSEWHERE = """
vocab_size decoder_vocab_size pad_token_id eos_token_id bos_token_id decoder_start_token_id
forced_eos_token_id classif_dropout classifier_dropout add_bias_logits num_hidden_layers
extra_pos_embeddings
"""


class MarianSymbols(NamedTuple):
    """The row of each symbol of heedful in the file's tables."""

    source: Places
    target: Places


def settings_of(config: Mapping[str, Any], where: str) -> TransformerSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim = fields.count("d_model")
    if dim % 2:
        raise fields.refuse("d_model", "odd widths are not supported")
    settings = TransformerSettings(
        **read_sizes(fields, dim),
        pre_norm=False,
        positions="sinusoidal",
        tied_embeddings=_tied(fields),
        max_length=fields.count("max_position_embeddings", least=2, most=MOST_POSITIONS),
        scale_embeddings=fields.flag("scale_embedding", default=False),
        output_bias=True,
    )
    fields.require("is_encoder_decoder", True)
    fields.require("static_position_embeddings", True)
    for name in ("is_decoder", "normalize_before", "normalize_embedding", "add_final_layer_norm"):
        fields.require(name, False)
    fields.require("forced_bos_token_id")
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def _tied(fields: Fields) -> Literal["all", "output", "none"]:
    shared = fields.flag("share_encoder_decoder_embeddings", default=True)
    tied = fields.flag("tie_word_embeddings", default=True)
    if shared and not tied:
        raise fields.refuse(
            "tie_word_embeddings", "only with share_encoder_decoder_embeddings = false"
        )
    if shared:
        return "all"
    return "output" if tied else "none"


def config_of(settings: TransformerSettings) -> dict[str, Any]:
    """The configuration for heedful's settings, without vocabulary sizes.

    Raises:
        UserError: the layout does not support a setting; the message has its name.
    """
    if settings.pre_norm:
        raise UserError(
            "model.pre_norm = true: Marian's layers are post-norm only; train with "
            "--set model.pre_norm=false, or use heedful export ctranslate2"
        )
    refuse_parts(settings)
    if settings.positions.name != "sinusoidal":
        raise UserError(
            f"model.positions = '{settings.positions}': Marian's positions are sinusoidal only"
        )
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **written_sizes(settings),
        "max_position_embeddings": settings.max_length,
        "scale_embedding": settings.scale_embeddings,
        "share_encoder_decoder_embeddings": settings.tied_embeddings == "all",
        "tie_word_embeddings": settings.tied_embeddings != "none",
    }


def import_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: MarianSymbols, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to those of heedful's Transformer.

    Raises:
        UserError: a tensor is missing, unknown or has another shape, or the file's positions are
            not sinusoids.
    """
    kept = {name: tensor for name, tensor in tensors.items() if name not in _POSITIONS}
    for name in _POSITIONS:
        if name in tensors:
            check_sinusoids(tensors[name], settings, f"{where}: '{name}'")
    return to_heedful(_entries(settings, places), kept, where)


def export_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: MarianSymbols
) -> dict[str, Tensor]:
    """Convert the tensors of heedful's Transformer to those of the layout."""
    given = dict(tensors)
    given.setdefault("bias", torch.zeros(len(places.target)))
    return to_external(_entries(settings, places), given)


def _entries(settings: TransformerSettings, places: MarianSymbols) -> list[Entry]:
    dim, order = settings.hidden_size, halves(settings.hidden_size)
    columns = permuted(order, 1)
    source, target = symbols(places.source).then(columns), symbols(places.target).then(columns)
    in_source = (count_rows(places.source), dim)
    in_target = (count_rows(places.target), dim)
    encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    head = "lm_head.weight"
    internal = "target_embedding.weight"
    if settings.tied_embeddings == "all":
        shared = "model.shared.weight"
        entries = [Entry(shared, in_target, (internal,), target, (encoder, decoder, head))]
    else:
        aliases = (head,) if settings.tied_embeddings == "output" else ()
        entries = [
            Entry(encoder, in_source, ("source_embedding.weight",), source),
            Entry(decoder, in_target, (internal,), target, aliases),
        ]
        if settings.tied_embeddings == "none":
            entries.append(Entry(head, in_target, ("output.weight",), target))
    entries.append(logits_bias(places.target))
    return entries + layer_entries(settings, order)
