"""DistilBERT's layout (Sanh et al. 2019): no segment embeddings, and no pooler.

A classifier has a linear layer and a ReLU over the first token's state, which is the pooler here.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS
from heedful.interop.fields import Fields, external_activation
from heedful.interop.layouts.encoder import (
    SPANS,
    EncoderLayout,
    EncoderShape,
    given_dropout,
    refuse_settings,
)
from heedful.interop.layouts.encoder_entries import Entries, LayerNames
from heedful.interop.layouts.entries import Places
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.bert import BertSettings

IMPORTED = (
    ImportRow(
        ("distilbert",), ("DistilBertForMaskedLM",), "masked", "`heedful fill`, `--start-from`"
    ),
    ImportRow(
        ("distilbert",),
        ("DistilBertModel",),
        "masked; the head is initialised randomly",
        "`--start-from`",
    ),
    ImportRow(
        ("distilbert",),
        ("DistilBertForSequenceClassification",),
        "classification, or multi-label by `problem_type`",
        "`heedful classify`; `--pairs` for pairs of texts",
    ),
    ImportRow(("distilbert",), ("DistilBertForTokenClassification",), "tagging", "`heedful tag`"),
    ImportRow(
        ("distilbert",),
        ("DistilBertForQuestionAnswering",),
        "answer-spans",
        "`heedful ask`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "bert",
        "the same with `segments = 0`",
        "`DistilBert…`",
        'a classifier: `pooler = "relu"`',
    ),
)

_EPSILON = 1e-12
_LAYER = LayerNames(
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)


class DistilBertLayout(EncoderLayout):
    """The layout of ``DistilBertModel`` and the classes that contain one."""

    model_type = "distilbert"
    prefix = "distilbert."
    architectures: Mapping[frozenset[str], str] = {
        frozenset(): "DistilBertModel",
        frozenset({"masked"}): "DistilBertForMaskedLM",
        frozenset({"classification"}): "DistilBertForSequenceClassification",
        frozenset({"tagging"}): "DistilBertForTokenClassification",
        frozenset({SPANS}): "DistilBertForQuestionAnswering",
    }
    with_pooler = frozenset()
    name_of_heads = "n_heads"

    def settings_from(self, fields: Fields) -> dict[str, Any]:
        # The table of positions is in the file, whether it was initialised as sinusoids or not.
        fields.ignore(["sinusoidal_pos_embds", "tie_weights_"])
        for name in ("seq_classif_dropout", "qa_dropout"):
            if fields.values.get(name) is not None:
                fields.share(name)
        fields.ignore(["seq_classif_dropout", "qa_dropout"])
        return {
            "layers": fields.count("n_layers", 6, most=MOST_LAYERS),
            "hidden_size": fields.count("dim", 768),
            "ffn_size": fields.count("hidden_dim", 3072),
            "heads": fields.count("n_heads", 12),
            "dropout": fields.share("dropout", 0.1),
            "attention_dropout": fields.share("attention_dropout", 0.1),
            "activation": fields.activation("activation", "gelu"),
            "norm_epsilon": _EPSILON,
            "segments": 0,
            "pooler": "relu",
            "max_length": fields.count(
                "max_position_embeddings", 512, least=2, most=MOST_POSITIONS
            ),
        }

    def fields_of(self, settings: BertSettings) -> dict[str, Any]:
        own: dict[str, Any] = {"embedding_size": None, "shared_layers": False, "segments": 0}
        refuse_settings(settings, "DistilBERT", norm_epsilon=_EPSILON, **own)
        return {
            "dim": settings.hidden_size,
            "n_layers": settings.layers,
            "n_heads": settings.heads,
            "hidden_dim": settings.ffn_size,
            "activation": external_activation(settings.activation),
            "dropout": settings.dropout,
            "attention_dropout": settings.attention_dropout,
            "max_position_embeddings": settings.max_length,
        }

    def config_of(
        self, settings: BertSettings, shape: EncoderShape, places: Places
    ) -> dict[str, Any]:
        if "classification" in shape.heads:
            refuse_settings(settings, "DistilBERT's classifiers", pooler="relu")
        return super().config_of(settings, shape, places)

    def head_dropout(self, config: Mapping[str, Any], shape: EncoderShape) -> float:
        if "classification" in shape.heads:
            return given_dropout(config, "seq_classif_dropout", 0.2)
        if SPANS in shape.heads:
            return given_dropout(config, "qa_dropout", 0.1)
        return given_dropout(config, "dropout", 0.1)

    def head_fields(self, shape: EncoderShape, dropout: float) -> dict[str, Any]:
        if SPANS in shape.heads:
            return {"qa_dropout": dropout}
        return {"seq_classif_dropout": dropout} if "classification" in shape.heads else {}

    def has_fresh_pooler(self, settings: BertSettings, shape: EncoderShape) -> bool:
        return super().has_fresh_pooler(settings, shape) and "classification" not in shape.heads

    def heads_in(self, tensors: Mapping[str, Tensor], named: str | None) -> dict[str, int]:
        found = {"masked": 0} if "vocab_transform.weight" in tensors else {}
        if "classifier.weight" in tensors:
            head = "classification" if "pre_classifier.weight" in tensors else "tagging"
            found[head] = len(tensors["classifier.weight"])
        return found

    def entries(self, made: Entries, shape: EncoderShape, prefix: str) -> None:
        heads, dim = shape.heads, made.dim
        output = "vocab_projector.weight" if "masked" in heads else ""
        made.embeddings(f"{prefix}embeddings", output=output)
        for number in range(made.settings.layers):
            made.layer(f"{prefix}transformer.layer.{number}", number, _LAYER)
        if "masked" in heads:
            made.masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")
        if "classification" in heads:
            made.linear("pre_classifier", "encoder.pooler", dim, dim)
        for head in ("classification", "tagging"):
            if head in heads:
                made.linear("classifier", f"heads.{head}.output", heads[head], dim)


DISTILBERT = DistilBertLayout()
