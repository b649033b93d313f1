"""ALBERT's layout (Lan et al. 2020): factorised embeddings, and layers with the same parameters.

In ``transformers`` ALBERT has no dropout after its feed-forward network; heedful has one in
training, with ``hidden_dropout_prob``, which is 0 by default in this layout.
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
    given_dropout,
    labelled,
    refuse_no_segments,
    refuse_settings,
)
from heedful.interop.layouts.encoder_entries import Entries, LayerNames
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.bert import BertSettings

IMPORTED = (
    ImportRow(
        ("albert",),
        ("AlbertForPreTraining", "AlbertForMaskedLM"),
        "masked",
        "`heedful fill`, `--start-from`",
    ),
    ImportRow(
        ("albert",),
        ("AlbertModel",),
        "masked; the head is initialised randomly",
        "`--start-from`",
    ),
    ImportRow(
        ("albert",),
        ("AlbertForSequenceClassification",),
        "classification, or multi-label by `problem_type`",
        "`heedful classify`; `--pairs` for pairs of texts",
    ),
    ImportRow(("albert",), ("AlbertForTokenClassification",), "tagging", "`heedful tag`"),
    ImportRow(
        ("albert",),
        ("AlbertForQuestionAnswering",),
        "answer-spans",
        "`heedful ask`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "bert",
        "the same with `shared_layers = true`",
        "`Albert…`",
        '`embedding_size` given, `pooler = "tanh"`',
    ),
)

_LAYER = LayerNames(
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.dense",
    "attention.LayerNorm",
    "ffn",
    "ffn_output",
    "full_layer_layer_norm",
)
_WITHOUT_EFFECT = """
down_scale_factor gap_size net_structure_type num_memory_blocks layers_to_keep
"""


class AlbertLayout(EncoderLayout):
    """The layout of ``AlbertModel`` and the classes that contain one."""

    model_type = "albert"
    prefix = "albert."
    architectures: Mapping[frozenset[str], str] = {
        frozenset(): "AlbertModel",
        frozenset({"masked"}): "AlbertForMaskedLM",
        frozenset({"masked", "sentence_order"}): "AlbertForPreTraining",
        frozenset({"classification"}): "AlbertForSequenceClassification",
        frozenset({"tagging"}): "AlbertForTokenClassification",
        frozenset({SPANS}): "AlbertForQuestionAnswering",
    }
    with_pooler = frozenset(architectures.values()) - {
        "AlbertForMaskedLM",
        "AlbertForTokenClassification",
        "AlbertForQuestionAnswering",
    }
    elsewhere = EncoderLayout.elsewhere + _WITHOUT_EFFECT

    def settings_from(self, fields: Fields) -> dict[str, Any]:
        for name in ("num_hidden_groups", "inner_group_num"):
            fields.require(name, 1)
        if fields.values.get("classifier_dropout_prob") is not None:
            fields.share("classifier_dropout_prob")
        fields.ignore(["classifier_dropout_prob"])
        return bert_settings(
            fields,
            usual_dropout=0.0,
            usual_attention_dropout=0.0,
            usual_activation="gelu_new",
            embedding_size=fields.count("embedding_size", 128),
            shared_layers=True,
        )

    def fields_of(self, settings: BertSettings) -> dict[str, Any]:
        refuse_no_segments(settings, "ALBERT")
        refuse_settings(settings, "ALBERT", shared_layers=True, pooler="tanh")
        if settings.embedding_size is None:
            refuse_settings(settings, "ALBERT", embedding_size=settings.hidden_size)
        own = {"embedding_size": settings.embedding_size, "num_hidden_groups": 1}
        return bert_fields(settings) | own | {"inner_group_num": 1}

    def head_dropout(self, config: Mapping[str, Any], shape: EncoderShape) -> float:
        return given_dropout(config, "classifier_dropout_prob", 0.1)

    def head_fields(self, shape: EncoderShape, dropout: float) -> dict[str, Any]:
        return {"classifier_dropout_prob": dropout}

    def heads_in(self, tensors: Mapping[str, Tensor], named: str | None) -> dict[str, int]:
        found: dict[str, int] = {}
        if "predictions.dense.weight" in tensors:
            found["masked"] = 0
        if "sop_classifier.classifier.weight" in tensors:
            found["sentence_order"] = 2
        return found | labelled(tensors, named, "AlbertForTokenClassification")

    def entries(self, made: Entries, shape: EncoderShape, prefix: str) -> None:
        heads, dim = shape.heads, made.dim
        output = "predictions.decoder.weight" if "masked" in heads else ""
        made.embeddings(f"{prefix}embeddings", output=output)
        at = f"{prefix}encoder"
        made.linear(f"{at}.embedding_hidden_mapping_in", "encoder.projection", dim, made.width)
        made.layer(f"{at}.albert_layer_groups.0.albert_layers.0", 0, _LAYER)
        if shape.pooler:
            made.linear(f"{prefix}pooler", "encoder.pooler", dim, dim)
        if "masked" in heads:
            at = "predictions"
            made.masked_head(f"{at}.dense", f"{at}.LayerNorm", f"{at}.bias", f"{at}.decoder.bias")
        if "sentence_order" in heads:
            made.linear("sop_classifier.classifier", "heads.sentence_order.output", 2, dim)
        for head in ("classification", "tagging"):
            if head in heads:
                made.linear("classifier", f"heads.{head}.output", heads[head], dim)


ALBERT = AlbertLayout()
