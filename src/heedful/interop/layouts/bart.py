"""BART's and mBART's layouts: learned positions, and a norm of the embeddings.

Lewis et al. 2020, "BART: Denoising Sequence-to-Sequence Pre-training"; its layers are post-norm.
Liu et al. 2020, "Multilingual Denoising Pre-training"; mBART's layers are pre-norm, with a norm at
the end of the encoder and of the decoder.

The first two rows of the tables of positions are not used. A target of BART begins with its end
symbol. heedful's BEGIN has a row of its own, which is a copy of that of END. If training has made
the two different, the export adds a row to the table, and ``decoder_start_token_id`` names it.
Shapes: V symbols of heedful, W rows of the file's table, D width.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_POSITIONS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder_decoder import (
    layer_entries,
    logits_bias,
    norm_entries,
    read_sizes,
    refuse_parts,
    with_prefix,
)
from heedful.interop.layouts.entries import (
    NEVER,
    Conversion,
    Entry,
    Places,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.one_table import (
    begin_as_end,
    last_norms,
    read_width,
    refuse_other_tables,
    table_entry,
    with_begin,
    written_config,
)
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.transformer import TransformerSettings

IMPORTED = (
    ImportRow(
        ("bart", "mbart"),
        (
            "BartForConditionalGeneration",
            "MBartForConditionalGeneration",
            "BartModel",
            "MBartModel",
        ),
        "text-to-text; translation with mBART-50's tokeniser, `--from` and `--to`",
        "`heedful translate`, `view`, `serve`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "encoder-decoder",
        "Transformer with learned positions",
        "`BartForConditionalGeneration`; pre-norm: `MBartForConditionalGeneration`",
        '`embedding_norm = true`, `tied_embeddings = "all"`',
    ),
)
_UNUSED = 2
"""Rows of a table of positions before that of position 0."""
_ELSEWHERE = """
vocab_size pad_token_id eos_token_id bos_token_id decoder_start_token_id forced_eos_token_id
forced_bos_token_id num_hidden_layers classif_dropout classifier_dropout add_bias_logits
extra_pos_embeddings
"""


def settings_of(config: Mapping[str, Any], where: str) -> TransformerSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim = read_width(fields)
    of_mbart = config.get("model_type") == "mbart"
    settings = TransformerSettings(
        **read_sizes(fields, dim),
        pre_norm=of_mbart,
        positions="learned",
        max_length=fields.count("max_position_embeddings", least=2, most=MOST_POSITIONS),
        scale_embeddings=fields.flag("scale_embedding", default=False),
        embedding_norm=True,
        output_bias=True,
    )
    for name in ("is_encoder_decoder", "normalize_embedding", "tie_word_embeddings"):
        fields.require(name, True)
    for name in ("normalize_before", "add_final_layer_norm"):
        fields.require(name, of_mbart)
    for name in ("is_decoder", "static_position_embeddings"):
        fields.require(name, False)
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def config_of(settings: TransformerSettings) -> dict[str, Any]:
    """The configuration for heedful's settings, without vocabulary sizes.

    Raises:
        UserError: the layouts do not support a setting; the message has its name.
    """
    name = "mBART" if settings.pre_norm else "BART"
    if not settings.embedding_norm or settings.positions.name != "learned":
        raise UserError(
            f"model.positions = '{settings.positions}' with model.embedding_norm = "
            f"{str(settings.embedding_norm).lower()}: {name} has learned positions and a norm of "
            "the embeddings; train with --set model.positions=learned --set "
            "model.embedding_norm=true"
        )
    refuse_parts(settings, embedding_norm=True)
    refuse_other_tables(settings, f"{name} has")
    return written_config(settings, name.lower(), "MBart" if settings.pre_norm else "Bart")


def import_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to those of heedful's Transformer.

    Raises:
        UserError: a tensor is missing, unknown or has another shape.
    """
    found = to_heedful(_entries(settings, places), with_prefix(tensors), where)
    begin_as_end(found, places)
    return found


def export_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places
) -> tuple[dict[str, Tensor], int | None]:
    """Convert the tensors of heedful's Transformer to those of the layout.

    Returns:
        The tensors, and the row that targets begin with.
    """
    given = dict(tensors)
    given.setdefault("bias", torch.zeros(len(places)))
    found = to_external(_entries(settings, places), given)
    begin = with_begin(found, given["target_embedding.weight"], places)
    bias = "final_logits_bias"
    if begin == count_rows(places):
        found[bias] = torch.cat([found[bias], found[bias].new_full((1, 1), NEVER)], 1)
    return found, begin


def _entries(settings: TransformerSettings, places: Places) -> list[Entry]:
    dim = settings.hidden_size
    positions = Conversion(
        lambda external: external[_UNUSED:],
        lambda internal: torch.cat([internal.new_zeros(_UNUSED, dim), internal]),
    )
    found = [table_entry(settings, places), logits_bias(places), *layer_entries(settings)]
    for side, internal in (("encoder", "source"), ("decoder", "target")):
        name = f"model.{side}.embed_positions.weight"
        shape = (settings.max_length + _UNUSED, dim)
        found.append(Entry(name, shape, (f"{internal}_positions.table.weight",), positions))
        norm = f"model.{side}.layernorm_embedding"
        found += norm_entries(norm, f"{internal}_norm", dim, None)
    return [*found, *last_norms(settings)] if settings.pre_norm else found
