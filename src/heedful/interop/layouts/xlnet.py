"""XLNet's layout: the encoder alone, or with a head for tokens, a label or tags.

Shapes: V symbols of heedful, W rows of the file's table, D width, H heads, d width of a head, F
inner width, C classes.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields, external_activation
from heedful.interop.layouts.entries import (
    NEVER,
    SAME,
    TRANSPOSED,
    Conversion,
    Entry,
    Places,
    symbols,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.xlnet import XLNetSettings

IMPORTED = (
    ImportRow(("xlnet",), ("XLNetLMHeadModel",), "permutation", "`heedful fill`, `--start-from`"),
    ImportRow(
        ("xlnet",),
        ("XLNetModel",),
        "permutation; the output bias is zero",
        "`--start-from`",
    ),
    ImportRow(
        ("xlnet",),
        ("XLNetForSequenceClassification",),
        "classification",
        "`heedful classify`; `--pairs` for pairs of texts",
    ),
    ImportRow(("xlnet",), ("XLNetForTokenClassification",), "tagging", "`heedful tag`"),
)
EXPORTED = (
    ExportRow(
        "xlnet",
        'XLNet (`"xlnet"`)',
        "by its head, as in the table above",
        "none; the layout has one dropout for everything, and the export prints a notice if "
        "`attention_dropout` differs",
    ),
)

Head = Literal["permutation", "classification", "tagging"]

_ARCHITECTURES: dict[Head | None, str] = {
    None: "XLNetModel",
    "permutation": "XLNetLMHeadModel",
    "classification": "XLNetForSequenceClassification",
    "tagging": "XLNetForTokenClassification",
}
_ELSEWHERE = """
vocab_size pad_token_id bos_token_id eos_token_id mem_len reuse_len use_mems_eval use_mems_train
same_length start_n_top end_n_top summary_last_dropout
"""
LONGEST = 512
"""``model.max_length`` of imported models, which have no limit of their own."""


class XLNetShape(NamedTuple):
    """The parts of a file in addition to the encoder."""

    head: Head | None
    classes: int = 0
    """Of a label or of tags."""

    @property
    def architecture(self) -> str:
        """The name of transformers' class."""
        return _ARCHITECTURES[self.head]


def settings_of(config: Mapping[str, Any], where: str) -> XLNetSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim, heads = fields.count("d_model"), fields.count("n_head")
    if dim % heads or dim % 2:
        raise fields.refuse("d_model", f"expected an even multiple of n_head = {heads}")
    fields.require("d_head", dim // heads)
    dropout = fields.share("dropout", 0.1)
    fields.require("summary_type", "last", "first")
    settings = XLNetSettings(
        layers=fields.count("n_layer", most=MOST_LAYERS),
        hidden_size=dim,
        ffn_size=fields.count("d_inner"),
        heads=heads,
        dropout=dropout,
        attention_dropout=dropout,
        activation=fields.activation("ff_activation", "gelu"),
        norm_epsilon=fields.number("layer_norm_eps", 1e-12),
        begin="first" if config.get("summary_type") == "first" else "last",
        max_length=LONGEST,
    )
    fields.require("attn_type", "bi")
    fields.require("bi_data", False)
    fields.require("untie_r", True)
    fields.require("clamp_len", -1, 0)
    fields.require("summary_use_proj", True)
    fields.require("summary_activation", "tanh")
    fields.require("tie_word_embeddings", True)
    fields.require("problem_type", "single_label_classification")
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        fields.require(name, False)
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def config_of(settings: XLNetSettings, shape: XLNetShape) -> dict[str, Any]:
    """The configuration for heedful's settings, without the fields of symbols."""
    return {
        "model_type": "xlnet",
        "architectures": [shape.architecture],
        "d_model": settings.hidden_size,
        "n_layer": settings.layers,
        "n_head": settings.heads,
        "d_inner": settings.ffn_size,
        "ff_activation": external_activation(settings.activation),
        "dropout": settings.dropout,
        "layer_norm_eps": settings.norm_epsilon,
        "attn_type": "bi",
        "summary_type": settings.begin,
        "summary_use_proj": True,
        "summary_activation": "tanh",
    }


def shape_of(tensors: Mapping[str, Tensor]) -> XLNetShape:
    """The head in a file."""
    if "lm_loss.bias" in tensors:
        return XLNetShape("permutation")
    if "logits_proj.weight" in tensors:
        return XLNetShape("classification", len(tensors["logits_proj.weight"]))
    if "classifier.weight" in tensors:
        return XLNetShape("tagging", len(tensors["classifier.weight"]))
    return XLNetShape(None)


def import_tensors(
    tensors: Mapping[str, Tensor],
    settings: XLNetSettings,
    places: Places,
    shape: XLNetShape,
    where: str,
) -> dict[str, Tensor]:
    """Convert a file's tensors to heedful's: ``encoder.…``, and ``heads.…`` by the head's task.

    If the file has no layer of the text's vector, it is initialised as in training, with a fixed
    seed.

    Raises:
        UserError: a tensor is missing, unknown or has another shape.
    """
    prefix = "transformer." if any(name.startswith("transformer.") for name in tensors) else ""
    internal = to_heedful(_entries(settings, places, shape, prefix), tensors, where)
    if shape.head != "classification":
        generator = torch.Generator().manual_seed(0)
        weight = torch.empty(settings.hidden_size, settings.hidden_size)
        internal |= {
            "encoder.pooler.weight": weight.normal_(0.0, 0.02, generator=generator),
            "encoder.pooler.bias": torch.zeros(settings.hidden_size),
        }
    return internal


def export_tensors(
    tensors: Mapping[str, Tensor], settings: XLNetSettings, places: Places, shape: XLNetShape
) -> dict[str, Tensor]:
    """Convert heedful's tensors to those of the layout."""
    prefix = "" if shape.head is None else "transformer."
    return to_external(_entries(settings, places, shape, prefix), tensors)


def _by_heads(heads: int) -> Conversion:
    """``[D, H, d] -> [D, H·d]``."""
    return Conversion(
        lambda external: external.flatten(1), lambda internal: internal.unflatten(1, (heads, -1))
    )


_DISTANCES = Conversion(
    lambda external: external.permute(1, 2, 0), lambda internal: internal.permute(2, 0, 1)
)
"""``[D, H, d] -> [H, d, D]``."""
_ALONE = Conversion(lambda external: external[0, 0], lambda internal: internal[None, None])
"""``[1, 1, D] -> [D]``."""


def _entries(
    settings: XLNetSettings, places: Places, shape: XLNetShape, prefix: str
) -> list[Entry]:
    dim, inner, rows = settings.hidden_size, settings.ffn_size, count_rows(places)
    heads, head_dim = settings.heads, dim // settings.heads
    found: list[Entry] = []

    def add(
        external: str, internal: str, *size: int, convert: Conversion = SAME, aliases: str = ""
    ) -> None:
        found.append(Entry(external, size, (internal,), convert, tuple(aliases.split())))

    def linear(external: str, internal: str, out: int, inside: int) -> None:
        add(f"{external}.weight", f"{internal}.weight", out, inside)
        add(f"{external}.bias", f"{internal}.bias", out)

    alias = "lm_loss.weight" if shape.head == "permutation" else ""
    words = f"{prefix}word_embedding.weight"
    add(words, "encoder.tokens.weight", rows, dim, convert=symbols(places), aliases=alias)
    add(f"{prefix}mask_emb", "encoder.query_start", 1, 1, dim, convert=_ALONE)
    joined = _by_heads(heads)
    for layer in range(settings.layers):
        at, own = f"{prefix}layer.{layer}", f"encoder.layers.{layer}"
        split, attention = (dim, heads, head_dim), f"{own}.attention"
        for short, name in (("q", "query"), ("k", "key"), ("v", "value")):
            weight, turned = f"{attention}.{name}_projection.weight", joined.then(TRANSPOSED)
            add(f"{at}.rel_attn.{short}", weight, *split, convert=turned)
        output = f"{attention}.output_projection.weight"
        add(f"{at}.rel_attn.o", output, *split, convert=joined)
        positions = f"{attention}.positions"
        add(f"{at}.rel_attn.r", f"{positions}.projection", *split, convert=_DISTANCES)
        add(f"{at}.rel_attn.r_w_bias", f"{positions}.content_bias", heads, head_dim)
        add(f"{at}.rel_attn.r_r_bias", f"{positions}.position_bias", heads, head_dim)
        add(f"{at}.rel_attn.r_s_bias", f"{attention}.segment_bias", heads, head_dim)
        add(f"{at}.rel_attn.seg_embed", f"{attention}.segments", 2, heads, head_dim)
        for part, norm in (("rel_attn", "around_attention"), ("ff", "around_feed_forward")):
            for one in ("weight", "bias"):
                add(f"{at}.{part}.layer_norm.{one}", f"{own}.{norm}.norm.{one}", dim)
        linear(f"{at}.ff.layer_1", f"{own}.feed_forward.expand", inner, dim)
        linear(f"{at}.ff.layer_2", f"{own}.feed_forward.contract", dim, inner)
    if shape.head == "permutation":
        bias = "heads.permutation.bias"
        add("lm_loss.bias", bias, rows, convert=symbols(places, NEVER))
    elif shape.head == "classification":
        linear("sequence_summary.summary", "encoder.pooler", dim, dim)
        linear("logits_proj", "heads.classification.output", shape.classes, dim)
    elif shape.head == "tagging":
        linear("classifier", "heads.tagging.output", shape.classes, dim)
    return found


def require_classes(shape: XLNetShape, where: str) -> None:
    """Raise UserError if a classifier predicts a number."""
    if shape.head == "classification" and shape.classes == 1:
        raise UserError(
            f"{where}: the classifier has one output (num_labels = 1), so it predicts a number; "
            "such heads are not imported: import a classifier with at least two classes"
        )
