"""ELECTRA's layout (Clark et al. 2020): its discriminator and its generator.

Both are files of their own; the generator predicts masked tokens. A classifier's layer with GELU
over the first token's state is the pooler here.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heedful.basics.errors import UserError
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder import (
    SPANS,
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
        ("electra",),
        ("ElectraForPreTraining",),
        "replaced; the generator is initialised randomly",
        "`heedful detect`, `--start-from`",
    ),
    ImportRow(("electra",), ("ElectraForMaskedLM",), "masked", "`heedful fill`"),
    ImportRow(
        ("electra",),
        ("ElectraModel",),
        "masked; the head is initialised randomly",
        "`--start-from`",
    ),
    ImportRow(
        ("electra",),
        ("ElectraForSequenceClassification",),
        "classification, or multi-label by `problem_type`",
        "`heedful classify`; `--pairs` for pairs of texts",
    ),
    ImportRow(("electra",), ("ElectraForTokenClassification",), "tagging", "`heedful tag`"),
    ImportRow(
        ("electra",),
        ("ElectraForQuestionAnswering",),
        "answer-spans",
        "`heedful ask`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "bert",
        'the same with `embedding_size` or `pooler = "gelu"`',
        "`Electra…`",
        'a classifier: `pooler = "gelu"`; `embedding_size` other than `hidden_size`',
    ),
    ExportRow(
        "bert",
        'ELECTRA\'s pre-training (`task = "replaced"`)',
        "`ElectraForPreTraining`; with `--head generator` its generator, `ElectraForMaskedLM`",
        'the generator: `activation = "gelu"`',
    ),
)

_SUMMARY = " summary_type summary_use_proj summary_activation summary_last_dropout"


class ElectraLayout(EncoderLayout):
    """The layout of ``ElectraModel`` and the classes that contain one."""

    model_type = "electra"
    prefix = "electra."
    masked_is_gelu = True
    architectures: Mapping[frozenset[str], str] = {
        frozenset(): "ElectraModel",
        frozenset({"replaced"}): "ElectraForPreTraining",
        frozenset({"masked"}): "ElectraForMaskedLM",
        frozenset({"classification"}): "ElectraForSequenceClassification",
        frozenset({"tagging"}): "ElectraForTokenClassification",
        frozenset({SPANS}): "ElectraForQuestionAnswering",
    }
    with_pooler = frozenset()
    elsewhere = EncoderLayout.elsewhere + _SUMMARY

    def settings_from(self, fields: Fields) -> dict[str, Any]:
        found = bert_settings(fields, pooler="gelu")
        width = fields.count("embedding_size", 128)
        return found | ({"embedding_size": width} if width != found["hidden_size"] else {})

    def fields_of(self, settings: BertSettings) -> dict[str, Any]:
        refuse_no_segments(settings, "ELECTRA")
        refuse_settings(settings, "ELECTRA", shared_layers=False)
        if settings.embedding_size == settings.hidden_size:
            raise UserError(
                f"model.embedding_size = {settings.embedding_size}: in the layout of ELECTRA "
                "embeddings as wide as the layers are not projected; leave the setting out"
            )
        return bert_fields(settings) | {"embedding_size": settings.embedding_width}

    def config_of(
        self, settings: BertSettings, shape: EncoderShape, places: Places
    ) -> dict[str, Any]:
        if "classification" in shape.heads:
            refuse_settings(settings, "ELECTRA's classifiers", pooler="gelu")
        return super().config_of(settings, shape, places)

    def has_fresh_pooler(self, settings: BertSettings, shape: EncoderShape) -> bool:
        return super().has_fresh_pooler(settings, shape) and "classification" not in shape.heads

    def heads_in(self, tensors: Mapping[str, Tensor], named: str | None) -> dict[str, int]:
        found: dict[str, int] = {}
        if "discriminator_predictions.dense.weight" in tensors:
            found["replaced"] = 0
        if "generator_predictions.dense.weight" in tensors:
            found["masked"] = 0
        if "classifier.out_proj.weight" in tensors:
            found["classification"] = len(tensors["classifier.out_proj.weight"])
        if "classifier.weight" in tensors:
            found["tagging"] = len(tensors["classifier.weight"])
        return found

    def entries(self, made: Entries, shape: EncoderShape, prefix: str) -> None:
        heads, dim, settings = shape.heads, made.dim, made.settings
        output = "generator_lm_head.weight" if "masked" in heads else ""
        made.embeddings(f"{prefix}embeddings", output=output)
        if settings.embedding_size is not None:
            name = f"{prefix}embeddings_project"
            made.linear(name, "encoder.projection", dim, made.width)
        for number in range(settings.layers):
            made.layer(f"{prefix}encoder.layer.{number}", number, BERT_LAYER)
        if "replaced" in heads:
            at, own = "discriminator_predictions", "heads.replaced.detector"
            made.linear(f"{at}.dense", f"{own}.dense", dim, dim)
            made.linear(f"{at}.dense_prediction", f"{own}.output", 1, dim)
        if "masked" in heads:
            at = "generator_predictions"
            made.masked_head(f"{at}.dense", f"{at}.LayerNorm", "generator_lm_head.bias")
        if "classification" in heads:
            made.linear("classifier.dense", "encoder.pooler", dim, dim)
            out = heads["classification"]
            made.linear("classifier.out_proj", "heads.classification.output", out, dim)
        if "tagging" in heads:
            made.linear("classifier", "heads.tagging.output", heads["tagging"], dim)


ELECTRA = ElectraLayout()
