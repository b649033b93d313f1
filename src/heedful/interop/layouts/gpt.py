"""GPT-2's layout (``GPT2LMHeadModel``), whose linear maps are stored transposed.

Shapes: V symbols of heedful, W rows of the file's table, D width, F inner width, P positions.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS
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
from heedful.interop.layouts.plain_attention import refuse_mechanisms
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.gpt import GptSettings

IMPORTED = (
    ImportRow(
        ("gpt2",),
        ("GPT2LMHeadModel", "GPT2Model"),
        "language-model",
        "`heedful generate`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "gpt",
        'GPT (`"gpt"`)',
        "`GPT2LMHeadModel`",
        '`norm = "layer"`, `gated = false`, `pre_norm = true`, `positions = "learned"`, '
        "`bias = true`; tied or not",
    ),
)
_MASKS = re.compile(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)")
"""Causal masks, which older files contain."""
_PREFIX = "transformer."
_ELSEWHERE = """
vocab_size bos_token_id eos_token_id pad_token_id n_ctx summary_type summary_use_proj
summary_activation summary_first_dropout summary_proj_to_labels
"""


def settings_of(config: Mapping[str, Any], where: str) -> GptSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim, heads = fields.count("n_embd"), fields.count("n_head")
    if dim % heads:
        raise fields.refuse("n_head", f"does not divide n_embd = {dim}")
    inner = 4 * dim if config.get("n_inner") is None else fields.count("n_inner")
    dropout = fields.share("resid_pdrop", 0.1)
    if fields.share("embd_pdrop", 0.1) != dropout:
        raise fields.refuse("embd_pdrop", f"supported only if resid_pdrop = {dropout} is equal")
    settings = GptSettings(
        layers=fields.count("n_layer", most=MOST_LAYERS),
        hidden_size=dim,
        ffn_size=inner,
        heads=heads,
        dropout=dropout,
        attention_dropout=fields.share("attn_pdrop", 0.1),
        max_length=fields.count("n_positions", 1024, least=2, most=MOST_POSITIONS),
        activation=fields.activation("activation_function", "gelu_new"),
        norm_epsilon=fields.number("layer_norm_epsilon", 1e-5),
        tied_embeddings=fields.flag("tie_word_embeddings", default=True),
        output_bias=True,
    )
    fields.require("scale_attn_weights", True)
    for name in (
        "scale_attn_by_inverse_layer_idx",
        "reorder_and_upcast_attn",
        "add_cross_attention",
        "is_decoder",
        "is_encoder_decoder",
    ):
        fields.require(name, False)
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def config_of(settings: GptSettings) -> dict[str, Any]:
    """The configuration for heedful's settings, without the fields of symbols.

    Raises:
        UserError: the layout does not support a setting; the message has its name.
    """
    wanted = {"pre_norm": "true", "bias": "true", "norm": "layer", "gated": "false"}
    wanted |= {"begin": "false", "positions": "learned"}
    for name in ("layers", "ffn_size"):
        if not getattr(settings, name):
            raise UserError(f"model.{name} = 0: in GPT-2's layout it is at least 1")
    for name, value in wanted.items():
        has = str(getattr(settings, name)).lower()
        if has != value:
            raise UserError(f"model.{name} = {has}: in GPT-2's layout it is {value} only")
    refuse_mechanisms(settings.attention_of_layers(), settings.heads, settings.attention_dropout)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": settings.hidden_size,
        "n_layer": settings.layers,
        "n_head": settings.heads,
        "n_inner": settings.ffn_size,
        "n_positions": settings.max_length,
        "activation_function": external_activation(settings.activation),
        "resid_pdrop": settings.dropout,
        "embd_pdrop": settings.dropout,
        "attn_pdrop": settings.attention_dropout,
        "layer_norm_epsilon": settings.norm_epsilon,
        "tie_word_embeddings": settings.tied_embeddings,
    }


def import_tensors(
    tensors: Mapping[str, Tensor], settings: GptSettings, places: Places, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to heedful's.

    Raises:
        UserError: a tensor is missing, unknown or has another shape.
    """
    kept = {name: tensor for name, tensor in tensors.items() if not _MASKS.fullmatch(name)}
    prefix = _PREFIX if any(name.startswith(_PREFIX) for name in kept) else ""
    internal = to_heedful(_entries(settings, places, prefix), kept, where)
    table = internal["embeddings.tokens.weight"]
    internal["bias"] = symbols(places, NEVER).to_heedful(table.new_zeros(count_rows(places)))
    return internal


def export_tensors(
    tensors: Mapping[str, Tensor], settings: GptSettings, places: Places
) -> dict[str, Tensor]:
    """Convert heedful's tensors to those of the layout."""
    return to_external(_entries(settings, places, _PREFIX), tensors)


def _entries(settings: GptSettings, places: Places, prefix: str) -> list[Entry]:
    dim, inner, rows = settings.hidden_size, settings.ffn_size, count_rows(places)
    table = symbols(places)
    found: list[Entry] = []

    def add(
        external: str, internal: tuple[str, ...], *size: int, convert: Conversion = SAME
    ) -> None:
        found.append(Entry(prefix + external, size, internal, convert))

    def linear(external: str, internal: tuple[str, ...], inside: int, out: int) -> None:
        weights = tuple(f"{name}.weight" for name in internal)
        add(f"{external}.weight", weights, inside, out, convert=TRANSPOSED)
        add(f"{external}.bias", tuple(f"{name}.bias" for name in internal), out)

    def norm(external: str, internal: str) -> None:
        for part in ("weight", "bias"):
            add(f"{external}.{part}", (f"{internal}.{part}",), dim)

    add("wte.weight", ("embeddings.tokens.weight",), rows, dim, convert=table)
    if settings.tied_embeddings:
        found[0] = found[0]._replace(aliases=("lm_head.weight",))
    else:
        found.append(Entry("lm_head.weight", (rows, dim), ("output.weight",), table))
    add("wpe.weight", ("embeddings.positions.table.weight",), settings.max_length, dim)
    for layer in range(settings.layers):
        at, internal = f"h.{layer}", f"layers.{layer}"
        heads = f"{internal}.self_attention"
        three = tuple(f"{heads}.{name}_projection" for name in ("query", "key", "value"))
        linear(f"{at}.attn.c_attn", three, dim, 3 * dim)
        linear(f"{at}.attn.c_proj", (f"{heads}.output_projection",), dim, dim)
        linear(f"{at}.mlp.c_fc", (f"{internal}.feed_forward.expand",), dim, inner)
        linear(f"{at}.mlp.c_proj", (f"{internal}.feed_forward.contract",), inner, dim)
        norm(f"{at}.ln_1", f"{internal}.around_self.norm")
        norm(f"{at}.ln_2", f"{internal}.around_feed_forward.norm")
    norm("ln_f", "norm")
    return found
