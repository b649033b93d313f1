"""What the layouts of encoder–decoder Transformers have in common: Marian, Pegasus, BART, mBART.

In the sinusoidal positions of Marian and Pegasus all sines precede the cosines; in heedful's they
alternate. The dimensions of a Transformer's hidden vectors can be permuted if all weights that read
and write them are permuted, too. Conversion therefore permutes the dimensions, and both models
compute the same function.
Shapes: V symbols of heedful, W rows of the file's table, D width, F inner width.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heedful.attention.positions.sinusoidal import Sinusoidal, sinusoids
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_LAYERS
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields, external_activation
from heedful.interop.layouts.entries import (
    NEVER,
    SAME,
    Conversion,
    Entry,
    Places,
    permuted,
    symbols,
)
from heedful.interop.layouts.plain_attention import refuse_mechanisms
from heedful.models.transformer import TransformerSettings


def read_sizes(fields: Fields, dim: int, *, dropped: bool = False) -> dict[str, Any]:
    """The sizes, dropout rates and activation function of a configuration.

    Args:
        fields: of ``config.json``.
        dim: D.
        dropped: whether the layout may leave out whole layers in training, which heedful does not.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    sides = {}
    for side in ("encoder", "decoder"):
        sides[side] = (
            fields.count(f"{side}_layers", most=MOST_LAYERS),
            fields.count(f"{side}_ffn_dim"),
            heads := fields.count(f"{side}_attention_heads"),
        )
        if dim % heads:
            raise fields.refuse(f"{side}_attention_heads", f"does not divide d_model = {dim}")
        if dropped:
            fields.share(f"{side}_layerdrop")
        else:
            fields.require(f"{side}_layerdrop", 0)
    layers, inner, heads = sides["encoder"]
    decoder = [
        other if other != one else None
        for one, other in zip(sides["encoder"], sides["decoder"], strict=True)
    ]
    return {
        "layers": layers,
        "hidden_size": dim,
        "ffn_size": inner,
        "heads": heads,
        "dropout": fields.share("dropout", 0.1),
        "attention_dropout": fields.share("attention_dropout"),
        "ffn_dropout": fields.share("activation_dropout"),
        "activation": fields.activation("activation_function", "gelu"),
        "decoder_layers": decoder[0],
        "decoder_ffn_size": decoder[1],
        "decoder_heads": decoder[2],
    }


def written_sizes(settings: TransformerSettings) -> dict[str, Any]:
    """The fields that :func:`read_sizes` reads."""
    return {
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
    }


def refuse_parts(
    settings: TransformerSettings, *, embedding_norm: bool = False, others: bool = False
) -> None:
    """Raise UserError for attention, positions or copying, which exports do not support.

    Args:
        settings: of the model.
        embedding_norm: whether the layout has a norm of the embeddings.
        others: whether the layout's sinusoids have other frequencies than the paper's.
    """
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
    if isinstance(settings.positions, Sinusoidal.Settings):
        _refuse_sinusoids(settings.positions, others=others)
    plain: dict[str, Any] = {
        "norm": "layer",
        "norm_epsilon": 1e-5,
        "bias": True,
        "gated": False,
    }
    plain |= {"scale_output": False, "embedding_norm": embedding_norm}
    for key, value in plain.items():
        if getattr(settings, key) != value:
            own, usual = str(getattr(settings, key)).lower(), str(value).lower()
            raise UserError(
                f"model.{key} = {own}: layouts other than T5's and BART's have {usual} only; train "
                f"with --set model.{key}={usual}"
            )
    if settings.tied_embeddings == "inputs":
        raise UserError(
            "model.tied_embeddings = 'inputs': layouts other than T5's have an output matrix of "
            "its own only where source and target differ, too; train with --set "
            "model.tied_embeddings=all"
        )
    of_decoder, dropout = settings.decoder_heads or settings.heads, settings.attention_dropout
    refuse_mechanisms(settings.attention_of("encoder"), settings.heads, dropout)
    refuse_mechanisms(settings.attention_of("decoder"), of_decoder, dropout)
    refuse_mechanisms(settings.attention_of("cross"), of_decoder, dropout)


def _refuse_sinusoids(positions: Sinusoidal.Settings, *, others: bool) -> None:
    if others or positions.of_paper:
        return
    raise UserError(
        f"model.positions = {positions}: only pre-norm Transformers with the frequencies "
        "'tensor2tensor' are exported with such positions; train with "
        "--set model.positions=sinusoidal"
    )


def logits_bias(places: Places) -> Entry:
    """The entry of the fixed bias of the logits."""
    row = Conversion(lambda external: external[0], lambda internal: internal.unsqueeze(0))
    return Entry(
        "final_logits_bias",
        (1, count_rows(places)),
        ("bias",),
        row.then(symbols(places, fill=NEVER)),
        optional=True,
    )


def halves(dim: int) -> Tensor:
    """The index in Marian's order (sines, then cosines) of each dimension of heedful."""
    return torch.arange(dim).view(2, dim // 2).T.flatten()


def check_sinusoids(given: Tensor, settings: TransformerSettings, what: str) -> None:
    """Raise UserError unless ``given [L, D]`` are the sinusoids of the settings.

    Args:
        given: positions of a file.
        settings: of the model.
        what: the tensor, for messages.
    """
    positions = given.float()
    shape = [settings.max_length, settings.hidden_size]
    if list(positions.shape) != shape:
        raise UserError(f"{what} has shape {list(positions.shape)}, but config.json gives {shape}")
    internal = sinusoids(torch.arange(len(positions)), settings.hidden_size)
    half = given.dtype in (torch.float16, torch.bfloat16)
    order = halves(settings.hidden_size)
    if not torch.allclose(positions[:, order], internal, atol=1e-3 if half else 1e-5):
        raise UserError(f"{what} are not sinusoids; other positions are not supported")


def with_prefix(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's tensors with the names of a model with an output; those of a bare model lack the
    prefix ``model.``."""
    bare = "shared.weight" in tensors
    return {f"model.{name}" if bare else name: tensor for name, tensor in tensors.items()}


def layer_entries(settings: TransformerSettings, order: Tensor | None = None) -> list[Entry]:
    """The tensors of all layers.

    Args:
        settings: of the model.
        order: the index in the other layout of each dimension of a hidden vector; None if the same.
    """
    entries = []
    for layer in range(settings.layers):
        entries += _layer("encoder", layer, settings, settings.ffn_size, order)
    inner = settings.decoder_ffn_size or settings.ffn_size
    for layer in range(settings.decoder_layers or settings.layers):
        entries += _layer("decoder", layer, settings, inner, order)
    return entries


def norm_entries(external: str, internal: str, dim: int, order: Tensor | None) -> list[Entry]:
    """The weight and the bias of a layer norm."""
    vector = SAME if order is None else permuted(order, 0)
    return [
        Entry(f"{external}.{part}", (dim,), (f"{internal}.{part}",), vector)
        for part in ("weight", "bias")
    ]


def _layer(
    side: str, layer: int, settings: TransformerSettings, inner: int, order: Tensor | None
) -> list[Entry]:
    internal, external = f"{side}.{layer}", f"model.{side}.layers.{layer}"
    reads = SAME if order is None else permuted(order, 1)
    writes = SAME if order is None else permuted(order, 0)
    dim = settings.hidden_size
    heads = [("self_attn", "self_attention", "around_self")]
    if side == "decoder":
        heads.append(("encoder_attn", "cross_attention", "around_cross"))
    found = []

    def add(their: str, our: str, shape: tuple[int, ...], convert: Conversion = SAME) -> None:
        found.append(Entry(f"{external}.{their}", shape, (f"{internal}.{our}",), convert))

    for their, our, around in heads:
        for short, long in (("q", "query"), ("k", "key"), ("v", "value")):
            add(
                f"{their}.{short}_proj.weight", f"{our}.{long}_projection.weight", (dim, dim), reads
            )
            add(f"{their}.{short}_proj.bias", f"{our}.{long}_projection.bias", (dim,))
        add(f"{their}.out_proj.weight", f"{our}.output_projection.weight", (dim, dim), writes)
        add(f"{their}.out_proj.bias", f"{our}.output_projection.bias", (dim,), writes)
        found += norm_entries(
            f"{external}.{their}_layer_norm", f"{internal}.{around}.norm", dim, order
        )
    add("fc1.weight", "feed_forward.expand.weight", (inner, dim), reads)
    add("fc1.bias", "feed_forward.expand.bias", (inner,))
    add("fc2.weight", "feed_forward.contract.weight", (dim, inner), writes)
    add("fc2.bias", "feed_forward.contract.bias", (dim,), writes)
    norm = f"{internal}.around_feed_forward.norm"
    return found + norm_entries(f"{external}.final_layer_norm", norm, dim, order)
