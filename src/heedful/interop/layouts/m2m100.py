"""M2M-100's layout (``M2M100ForConditionalGeneration``), which NLLB-200 has, too.

Fan et al. 2021, "Beyond English-Centric Multilingual Machine Translation"; Costa-jussà et al. 2022,
"No Language Left Behind". A pre-norm Transformer whose encoder and decoder end with a layer norm.
One table of embeddings serves source, target and output; logits have no bias. Positions are
sinusoids with tensor2tensor's frequencies, which are not stored. The first token has the position
after the number of the padding symbol. A target begins with the end symbol, as in BART (see
:mod:`heedful.interop.layouts.bart`), and its first token names its language.
Shapes: V symbols of heedful, W rows of the file's table, D width.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heedful.attention.positions import Sinusoidal
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_POSITIONS
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder_decoder import (
    halves,
    layer_entries,
    norm_entries,
    read_sizes,
    refuse_parts,
    with_prefix,
    written_sizes,
)
from heedful.interop.layouts.entries import (
    NEVER,
    Entry,
    Places,
    permuted,
    symbols,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.rows import ExportRow, ImportRow
from heedful.models.transformer import TransformerSettings

IMPORTED = (
    ImportRow(
        ("m2m_100",),
        ("M2M100ForConditionalGeneration", "M2M100Model"),
        "translation, from one language to another that `--from` and `--to` name",
        "`heedful translate`, `view`, `serve`, `--start-from`",
    ),
)
EXPORTED = (
    ExportRow(
        "encoder-decoder",
        "Transformer, pre-norm, with M2M-100's positions",
        "`M2M100ForConditionalGeneration`",
        '`positions = { name = "sinusoidal", first = …, frequencies = "tensor2tensor" }`, '
        '`tied_embeddings = "all"`',
    ),
)
_SHARED = "model.shared.weight"
_ALIASES = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_POSITIONS = ("model.encoder.embed_positions.weights", "model.decoder.embed_positions.weights")
"""Old versions of the library stored the sinusoids."""
_USUAL: dict[str, Any] = {
    "activation_function": "relu",
    "attention_dropout": 0.1,
    "scale_embedding": True,
    "pad_token_id": 1,
}
"""Defaults that differ from those of BART."""
_ELSEWHERE = """
vocab_size pad_token_id eos_token_id bos_token_id decoder_start_token_id forced_eos_token_id
forced_bos_token_id num_hidden_layers
"""


def settings_of(config: Mapping[str, Any], where: str) -> TransformerSettings:
    """heedful's settings for a configuration.

    Raises:
        UserError: a field is not supported; the message has its name and value.
    """
    fields = Fields(_USUAL | dict(config), where)
    dim = fields.count("d_model", least=4)
    if dim % 2:
        raise fields.refuse("d_model", "odd widths are not supported")
    pad = fields.count("pad_token_id", least=0, most=MOST_POSITIONS - 1)
    settings = TransformerSettings(
        **read_sizes(fields, dim, dropped=True),
        pre_norm=True,
        positions=Sinusoidal.Settings(first=pad + 1, frequencies="tensor2tensor"),
        max_length=fields.count("max_position_embeddings", least=2, most=MOST_POSITIONS),
        scale_embeddings=fields.flag("scale_embedding", default=True),
        # Symbols that the file does not have are never generated.
        output_bias=True,
    )
    for name in ("is_encoder_decoder", "tie_word_embeddings"):
        fields.require(name, True)
    for name in ("normalize_before", "add_final_layer_norm"):
        fields.require(name, True)
    for name in ("is_decoder", "normalize_embedding"):
        fields.require(name, False)
    fields.ignore(_ELSEWHERE.split())
    fields.finish()
    if any(fields.share(f"{side}_layerdrop") for side in ("encoder", "decoder")):
        notice(f"{where}: encoder_layerdrop and decoder_layerdrop are not used in training here")
    return settings


def config_of(settings: TransformerSettings) -> dict[str, Any]:
    """The configuration for heedful's settings, without vocabulary sizes.

    Raises:
        UserError: the layout does not support a setting; the message has its name.
    """
    refuse_parts(settings, others=True)
    assert isinstance(settings.positions, Sinusoidal.Settings)
    if settings.positions.frequencies != "tensor2tensor" or not settings.positions.first:
        raise UserError(
            f"model.positions = {settings.positions}: M2M-100, as which such a Transformer is "
            "exported, has the frequencies 'tensor2tensor' and a first position of at least 1"
        )
    if settings.tied_embeddings != "all":
        raise UserError(
            f"model.tied_embeddings = '{settings.tied_embeddings}': M2M-100 has one table for both "
            "sides and the output; train with --set model.tied_embeddings=all"
        )
    return {
        "model_type": "m2m_100",
        "architectures": ["M2M100ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **written_sizes(settings),
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "max_position_embeddings": settings.max_length,
        "scale_embedding": settings.scale_embeddings,
        "tie_word_embeddings": True,
    }


def import_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places, where: str
) -> dict[str, Tensor]:
    """Convert a file's tensors to those of heedful's Transformer.

    Raises:
        UserError: a tensor is missing, unknown or has another shape, or the file's positions are
            not sinusoids.
    """
    kept = with_prefix(tensors)
    for name in _POSITIONS:
        if name in kept:
            _check_positions(kept.pop(name), settings, f"{where}: '{name}'")
    found = to_heedful(_entries(settings, places), kept, where)
    if places[BEGIN] is None:
        found["target_embedding.weight"][BEGIN] = found["target_embedding.weight"][END]
    missing = torch.tensor([place is None for place in places])
    return found | {"bias": missing * NEVER}


def _check_positions(given: Tensor, settings: TransformerSettings, what: str) -> None:
    """Raise UserError unless ``given [L, D]`` are the sinusoids from position 0 on."""
    assert isinstance(settings.positions, Sinusoidal.Settings)
    whole = settings.positions.model_copy(update={"first": 0})
    dim, pad = settings.hidden_size, settings.positions.first - 1
    expected = whole.build_added(dim, len(given)).vectors(torch.arange(len(given)))
    expected[pad : pad + 1] = 0.0
    half = given.dtype in (torch.float16, torch.bfloat16)
    found = given.float()[:, halves(dim)] if given.shape[1:] == (dim,) else given.float()
    # The library computes frequencies in float32, so that errors grow with positions.
    if found.shape != expected.shape or not torch.allclose(
        found, expected, atol=2e-3 if half else 2e-4
    ):
        raise UserError(f"{what} are not sinusoids; other positions are not supported")


def export_tensors(
    tensors: Mapping[str, Tensor], settings: TransformerSettings, places: Places
) -> tuple[dict[str, Tensor], int | None]:
    """Convert the tensors of heedful's Transformer to those of the layout.

    Returns:
        The tensors, and the row that targets begin with.

    Raises:
        UserError: the model has a bias of the logits, which the layout does not have.
    """
    bias = tensors.get("bias")
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    if bias is not None and bias[known].any():
        raise UserError("the output bias is not zero, but M2M-100's layout has none")
    found = to_external(_entries(settings, places), dict(tensors))
    table = tensors["target_embedding.weight"]
    if places[BEGIN] is not None:
        return found, places[BEGIN]
    if torch.equal(table[BEGIN], table[END]):
        return found, places[END]
    # The row of BEGIN is in the other order of dimensions, as all rows.
    order = halves(settings.hidden_size)
    row = permuted(order, 1).to_external(table[BEGIN : BEGIN + 1])
    found[_SHARED] = torch.cat([found[_SHARED], row])
    return found, count_rows(places)


def _entries(settings: TransformerSettings, places: Places) -> list[Entry]:
    dim, order = settings.hidden_size, halves(settings.hidden_size)
    table = Entry(
        _SHARED,
        (count_rows(places), dim),
        ("target_embedding.weight",),
        symbols(places).then(permuted(order, 1)),
        _ALIASES,
    )
    return [
        table,
        *layer_entries(settings, order),
        *norm_entries("model.encoder.layer_norm", "encoder_norm", dim, order),
        *norm_entries("model.decoder.layer_norm", "decoder_norm", dim, order),
    ]
