"""Prepares a run for single texts: vocabulary, labels, encoded examples, facts."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.examples import Example
from heedful.data.vocabularies import (
    SavedVocabulary,
    save_vocabulary,
    separators_of,
    train_vocabulary,
)
from heedful.data.vocabulary import Vocabulary
from heedful.runs.opening import open_run
from heedful.runs.run import Run
from heedful.runs.start import Start
from heedful.runs.vectors import vector_hashes
from heedful.tasks.preparation import (
    HELD_OUT,
    content_hashes,
    count_overlaps,
    recipe_hashes,
    require_some,
    save_vectors,
    write_run,
)
from heedful.tasks.teaching import teacher_of
from heedful.tasks.texts.examples import Examples, check_labels
from heedful.tasks.texts.part import part_of
from heedful.tasks.texts.recipe import EncoderRecipe, TextRecipe
from heedful.tasks.texts.run import as_text_run, write_examples

SENTENCE_ENDS = frozenset(".!?…。！？।")


def prepare_text_run(
    path: Path, recipe: TextRecipe, data_folder: Path | None, start: Start | None = None
) -> Run:
    """Make a new run: read and encode the data. Training does not read the files again.

    Args:
        path: the run's folder; files of an interrupted preparation are overwritten.
        recipe: all settings.
        data_folder: base folder of relative paths in the recipe; the current folder if None.
        start: gives the vocabulary and initial weights; if None, the vocabulary is trained on the
            data and weights are random.

    Raises:
        UserError: the data are missing, empty or broken, or the folder cannot be written.
    """
    shutil.rmtree(path / "data", ignore_errors=True)
    sources = {
        name: Examples(recipe.table_of(name), data, recipe.seed, path / "data" / name, data_folder)
        for name, data in recipe.sets().items()
    }
    files = {name: examples.files for name, examples in sources.items()}
    hashes = content_hashes(_by_key(files))
    labels = {name: examples.find_labels() for name, examples in sources.items()}
    held_out = {
        name: {part: _held_out(examples, part, labels[name]) for part in HELD_OUT}
        for name, examples in sources.items()
    }
    hashes |= vector_hashes(recipe.vectors, data_folder)
    vocabulary = _vocabulary(recipe, sources, start)
    sets = {
        name: {
            "labels": labels[name],
            **_encode(path / "data" / name / "train", name, examples, vocabulary, recipe),
            **{part: len(own) for part, own in held_out[name].items()},
            "held_out_in_training": _overlap(examples, held_out[name]),
        }
        for name, examples in sources.items()
    }
    for name, parts in held_out.items():
        for part, own in parts.items():
            write_examples(path / "data" / name / f"{part}.jsonl", own)
        sources[name].data.keep_files(files[name]["test"], path / "data" / name)
    save_vocabulary(vocabulary, path / "tokeniser")
    about = {
        "data": {"hashes": hashes},
        "sets": sets,
        "vocabulary": {
            "size": vocabulary.size,
            "fingerprint": vocabulary.fingerprint(),
            "sentence_ends": _sentence_ends(vocabulary),
            **({"separators": _separators(vocabulary)} if _reads_words(recipe) else {}),
        },
    }
    kept = {} if start is None else part_of(recipe.task).kept_weights(start, recipe, labels)
    vectors = save_vectors(path, recipe, lambda name: vocabulary, data_folder)
    write_run(path, recipe, about, vectors, start, kept)
    return open_run(path)


def text_data_hashes(recipe: TextRecipe, data_folder: Path | None) -> dict[str, list[str]]:
    """The content hashes of each part, which are compared when a run is resumed."""
    files = {name: data.files for name, data in recipe.sets().items()}
    return recipe_hashes(_by_key(files), recipe.vectors, data_folder)


def _by_key(files: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """The files of each part of each head, by the key of the part in ``run.json``."""
    return {f"{name}.{part}": own for name, parts in files.items() for part, own in parts.items()}


def _separators(vocabulary: Vocabulary) -> list[int]:
    """The tokens of white space, between which a model finds words.

    Raises:
        UserError: there are none, so that two words would be read as one.
    """
    found = separators_of(vocabulary)
    if not found:
        raise UserError(
            "the training texts have no white space: the vocabulary has none, and this model "
            "could not tell words apart; set tokeniser.kind = 'bytes'"
        )
    return found


def _held_out(examples: Examples, part: str, labels: Sequence[str]) -> list[Example]:
    found = list(examples.of(part))
    files = examples.files[part]
    require_some(found, files, f"{examples.name}.{part}")
    check_labels(found, labels, ", ".join(files) or f"{examples.name}.{part}_share")
    return found


def _vocabulary(
    recipe: TextRecipe, sources: dict[str, Examples], start: Start | None
) -> SavedVocabulary:
    if start is not None:
        return as_text_run(start.run).vocabulary()
    teacher = teacher_of(recipe)
    if teacher is not None:
        return as_text_run(teacher).vocabulary()

    def texts() -> Iterable[str]:
        for examples in sources.values():
            # sentencepiece is trained on lines; the other kinds need texts with line breaks.
            whole = recipe.tokeniser.kind not in ("bpe", "unigram")
            for text in examples.texts():
                yield from [text] if whole else text.split("\n")

    return train_vocabulary(texts, recipe.tokeniser, seed=recipe.seed, where="the training texts")


def _encode(
    folder: Path, name: str, examples: Examples, vocabulary: SavedVocabulary, recipe: TextRecipe
) -> dict[str, Any]:
    """Write the encoded training examples of the head ``name``; returns facts about them."""
    own = recipe.parts()[name]
    return part_of(own.task).encode(folder, own, examples, vocabulary, recipe)


def _overlap(examples: Examples, held_out: dict[str, list[Example]]) -> dict[str, int]:
    """Count the held-out texts that are also in the training data; a notice reports it."""
    if not examples.data.counts_overlap:
        return {}
    return count_overlaps(
        lambda: (example.text for example in examples.of("train")),
        {part: [example.text for example in own] for part, own in held_out.items()},
        lambda part, n, all: (
            f"{n:,} of {all:,} texts of {examples.name}.{part} are also in the training examples"
        ),
    )


def _reads_words(recipe: TextRecipe) -> bool:
    """Whether the model makes words of characters."""
    return isinstance(recipe, EncoderRecipe) and recipe.model.reads_words


def _sentence_ends(vocabulary: SavedVocabulary) -> list[int]:
    """The tokens that end sentences, for models that read sentence by sentence."""
    tokens = list(range(END + 1, vocabulary.size))
    texts = vocabulary.decode_batch([[token] for token in tokens])
    return [
        token
        for token, text in zip(tokens, texts, strict=True)
        if "\n" in text or text.strip() in SENTENCE_ENDS
    ]
