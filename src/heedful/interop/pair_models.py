"""Converts T5, BART, mBART, Pegasus and M2M-100 to runs, and Transformers' runs to a layout."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import Tensor

from heedful.attention.positions import Sinusoidal
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_BEAM
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_tokenisers import ImportedTokenisers
from heedful.data.imported_vocabulary import count_rows
from heedful.data.m2m_tokenisers import M2MTokenisers
from heedful.data.vocabularies import Subwords
from heedful.interop.exported import GENERATION, Exported, as_json
from heedful.interop.fields import MOST_ROWS, Fields
from heedful.interop.folder import CONFIG, read_weights
from heedful.interop.layouts import bart, m2m100, pegasus, t5
from heedful.interop.layouts.entries import Places
from heedful.interop.own_vocabularies import tokeniser_files
from heedful.interop.pair_tokenisers import read_pair_tokenisers
from heedful.interop.translators import Imported, read_generation, write_marian
from heedful.models.transformer import TransformerSettings
from heedful.tasks.pairs.recipe import DataSettings, EvaluationSettings
from heedful.tasks.pairs.run import PairRun
from heedful.tasks.text_to_text.recipe import TextToTextRecipe
from heedful.tasks.translation.recipe import TranslationRecipe

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
    "m2m_100": _Layout(
        lambda config, where, _: m2m100.settings_of(config, where),
        m2m100.import_tensors,
        m2m100.config_of,
        m2m100.export_tensors,
    ),
}


def read_pair_model(
    folder: Path, config: dict[str, Any], source: str | None = None, target: str | None = None
) -> Imported:
    """The recipe, tokenisers and weights of a T5, BART, mBART, Pegasus or M2M-100.

    Args:
        folder: contains the files.
        config: the content of ``config.json``.
        source: the source language, in a model of many languages.
        target: the target language, likewise.

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
    tokenisers, languages = read_pair_tokenisers(folder, config, rows, source, target)
    weights = layout.import_tensors(tensors, settings, tokenisers.source.places, where)
    beam = read_generation(folder).get("num_beams", config.get("num_beams"))
    evaluation = EvaluationSettings()
    if type(beam) is int and 1 <= beam <= MOST_BEAM:
        evaluation = EvaluationSettings(beam=beam)
    kind_of_recipe = TextToTextRecipe if languages is None else TranslationRecipe
    recipe = kind_of_recipe(
        data=DataSettings(
            train=[where],
            max_tokens=min(256, settings.max_length - 1),
            **({} if languages is None else languages._asdict()),
        ),
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
    if isinstance(tokenisers, ImportedTokenisers | M2MTokenisers):
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
    try:
        tensors, start = layout.export_tensors(weights, settings, places)
    except UserError as error:
        raise UserError(f"{run.path}: no Hugging Face layout for it: {error}") from error
    end = places[END]
    pad = start if places[PAD] is None else places[PAD]
    if isinstance(settings.positions, Sinusoidal.Settings) and kind == "m2m_100":
        _check_first(settings.positions, pad, run)
    rows = count_rows(places) + (start == count_rows(places))
    symbols = {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": start}
    config |= {"vocab_size": rows, **symbols}
    generation = {
        **symbols,
        **_search_fields(kind, places, start),
        "max_length": settings.max_length,
        "num_beams": run.recipe.evaluation.beam,
    }
    if tokenisers.target.first is not None:
        generation["forced_bos_token_id"] = places[tokenisers.target.first]
    files[GENERATION] = as_json(generation)
    return Exported(config, tensors, files)


def _search_fields(kind: str, places: Places, start: int | None) -> dict[str, Any]:
    """What a search never generates, and whether it divides by the sum over all other symbols.

    Args:
        kind: the layout.
        places: the row of each symbol.
        start: the row that targets begin with; one more than there are if BEGIN was given a row.
    """
    never = {row for row in (*places[:END], start) if row not in (None, places[END])}
    rows = [[row] for row in sorted(row for row in never if row is not None)]
    if kind == "m2m_100" and start == count_rows(places):
        # The row of BEGIN has no bias that excludes it from the sum of probabilities.
        return {"bad_words_ids": rows, "renormalize_logits": True}
    return {"bad_words_ids": rows}


def layout_for(settings: TransformerSettings) -> str:
    """The layout that has a model's most particular option: t5, bart, m2m_100, pegasus, marian."""
    if settings.norm == "rms" or settings.positions.name == "t5":
        return "t5"
    if settings.embedding_norm or settings.positions.name == "learned":
        return "bart"
    if settings.pre_norm and not _of_paper(settings):
        return "m2m_100"
    return "pegasus" if settings.pre_norm else "marian"


def _of_paper(settings: TransformerSettings) -> bool:
    """Whether positions are not sinusoids, or those of the paper."""
    own = settings.positions
    return not isinstance(own, Sinusoidal.Settings) or own.frequencies == "paper"


def _check_first(positions: Sinusoidal.Settings, pad: int | None, run: PairRun) -> None:
    """Raise UserError unless positions begin after the number of the padding symbol."""
    if pad is None or positions.first != pad + 1:
        raise UserError(
            f"{run.path}: no Hugging Face layout for it: model.positions.first = "
            f"{positions.first}: M2M-100's positions begin after the number of the padding symbol, "
            f"which is {pad}"
        )
