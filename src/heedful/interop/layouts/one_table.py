"""What Pegasus, BART, mBART and M2M-100 have in common: one table of embeddings for everything.

The table ``model.shared.weight`` serves source, target and output.
Shapes: V symbols of heedful, W rows of the file's table, D width.
"""

from typing import Any

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder_decoder import norm_entries, written_sizes
from heedful.interop.layouts.entries import SAME, Entry, Places, permuted, symbols
from heedful.models.transformer import TransformerSettings

SHARED = "model.shared.weight"
_ALIASES = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_INTERNAL = "target_embedding.weight"


def read_width(fields: Fields, least: int = 1) -> int:
    """D of a configuration.

    Raises:
        UserError: D is odd, or less than ``least``.
    """
    dim = fields.count("d_model", least=least)
    if dim % 2:
        raise fields.refuse("d_model", "odd widths are not supported")
    return dim


def written_config(settings: TransformerSettings, kind: str, architecture: str) -> dict[str, Any]:
    """The fields of a configuration that all of these layouts have."""
    return {
        "model_type": kind,
        "architectures": [f"{architecture}ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **written_sizes(settings),
        "max_position_embeddings": settings.max_length,
        "scale_embedding": settings.scale_embeddings,
        "tie_word_embeddings": True,
    }


def refuse_other_tables(settings: TransformerSettings, layout: str, also: str = "") -> None:
    """Raise UserError if source, target and output do not have one table.

    Args:
        settings: of the model.
        layout: what has one table, for the message.
        also: what else you can do, for the message.
    """
    if settings.tied_embeddings != "all":
        raise UserError(
            f"model.tied_embeddings = '{settings.tied_embeddings}': {layout} one table for both "
            f"sides and the output; train with --set model.tied_embeddings=all{also}"
        )


def table_entry(
    settings: TransformerSettings, places: Places, order: Tensor | None = None
) -> Entry:
    """The entry of the table.

    Args:
        settings: of the model.
        places: the row of each symbol.
        order: the index in the other layout of each dimension of a row; None if the same.
    """
    columns = SAME if order is None else permuted(order, 1)
    shape = (count_rows(places), settings.hidden_size)
    return Entry(SHARED, shape, (_INTERNAL,), symbols(places).then(columns), _ALIASES)


def last_norms(settings: TransformerSettings, order: Tensor | None = None) -> list[Entry]:
    """The entries of the norms at the end of a pre-norm encoder and decoder."""
    return [
        entry
        for side in ("encoder", "decoder")
        for entry in norm_entries(
            f"model.{side}.layer_norm", f"{side}_norm", settings.hidden_size, order
        )
    ]


def begin_as_end(found: dict[str, Tensor], places: Places) -> None:
    """Give BEGIN the embedding of END, for files in which targets begin with their end symbol."""
    if places[BEGIN] is None:
        found[_INTERNAL][BEGIN] = found[_INTERNAL][END]


def with_begin(
    found: dict[str, Tensor], table: Tensor, places: Places, order: Tensor | None = None
) -> int | None:
    """Add a row for BEGIN to the exported table if training has made BEGIN and END different.

    Args:
        found: the exported tensors, which are changed.
        table: heedful's table ``[V, D]``.
        places: the row of each symbol.
        order: as in :func:`table_entry`.

    Returns:
        The row that targets begin with.
    """
    if places[BEGIN] is not None:
        return places[BEGIN]
    if torch.equal(table[BEGIN], table[END]):
        return places[END]
    columns = SAME if order is None else permuted(order, 1)
    row = columns.to_external(table[BEGIN : BEGIN + 1])
    found[SHARED] = torch.cat([found[SHARED], row])
    return count_rows(places)
