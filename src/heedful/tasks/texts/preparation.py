"""From files to a run for single texts that can train: vocabulary, labels, encoded examples."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from heedful.basics.errors import UserError
from heedful.basics.files import content_hash
from heedful.basics.notices import notice
from heedful.basics.symbols import END
from heedful.data.examples import Example
from heedful.data.overlap import count_overlap
from heedful.data.vocabularies import (
    SavedVocabulary,
    save_vocabulary,
    train_vocabulary,
)
from heedful.runs.checkpoints import save_checkpoint
from heedful.runs.opening import open_run
from heedful.runs.recipe import find_data, write_toml
from heedful.runs.run import FORMAT, Run
from heedful.runs.sealing import write_facts, write_recipe
from heedful.runs.start import Start, made_with
from heedful.runs.vectors import Given, keep_vectors, vector_hashes
from heedful.tasks.texts.part import part_of
from heedful.tasks.texts.recipe import TextRecipe
from heedful.tasks.texts.run import TextRun, as_text_run, write_examples
from heedful.tasks.texts.sources import Examples, check_labels

HELD_OUT = ("validation", "test")
SENTENCE_ENDS = frozenset(".!?…。！？।")


def prepare_text_run(
    path: Path, recipe: TextRecipe, data_folder: Path | None, start: Start | None = None
) -> Run:
    """Make a new run: read and encode the data once; nothing of it is read again.

    Args:
        path: the run's folder; what an interrupted preparation left there is made anew.
        recipe: all settings.
        data_folder: where relative paths of the recipe start; the current folder if None.
        start: vocabulary and first weights; made of the data and drawn if None.

    Raises:
        UserError: the data are missing, empty or broken, or the folder cannot be written.
    """
    shutil.rmtree(path / "data", ignore_errors=True)
    sources = {
        name: Examples(recipe.table_of(name), data, recipe.seed, path / "data" / name, data_folder)
        for name, data in recipe.sets().items()
    }
    hashes = {
        f"{name}.{part}": [content_hash(Path(file)) for file in files]
        for name, examples in sources.items()
        for part, files in examples.files.items()
    }
    labels = {name: examples.find_labels() for name, examples in sources.items()}
    held_out = {
        (name, part): _held_out(examples, part, labels[name])
        for name, examples in sources.items()
        for part in HELD_OUT
    }
    hashes |= vector_hashes(recipe.vectors, data_folder)
    vocabulary = _vocabulary(recipe, sources, start)
    sets = {
        name: {
            "labels": labels[name],
            **_encode(path / "data" / name / "train", name, examples, vocabulary, recipe),
            **{part: len(held_out[name, part]) for part in HELD_OUT},
            "held_out_in_training": _overlap(
                examples, {part: held_out[name, part] for part in HELD_OUT}
            ),
        }
        for name, examples in sources.items()
    }
    for (name, part), examples in held_out.items():
        write_examples(path / "data" / name / f"{part}.jsonl", examples)
    save_vocabulary(vocabulary, path / "tokeniser")
    write_recipe(path, write_toml(recipe))
    facts = {
        "format": FORMAT,
        "task": recipe.task,
        "made_with": made_with(),
        "data": {"hashes": hashes},
        "sets": sets,
        "vocabulary": {
            "size": vocabulary.size,
            "fingerprint": vocabulary.fingerprint(),
            "sentence_ends": _sentence_ends(vocabulary),
        },
        "vectors": _vectors(path, recipe, vocabulary, data_folder),
        "started_from": None if start is None else start.facts,
    }
    if start is not None:
        kept = part_of(recipe.task).kept_weights(start, recipe, labels)
        state = {"step": 0, "validation": {}}
        save_checkpoint(TextRun(path, recipe, facts).start_folder, kept, {}, state)
    write_facts(path, facts)
    return open_run(path)


def text_data_hashes(recipe: TextRecipe, data_folder: Path | None) -> dict[str, list[str]]:
    """Each part's content hashes, for a run that goes on to be compared with."""
    files = {
        f"{name}.{part}": paths
        for name, data in recipe.sets().items()
        for part, paths in data.files.items()
    }
    if any("-" in paths for paths in files.values()):
        return {}  # a pipe cannot be read again
    return {
        part: [content_hash(Path(file)) for file in find_data(paths, data_folder)]
        for part, paths in files.items()
    } | vector_hashes(recipe.vectors, data_folder)


def _held_out(examples: Examples, part: str, labels: Sequence[str]) -> list[Example]:
    found = list(examples.of(part))
    files = examples.files[part]
    if files and not found:
        raise UserError(f"{examples.name}.{part}: {', '.join(files)} is empty")
    check_labels(found, labels, ", ".join(files) or f"{examples.name}.{part}_share")
    return found


def _vocabulary(
    recipe: TextRecipe, sources: dict[str, Examples], start: Start | None
) -> SavedVocabulary:
    if start is not None:
        return as_text_run(start.run).vocabulary()

    def texts() -> Iterable[str]:
        for examples in sources.values():
            # sentencepiece learns from lines; what is read whole must show its line breaks.
            whole = recipe.tokeniser.kind not in ("bpe", "unigram")
            for text in examples.texts():
                yield from [text] if whole else text.split("\n")

    return train_vocabulary(texts, recipe.tokeniser, seed=recipe.seed, where="the training texts")


def _encode(
    folder: Path, name: str, examples: Examples, vocabulary: SavedVocabulary, recipe: TextRecipe
) -> dict[str, Any]:
    """Write the encoded training examples of what is learnt as ``name``; facts about them."""
    own = recipe.parts()[name]
    return part_of(own.task).encode(folder, own, examples, vocabulary, recipe)


def _overlap(examples: Examples, held_out: dict[str, list[Example]]) -> dict[str, int]:
    """How many held-out texts training has, too; said."""
    if not examples.data.counts_overlap:
        return {}
    found = {}
    for part, own in held_out.items():
        if not own:
            continue
        training = (example.text for example in examples.of("train"))
        found[part] = count_overlap(training, (example.text for example in own))
        if found[part]:
            notice(
                f"{found[part]:,} of {len(own):,} texts of {examples.name}.{part} also stand in "
                "the training examples; figures on them flatter the model"
            )
    return found


def _sentence_ends(vocabulary: SavedVocabulary) -> list[int]:
    """The tokens that end sentences, for models that read sentence by sentence."""
    tokens = list(range(END + 1, vocabulary.size))
    texts = vocabulary.decode_batch([[token] for token in tokens])
    return [
        token
        for token, text in zip(tokens, texts, strict=True)
        if "\n" in text or text.strip() in SENTENCE_ENDS
    ]


def _vectors(
    path: Path, recipe: TextRecipe, vocabulary: SavedVocabulary, data_folder: Path | None
) -> dict[str, Any] | None:
    """Keep the vectors of the vocabulary's words; the share of words that have one."""
    if recipe.vectors is None:
        return None
    given = {name: Given(file, vocabulary) for name, file in recipe.vectors.files.items()}
    return keep_vectors(path, given, cast(Any, recipe).model, data_folder)
