"""Converts Marian models to runs, and runs to Marian models."""

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

import sentencepiece
from torch import Tensor

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_BEAM
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.imported_vocabulary import count_rows
from heedful.data.marian_tokenisers import (
    FILES,
    MarianTokenisers,
    find_marian_special,
)
from heedful.data.tokeniser import Tokeniser, Tokenisers
from heedful.data.tokeniser_files import read_files, read_tokeniser_settings
from heedful.interop.exported import GENERATION, Exported, as_json
from heedful.interop.fields import MOST_ROWS, Fields
from heedful.interop.folder import CONFIG, read_weights
from heedful.interop.layouts import marian
from heedful.interop.layouts.marian import MarianSymbols
from heedful.models.transformer import TransformerSettings
from heedful.tasks.pairs.recipe import DataSettings, EvaluationSettings, PairRecipe
from heedful.tasks.pairs.run import PairRun
from heedful.tasks.translation.recipe import TranslationRecipe

FORCED = "forced_bos_token_id"
"""The field with the token that ``generate`` puts first in each output."""
_WITH_FIRST_SPACE = b"\x1a\x02\x18\x01"
"""Bytes that are appended to a sentencepiece model and merged with it (protobuf merges repeated
fields): ``normalizer_spec { add_dummy_prefix: true }``."""


class Imported(NamedTuple):
    """The parts of an imported run."""

    recipe: PairRecipe
    tokenisers: Tokenisers
    weights: dict[str, Tensor]


def read_marian(folder: Path, config: dict[str, Any]) -> Imported:
    """A Marian model's recipe, tokenisers and weights.

    Raises:
        UserError: a field is not supported, a file is missing or damaged, or they contradict each
            other.
    """
    where = str(folder)
    settings = marian.settings_of(config, f"{where}/{CONFIG}")
    if settings.max_length < 3:
        raise UserError(
            f"{where}/{CONFIG}: max_position_embeddings = {settings.max_length}: a text with its "
            "end needs at least 3"
        )
    generation = read_generation(folder)
    if generation.get(FORCED) is not None:
        raise forced_error(generation[FORCED], where)
    files = read_files(folder, FILES)
    special = find_marian_special(files, config, where)
    rows = _rows(config, settings, where)
    tokenisers = MarianTokenisers.read(files, special, rows, where)
    places = MarianSymbols(tokenisers.source.places, tokenisers.target.places)
    weights = marian.import_tensors(read_weights(folder), settings, places, where)
    token_settings = read_tokeniser_settings(files, where)
    beam = generation.get("num_beams", config.get("num_beams"))
    evaluation = EvaluationSettings()
    if type(beam) is int and 1 <= beam <= MOST_BEAM:
        evaluation = EvaluationSettings(beam=beam)
    languages = {
        side: token_settings[f"{side}_lang"]
        for side in ("source", "target")
        if isinstance(token_settings.get(f"{side}_lang"), str)
    }
    recipe = TranslationRecipe(
        data=DataSettings(
            train=[where],
            max_tokens=min(256, settings.max_length - 1),
            source=languages.get("source"),
            target=languages.get("target"),
        ),
        tokeniser=tokenisers.source.settings,
        model=settings,
        evaluation=evaluation,
    )
    return Imported(recipe, tokenisers, weights)


def read_generation(folder: Path) -> dict[str, Any]:
    """The generation configuration of a folder, if any."""
    path = folder / GENERATION
    return read_json(path) if path.exists() else {}


def forced_error(forced: Any, where: str) -> UserError:
    """The error for a first token of outputs that is not supported."""
    return UserError(
        f"{where}: {FORCED} = {json.dumps(forced)[:40]}: supported is only the token that the "
        "tokeniser puts before each text; to import the model without it, remove the field from "
        f"{GENERATION} and {CONFIG}"
    )


def _rows(config: dict[str, Any], settings: TransformerSettings, where: str) -> tuple[int, int]:
    """The numbers of rows of the source and target tables."""
    fields = Fields(config, f"{where}/{CONFIG}")
    source = fields.count("vocab_size", most=MOST_ROWS)
    if settings.tied_embeddings == "all" or config.get("decoder_vocab_size") is None:
        return source, source
    return source, fields.count("decoder_vocab_size", most=MOST_ROWS)


def write_marian(run: PairRun, weights: dict[str, Tensor], head: str | None) -> Exported:
    """Export a translator's run as a Marian model.

    Args:
        run: the run, whose model is a ``transformer``.
        weights: the weights of the checkpoint to export.
        head: not used, because there are none.

    Raises:
        UserError: Marian's layout does not support the model; the message gives the reason.
    """
    settings = cast(TransformerSettings, run.recipe.model)
    try:
        config = marian.config_of(settings)
    except UserError as error:
        raise UserError(f"{run.path}: no Hugging Face layout for it: {error}") from error
    tokenisers = run.tokenisers()
    if isinstance(tokenisers, MarianTokenisers):
        source, target = tokenisers.source, tokenisers.target
        places = MarianSymbols(source.places, target.places)
        files = dict(tokenisers.files)
        special: list[int | None] = list(target.places[: END + 1])
    else:
        places = MarianSymbols(range(tokenisers.source.size), range(tokenisers.target.size))
        files = _own_files(run, tokenisers, settings)
        special = [PAD, UNKNOWN, BEGIN, END]
    start, end = special[BEGIN], special[END]
    pad = start if special[PAD] is None else special[PAD]
    config |= {
        "vocab_size": count_rows(places.source),
        "decoder_vocab_size": count_rows(places.target),
        "pad_token_id": pad,
        "bos_token_id": None,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        "forced_eos_token_id": end,
    }
    never = sorted({row for row in special[:END] if row is not None})
    generation = {
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        "forced_eos_token_id": end,
        "bad_words_ids": [[row] for row in never],
        "max_length": settings.max_length,
        "num_beams": run.recipe.evaluation.beam,
    }
    files[GENERATION] = as_json(generation)
    return Exported(config, marian.export_tensors(weights, settings, places), files)


def _own_files(
    run: PairRun, tokenisers: Tokenisers, settings: TransformerSettings
) -> dict[str, bytes]:
    """heedful's tokenisers in the format of ``MarianTokenizer``."""
    files: dict[str, bytes] = {}
    for side, own in (("source", tokenisers.source), ("target", tokenisers.target)):
        # heedful adds a space before each text; sentencepiece is configured to do the same.
        files[f"{side}.spm"] = own.model + _WITH_FIRST_SPACE
        name = "vocab.json" if side == "source" else "target_vocab.json"
        if side == "source" or not tokenisers.shared:
            files[name] = as_json({piece: row for row, piece in enumerate(_pieces(own))})
    if tokenisers.source.settings.normalise != "none":
        notice(
            f"{run.path}: its tokeniser composes characters (nfc), but transformers does not; "
            "use composed texts only"
        )
    notice(
        f"{run.path}: MarianTokenizer reads '>>de<<' at the start of a text as a language code, "
        "which this vocabulary does not contain, and makes it unknown; avoid such texts"
    )
    data = run.recipe.data
    token_settings = {
        "tokenizer_class": "MarianTokenizer",
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": settings.max_length,
        "separate_vocabs": not tokenisers.shared,
        "split_special_tokens": True,
        "source_lang": data.source,
        "target_lang": data.target,
    }
    files["tokenizer_config.json"] = as_json(
        {key: value for key, value in token_settings.items() if value is not None}
    )
    return files


def _pieces(tokeniser: Tokeniser) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokeniser.model)
    return [str(processor.id_to_piece(row)) for row in range(tokeniser.size)]
