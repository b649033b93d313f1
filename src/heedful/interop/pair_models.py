"""Converts T5, BART, mBART and Pegasus to runs, and Transformers' runs to a fitting layout."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_BEAM
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_tokenisers import (
    ImportedTokenisers,
    find_pair_special,
    tokens_before,
)
from heedful.data.imported_vocabulary import ImportedVocabulary, count_rows
from heedful.data.tokeniser_files import read_files
from heedful.data.vocabularies import Subwords
from heedful.interop.exported import GENERATION, Exported, as_json
from heedful.interop.fields import MOST_ROWS, Fields
from heedful.interop.folder import CONFIG, read_weights
from heedful.interop.layouts import bart, pegasus, t5
from heedful.interop.layouts.entries import Places
from heedful.interop.own_vocabularies import tokeniser_files
from heedful.interop.tokeniser_class import check_tokeniser
from heedful.interop.translators import Imported, read_generation, write_marian
from heedful.models.transformer import TransformerSettings
from heedful.tasks.pairs.recipe import DataSettings, EvaluationSettings
from heedful.tasks.pairs.run import PairRun
from heedful.tasks.text_to_text.recipe import TextToTextRecipe

Settings = Callable[[Mapping[str, Any], str, Mapping[str, Tensor]], TransformerSettings]


class _Layout(NamedTuple):
    """The functions of a layout."""

    settings_of: Settings
    import_tensors: Callable[..., dict[str, Tensor]]
    config_of: Callable[[TransformerSettings], dict[str, Any]]
    export_tensors: Callable[..., tuple[dict[str, Tensor], int | None]]
    """Also returns the row that targets begin with."""


def _t5_settings(
    config: Mapping[str, Any], where: str, tensors: Mapping[str, Tensor]
) -> TransformerSettings:
    return t5.settings_of(config, where, tied=t5.is_tied(tensors))


_LAYOUTS = {
    "t5": _Layout(
        _t5_settings,
        t5.import_tensors,
        t5.config_of,
        lambda tensors, settings, places: (
            t5.export_tensors(tensors, settings, places),
            places[BEGIN],
        ),
    ),
    "pegasus": _Layout(
        lambda config, where, _: pegasus.settings_of(config, where),
        pegasus.import_tensors,
        pegasus.config_of,
        lambda tensors, settings, places: (
            pegasus.export_tensors(tensors, settings, places),
            places[BEGIN],
        ),
    ),
    "bart": _Layout(
        lambda config, where, _: bart.settings_of(config, where),
        bart.import_tensors,
        bart.config_of,
        bart.export_tensors,
    ),
}


def read_pair_model(folder: Path, config: dict[str, Any]) -> Imported:
    """The recipe, tokenisers and weights of a T5, BART, mBART or Pegasus.

    Raises:
        UserError: a field is not supported, a file is missing or damaged, or they contradict each
            other.
    """
    where, kind = str(folder), str(config["model_type"])
    layout = _LAYOUTS["bart" if kind == "mbart" else kind]
    tensors = read_weights(folder)
    settings = layout.settings_of(config, f"{where}/{CONFIG}", tensors)
    if settings.max_length < 3:
        raise UserError(
            f"{where}/{CONFIG}: max_position_embeddings = {settings.max_length}: a text with its "
            "end needs at least 3"
        )
    rows = Fields(config, f"{where}/{CONFIG}").count("vocab_size", most=MOST_ROWS)
    files = read_files(folder)
    check_tokeniser(files, config, where)
    vocabulary = ImportedVocabulary(files, find_pair_special(files, config, where), rows, where)
    tokenisers = ImportedTokenisers.of(vocabulary, tokens_before(files, vocabulary, where))
    weights = layout.import_tensors(tensors, settings, vocabulary.places, where)
    beam = read_generation(folder).get("num_beams", config.get("num_beams"))
    evaluation = EvaluationSettings()
    if type(beam) is int and 1 <= beam <= MOST_BEAM:
        evaluation = EvaluationSettings(beam=beam)
    recipe = TextToTextRecipe(
        data=DataSettings(train=[where], max_tokens=min(256, settings.max_length - 1)),
        tokeniser=tokenisers.source.settings,
        model=settings,
        evaluation=evaluation,
    )
    return Imported(recipe, tokenisers, weights)


def write_transformer(run: PairRun, weights: dict[str, Tensor], head: str | None) -> Exported:
    """Export the run of an encoder–decoder Transformer in the layout that has its options.

    Args:
        run: the run, whose model is a ``transformer``.
        weights: the weights of the checkpoint to export.
        head: not used, because there are none.

    Raises:
        UserError: no layout supports the model; the message gives the reason.
    """
    settings = cast(TransformerSettings, run.recipe.model)
    kind = layout_for(settings)
    if kind == "marian":
        return write_marian(run, weights, head)
    layout = _LAYOUTS[kind]
    try:
        config = layout.config_of(settings)
    except UserError as error:
        raise UserError(f"{run.path}: no Hugging Face layout for it: {error}") from error
    if run.recipe.data.rules is not None:
        notice(
            f"{run.path}: heedful replaces protected spans (data.protect) with placeholders, which "
            "transformers does not; their translations may differ there"
        )
    tokenisers = run.tokenisers()
    places: Places
    if isinstance(tokenisers, ImportedTokenisers):
        places, files = tokenisers.source.places, dict(tokenisers.files)
    else:
        if not tokenisers.shared:
            raise UserError(
                f"{run.path}: no Hugging Face layout for it: {kind} has one vocabulary for both "
                "sides; train with --set tokeniser.joint=true"
            )
        places = range(tokenisers.source.size)
        longest = settings.max_length
        own = Subwords(tokenisers.source)
        files = tokeniser_files(own, longest, around=False, after=True, where=str(run.path))
    tensors, start = layout.export_tensors(weights, settings, places)
    end = places[END]
    pad = start if places[PAD] is None else places[PAD]
    rows = count_rows(places) + (start == count_rows(places))
    symbols = {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": start}
    config |= {"vocab_size": rows, **symbols}
    never = {row for row in (*places[:END], start) if row not in (None, end)}
    generation = {
        **symbols,
        "bad_words_ids": [[row] for row in sorted(row for row in never if row is not None)],
        "max_length": settings.max_length,
        "num_beams": run.recipe.evaluation.beam,
    }
    files[GENERATION] = as_json(generation)
    return Exported(config, tensors, files)


def layout_for(settings: TransformerSettings) -> str:
    """The layout that has a model's most particular option: t5, bart, pegasus or marian."""
    if settings.norm == "rms" or settings.positions.name == "t5":
        return "t5"
    if settings.embedding_norm or settings.positions.name == "learned":
        return "bart"
    return "pegasus" if settings.pre_norm else "marian"
