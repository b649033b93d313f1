"""What the layouts of BERT and its relatives have in common.

A layout names the tensors of the parts of a :class:`heedful.models.bert.Bert` and of its heads, and
the fields of ``config.json``. Layouts derive from :class:`EncoderLayout`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS
from heedful.interop.fields import Fields, external_activation
from heedful.interop.layouts.encoder_entries import Entries
from heedful.interop.layouts.entries import Entry, Places, to_external, to_heedful
from heedful.interop.layouts.plain_attention import refuse_mechanisms
from heedful.models.bert import BertSettings

SEVERAL_LABELS = "multi_label_classification"
"""``problem_type`` of a classifier that gives any number of labels."""
NUMBER = "regression"
"""``problem_type`` of a classifier whose output is a number."""
SPANS = "answer-spans"
"""The head for the boundaries of answers, in files with ``qa_outputs``."""
_SPAN_LAYER = "qa_outputs"


class EncoderShape(NamedTuple):
    """The parts of a file in addition to the encoder."""

    heads: Mapping[str, int]
    """Head → number of classes (0 for ``masked`` and ``replaced``, 2 for ``answer-spans``)."""
    pooler: bool
    """Whether the file has a layer over the first token's state that belongs to no head."""


class EncoderLayout(ABC):
    """A layout of an encoder with at most one head, or the heads of pre-training."""

    model_type: str
    """``model_type`` of ``config.json``."""
    prefix: str
    """What the names of the encoder's tensors begin with in a file with a head."""
    architectures: Mapping[frozenset[str], str]
    """Heads → name of transformers' class."""
    with_pooler: frozenset[str]
    """The classes whose files have a pooler that belongs to no head."""
    elsewhere: str = "vocab_size pad_token_id bos_token_id eos_token_id"
    """Fields that are read elsewhere."""
    masked_is_gelu: bool = False
    """Whether the head for masked tokens has GELU, whatever the activation of the layers."""
    separators: int = 1
    """Number of symbols between the texts of a pair; heedful's rows have one END there."""

    @abstractmethod
    def settings_from(self, fields: Fields) -> dict[str, Any]:
        """The settings of the model for the fields of a configuration.

        Raises:
            UserError: a field is not supported; the message has its name and value.
        """

    @abstractmethod
    def fields_of(self, settings: BertSettings) -> dict[str, Any]:
        """The fields of the configuration for settings, without those of symbols and heads.

        Raises:
            UserError: the layout does not support a setting; the message has its name.
        """

    @abstractmethod
    def heads_in(self, tensors: Mapping[str, Tensor], named: str | None) -> dict[str, int]:
        """The heads in a file; ``named`` is the class that its configuration names."""

    @abstractmethod
    def entries(self, made: Entries, shape: EncoderShape, prefix: str) -> None:
        """Add the entries of a file."""

    def settings_of(self, config: Mapping[str, Any], where: str) -> BertSettings:
        """heedful's settings for a configuration.

        Raises:
            UserError: a field is not supported; the message has its name and value.
        """
        fields = Fields(config, where)
        given = self.settings_from(fields)
        dim, heads = given["hidden_size"], given["heads"]
        if dim % heads:
            raise fields.refuse(self.name_of_heads, f"does not divide hidden_size = {dim}")
        fields.require("problem_type", "single_label_classification", SEVERAL_LABELS, NUMBER)
        fields.require("tie_word_embeddings", True)
        for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
            fields.require(name, False)
        fields.ignore(self.elsewhere.split())
        fields.finish()
        return BertSettings.model_validate({"layers": 1, **given})

    name_of_heads = "num_attention_heads"

    def config_of(
        self, settings: BertSettings, shape: EncoderShape, places: Places
    ) -> dict[str, Any]:
        """The configuration for heedful's settings, without the fields of the vocabulary.

        Raises:
            UserError: the layout does not support a setting; the message has its name.
        """
        name = self.model_type
        if settings.positions.name != "learned":
            raise UserError(
                f"model.positions = '{settings.positions}': in the layout of {name} it is learned "
                "only"
            )
        refuse_mechanisms(
            settings.attention_of_layers(), settings.heads, settings.attention_dropout
        )
        self._check_activation(settings, shape, f"model.activation = '{settings.activation}'")
        named = {"model_type": name, "architectures": [self.architecture(shape)]}
        return named | self.fields_of(settings)

    def head_dropout(self, config: Mapping[str, Any], shape: EncoderShape) -> float:
        """Dropout before the output layer of a head."""
        if SPANS in shape.heads:
            return 0.0  # transformers' layer for spans has no dropout
        own = config.get("classifier_dropout")
        return given_dropout(config, "hidden_dropout_prob", 0.1) if own is None else float(own)

    def head_fields(self, shape: EncoderShape, dropout: float) -> dict[str, Any]:
        """The fields of the configuration for the dropout of a classifier or tagger."""
        labelled = {"classification", "tagging"} & shape.heads.keys()
        return {"classifier_dropout": dropout if labelled else None}

    def architecture(self, shape: EncoderShape) -> str:
        """The name of transformers' class.

        Raises:
            UserError: no class has this combination of heads.
        """
        name = self.architectures.get(frozenset(shape.heads))
        if name is None:
            raise UserError(
                f"heads {', '.join(sorted(shape.heads))}: the layout has no model with all these; "
                "choose one"
            )
        return name

    def shape_of(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> EncoderShape:
        """The heads in a file."""
        tensors = current_names(tensors)
        named = config.get("architectures")
        found = self.heads_in(tensors, named[0] if isinstance(named, list) and named else None)
        if f"{_SPAN_LAYER}.weight" in tensors and frozenset({SPANS}) in self.architectures:
            found[SPANS] = 2
        return EncoderShape(found, has_pooler(tensors))

    def shape_for(self, heads: Mapping[str, int]) -> EncoderShape:
        """The parts that transformers expects in a file with these heads."""
        shape = EncoderShape(dict(heads), pooler=False)
        return shape._replace(pooler=self.architecture(shape) in self.with_pooler)

    def import_tensors(
        self,
        tensors: Mapping[str, Tensor],
        settings: BertSettings,
        places: Places,
        shape: EncoderShape,
        where: str,
    ) -> dict[str, Tensor]:
        """Convert a file's tensors to heedful's: ``encoder.…``, and ``heads.…`` by task.

        If the file has no pooler, it is initialised as in training, with a fixed seed.

        Raises:
            UserError: a tensor is missing, unknown or has another shape.
        """
        self._check_activation(settings, shape, f"{where}: the activation '{settings.activation}'")
        current = current_names(tensors)
        prefix = self.prefix if any(name.startswith(self.prefix) for name in current) else ""
        internal = to_heedful(self._entries(settings, places, shape, prefix), current, where)
        if settings.pooler != "none" and "encoder.pooler.weight" not in internal:
            internal |= fresh_pooler(settings.hidden_size)
        return internal

    def export_tensors(
        self,
        tensors: Mapping[str, Tensor],
        settings: BertSettings,
        places: Places,
        shape: EncoderShape,
    ) -> dict[str, Tensor]:
        """Convert heedful's tensors to those of the layout."""
        prefix = self.prefix if shape.heads else ""
        return to_external(self._entries(settings, places, shape, prefix), tensors)

    def has_fresh_pooler(self, settings: BertSettings, shape: EncoderShape) -> bool:
        """Whether an import initialises the pooler, because the file has none."""
        return not shape.pooler and settings.pooler != "none"

    def _check_activation(self, settings: BertSettings, shape: EncoderShape, what: str) -> None:
        if self.masked_is_gelu and "masked" in shape.heads and settings.activation != "gelu":
            raise UserError(
                f"{what}: in the layout of {self.model_type} the head for masked tokens has gelu, "
                "here it has the activation of the layers; only gelu is supported"
            )

    def _entries(
        self, settings: BertSettings, places: Places, shape: EncoderShape, prefix: str
    ) -> list[Entry]:
        made = Entries(settings, places)
        self.entries(made, shape, prefix)
        if SPANS in shape.heads:
            made.spans(_SPAN_LAYER, f"heads.{SPANS}")
        return made


def current_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of older files (gamma and beta), and drop the position ids 0, 1, 2, …"""
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): tensor
        for name, tensor in tensors.items()
        if not name.endswith("embeddings.position_ids")
    }


def has_pooler(tensors: Mapping[str, Tensor]) -> bool:
    """Whether a file has a pooler."""
    return any(name.endswith(("pooler.dense.weight", "pooler.weight")) for name in tensors)


def fresh_pooler(dim: int) -> dict[str, Tensor]:
    """A pooler, initialised as in training, with a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.empty(dim, dim).normal_(0.0, 0.02, generator=generator)
    return {"encoder.pooler.weight": weight, "encoder.pooler.bias": torch.zeros(dim)}


def bert_settings(fields: Fields, **own: Any) -> dict[str, Any]:
    """The settings for the fields that most layouts name as BERT does."""
    found = {
        "layers": fields.count("num_hidden_layers", most=MOST_LAYERS),
        "hidden_size": fields.count("hidden_size"),
        "ffn_size": fields.count("intermediate_size"),
        "heads": fields.count("num_attention_heads"),
        "dropout": fields.share("hidden_dropout_prob", own.pop("usual_dropout", 0.1)),
        "attention_dropout": fields.share(
            "attention_probs_dropout_prob", own.pop("usual_attention_dropout", 0.1)
        ),
        "activation": fields.activation("hidden_act", own.pop("usual_activation", "gelu")),
        "norm_epsilon": fields.number("layer_norm_eps", 1e-12),
        "segments": fields.count("type_vocab_size", 2),
        "max_length": fields.count("max_position_embeddings", 512, least=2, most=MOST_POSITIONS),
    }
    if fields.values.get("classifier_dropout") is not None:
        fields.share("classifier_dropout")
    fields.ignore(["classifier_dropout"])
    fields.require("position_embedding_type", "absolute")
    return found | own


def bert_fields(settings: BertSettings) -> dict[str, Any]:
    """The inverse of :func:`bert_settings`."""
    return {
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


def refuse_settings(settings: BertSettings, layout: str, **wanted: Any) -> None:
    """Raise UserError if a setting of the model is not what the layout supports."""
    for key, value in wanted.items():
        own = getattr(settings, key)
        if own != value:
            shown = f"not {own!r}" if value is None else f"{value!r} only, not {own!r}"
            raise UserError(f"model.{key}: the layout of {layout} supports {shown}")


def refuse_no_segments(settings: BertSettings, layout: str) -> None:
    """Raise UserError if the model has no segment embeddings."""
    if not settings.segments:
        raise UserError(
            f"model.segments = 0: the layout of {layout} needs at least one segment embedding"
        )


def given_dropout(config: Mapping[str, Any], name: str, usual: float) -> float:
    """A dropout of a configuration; ``usual`` if it is missing or null."""
    given = config.get(name)
    return usual if given is None else float(given)


def labelled(tensors: Mapping[str, Tensor], named: str | None, tagger: str) -> dict[str, int]:
    """The head of a file with ``classifier.weight``, which is a classifier's or a tagger's.

    Args:
        tensors: the file.
        named: the class that the configuration names.
        tagger: the class of taggers.
    """
    if "classifier.weight" not in tensors:
        return {}
    tags = named == tagger or (named is None and not has_pooler(tensors))
    return {"tagging" if tags else "classification": len(tensors["classifier.weight"])}
