"""Prepares a run for single texts: vocabulary, labels, encoded examples, facts."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import remove_finished, remove_unfinished
from heedful.basics.notices import notice
from heedful.basics.symbols import END
from heedful.data.examples import Example
from heedful.data.subwords import SAMPLE_TEXTS, Reservoir
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
    remove_finished(path / "data")
    sources, tokeniser = _sources(path, recipe, data_folder), path / "tokeniser"
    hashes = _by_key({name: examples.hashes for name, examples in sources.items()})
    given = _given_vocabulary(recipe, start)
    sample = None if given is not None else _sample(recipe)
    see = None if sample is None else partial(_see, sample, recipe)
    labels = {name: examples.find_labels(see) for name, examples in sources.items()}
    held_out = {
        name: {part: _held_out(examples, part, labels[name]) for part in HELD_OUT}
        for name, examples in sources.items()
    }
    hashes |= vector_hashes(recipe.vectors, data_folder)
    vocabulary = _train(recipe, sources, sample) if given is None else given
    save_vocabulary(vocabulary, tokeniser)
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
        sources[name].data.keep_files(sources[name].files["test"], path / "data" / name)
    remove_unfinished(path / "data")
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


def _sources(path: Path, recipe: TextRecipe, data_folder: Path | None) -> dict[str, Examples]:
    """The examples of each head."""
    seed, tokeniser = recipe.seed, path / "tokeniser"
    return {
        name: Examples(
            recipe.table_of(name), data, seed, path / "data" / name, data_folder, tokeniser
        )
        for name, data in recipe.sets().items()
    }


def text_data_hashes(recipe: TextRecipe, data_folder: Path | None) -> dict[str, list[str]]:
    """The content hashes of each part, which are compared when a run is resumed."""
    sets = recipe.sets()
    if any("-" in files for data in sets.values() for files in data.files.values()):
        return {}  # standard input cannot be read again
    found = {
        name: recipe_hashes(data.files, None, data_folder, files_of=data.files_of)
        for name, data in sets.items()
    }
    return _by_key(found) | vector_hashes(recipe.vectors, data_folder)


def _by_key(hashes: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """The hashes of each part of each head, by the key of the part in ``run.json``."""
    return {f"{name}.{part}": own for name, parts in hashes.items() for part, own in parts.items()}


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


def _given_vocabulary(recipe: TextRecipe, start: Start | None) -> SavedVocabulary | None:
    """That of the run to start from, or of the teacher; None if there is neither."""
    if start is not None:
        return as_text_run(start.run).vocabulary()
    teacher = teacher_of(recipe)
    return None if teacher is None else as_text_run(teacher).vocabulary()


def _sample(recipe: TextRecipe) -> Reservoir[str] | None:
    """The sample from which the vocabulary is learnt; None if it is learnt from all texts."""
    settings = recipe.tokeniser
    return Reservoir[str](SAMPLE_TEXTS, recipe.seed) if settings.is_sampled else None


def _see(sample: Reservoir[str], recipe: TextRecipe, example: Example) -> None:
    for text in example.texts:
        for part in _parts(recipe, text):
            sample.add(part)


def _parts(recipe: TextRecipe, text: str) -> list[str]:
    """sentencepiece is trained on lines; the other kinds need texts with line breaks."""
    return text.split("\n") if recipe.tokeniser.kind in ("bpe", "unigram") else [text]


def _train(
    recipe: TextRecipe, sources: dict[str, Examples], sample: Reservoir[str] | None
) -> SavedVocabulary:
    """The vocabulary of the training texts, or of a sample of them."""
    where = "the training texts"
    if any(examples.moves_rare for examples in sources.values()):
        sample = None  # it lacks some examples

    def texts() -> Iterable[str]:
        if sample is not None:
            yield from sample.kept
            return
        for examples in sources.values():
            for text in examples.texts():
                yield from _parts(recipe, text)

    if sample is not None and sample.total > len(sample.kept):
        kept, total = f"{len(sample.kept):,}", f"{sample.total:,}"
        notice(f"{where}: the vocabulary is learnt from a random sample of {kept} of {total} texts")
    return train_vocabulary(texts, recipe.tokeniser, seed=recipe.seed, where=where)


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
