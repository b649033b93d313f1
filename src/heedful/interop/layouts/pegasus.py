"""Pegasus' layout (``PegasusForConditionalGeneration``): a pre-norm Transformer with sinusoids.

Encoder and decoder end with a layer norm, as pre-norm Transformers of heedful do. Positions are
those of Marian. One table of embeddings serves source, target and output.
Shapes: V symbols of heedful, W rows of the file's table, D width.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heedful.attention.positions.sinusoidal import sinusoids
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_POSITIONS
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder_decoder import (
    check_sinusoids,
    halves,
    layer_entries,
    logits_bias,
    read_sizes,
    refuse_parts,
    with_prefix,
)
from heedful.interop.layouts.entries import (
    Entry,
    Places,
    permuted,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.one_table import (
    last_norms,
    read_width,
    refuse_other_tables,
    table_entry,
    written_config,
)
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.transformer import TransformerSettings

IMPORTED = (
    ImportRow(
        ("pegasus",),
        ("PegasusForConditionalGeneration",),
        "text-to-text",
        "`heedful translate`, `view`, `serve`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "encoder-decoder",
        "Transformer, pre-norm, as `heedful train --data` makes it",
        "`PegasusForConditionalGeneration`",
        '`positions = "sinusoidal"`, `tied_embeddings = "all"`',
    ),
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_ELSEWHERE = """
vocab_size pad_token_id eos_token_id bos_token_id decoder_start_token_id forced_eos_token_id
num_hidden_layers classif_dropout classifier_dropout add_bias_logits extra_pos_embeddings
"""


def settings_of(config: Mapping[str, Any], where: str) -> TransformerSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim = read_width(fields)
    settings = TransformerSettings(
        **read_sizes(fields, dim),
        pre_norm=True,
        positions="sinusoidal",
        max_length=fields.count("max_position_embeddings", least=2, most=MOST_POSITIONS),
        scale_embeddings=fields.flag("scale_embedding", default=False),
        output_bias=True,
    )
    for name in ("is_encoder_decoder", "static_position_embeddings", "tie_word_embeddings"):
        fields.require(name, True)
    for name in ("normalize_before", "add_final_layer_norm"):
        fields.require(name, True)
    for name in ("is_decoder", "normalize_embedding"):
        fields.require(name, False)
    fields.require("forced_bos_token_id")
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def config_of(settings: TransformerSettings) -> dict[str, Any]:
    """The configuration for heedful's settings, without vocabulary sizes.

    Raises:
        UserError: the layout does not support a setting; the message has its name.
    """
    refuse_parts(settings)
    if settings.positions.name != "sinusoidal":
        raise UserError(
            f"model.positions = '{settings.positions}': pre-norm Transformers are exported as "
            "Pegasus, whose positions are sinusoidal only; train with "
            "--set model.positions=sinusoidal, or use heedful export ctranslate2"
        )
    refuse_other_tables(
        settings,
        "pre-norm Transformers are exported as Pegasus, which has",
        ", or use heedful export ctranslate2",
    )
    return written_config(settings, "pegasus", "Pegasus")


def import_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to those of heedful's Transformer.

    Raises:
        UserError: a tensor is missing, unknown or has another shape, or the file's positions are
            not sinusoids.
    """
    kept = with_prefix(tensors)
    for name in _POSITIONS:
        if name in kept:
            check_sinusoids(kept.pop(name), settings, f"{where}: '{name}'")
    return to_heedful(_entries(settings, places), kept, where)


def export_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places
) -> dict[str, Tensor]:
    """Convert the tensors of heedful's Transformer to those of the layout."""
    given = dict(tensors)
    given.setdefault("bias", torch.zeros(len(places)))
    positions = sinusoids(torch.arange(settings.max_length), settings.hidden_size)
    theirs = permuted(halves(settings.hidden_size), 1).to_external(positions).contiguous()
    return to_external(_entries(settings, places), given) | {
        name: theirs.clone() for name in _POSITIONS
    }


def _entries(settings: TransformerSettings, places: Places) -> list[Entry]:
    order = halves(settings.hidden_size)
    return [
        table_entry(settings, places, order),
        logits_bias(places),
        *layer_entries(settings, order),
        *last_norms(settings, order),
    ]
