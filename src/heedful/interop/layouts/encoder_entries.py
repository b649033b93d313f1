"""The entries of files of BERT and its relatives, part by part.

Shapes: W rows of the file's table, D width, E width of the embeddings, F inner width.
"""

from typing import NamedTuple

import torch

from heedful.data.imported_vocabulary import count_rows
from heedful.interop.layouts.entries import (
    NEVER,
    SAME,
    Conversion,
    Entry,
    Places,
    symbols,
)
from heedful.models.bert import BertSettings


class LayerNames(NamedTuple):
    """The names of the tensors of a layer, without ``.weight`` and ``.bias``."""

    query: str
    key: str
    value: str
    output: str
    attention_norm: str
    expand: str
    contract: str
    norm: str


BERT_LAYER = LayerNames(
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


class Entries(list[Entry]):
    """The entries of a file, made part by part.

    Args:
        settings: of the encoder.
        places: the row of each symbol in the file's table.
    """

    def __init__(self, settings: BertSettings, places: Places) -> None:
        super().__init__()
        self.settings, self.places = settings, places
        self.dim, self.width = settings.hidden_size, settings.embedding_width

    def add(
        self,
        external: str,
        internal: str,
        *size: int,
        convert: Conversion = SAME,
        aliases: tuple[str, ...] = (),
    ) -> None:
        """Add a tensor."""
        self.append(Entry(external, size, (internal,), convert, aliases))

    def linear(self, external: str, internal: str, out: int, inside: int) -> None:
        """Add a linear layer."""
        self.add(f"{external}.weight", f"{internal}.weight", out, inside)
        self.add(f"{external}.bias", f"{internal}.bias", out)

    def spans(self, external: str, internal: str) -> None:
        """Add the layer for the boundaries of answers: a row for starts and a row for ends."""
        for part, size in (("weight", (2, self.dim)), ("bias", (2,))):
            own = tuple(f"{internal}.{side}.{part}" for side in ("start", "end"))
            self.append(Entry(f"{external}.{part}", size, own))

    def norm(self, external: str, internal: str, width: int) -> None:
        """Add a layer norm."""
        for part in ("weight", "bias"):
            self.add(f"{external}.{part}", f"{internal}.{part}", width)

    def embeddings(self, at: str, *, output: str = "", before: int = 0) -> None:
        """Add the embeddings.

        Args:
            at: the name of the part.
            output: the name of the same table as an output, if the file may repeat it.
            before: number of rows before those of positions, which are not used.
        """
        settings, own = self.settings, "encoder.embeddings"
        rows, aliases = count_rows(self.places), (output,) if output else ()
        words, table = f"{at}.word_embeddings.weight", symbols(self.places)
        self.add(words, f"{own}.tokens.weight", rows, self.width, convert=table, aliases=aliases)
        self.add(
            f"{at}.position_embeddings.weight",
            f"{own}.positions.table.weight",
            settings.max_length + before,
            self.width,
            convert=_rows_from(before) if before else SAME,
        )
        if settings.segments:
            name = f"{at}.token_type_embeddings.weight"
            self.add(name, f"{own}.segments.weight", settings.segments, self.width)
        self.norm(f"{at}.LayerNorm", f"{own}.norm", self.width)

    def layer(self, at: str, number: int, names: LayerNames, encoder: str = "encoder") -> None:
        """Add the layer ``number`` of an encoder."""
        dim, inner, own = self.dim, self.settings.ffn_size, f"{encoder}.layers.{number}"
        attention = f"{own}.self_attention"
        self.linear(f"{at}.{names.query}", f"{attention}.query_projection", dim, dim)
        self.linear(f"{at}.{names.key}", f"{attention}.key_projection", dim, dim)
        self.linear(f"{at}.{names.value}", f"{attention}.value_projection", dim, dim)
        self.linear(f"{at}.{names.output}", f"{attention}.output_projection", dim, dim)
        self.norm(f"{at}.{names.attention_norm}", f"{own}.around_self.norm", dim)
        self.linear(f"{at}.{names.expand}", f"{own}.feed_forward.expand", inner, dim)
        self.linear(f"{at}.{names.contract}", f"{own}.feed_forward.contract", dim, inner)
        self.norm(f"{at}.{names.norm}", f"{own}.around_feed_forward.norm", dim)

    def masked_head(self, dense: str, norm: str, bias: str, bias_again: str = "") -> None:
        """Add the head that predicts masked tokens; its table is that of the embeddings."""
        self.linear(dense, "heads.masked.dense", self.width, self.dim)
        self.norm(norm, "heads.masked.norm", self.width)
        convert = symbols(self.places, NEVER)
        aliases = (bias_again,) if bias_again else ()
        rows = count_rows(self.places)
        self.add(bias, "heads.masked.bias", rows, convert=convert, aliases=aliases)


def _rows_from(first: int) -> Conversion:
    """Leave out the first rows, which are zeros in the other direction."""
    return Conversion(
        lambda external: external[first:],
        lambda internal: torch.cat([internal.new_zeros(first, internal.shape[1]), internal]),
    )
