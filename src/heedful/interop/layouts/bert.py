"""BERT's layout: the encoder alone, or with heads for pre-training, classification or tagging.

Its names and fields are those of Devlin et al. 2019 in the library ``transformers``.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder import (
    SPANS,
    EncoderLayout,
    EncoderShape,
    bert_fields,
    bert_settings,
    labelled,
    refuse_no_segments,
    refuse_settings,
)
from heedful.interop.layouts.encoder_entries import BERT_LAYER, Entries
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.bert import BertSettings

IMPORTED = (
    ImportRow(
        ("bert",),
        ("BertForPreTraining", "BertForMaskedLM"),
        "masked",
        "`heedful fill`, `--start-from`",
    ),
    ImportRow(
        ("bert",),
        ("BertModel", "BertForNextSentencePrediction"),
        "masked; the head is initialised randomly",
        "`--start-from`",
    ),
    ImportRow(
        ("bert",),
        ("BertForSequenceClassification",),
        "classification, or multi-label by `problem_type`",
        "`heedful classify`; `--pairs` for pairs of texts",
    ),
    ImportRow(("bert",), ("BertForTokenClassification",), "tagging", "`heedful tag`"),
    ImportRow(
        ("bert",), ("BertForQuestionAnswering",), "answer-spans", "`heedful ask`, `--start-from`"
    ),
)
EXPORTED = (
    ExportRow(
        "bert",
        'BERT (`"bert"`)',
        "by its head, as in the table above; an imported run in the layout that it came from",
        'learned positions, scaled dot products, softmax; in BERT\'s layout `pooler = "tanh"`',
    ),
)

_POOLER_FIELDS = """
pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
"""


class BertLayout(EncoderLayout):
    """The layout of ``BertModel`` and the classes that contain one."""

    model_type = "bert"
    prefix = "bert."
    architectures: Mapping[frozenset[str], str] = {
        frozenset(): "BertModel",
        frozenset({"masked"}): "BertForMaskedLM",
        frozenset({"next_sentence"}): "BertForNextSentencePrediction",
        frozenset({"masked", "next_sentence"}): "BertForPreTraining",
        frozenset({"classification"}): "BertForSequenceClassification",
        frozenset({"tagging"}): "BertForTokenClassification",
        frozenset({SPANS}): "BertForQuestionAnswering",
    }
    with_pooler = frozenset(architectures.values()) - {
        "BertForMaskedLM",
        "BertForTokenClassification",
        "BertForQuestionAnswering",
    }
    elsewhere = EncoderLayout.elsewhere + _POOLER_FIELDS

    def settings_from(self, fields: Fields) -> dict[str, Any]:
        fields.require("directionality", "bidi")
        return bert_settings(fields)

    def fields_of(self, settings: BertSettings) -> dict[str, Any]:
        refuse_no_segments(settings, "BERT")
        refuse_settings(settings, "BERT", embedding_size=None, shared_layers=False, pooler="tanh")
        return bert_fields(settings)

    def heads_in(self, tensors: Mapping[str, Tensor], named: str | None) -> dict[str, int]:
        found: dict[str, int] = {}
        if "cls.predictions.transform.dense.weight" in tensors:
            found["masked"] = 0
        if "cls.seq_relationship.weight" in tensors:
            found["next_sentence"] = 2
        return found | labelled(tensors, named, "BertForTokenClassification")

    def entries(self, made: Entries, shape: EncoderShape, prefix: str) -> None:
        heads, dim = shape.heads, made.dim
        output = "cls.predictions.decoder.weight" if "masked" in heads else ""
        made.embeddings(f"{prefix}embeddings", output=output)
        for number in range(made.settings.layers):
            made.layer(f"{prefix}encoder.layer.{number}", number, BERT_LAYER)
        if shape.pooler:
            made.linear(f"{prefix}pooler.dense", "encoder.pooler", dim, dim)
        if "masked" in heads:
            at = "cls.predictions"
            made.masked_head(
                f"{at}.transform.dense",
                f"{at}.transform.LayerNorm",
                f"{at}.bias",
                f"{at}.decoder.bias",
            )
        if "next_sentence" in heads:
            made.linear("cls.seq_relationship", "heads.next_sentence.output", 2, dim)
        for head in ("classification", "tagging"):
            if head in heads:
                made.linear("classifier", f"heads.{head}.output", heads[head], dim)


BERT = BertLayout()
