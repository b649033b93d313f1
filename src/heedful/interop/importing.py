"""Imports Hugging Face folders as runs: ``heedful import hf``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from torch import Tensor

from heedful.basics.bounded_reading import read_bytes
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, atomic_folder, content_hash
from heedful.data.tokeniser import Tokenisers
from heedful.data.vocabularies import save_vocabulary
from heedful.interop import encoders
from heedful.interop.exported import GENERATION
from heedful.interop.folder import CONFIG, read_config
from heedful.interop.pair_models import read_pair_model
from heedful.interop.texts import ImportedText, read_gpt, read_llama
from heedful.interop.translators import Imported as ImportedPairs
from heedful.interop.translators import read_marian
from heedful.interop.xlnet import read_xlnet
from heedful.runs.checkpoints import folder_of, save_checkpoint
from heedful.runs.manifest import write_facts, write_recipe
from heedful.runs.opening import open_run
from heedful.runs.recipe import write_toml
from heedful.runs.registry import kind_of
from heedful.runs.run import FORMAT, Run
from heedful.runs.settings import Recipe
from heedful.runs.start import versions_and_machine
from heedful.tasks.pairs.recipe import PairRecipe
from heedful.tasks.pairs.run import write_pairs

KEPT = "imported"
"""The folder in a run with the original configuration."""


class _Options(NamedTuple):
    """What the files do not state: see :func:`import_hf`."""

    pairs: bool
    source: str | None
    target: str | None


class _Imported(NamedTuple):
    """The parts of an imported run of any task."""

    recipe: Recipe
    weights: dict[str, Tensor]
    facts: dict[str, Any]
    """The task's fields of ``run.json``."""
    save: Callable[[Path], None]
    """Writes the vocabulary, and other files of the task, into the run's folder."""
    heads: list[str] | None = None
    """The heads that the files contain."""


def import_hf(
    folder: str | Path,
    out: str | Path,
    *,
    pairs: bool = False,
    ignored: Sequence[str] = (),
    source: str | None = None,
    target: str | None = None,
) -> Run:
    """Create a run from a model in the Hugging Face layout; no code of it is executed.

    Args:
        folder: contains ``config.json``, safetensors and the tokeniser's files.
        out: the run's folder, which must not exist.
        pairs: whether a classifier reads pairs of texts, which the files do not state.
        ignored: fields of ``config.json`` to ignore, because they have no effect; the run records
            them.
        source: the source language, in a model of many languages.
        target: the target language, likewise.

    Raises:
        UserError: the model type or a field is not supported; a file is missing, damaged or a
            pickle; or files contradict each other.
    """
    try:
        return _import(Path(folder), Path(out), _Options(pairs, source, target), ignored)
    except ValidationError as error:  # the fields give an invalid recipe
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(f"{Path(folder) / CONFIG}: {place}: {problem['msg']}") from error


def _import(folder: Path, out: Path, options: _Options, ignored: Sequence[str]) -> Run:
    if out.exists():
        raise UserError(f"{out} exists; choose another place for the run")
    config = read_config(folder)
    for name in ignored:
        if name not in config:
            raise UserError(f"{folder / CONFIG} has no field '{name}' to ignore; leave it out")
    config = {name: value for name, value in config.items() if name not in ignored}
    kind = str(config.get("model_type"))
    if kind not in _LAYOUTS:
        raise UserError(
            f"{folder / CONFIG}: model_type = '{kind}' is not supported; supported are "
            f"{', '.join(sorted(_LAYOUTS))}"
        )
    facts: dict[str, Any] = {
        "format": FORMAT,
        "made_with": versions_and_machine(),
        "started_from": None,
        "imported": {
            "layout": kind,
            "folder": str(folder),
            "config": content_hash(folder / CONFIG),
            **({"ignored": sorted(set(ignored))} if ignored else {}),
        },
    }
    if kind not in _OF_LANGUAGES and (options.source, options.target) != (None, None):
        raise UserError(
            f"{folder}: --from and --to are for models of many languages, such as M2M-100, "
            "NLLB-200 and mBART-50; leave them out"
        )
    if options.pairs and kind not in _OF_TEXT_PAIRS:
        raise UserError(f"{folder}: --pairs is for encoders; leave it out")
    found = _LAYOUTS[kind](folder, config, options)
    if found.heads is not None:
        facts["imported"]["heads"] = found.heads
    facts |= {"task": found.recipe.task, **found.facts}
    with atomic_folder(out, private=True) as made:
        found.save(made)
        write_recipe(made, write_toml(found.recipe))
        _keep_config(folder, made)
        run = kind_of(found.recipe).run_type()(made, found.recipe, facts)
        _save_weights(run, found.weights)
        write_facts(made, facts)
    return open_run(out)


def _read_marian(folder: Path, config: dict[str, Any], options: _Options) -> _Imported:
    return _of_pairs(read_marian(folder, config))


def _read_pair_model(folder: Path, config: dict[str, Any], options: _Options) -> _Imported:
    return _of_pairs(read_pair_model(folder, config, options.source, options.target))


def _of_pairs(found: ImportedPairs) -> _Imported:
    def save(made: Path) -> None:
        found.tokenisers.save(made / "tokeniser")
        for part in ("validation", "test"):
            write_pairs(made / "data" / f"{part}.jsonl", [])

    facts = _pair_facts(found.recipe, found.tokenisers)
    return _Imported(found.recipe, found.weights, facts, save)


def _read_encoder(folder: Path, config: dict[str, Any], options: _Options) -> _Imported:
    layout = encoders.LAYOUTS[config["model_type"]]
    return _of_text(encoders.read_encoder(layout, folder, config, pairs=options.pairs))


def _read_gpt(folder: Path, config: dict[str, Any], options: _Options) -> _Imported:
    return _of_text(read_gpt(folder, config))


def _read_xlnet(folder: Path, config: dict[str, Any], options: _Options) -> _Imported:
    return _of_text(read_xlnet(folder, config, pairs=options.pairs))


def _read_llama(folder: Path, config: dict[str, Any], options: _Options) -> _Imported:
    return _of_text(read_llama(folder, config))


_OF_TEXT_PAIRS = frozenset({*encoders.LAYOUTS, "xlnet"})
_OF_LANGUAGES = ("m2m_100", "mbart")
"""Values of ``model_type`` of models that translate between many languages."""
_LAYOUTS: Mapping[str, Callable[[Path, dict[str, Any], _Options], _Imported]] = {
    **dict.fromkeys(encoders.LAYOUTS, _read_encoder),
    **dict.fromkeys(("bart", "m2m_100", "mbart", "pegasus", "t5"), _read_pair_model),
    "gpt2": _read_gpt,
    "llama": _read_llama,
    "marian": _read_marian,
    "xlnet": _read_xlnet,
    "mistral": _read_llama,
    "qwen2": _read_llama,
}
"""``model_type`` of ``config.json`` → function that reads a folder."""


def _of_text(found: ImportedText) -> _Imported:
    unit = {"tagging": "sentences", "answer-spans": "questions"}.get(found.recipe.task, "texts")
    nothing = {"train": 0, "unit": unit, "validation": 0, "test": 0, "held_out_in_training": {}}
    facts: dict[str, Any] = {
        "data": {"hashes": {}},
        "sets": {
            name: {"labels": found.labels, **nothing, **found.outputs}
            for name in found.recipe.sets()
        },
        "vocabulary": {
            "size": found.vocabulary.size,
            "fingerprint": found.vocabulary.fingerprint(),
            "sentence_ends": [],
        },
        "vectors": None,
    }

    def save(made: Path) -> None:
        save_vocabulary(found.vocabulary, made / "tokeniser")

    return _Imported(found.recipe, found.weights, facts, save, found.heads)


def _pair_facts(recipe: PairRecipe, tokenisers: Tokenisers) -> dict[str, Any]:
    return {
        "source": recipe.data.source,
        "target": recipe.data.target,
        "data": {
            "hashes": {},
            "train_pairs": 0,
            "left_out": {},
            "validation_pairs": 0,
            "test_pairs": 0,
            "held_out_sources_in_training": {},
        },
        "vocabulary": {
            "source": tokenisers.source.size,
            "target": tokenisers.target.size,
            "fingerprint": tokenisers.fingerprint(),
        },
    }


def _keep_config(folder: Path, made: Path) -> None:
    for name in (CONFIG, GENERATION):
        if (folder / name).exists():
            with atomic_file(made / KEPT / name) as file:
                file.write(read_bytes(folder / name))


def _save_weights(run: Run, weights: dict[str, Any]) -> None:
    state = {"step": 0, "validation": {}}
    save_checkpoint(run.checkpoint_folder / folder_of(0), weights, {}, state)
