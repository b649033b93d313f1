"""Hugging Face folders as runs: ``heedful import hf``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, atomic_folder, content_hash
from heedful.basics.reading import read_bytes
from heedful.data.tokeniser import Tokenisers
from heedful.data.vocabularies import save_vocabulary
from heedful.interop.exported import GENERATION
from heedful.interop.folder import CONFIG, read_config
from heedful.interop.texts import ImportedText, read_bert, read_gpt
from heedful.interop.translators import read_marian
from heedful.runs.checkpoints import folder_of, save_checkpoint
from heedful.runs.opening import open_run
from heedful.runs.recipe import write_toml
from heedful.runs.run import FORMAT, Run
from heedful.runs.sealing import write_facts, write_recipe
from heedful.runs.start import made_with
from heedful.tasks.pairs.recipe import PairRecipe
from heedful.tasks.pairs.run import PairRun, write_pairs
from heedful.tasks.texts.run import TextRun

KEPT = "imported"
"""The folder of a run that keeps the configuration as it was."""

_KINDS = ("bert", "gpt2", "marian")


def import_hf(
    folder: str | Path, out: str | Path, *, pairs: bool = False, ignored: Sequence[str] = ()
) -> Run:
    """Make a run of a model in the Hugging Face layout; nothing of it is executed.

    Args:
        folder: with ``config.json``, safetensors and the tokeniser's files.
        out: the run's folder, which must not exist.
        pairs: whether a classifier decides on two texts, which the files do not say.
        ignored: fields of ``config.json`` that are not read, because they have no effect. The run
            keeps a note of them.

    Raises:
        UserError: the model is of a kind, or has a field, that is not supported; a file is missing,
            damaged or a pickle; or files do not agree.
    """
    try:
        return _import(Path(folder), Path(out), pairs, ignored)
    except ValidationError as error:  # of a recipe that the fields would make
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(f"{Path(folder) / CONFIG}: {place}: {problem['msg']}") from error


def _import(folder: Path, out: Path, pairs: bool, ignored: Sequence[str]) -> Run:
    if out.exists():
        raise UserError(f"{out} exists; choose another place for the run")
    config = read_config(folder)
    for name in ignored:
        if name not in config:
            raise UserError(f"{folder / CONFIG} has no field '{name}' to ignore; leave it out")
    config = {name: value for name, value in config.items() if name not in ignored}
    kind = config.get("model_type")
    if kind not in _KINDS:
        raise UserError(
            f"{folder / CONFIG}: model_type = '{kind}' is not supported; supported are "
            f"{', '.join(_KINDS)}"
        )
    facts = {
        "format": FORMAT,
        "made_with": made_with(),
        "started_from": None,
        "imported": {
            "layout": kind,
            "folder": str(folder),
            "config": content_hash(folder / CONFIG),
            **({"ignored": sorted(set(ignored))} if ignored else {}),
        },
    }
    if kind == "marian":
        return _import_marian(folder, out, config, facts)
    found = read_bert(folder, config, pairs=pairs) if kind == "bert" else read_gpt(folder, config)
    return _import_text(folder, out, found, facts)


def _import_marian(folder: Path, out: Path, config: dict[str, Any], facts: dict[str, Any]) -> Run:
    found = read_marian(folder, config)
    facts |= _pair_facts(found.recipe, found.tokenisers)
    with atomic_folder(out, private=True) as made:
        found.tokenisers.save(made / "tokeniser")
        for part in ("validation", "test"):
            write_pairs(made / "data" / f"{part}.jsonl", [])
        write_recipe(made, write_toml(found.recipe))
        _keep_config(folder, made)
        run = PairRun(made, found.recipe, facts)
        _save_weights(run, found.weights)
        write_facts(made, facts)
    return open_run(out)


def _import_text(folder: Path, out: Path, found: ImportedText, facts: dict[str, Any]) -> Run:
    unit = "sentences" if found.recipe.task == "tagging" else "texts"
    nothing = {"train": 0, "unit": unit, "validation": 0, "test": 0, "held_out_in_training": {}}
    facts["imported"]["heads"] = found.heads
    facts |= {
        "task": found.recipe.task,
        "data": {"hashes": {}},
        "sets": {name: {"labels": found.labels, **nothing} for name in found.recipe.sets()},
        "vocabulary": {
            "size": found.vocabulary.size,
            "fingerprint": found.vocabulary.fingerprint(),
            "sentence_ends": [],
        },
        "vectors": None,
    }
    with atomic_folder(out, private=True) as made:
        save_vocabulary(found.vocabulary, made / "tokeniser")
        write_recipe(made, write_toml(found.recipe))
        _keep_config(folder, made)
        _save_weights(TextRun(made, found.recipe, facts), found.weights)
        write_facts(made, facts)
    return open_run(out)


def _pair_facts(recipe: PairRecipe, tokenisers: Tokenisers) -> dict[str, Any]:
    return {
        "task": recipe.task,
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
