"""T5's layout, of both versions: a pre-norm Transformer without biases, with relative positions.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer"; version 1.1 has a gated feed-forward network (Shazeer 2020) and an output matrix of
its own. Scores are not scaled, and norms divide by the root mean square. The layers of a stack
share the biases of relative positions, which are stored with the first layer.
Shapes: V symbols of heedful, W rows of the file's table, D width, H heads, E width of a head.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heedful.attention.positions.t5 import T5Buckets
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields
from heedful.interop.layouts.entries import NEVER, Entry, Places, symbols, to_external, to_heedful
from heedful.interop.layouts.plain_attention import refuse_mechanisms
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.layers.transformer import Activation
from heedful.models.transformer import TransformerSettings

IMPORTED = (
    ImportRow(
        ("t5",),
        ("T5ForConditionalGeneration",),
        "text-to-text, of versions 1.0 and 1.1",
        "`heedful translate`, `view`, `serve`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "encoder-decoder",
        'Transformer with `norm = "rms"`',
        "`T5ForConditionalGeneration`",
        "[T5's settings](denoising.md#the-architectures); `tied_embeddings` is "
        '`"all"` or `"inputs"`',
    ),
)
LONGEST = 512
"""Maximum tokens of an imported model, which has no limit: the length of its pre-training."""
_ELSEWHERE = """
vocab_size pad_token_id eos_token_id bos_token_id decoder_start_token_id forced_eos_token_id
forced_bos_token_id num_hidden_layers classifier_dropout initializer_factor dense_act_fn
is_gated_act n_positions
"""
_FEED_FORWARD: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_new": ("gelu-tanh", False),
    "silu": ("silu", False),
    "gated-relu": ("relu", True),
    "gated-gelu": ("gelu-tanh", True),
    "gated-gelu_new": ("gelu-tanh", True),
    "gated-silu": ("silu", True),
}
_FEED_FORWARD_NAMES = {
    ("relu", False): "relu",
    ("gelu", False): "gelu",
    ("gelu-tanh", False): "gelu_new",
    ("silu", False): "silu",
    ("relu", True): "gated-relu",
    ("gelu-tanh", True): "gated-gelu",
    ("silu", True): "gated-silu",
}


def settings_of(
    config: Mapping[str, Any], where: str, *, tied: bool, longest: int = LONGEST
) -> TransformerSettings:
    """heedful's settings for a configuration.

    Args:
        config: the content of ``config.json``.
        where: the file, for messages.
        tied: whether the output matrix is the table of embeddings, which only the tensors tell.
        longest: maximum tokens of a text, which the layout does not limit.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim, heads = fields.count("d_model"), fields.count("num_heads")
    if dim % 2:
        raise fields.refuse("d_model", "odd widths are not supported")
    layers = fields.count("num_layers", most=MOST_LAYERS)
    of_decoder = fields.count("num_decoder_layers", layers, most=MOST_LAYERS)
    dropout = fields.share("dropout_rate", 0.1)
    # Before this field existed, the output matrix was scaled if it was tied.
    scaled = fields.flag("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    settings = TransformerSettings.model_validate(
        {
            "layers": layers,
            "decoder_layers": of_decoder if of_decoder != layers else None,
            "hidden_size": dim,
            "ffn_size": fields.count("d_ff"),
            "heads": heads,
            "dropout": dropout,
            "attention_dropout": dropout,
            "ffn_dropout": dropout,
            "pre_norm": True,
            "norm": "rms",
            "norm_epsilon": fields.number("layer_norm_epsilon", 1e-6),
            "bias": False,
            **_feed_forward(fields),
            "positions": _positions(fields),
            "share_positions": True,
            "tied_embeddings": "all" if tied else "inputs",
            "scale_embeddings": False,
            "scale_output": scaled,
            # Symbols that the file does not have are never generated.
            "output_bias": True,
            "max_length": longest,
            "attention": {"score": "dot", "head_size": fields.count("d_kv", 64)},
        }
    )
    fields.require("is_encoder_decoder", True)
    fields.require("is_decoder", False)
    fields.ignore([*_ELSEWHERE.split(), "feed_forward_proj", "tie_word_embeddings"])
    fields.finish()
    return settings


def _feed_forward(fields: Fields) -> dict[str, Any]:
    kind = fields.values.get("feed_forward_proj", "relu")
    if not isinstance(kind, str) or kind not in _FEED_FORWARD:
        known = ", ".join(_FEED_FORWARD)
        raise fields.refuse("feed_forward_proj", f"not supported; supported are {known}")
    activation, gated = _FEED_FORWARD[kind]
    return {"activation": activation, "gated": gated}


def _positions(fields: Fields) -> dict[str, Any]:
    buckets = fields.count("relative_attention_num_buckets", 32, least=4, most=MOST_POSITIONS)
    distance = fields.count("relative_attention_max_distance", 128, most=MOST_POSITIONS)
    if buckets % 2 or distance <= buckets // 2:
        raise fields.refuse(
            "relative_attention_num_buckets",
            f"must be even, and half of it below relative_attention_max_distance = {distance}",
        )
    return {"name": "t5", "buckets": buckets, "max_distance": distance}


def config_of(settings: TransformerSettings) -> dict[str, Any]:
    """The configuration for heedful's settings, without vocabulary sizes.

    Raises:
        UserError: the layout does not support a setting; the message has its name.
    """
    _refuse_others(settings)
    _refuse_positions(settings)
    positions = settings.positions
    assert isinstance(positions, T5Buckets.Settings)
    attention = settings.attention_of("encoder")[0]
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "d_model": settings.hidden_size,
        "d_kv": attention.head_size or settings.hidden_size // settings.heads,
        "d_ff": settings.ffn_size,
        "num_layers": settings.layers,
        "num_decoder_layers": settings.decoder_layers or settings.layers,
        "num_heads": settings.heads,
        "relative_attention_num_buckets": positions.buckets,
        "relative_attention_max_distance": positions.max_distance,
        "dropout_rate": settings.dropout,
        "layer_norm_epsilon": settings.norm_epsilon,
        "feed_forward_proj": _FEED_FORWARD_NAMES[settings.activation, settings.gated],
        # Versions of the library without this field scale the output exactly if it is tied.
        "scale_decoder_outputs": settings.scale_output,
        "tie_word_embeddings": settings.tied_embeddings == "all",
    }


def _refuse_others(settings: TransformerSettings) -> None:
    """Raise UserError if a setting is not T5's."""
    needed: dict[str, Any] = {
        "copy_source": False,
        "pre_norm": True,
        "norm": "rms",
        "bias": False,
        "positions.name": "t5",
        "share_positions": True,
        "scale_embeddings": False,
        "embedding_norm": False,
    }
    for key, value in needed.items():
        own = settings.positions.name if key == "positions.name" else getattr(settings, key)
        if own != value:
            raise UserError(
                f"model.{key} = {_shown(own)}: a Transformer with norm = 'rms' or positions = 't5' "
                f"is exported as T5, which has {key} = {_shown(value)}"
            )
    for key in ("decoder_heads", "decoder_ffn_size"):
        if getattr(settings, key) is not None:
            raise UserError(
                f"model.{key} = {getattr(settings, key)}: T5's encoder and decoder have the same "
                "widths; leave it out"
            )
    if settings.tied_embeddings not in ("all", "inputs"):
        raise UserError(
            f"model.tied_embeddings = '{settings.tied_embeddings}': T5 has one table for both "
            "sides; train with --set model.tied_embeddings=all or inputs"
        )
    if (settings.activation, settings.gated) not in _FEED_FORWARD_NAMES:
        raise UserError(
            f"model.activation = '{settings.activation}' with model.gated = true: T5 has "
            "no such feed-forward network; train with --set model.activation=gelu-tanh"
        )
    for part in ("encoder", "decoder", "cross"):
        layers = settings.attention_of(part)
        plain = [one.model_copy(update={"positions": None}) for one in layers]
        size = layers[0].head_size
        refuse_mechanisms(
            plain,
            settings.heads,
            settings.attention_dropout,
            score="dot",
            bias="none",
            head_size=size,
        )


def _refuse_positions(settings: TransformerSettings) -> None:
    """Raise UserError if a layer has other positions than the table ``[model]`` says."""
    for part in ("encoder", "decoder"):
        for one in settings.attention_of(part):
            if one.positions not in (None, settings.positions):
                raise UserError(
                    f"model.attention.{part}.positions = '{one.positions}': T5 has the positions "
                    "of the table [model] in all layers; leave them out of [model.attention]"
                )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"


def import_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to those of heedful's Transformer.

    Raises:
        UserError: a tensor is missing, unknown or has another shape.
    """
    found = to_heedful(_entries(settings, places), tensors, where)
    missing = torch.tensor([place is None for place in places])
    return found | {"bias": missing * NEVER}


def export_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places
) -> dict[str, Tensor]:
    """Convert the tensors of heedful's Transformer to those of the layout."""
    return to_external(_entries(settings, places), tensors)


def is_tied(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the output matrix of a file is its table of embeddings."""
    head, table = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    return head is None or (table is not None and head.equal(table))


def _entries(settings: TransformerSettings, places: Places) -> list[Entry]:
    shape, tied = (count_rows(places), settings.hidden_size), settings.tied_embeddings == "all"
    aliases = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    head = ("lm_head.weight",) if tied else ()
    internal = ("target_embedding.weight",)
    found = [Entry("shared.weight", shape, internal, symbols(places), (*aliases, *head))]
    if not tied:
        found.append(Entry("lm_head.weight", shape, ("output.weight",), symbols(places)))
    for side in ("encoder", "decoder"):
        layers = settings.layers if side == "encoder" else settings.decoder_layers
        for layer in range(layers or settings.layers):
            found += _layer(settings, side, layer)
        found.append(_vector(settings, f"{side}.final_layer_norm.weight", f"{side}_norm.weight"))
    return found


def _vector(settings: TransformerSettings, external: str, internal: str) -> Entry:
    return Entry(external, (settings.hidden_size,), (internal,))


def _layer(settings: TransformerSettings, side: str, layer: int) -> list[Entry]:
    internal, external = f"{side}.{layer}", f"{side}.block.{layer}.layer"
    dim, inner = settings.hidden_size, settings.ffn_size
    size = settings.attention_of("encoder")[0].head_size or dim // settings.heads
    joined, found = settings.heads * size, []
    parts = [("SelfAttention", "self")]
    if side == "decoder":
        parts.append(("EncDecAttention", "cross"))
    for place, (their, our) in enumerate(parts):
        own = f"{internal}.{our}_attention"
        for short, long in (("q", "query"), ("k", "key"), ("v", "value")):
            name = f"{external}.{place}.{their}.{short}.weight"
            found.append(Entry(name, (joined, dim), (f"{own}.{long}_projection.weight",)))
        name = f"{external}.{place}.{their}.o.weight"
        found.append(Entry(name, (dim, joined), (f"{own}.output_projection.weight",)))
        norm = f"{external}.{place}.layer_norm.weight"
        found.append(_vector(settings, norm, f"{internal}.around_{our}.norm.weight"))
    if layer == 0:
        positions = settings.positions
        assert isinstance(positions, T5Buckets.Settings)
        name = f"{external}.0.SelfAttention.relative_attention_bias.weight"
        shape = (positions.buckets, settings.heads)
        own = f"{internal}.self_attention.positions.table.weight"
        found.append(Entry(name, shape, (own,)))
    place = len(parts)
    networks = [("wi", "expand")]
    if settings.gated:
        networks = [("wi_0", "gate"), ("wi_1", "expand")]
    for their, our in networks:
        name = f"{external}.{place}.DenseReluDense.{their}.weight"
        found.append(Entry(name, (inner, dim), (f"{internal}.feed_forward.{our}.weight",)))
    name = f"{external}.{place}.DenseReluDense.wo.weight"
    found.append(Entry(name, (dim, inner), (f"{internal}.feed_forward.contract.weight",)))
    norm = f"{external}.{place}.layer_norm.weight"
    found.append(_vector(settings, norm, f"{internal}.around_feed_forward.norm.weight"))
    return found
