"""From files to a run for single texts that can train: vocabulary, labels, encoded examples."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder, content_hash
from heedful.basics.notices import notice
from heedful.basics.progress import progress
from heedful.basics.symbols import END
from heedful.data import columns
from heedful.data.columns import Codec
from heedful.data.document_store import EncodedDocuments, write_documents
from heedful.data.examples import Example, Labelled, Tagged
from heedful.data.overlap import count_overlap
from heedful.data.readers.plain import cut_sentences
from heedful.data.sentences import SentenceFailures
from heedful.data.store import Store, StoreWriter
from heedful.data.streams import write_stream
from heedful.data.vocabularies import (
    SavedVocabulary,
    save_vocabulary,
    train_vocabulary,
)
from heedful.data.vocabulary import Vocabulary
from heedful.inference.classifier import rows_of
from heedful.runs.checkpoints import save_checkpoint
from heedful.runs.opening import open_run
from heedful.runs.recipe import find_data, write_toml
from heedful.runs.run import FORMAT, Run
from heedful.runs.sealing import write_facts, write_recipe
from heedful.runs.start import Start, made_with
from heedful.runs.vectors import Given, keep_vectors, vector_hashes
from heedful.tasks.texts.recipe import (
    DocumentData,
    EncoderRecipe,
    HeadSettings,
    LanguageRecipe,
    MaskedHead,
    TaggedData,
    TextRecipe,
    table_of,
)
from heedful.tasks.texts.rows import tagged_rows
from heedful.tasks.texts.run import TextRun, as_text_run, write_examples
from heedful.tasks.texts.sources import Examples, check_labels
from heedful.tasks.texts.starting import kept_weights

_AT_ONCE = 4096
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
        name: Examples(table_of(recipe, name), data, recipe.seed, path / "data" / name, data_folder)
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
            **_encode(path / "data" / name / "train", recipe, name, examples, vocabulary),
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
        kept = kept_weights(start, recipe, labels)
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
    folder: Path,
    recipe: TextRecipe,
    name: str,
    examples: Examples,
    vocabulary: SavedVocabulary,
) -> dict[str, Any]:
    """Write the encoded training examples of what is learnt as ``name``; facts about them."""
    if isinstance(examples.data, DocumentData):
        if not isinstance(recipe, EncoderRecipe):
            documents = (str(example) for example in examples.of("train"))
            encoded = (vocabulary.encode(text) for text in _seen(documents, "documents"))
            return {"train": write_stream(encoded, folder, vocabulary.size), "unit": "tokens"}
        for part in ("train", "validation"):
            texts = (str(example) for example in examples.of(part))
            if part == "train" or examples.data.is_validated:
                head = recipe.heads()[name]
                write_sentences(texts, vocabulary, folder.parent / part, recipe.max_tokens, head)
        found = EncodedDocuments.open(folder)
        return {"train": len(found.sentences), "documents": len(found), "unit": "sentences"}
    if not isinstance(recipe, EncoderRecipe):
        raise TypeError(f"no encoding of {type(examples.data).__name__} for {recipe.task}")
    numbers = {label: number for number, label in enumerate(examples.labels)}
    counts: Counter[str] = Counter()

    def rows() -> Iterator[tuple[list[int], Any]]:
        for example in _seen(examples.of("train"), "examples"):
            counts["examples"] += 1
            made: list[tuple[list[int], Any]]
            if isinstance(example, Labelled):
                made = list(_labelled_rows(example, numbers, vocabulary, recipe.max_tokens))
            elif isinstance(example, Tagged):
                made = list(tagged_rows(example, numbers, vocabulary, recipe.max_tokens))
            else:
                raise TypeError("a document among examples")
            counts["windows"] += len(made)
            counts["long"] += len(made) > 1
            yield from made

    tagged = isinstance(examples.data, TaggedData)
    of_labels = columns.tokens(len(numbers) + 1) if tagged else columns.label(len(numbers))
    codecs = {"tokens": columns.tokens(vocabulary.size), "labels": of_labels}
    write_rows(rows(), folder, codecs)
    if counts["long"]:
        notice(
            f"{counts['long']:,} of {counts['examples']:,} training examples are longer than "
            f"max_tokens {recipe.max_tokens}: learnt from in windows, {counts['windows']:,} in all"
        )
    unit = "sentences" if tagged else "texts"
    return {"train": counts["examples"], "windows": counts["windows"], "unit": unit}


def write_sentences(
    documents: Iterator[str],
    vocabulary: Vocabulary,
    folder: Path,
    max_tokens: int,
    head: HeadSettings,
) -> None:
    """Encode documents sentence by sentence, each short enough for a pair of them.

    Raises:
        UserError: there is but one document, where pairs need others.
    """
    if not isinstance(head, MaskedHead):
        raise TypeError("documents are for hidden tokens")
    pairs, language = head.masking.next_sentence, head.data.sentences
    longest = (max_tokens - 3) // 2 if pairs else max_tokens - 2
    failures = SentenceFailures()
    lines = (
        document.split("\n")
        if language is None
        else cut_sentences(document.split("\n"), language, failures)
        for document in _seen(documents, "documents")
    )
    write_documents(lines, vocabulary, folder, longest=longest)
    failures.tell()
    if pairs and len(EncodedDocuments.open(folder)) < 2:
        raise UserError(
            f"the {folder.name} text is one document, and whether a sentence follows needs others "
            "to draw from: data.documents says what parts them, masking.next_sentence = false does "
            "without"
        )


def _seen(examples: Iterable[Any], unit: str) -> Iterator[Any]:
    with progress("encoding", None, unit) as advance:
        for example in examples:
            yield example
            advance(1)


def _labelled_rows(
    example: Labelled, numbers: dict[str, int], vocabulary: SavedVocabulary, limit: int
) -> Iterator[tuple[list[int], int]]:
    """A row's tokens without the first BEGIN and the last END, and its label."""
    tokens = [vocabulary.encode(text) for text in example.texts]
    for row in rows_of(tokens, limit):
        joined = row.first if row.second is None else [*row.first, END, *row.second]
        yield joined, numbers[example.label]


def write_rows(
    rows: Iterator[tuple[list[int], Any]], folder: Path, codecs: Mapping[str, Codec]
) -> None:
    """Write rows and what they are labelled with."""
    with atomic_folder(folder) as beside, StoreWriter(beside, codecs) as writer:
        while chunk := list(islice(rows, _AT_ONCE)):
            parts = zip(codecs, zip(*chunk, strict=True), strict=True)
            writer.add({name: codecs[name].column(own) for name, own in parts})
        writer.finish({})
    Store.open(folder)


def _overlap(examples: Examples, held_out: dict[str, list[Example]]) -> dict[str, int]:
    """How many held-out texts training has, too; said."""
    if isinstance(examples.data, DocumentData):
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
    if not isinstance(recipe, EncoderRecipe | LanguageRecipe):
        raise TypeError(f"no embedding for {recipe.task}")
    given = {name: Given(file, vocabulary) for name, file in recipe.vectors.files.items()}
    return keep_vectors(path, given, recipe.model, data_folder)
