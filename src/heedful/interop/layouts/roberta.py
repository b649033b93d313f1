"""RoBERTa's layout (Liu et al. 2019), which is also that of XLM-R (Conneau et al. 2020).

Position i has row i + 1 + (the row of PAD) of the table; the rows before are not used, and are
zeros in an export. A classifier's layer with tanh over the first token's state is the pooler here.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import PAD
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder import (
    EncoderLayout,
    EncoderShape,
    bert_fields,
    bert_settings,
    refuse_no_segments,
    refuse_settings,
)
from heedful.interop.layouts.encoder_entries import BERT_LAYER, Entries
from heedful.interop.layouts.entries import Places
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.bert import BertSettings

IMPORTED = (
    ImportRow(
        ("roberta", "xlm-roberta"),
        ("RobertaForMaskedLM", "XLMRobertaForMaskedLM"),
        "masked",
        "`heedful fill`, `--start-from`",
    ),
    ImportRow(
        ("roberta", "xlm-roberta"),
        ("RobertaModel", "XLMRobertaModel"),
        "masked; the head is initialised randomly",
        "`--start-from`",
    ),
    ImportRow(
        ("roberta", "xlm-roberta"),
        ("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"),
        "classification, or multi-label by `problem_type`",
        "`heedful classify`, for single texts",
    ),
    ImportRow(
        ("roberta", "xlm-roberta"),
        ("RobertaForTokenClassification", "XLMRobertaForTokenClassification"),
        "tagging",
        "`heedful tag`",
    ),
)
EXPORTED: tuple[ExportRow, ...] = ()
"""Runs that were imported are exported in this layout; the row of BERT says so."""

_USUAL_PAD = 1


class RobertaLayout(EncoderLayout):
    """The layout of ``RobertaModel``, or ``XLMRobertaModel``, and the classes that contain one.

    Args:
        model_type: ``roberta`` or ``xlm-roberta``.
        name: what the names of the classes begin with.
    """

    prefix = "roberta."
    masked_is_gelu = True
    separators = 2

    def __init__(self, model_type: str, name: str) -> None:
        self.model_type = model_type
        self.architectures = {
            frozenset(): f"{name}Model",
            frozenset({"masked"}): f"{name}ForMaskedLM",
            frozenset({"classification"}): f"{name}ForSequenceClassification",
            frozenset({"tagging"}): f"{name}ForTokenClassification",
        }
        self.with_pooler = frozenset({f"{name}Model"})

    def settings_from(self, fields: Fields) -> dict[str, Any]:
        found = bert_settings(fields)
        pad = fields.count("pad_token_id", _USUAL_PAD, least=0)
        found["max_length"] -= pad + 1
        if found["max_length"] < 2:
            raise fields.refuse(
                "max_position_embeddings", f"no room for positions after pad_token_id = {pad}"
            )
        return found

    def fields_of(self, settings: BertSettings) -> dict[str, Any]:
        refuse_no_segments(settings, "RoBERTa")
        own: dict[str, Any] = {"embedding_size": None, "shared_layers": False, "pooler": "tanh"}
        refuse_settings(settings, "RoBERTa", **own)
        return bert_fields(settings)

    def config_of(
        self, settings: BertSettings, shape: EncoderShape, places: Places
    ) -> dict[str, Any]:
        longest = settings.max_length + _rows_before(places)
        found = super().config_of(settings, shape, places)
        return found | {"max_position_embeddings": longest}

    def has_fresh_pooler(self, settings: BertSettings, shape: EncoderShape) -> bool:
        return super().has_fresh_pooler(settings, shape) and "classification" not in shape.heads

    def heads_in(self, tensors: Mapping[str, Tensor], named: str | None) -> dict[str, int]:
        found = {"masked": 0} if "lm_head.dense.weight" in tensors else {}
        if "classifier.out_proj.weight" in tensors:
            found["classification"] = len(tensors["classifier.out_proj.weight"])
        if "classifier.weight" in tensors:
            found["tagging"] = len(tensors["classifier.weight"])
        return found

    def entries(self, made: Entries, shape: EncoderShape, prefix: str) -> None:
        heads, dim = shape.heads, made.dim
        output = "lm_head.decoder.weight" if "masked" in heads else ""
        before = _rows_before(made.places)
        made.embeddings(f"{prefix}embeddings", output=output, before=before)
        for number in range(made.settings.layers):
            made.layer(f"{prefix}encoder.layer.{number}", number, BERT_LAYER)
        if "classification" in heads:
            made.linear("classifier.dense", "encoder.pooler", dim, dim)
            out = heads["classification"]
            made.linear("classifier.out_proj", "heads.classification.output", out, dim)
        elif shape.pooler:
            made.linear(f"{prefix}pooler.dense", "encoder.pooler", dim, dim)
        if "masked" in heads:
            made.masked_head(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.bias"
            )
        if "tagging" in heads:
            made.linear("classifier", "heads.tagging.output", heads["tagging"], dim)


def _rows_before(places: Places) -> int:
    """The number of rows before that of the first position."""
    pad = places[PAD]
    if pad is None:
        raise UserError(
            "the tokeniser has no pad_token, after whose row RoBERTa's positions begin; name it in "
            "tokenizer_config.json"
        )
    return pad + 1


ROBERTA = RobertaLayout("roberta", "Roberta")
XLM_ROBERTA = RobertaLayout("xlm-roberta", "XLMRoberta")
