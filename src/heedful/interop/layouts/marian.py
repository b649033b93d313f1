"""Marian's layout (``MarianMTModel``): a post-norm Transformer with sinusoidal positions.

In Marian's positions all sines precede the cosines; in heedful's they alternate. The dimensions of
a Transformer's hidden vectors can be permuted if all weights that read and write them are permuted,
too. Conversion therefore permutes the dimensions, and both models compute the same function.
Shapes: V symbols of heedful, W rows of the file's table, D width, F inner width.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.attention.positions.sinusoidal import sinusoids
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields, external_activation
from heedful.interop.layouts.entries import (
    NEVER,
    Conversion,
    Entry,
    Places,
    permuted,
    symbols,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.plain_attention import refuse_mechanisms
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.transformer import TransformerSettings

IMPORTED = (
    ImportRow(
        ("marian",),
        ("MarianMTModel",),
        "translation",
        "`heedful translate`, `view`, `serve`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "marian",
        'Transformer (`model.kind = "transformer"`)',
        "`MarianMTModel`",
        'post-norm (`pre_norm = false`), `positions = "sinusoidal"`, `attention.score = '
        '"scaled-dot"`, `attention.normalizer = "softmax"`; any `tied_embeddings`; embeddings '
        "shared or not",
    ),
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_ELSEWHERE = """
vocab_size decoder_vocab_size pad_token_id eos_token_id bos_token_id decoder_start_token_id
forced_eos_token_id classif_dropout classifier_dropout add_bias_logits num_hidden_layers
extra_pos_embeddings
"""


class MarianSymbols(NamedTuple):
    """The row of each symbol of heedful in the file's tables."""

    source: Places
    target: Places


def settings_of(config: Mapping[str, Any], where: str) -> TransformerSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(config, where)
    dim = fields.count("d_model")
    if dim % 2:
        raise fields.refuse("d_model", "odd widths are not supported")
    sides = {}
    for side in ("encoder", "decoder"):
        sides[side] = (
            fields.count(f"{side}_layers", most=MOST_LAYERS),
            fields.count(f"{side}_ffn_dim"),
            heads := fields.count(f"{side}_attention_heads"),
        )
        if dim % heads:
            raise fields.refuse(f"{side}_attention_heads", f"does not divide d_model = {dim}")
        fields.require(f"{side}_layerdrop", 0)
    layers, inner, heads = sides["encoder"]
    decoder = [
        other if other != one else None
        for one, other in zip(sides["encoder"], sides["decoder"], strict=True)
    ]
    settings = TransformerSettings(
        layers=layers,
        hidden_size=dim,
        ffn_size=inner,
        heads=heads,
        dropout=fields.share("dropout", 0.1),
        attention_dropout=fields.share("attention_dropout"),
        ffn_dropout=fields.share("activation_dropout"),
        pre_norm=False,
        positions="sinusoidal",
        tied_embeddings=_tied(fields),
        max_length=fields.count("max_position_embeddings", least=2, most=MOST_POSITIONS),
        activation=fields.activation("activation_function", "gelu"),
        scale_embeddings=fields.flag("scale_embedding", default=False),
        output_bias=True,
        decoder_layers=decoder[0],
        decoder_ffn_size=decoder[1],
        decoder_heads=decoder[2],
    )
    fields.require("is_encoder_decoder", True)
    fields.require("static_position_embeddings", True)
    for name in ("is_decoder", "normalize_before", "normalize_embedding", "add_final_layer_norm"):
        fields.require(name, False)
    fields.require("forced_bos_token_id")
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    return settings


def _tied(fields: Fields) -> Literal["all", "output", "none"]:
    shared = fields.flag("share_encoder_decoder_embeddings", default=True)
    tied = fields.flag("tie_word_embeddings", default=True)
    if shared and not tied:
        raise fields.refuse(
            "tie_word_embeddings", "only with share_encoder_decoder_embeddings = false"
        )
    if shared:
        return "all"
    return "output" if tied else "none"


def refuse_parts(settings: TransformerSettings) -> None:
    """Raise UserError for attention, positions or copying, which exports do not support."""
    if settings.copy_source:
        raise UserError(
            f"model.copy_source = {str(settings.copy_source).lower()}: exports do not support "
            "copying; train with --set model.copy_source=false"
        )
    if settings.positions.name not in ("sinusoidal", "learned"):
        raise UserError(
            f"model.positions = '{settings.positions}': exports support sinusoidal and learned "
            "positions only; train with --set model.positions=sinusoidal"
        )
    of_decoder, dropout = settings.decoder_heads or settings.heads, settings.attention_dropout
    refuse_mechanisms(settings.attention_of("encoder"), settings.heads, dropout)
    refuse_mechanisms(settings.attention_of("decoder"), of_decoder, dropout)
    refuse_mechanisms(settings.attention_of("cross"), of_decoder, dropout)


def config_of(settings: TransformerSettings) -> dict[str, Any]:
    """The configuration for heedful's settings, without vocabulary sizes.

    Raises:
        UserError: the layout does not support a setting; the message has its name.
    """
    if settings.pre_norm:
        raise UserError(
            "model.pre_norm = true: Marian's layers are post-norm only; train with "
            "--set model.pre_norm=false, or use heedful export ctranslate2"
        )
    refuse_parts(settings)
    if settings.positions.name != "sinusoidal":
        raise UserError(
            f"model.positions = '{settings.positions}': Marian's positions are sinusoidal only"
        )
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "d_model": settings.hidden_size,
        "encoder_layers": settings.layers,
        "encoder_ffn_dim": settings.ffn_size,
        "encoder_attention_heads": settings.heads,
        "decoder_layers": settings.decoder_layers or settings.layers,
        "decoder_ffn_dim": settings.decoder_ffn_size or settings.ffn_size,
        "decoder_attention_heads": settings.decoder_heads or settings.heads,
        "dropout": settings.dropout,
        "attention_dropout": settings.attention_dropout,
        "activation_dropout": settings.ffn_dropout,
        "activation_function": external_activation(settings.activation),
        "max_position_embeddings": settings.max_length,
        "scale_embedding": settings.scale_embeddings,
        "share_encoder_decoder_embeddings": settings.tied_embeddings == "all",
        "tie_word_embeddings": settings.tied_embeddings != "none",
    }


def import_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: MarianSymbols, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to those of heedful's Transformer.

    Raises:
        UserError: a tensor is missing, unknown or has another shape, or the file's positions are
            not sinusoids.
    """
    kept = {name: tensor for name, tensor in tensors.items() if name not in _POSITIONS}
    halves = _halves(settings.hidden_size)
    for name in _POSITIONS:
        if name not in tensors:
            continue
        positions = tensors[name].float()
        shape = [settings.max_length, settings.hidden_size]
        if list(positions.shape) != shape:
            raise UserError(
                f"{where}: '{name}' has shape {list(positions.shape)}, but config.json gives "
                f"{shape}"
            )
        internal = sinusoids(torch.arange(len(positions)), settings.hidden_size)
        if not torch.allclose(
            positions[:, halves], internal, atol=1e-3 if _half(tensors[name]) else 1e-5
        ):
            raise UserError(
                f"{where}: '{name}' are not sinusoids; other positions are not supported"
            )
    return to_heedful(_entries(settings, places), kept, where)


def export_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: MarianSymbols
) -> dict[str, Tensor]:
    """Convert the tensors of heedful's Transformer to those of the layout."""
    given = dict(tensors)
    given.setdefault("bias", torch.zeros(len(places.target)))
    return to_external(_entries(settings, places), given)


def _half(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16)


def _halves(dim: int) -> Tensor:
    """The index in Marian's order (sines, then cosines) of each dimension of heedful."""
    return torch.arange(dim).view(2, dim // 2).T.flatten()


def _entries(settings: TransformerSettings, places: MarianSymbols) -> list[Entry]:
    dim, order = settings.hidden_size, _halves(settings.hidden_size)
    columns = permuted(order, 1)
    source, target = symbols(places.source).then(columns), symbols(places.target).then(columns)
    in_source = (count_rows(places.source), dim)
    in_target = (count_rows(places.target), dim)
    encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    head = "lm_head.weight"
    internal = "target_embedding.weight"
    if settings.tied_embeddings == "all":
        shared = "model.shared.weight"
        entries = [Entry(shared, in_target, (internal,), target, (encoder, decoder, head))]
    else:
        aliases = (head,) if settings.tied_embeddings == "output" else ()
        entries = [
            Entry(encoder, in_source, ("source_embedding.weight",), source),
            Entry(decoder, in_target, (internal,), target, aliases),
        ]
        if settings.tied_embeddings == "none":
            entries.append(Entry(head, in_target, ("output.weight",), target))
    entries.append(
        Entry(
            "final_logits_bias",
            (1, in_target[0]),
            ("bias",),
            Conversion(lambda external: external[0], lambda internal: internal.unsqueeze(0)).then(
                symbols(places.target, fill=NEVER)
            ),
            optional=True,
        )
    )
    for layer in range(settings.layers):
        entries += _layer("encoder", layer, dim, settings.ffn_size, order)
    for layer in range(settings.decoder_layers or settings.layers):
        entries += _layer(
            "decoder", layer, dim, settings.decoder_ffn_size or settings.ffn_size, order
        )
    return entries


def _layer(side: str, layer: int, dim: int, inner: int, order: Tensor) -> list[Entry]:
    internal, external = f"{side}.{layer}", f"model.{side}.layers.{layer}"
    reads, writes, vector = permuted(order, 1), permuted(order, 0), permuted(order, 0)
    heads = [("self_attn", "self_attention", "around_self")]
    if side == "decoder":
        heads.append(("encoder_attn", "cross_attention", "around_cross"))
    found = []

    def add(
        their: str, our: str, shape: tuple[int, ...], convert: Conversion | None = None
    ) -> None:
        entry = Entry(f"{external}.{their}", shape, (f"{internal}.{our}",))
        found.append(entry if convert is None else entry._replace(convert=convert))

    for their, our, around in heads:
        for short, long in (("q", "query"), ("k", "key"), ("v", "value")):
            add(
                f"{their}.{short}_proj.weight", f"{our}.{long}_projection.weight", (dim, dim), reads
            )
            add(f"{their}.{short}_proj.bias", f"{our}.{long}_projection.bias", (dim,))
        add(f"{their}.out_proj.weight", f"{our}.output_projection.weight", (dim, dim), writes)
        add(f"{their}.out_proj.bias", f"{our}.output_projection.bias", (dim,), vector)
        for part in ("weight", "bias"):
            add(f"{their}_layer_norm.{part}", f"{around}.norm.{part}", (dim,), vector)
    add("fc1.weight", "feed_forward.expand.weight", (inner, dim), reads)
    add("fc1.bias", "feed_forward.expand.bias", (inner,))
    add("fc2.weight", "feed_forward.contract.weight", (dim, inner), writes)
    add("fc2.bias", "feed_forward.contract.bias", (dim,), vector)
    for part in ("weight", "bias"):
        add(f"final_layer_norm.{part}", f"around_feed_forward.norm.{part}", (dim,), vector)
    return found
