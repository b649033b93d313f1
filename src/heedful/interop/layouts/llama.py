"""The layouts of Llama, Mistral and Qwen 2, which differ by biases and windows only.

    llama    no biases, or biases in all maps of the attention or of the feed-forward network
    mistral  no biases; a window in all layers
    qwen2    biases of queries, keys and values; windows in some layers

Shapes: V symbols of heedful, W rows of the file's table, D width, F inner width, K width of keys.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from heedful.attention.masks.settings import MaskSettings, WindowSettings
from heedful.attention.positions import PositionSettings
from heedful.attention.positions.rotary import Rotary
from heedful.attention.positions.rotary_scaling import Llama3
from heedful.attention.settings import AttentionSettings
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields, external_activation
from heedful.interop.layouts.entries import (
    NEVER,
    Entry,
    Places,
    symbols,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.plain_attention import refuse_mechanisms
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.attention_settings import LayerAttentionSettings, PartAttentionSettings
from heedful.models.gpt import GptSettings

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}
"""``model_type`` → class of transformers."""
IMPORTED = (
    ImportRow(
        tuple(CLASSES),
        tuple(CLASSES.values()),
        "language-model",
        "`heedful generate`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "gpt",
        'GPT with `norm = "rms"`',
        "`LlamaForCausalLM`; `MistralForCausalLM` with a window; `Qwen2ForCausalLM` with biases of "
        "queries, keys and values",
        '`gated = true`, `pre_norm = true`, `positions = "rotary"`, with `length_scale` or the '
        "scaling `llama3`; any `key_value_heads`; tied or not",
    ),
)
_DEFAULTS: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
    "qwen2": {
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
        "sliding_window": 4096,
    },
}
"""Values of fields that files leave out."""
_ELSEWHERE = "vocab_size bos_token_id eos_token_id pad_token_id pretraining_tp use_mrope"
_SUPPORTED = ("mask", "bias", "key_value_heads", "positions")
_ROTARY: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "length", "slow", "fast"),
}
"""Kind of rotary positions → its numbers."""
_NUMBERS = {
    "factor": "factor",
    "length": "original_max_position_embeddings",
    "slow": "low_freq_factor",
    "fast": "high_freq_factor",
}
"""A number's name in heedful → its field."""


def settings_of(config: Mapping[str, Any], where: str, *, begin: bool = False) -> GptSettings:
    """heedful's settings for a configuration.

    Args:
        config: the content of ``config.json``.
        where: the file, for messages.
        begin: whether the tokeniser has a symbol for the beginning of a text.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    kind = str(config.get("model_type"))
    fields = Fields({**_DEFAULTS[kind], **config}, where)
    dim, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    groups = heads
    if fields.values.get("num_key_value_heads") is not None:
        groups = fields.count("num_key_value_heads")
    if dim % heads or dim // heads % 2:
        raise fields.refuse("num_attention_heads", f"hidden_size = {dim} gives no even head width")
    if heads % groups:
        raise fields.refuse("num_key_value_heads", f"does not divide num_attention_heads = {heads}")
    fields.require("head_dim", dim // heads)
    layers = fields.count("num_hidden_layers", most=MOST_LAYERS)
    inner, attention = _biases(fields, kind)
    whole, some = _masks(_windows(fields, kind, layers))
    settings = GptSettings(
        layers=layers,
        hidden_size=dim,
        ffn_size=fields.count("intermediate_size"),
        heads=heads,
        dropout=0.0,
        attention_dropout=fields.share("attention_dropout"),
        max_length=fields.count("max_position_embeddings", 2048, least=2, most=MOST_POSITIONS),
        positions=_positions(fields),
        activation=fields.activation("hidden_act", "silu"),
        bias=inner,
        norm="rms",
        gated=True,
        norm_epsilon=fields.number("rms_norm_eps", 1e-6),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        output_bias=True,
        begin=begin,
        attention=PartAttentionSettings(
            key_value_heads=groups, bias=attention, mask=whole, layers=some
        ),
    )
    for name in ("is_decoder", "is_encoder_decoder", "add_cross_attention"):
        fields.require(name, False)
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def _biases(fields: Fields, kind: str) -> tuple[bool, Any]:
    """Whether the feed-forward network has biases, and those of the attention."""
    if kind == "llama":
        attention = "all" if fields.flag("attention_bias", default=False) else "none"
        return fields.flag("mlp_bias", default=False), attention
    return False, "query-key-value" if kind == "qwen2" else "none"


def _windows(fields: Fields, kind: str, layers: int) -> list[int | None]:
    """The number of keys that each layer's queries attend to; None for all."""
    if kind == "llama":
        return [None] * layers
    size = None
    if fields.values.get("sliding_window") is not None:
        size = fields.count("sliding_window", most=MOST_POSITIONS)
    fields.ignore(["sliding_window"])
    if kind == "mistral":
        return [size] * layers
    used = fields.flag("use_sliding_window", default=False)
    first = fields.count("max_window_layers", 28, least=0, most=MOST_LAYERS)
    fields.ignore(["layer_types"])
    kinds = fields.values.get("layer_types")
    if kinds is None:
        return [size if used and layer >= first else None for layer in range(layers)]
    known = {"full_attention": None, "sliding_attention": size if used else None}
    good = isinstance(kinds, list) and all(isinstance(one, str) for one in kinds)
    if not good or len(kinds) != layers or not set(kinds) <= set(known):
        raise fields.refuse("layer_types", f"expected {' or '.join(known)} for each layer")
    return [known[one] for one in kinds]


def _masks(
    windows: Sequence[int | None],
) -> tuple[MaskSettings | None, tuple[LayerAttentionSettings, ...] | None]:
    """The mask of all layers, and the settings of some layers."""
    sizes = set(windows)
    if sizes == {None}:
        return None, None
    size = next(one for one in windows if one is not None)
    mask = WindowSettings(before=size - 1, after=0)
    if len(sizes) == 1:
        return mask, None
    numbers = tuple(number for number, one in enumerate(windows, 1) if one is not None)
    return None, (LayerAttentionSettings(numbers=numbers, mask=mask),)


def _positions(fields: Fields) -> PositionSettings:
    """Rotary positions from ``rope_parameters``, or from two fields of older files."""
    values, where = fields.values, f"{fields.where}: rope_parameters"
    given = values.get("rope_parameters") or values.get("rope_scaling") or {}
    fields.ignore(["rope_parameters", "rope_scaling", "rope_theta"])
    if not isinstance(given, dict):
        raise UserError(f"{where} = {json.dumps(given)[:100]}: expected a table")
    table = {"rope_theta": values.get("rope_theta", 10_000.0)} | given
    inside = Fields(table, where)
    base = inside.number("rope_theta", 10_000.0)
    named = "rope_type" if "rope_type" in table else "type"
    kind = table.get(named, "default")
    if not isinstance(kind, str) or kind not in _ROTARY:
        raise inside.refuse(named, f"not supported; supported are {', '.join(_ROTARY)}")
    numbers = {name: _number(inside, name) for name in _ROTARY[kind]}
    inside.ignore(["type", "rope_type"])
    inside.finish()
    if kind == "llama3":
        return Rotary.Settings(base=base, scaling=Llama3.Settings(**numbers))
    return Rotary.Settings(base=base, length_scale=numbers.get("factor", 1.0))


def _number(fields: Fields, name: str) -> Any:
    """A number of rotary positions, which the file must contain."""
    field = _NUMBERS[name]
    if field not in fields.values:
        raise UserError(f"{fields.where}: the field {field} is missing")
    if name == "length":
        return fields.count(field, most=MOST_POSITIONS)
    return fields.number(field, 1.0)


def config_of(settings: GptSettings, preferred: str | None = None) -> dict[str, Any]:
    """The configuration for heedful's settings, without the fields of symbols.

    Args:
        settings: the model's settings.
        preferred: the ``model_type`` to write if it fits: that of an imported run.

    Raises:
        UserError: no layout supports a setting; the message has its name.
    """
    for name, value in {"pre_norm": True, "norm": "rms", "gated": True}.items():
        own = getattr(settings, name)
        if own != value:
            raise UserError(
                f"model.{name} = {json.dumps(own)}: in Llama's layout it is {json.dumps(value)} "
                "only"
            )
    for name in ("layers", "ffn_size"):
        if not getattr(settings, name):
            raise UserError(f"model.{name} = 0: in Llama's layout it is at least 1")
    if not settings.positions.relative and settings.positions.name != "none":
        raise _position_error(settings.positions)
    layers = settings.attention_of_layers()
    refuse_mechanisms(layers, settings.heads, settings.attention_dropout, supported=_SUPPORTED)
    kind, fields = _fields_of_kind(settings, layers, preferred)
    return {
        "model_type": kind,
        "architectures": [CLASSES[kind]],
        "hidden_size": settings.hidden_size,
        "intermediate_size": settings.ffn_size,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": _same(layers, "key_value_heads") or settings.heads,
        "hidden_act": external_activation(settings.activation),
        "max_position_embeddings": settings.max_length,
        "rms_norm_eps": settings.norm_epsilon,
        "attention_dropout": settings.attention_dropout,
        "tie_word_embeddings": settings.tied_embeddings,
        "rope_parameters": _rope_of(_same(layers, "positions")),
        **fields,
    }


def _same(layers: Sequence[AttentionSettings], name: str) -> Any:
    """A setting that all layers have in common."""
    found = getattr(layers[0], name)
    if any(getattr(one, name) != found for one in layers):
        raise UserError(f"model.attention.{name}: exports support one value in all layers only")
    return found


def _rope_of(positions: PositionSettings | None) -> dict[str, Any]:
    """The table of rotary positions."""
    if not isinstance(positions, Rotary.Settings):
        raise _position_error(positions)
    scaling = positions.scaling
    table: dict[str, Any] = {"rope_theta": positions.base, "rope_type": "default"}
    if isinstance(scaling, Llama3.Settings):
        numbers = {_NUMBERS[name]: getattr(scaling, name) for name in _ROTARY["llama3"]}
        return table | {"rope_type": "llama3"} | numbers
    if scaling is not None:
        raise UserError(
            f"model.positions: the scaling '{scaling.name}' is not exported, only llama3 is"
        )
    if positions.length_scale != 1.0:
        return table | {"rope_type": "linear", "factor": positions.length_scale}
    return table


def _position_error(positions: PositionSettings | None) -> UserError:
    return UserError(f"model.positions = '{positions}': in Llama's layout they are rotary only")


def _fields_of_kind(
    settings: GptSettings, layers: Sequence[AttentionSettings], preferred: str | None
) -> tuple[str, dict[str, Any]]:
    """The layout with the model's biases and windows, and its own fields."""
    biases = _same(layers, "bias") or ("all" if settings.bias else "none")
    inner, windows = settings.bias, [_window_of(one) for one in layers]
    sizes = set(windows) - {None}
    if len(sizes) > 1:
        raise UserError("model.attention.mask: exports support windows of one size only")
    size = next(iter(sizes), None)
    fit = {
        "llama": biases in ("all", "none") and size is None,
        "mistral": biases == "none" and not inner and len(set(windows)) == 1,
        "qwen2": biases == "query-key-value" and not inner,
    }
    kinds = [kind for kind in (preferred, *fit) if kind is not None and fit.get(kind)]
    if not kinds:
        raise UserError(
            "the biases and masks fit none of the layouts of Llama, Mistral and Qwen 2; set "
            "model.bias = false with attention.bias = 'none' or 'query-key-value', and windows in "
            "some layers only with the latter"
        )
    if kinds[0] == "llama":
        return "llama", {"attention_bias": biases == "all", "mlp_bias": inner}
    if kinds[0] == "mistral":
        return "mistral", {"sliding_window": size}
    names = ["full_attention" if one is None else "sliding_attention" for one in windows]
    window = {"use_sliding_window": size is not None, "sliding_window": size}
    return "qwen2", window | {"max_window_layers": 0, "layer_types": names}


def _window_of(one: AttentionSettings) -> int | None:
    """The number of keys that a layer's queries attend to; None for all."""
    mask = one.mask
    if mask is None or mask.name in ("none", "causal"):
        return None
    if not isinstance(mask, WindowSettings) or mask.sinks:
        raise UserError(
            f"model.attention.mask = '{mask}': exports support windows without sinks only"
        )
    return mask.before + 1


def import_tensors(
    tensors: Mapping[str, Tensor], settings: GptSettings, places: Places, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to heedful's.

    Raises:
        UserError: a tensor is missing, unknown or has another shape.
    """
    kept = {name: one for name, one in tensors.items() if not name.endswith("rotary_emb.inv_freq")}
    internal = to_heedful(_entries(settings, places), kept, where)
    table = internal["embeddings.tokens.weight"]
    internal["bias"] = symbols(places, NEVER).to_heedful(table.new_zeros(count_rows(places)))
    return internal


def export_tensors(
    tensors: Mapping[str, Tensor], settings: GptSettings, places: Places
) -> dict[str, Tensor]:
    """Convert heedful's tensors to those of the layout."""
    return to_external(_entries(settings, places), tensors)


def _entries(settings: GptSettings, places: Places) -> list[Entry]:
    dim, inner, rows = settings.hidden_size, settings.ffn_size, count_rows(places)
    table = symbols(places)
    aliases = ("lm_head.weight",) if settings.tied_embeddings else ()
    found = [
        Entry(
            "model.embed_tokens.weight", (rows, dim), ("embeddings.tokens.weight",), table, aliases
        )
    ]
    if not settings.tied_embeddings:
        found.append(Entry("lm_head.weight", (rows, dim), ("output.weight",), table))

    def linear(external: str, internal: str, out: int, inside: int, bias: bool) -> None:
        found.append(Entry(f"{external}.weight", (out, inside), (f"{internal}.weight",)))
        if bias:
            found.append(Entry(f"{external}.bias", (out,), (f"{internal}.bias",)))

    for layer, one in enumerate(settings.attention_of_layers()):
        at, own = f"model.layers.{layer}", f"layers.{layer}"
        keys = (one.key_value_heads or settings.heads) * (dim // settings.heads)
        biases = one.bias or ("all" if settings.bias else "none")
        for part, width in (("query", dim), ("key", keys), ("value", keys)):
            maps = f"{at}.self_attn.{part[0]}_proj", f"{own}.self_attention.{part}_projection"
            linear(*maps, width, dim, biases != "none")
        result = f"{at}.self_attn.o_proj", f"{own}.self_attention.output_projection"
        linear(*result, dim, dim, biases == "all")
        for part, name in (("gate", "gate"), ("up", "expand")):
            linear(f"{at}.mlp.{part}_proj", f"{own}.feed_forward.{name}", inner, dim, settings.bias)
        down = f"{at}.mlp.down_proj", f"{own}.feed_forward.contract"
        linear(*down, dim, inner, settings.bias)
        norms = {"input": "around_self", "post_attention": "around_feed_forward"}
        for external, internal in norms.items():
            names = (f"{own}.{internal}.norm.weight",)
            found.append(Entry(f"{at}.{external}_layernorm.weight", (dim,), names))
    found.append(Entry("model.norm.weight", (dim,), ("norm.weight",)))
    return found
