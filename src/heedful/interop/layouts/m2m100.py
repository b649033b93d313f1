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
from heedful.interop.fields import Fields
from heedful.interop.layouts.encoder_decoder import (
    halves,
    layer_entries,
    read_sizes,
    refuse_parts,
    with_prefix,
)
from heedful.interop.layouts.entries import (
    NEVER,
    Entry,
    Places,
    to_external,
    to_heedful,
)
from heedful.interop.layouts.one_table import (
    begin_as_end,
    last_norms,
    read_width,
    refuse_other_tables,
    table_entry,
    with_begin,
    written_config,
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
    dim = read_width(fields, least=4)
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
    refuse_other_tables(settings, "M2M-100 has")
    drop = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
    return written_config(settings, "m2m_100", "M2M100") | drop


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
    begin_as_end(found, places)
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
    order = halves(settings.hidden_size)
    return found, with_begin(found, tensors["target_embedding.weight"], places, order)


def _entries(settings: TransformerSettings, places: Places) -> list[Entry]:
    order = halves(settings.hidden_size)
    return [
        table_entry(settings, places, order),
        *layer_entries(settings, order),
        *last_norms(settings, order),
    ]
