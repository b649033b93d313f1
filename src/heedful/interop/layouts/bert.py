"""BERT's layout: the encoder alone, or with heads for pre-training, classification or tagging.

Shapes: V symbols of heedful, W rows of the file's table, D width, F inner width, P positions, C
classes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields, external_activation
from heedful.interop.layouts.entries import (
    NEVER,
    SAME,
    Conversion,
    Entry,
    Places,
    symbols,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.plain_attention import refuse_mechanisms
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
        "masked, with a new head (a notice says so)",
        "`--start-from`",
    ),
    ImportRow(
        ("bert",),
        ("BertForSequenceClassification",),
        "classification",
        "`heedful classify`; `--pairs` for pairs of texts",
    ),
    ImportRow(("bert",), ("BertForTokenClassification",), "tagging", "`heedful tag`"),
)
EXPORTED = (ExportRow("bert", 'BERT (`"bert"`)', "by its head, as in the table above", "none"),)
HEADS = ("masked", "next_sentence", "classification", "tagging")
"""The heads that the layout supports, by task."""

_ARCHITECTURES: dict[frozenset[str], str] = {
    frozenset(): "BertModel",
    frozenset({"masked"}): "BertForMaskedLM",
    frozenset({"next_sentence"}): "BertForNextSentencePrediction",
    frozenset({"masked", "next_sentence"}): "BertForPreTraining",
    frozenset({"classification"}): "BertForSequenceClassification",
    frozenset({"tagging"}): "BertForTokenClassification",
}
_WITHOUT_POOLER = ("BertForMaskedLM", "BertForTokenClassification")
_ELSEWHERE = """
vocab_size pad_token_id bos_token_id eos_token_id pooler_fc_size pooler_num_attention_heads
pooler_num_fc_layers pooler_size_per_head pooler_type
"""


class BertShape(NamedTuple):
    """The parts of a file in addition to the encoder."""

    heads: Mapping[str, int]
    """Head of `HEADS` → number of classes (0 for ``masked``)."""
    pooler: bool

    @property
    def architecture(self) -> str:
        """The name of transformers' class.

        Raises:
            UserError: no class has this combination of heads.
        """
        name = _ARCHITECTURES.get(frozenset(self.heads))
        if name is None:
            raise UserError(
                f"heads {', '.join(sorted(self.heads))}: the layout has no model with all these; "
                "choose one"
            )
        return name


def settings_of(config: Mapping[str, Any], where: str) -> BertSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if dim % heads:
        raise fields.refuse("num_attention_heads", f"does not divide hidden_size = {dim}")
    settings = BertSettings(
        layers=fields.count("num_hidden_layers", most=MOST_LAYERS),
        hidden_size=dim,
        ffn_size=fields.count("intermediate_size"),
        heads=heads,
        dropout=fields.share("hidden_dropout_prob", 0.1),
        attention_dropout=fields.share("attention_probs_dropout_prob", 0.1),
        activation=fields.activation("hidden_act", "gelu"),
        norm_epsilon=fields.number("layer_norm_eps", 1e-12),
        segments=fields.count("type_vocab_size", 2),
        max_length=fields.count("max_position_embeddings", 512, least=2, most=MOST_POSITIONS),
    )
    if config.get("classifier_dropout") is not None:
        fields.share("classifier_dropout")
    fields.require("position_embedding_type", "absolute")
    fields.require("directionality", "bidi")
    fields.require("tie_word_embeddings", True)
    fields.require("problem_type", "single_label_classification")
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        fields.require(name, False)
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def config_of(settings: BertSettings, shape: BertShape) -> dict[str, Any]:
    """The configuration for heedful's settings, without the fields of symbols.

    Raises:
        UserError: the layout does not support a setting; the message has its name.
    """
    if settings.positions.name != "learned":
        raise UserError(
            f"model.positions = '{settings.positions}': in BERT's layout it is learned only"
        )
    refuse_mechanisms(settings.attention_of_layers(), settings.heads, settings.attention_dropout)
    return {
        "model_type": "bert",
        "architectures": [shape.architecture],
        "hidden_size": settings.hidden_size,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.ffn_size,
        "hidden_act": external_activation(settings.activation),
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.attention_dropout,
        "max_position_embeddings": settings.max_length,
        "type_vocab_size": settings.segments,
        "layer_norm_eps": settings.norm_epsilon,
    }


def shape_of(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> BertShape:
    """The heads in a file."""
    tensors = _current_names(tensors)
    heads: dict[str, int] = {}
    if "cls.predictions.transform.dense.weight" in tensors:
        heads["masked"] = 0
    if "cls.seq_relationship.weight" in tensors:
        heads["next_sentence"] = 2
    pooler = any(name.endswith("pooler.dense.weight") for name in tensors)
    if "classifier.weight" in tensors:
        named = config.get("architectures")
        said = named[0] if isinstance(named, list) and named else None
        tags = said == "BertForTokenClassification" or (said is None and not pooler)
        heads["tagging" if tags else "classification"] = len(tensors["classifier.weight"])
    return BertShape(heads, pooler)


def import_tensors(
    tensors: Mapping[str, Tensor],
    settings: BertSettings,
    places: Places,
    shape: BertShape,
    where: str,
) -> dict[str, Tensor]:
    """Convert a file's tensors to heedful's: ``encoder.…``, and ``heads.…`` by names of `HEADS`.

    If the file has no pooler, it is initialised as in training, with a fixed seed.

    Raises:
        UserError: a tensor is missing, unknown or has another shape.
    """
    current = _current_names(tensors)
    prefix = "bert." if any(name.startswith("bert.") for name in current) else ""
    internal = to_heedful(_entries(settings, places, shape, prefix), current, where)
    if not shape.pooler:
        generator = torch.Generator().manual_seed(0)
        weight = torch.empty(settings.hidden_size, settings.hidden_size).normal_(
            0.0, 0.02, generator=generator
        )
        internal |= {
            "encoder.pooler.weight": weight,
            "encoder.pooler.bias": torch.zeros(settings.hidden_size),
        }
    return internal


def export_tensors(
    tensors: Mapping[str, Tensor], settings: BertSettings, places: Places, shape: BertShape
) -> dict[str, Tensor]:
    """Convert heedful's tensors to those of the layout."""
    prefix = "bert." if shape.heads else ""
    return to_external(_entries(settings, places, shape, prefix), tensors)


def shape_for(heads: Mapping[str, int]) -> BertShape:
    """The parts that transformers expects in a file with these heads."""
    shape = BertShape(dict(heads), pooler=True)
    return shape._replace(pooler=shape.architecture not in _WITHOUT_POOLER)


def _current_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of older files (gamma and beta), and drop the position ids 0, 1, 2, …"""
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): tensor
        for name, tensor in tensors.items()
        if not name.endswith("embeddings.position_ids")
    }


def _entries(settings: BertSettings, places: Places, shape: BertShape, prefix: str) -> list[Entry]:
    dim, inner, rows = settings.hidden_size, settings.ffn_size, count_rows(places)
    table = symbols(places)
    found: list[Entry] = []

    def add(
        external: str, internal: str, *size: int, convert: Conversion = SAME, aliases: str = ""
    ) -> None:
        found.append(Entry(external, size, (internal,), convert, tuple(aliases.split())))

    def linear(external: str, internal: str, out: int, inside: int) -> None:
        add(f"{external}.weight", f"{internal}.weight", out, inside)
        add(f"{external}.bias", f"{internal}.bias", out)

    def norm(external: str, internal: str) -> None:
        for part in ("weight", "bias"):
            add(f"{external}.LayerNorm.{part}", f"{internal}.{part}", dim)

    at, own = f"{prefix}embeddings", "encoder.embeddings"
    aliases = "cls.predictions.decoder.weight" if "masked" in shape.heads else ""
    words = f"{at}.word_embeddings.weight"
    add(words, f"{own}.tokens.weight", rows, dim, convert=table, aliases=aliases)
    positions = f"{at}.position_embeddings.weight"
    add(positions, f"{own}.positions.table.weight", settings.max_length, dim)
    add(f"{at}.token_type_embeddings.weight", f"{own}.segments.weight", settings.segments, dim)
    norm(at, f"{own}.norm")
    for layer in range(settings.layers):
        at, own = f"{prefix}encoder.layer.{layer}", f"encoder.layers.{layer}"
        for name in ("query", "key", "value"):
            projection = f"{own}.self_attention.{name}_projection"
            linear(f"{at}.attention.self.{name}", projection, dim, dim)
        linear(f"{at}.attention.output.dense", f"{own}.self_attention.output_projection", dim, dim)
        norm(f"{at}.attention.output", f"{own}.around_self.norm")
        linear(f"{at}.intermediate.dense", f"{own}.feed_forward.expand", inner, dim)
        linear(f"{at}.output.dense", f"{own}.feed_forward.contract", dim, inner)
        norm(f"{at}.output", f"{own}.around_feed_forward.norm")
    if shape.pooler:
        linear(f"{prefix}pooler.dense", "encoder.pooler", dim, dim)
    if "masked" in shape.heads:
        linear("cls.predictions.transform.dense", "heads.masked.dense", dim, dim)
        norm("cls.predictions.transform", "heads.masked.norm")
        bias, alias = "cls.predictions.bias", "cls.predictions.decoder.bias"
        add(bias, "heads.masked.bias", rows, convert=symbols(places, NEVER), aliases=alias)
    if "next_sentence" in shape.heads:
        linear("cls.seq_relationship", "heads.next_sentence.output", 2, dim)
    for head in ("classification", "tagging"):
        if head in shape.heads:
            linear("classifier", f"heads.{head}.output", shape.heads[head], dim)
    return found
