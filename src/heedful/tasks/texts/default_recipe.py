"""Default recipes for single texts: sizes and steps are chosen from the examples."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.examples import Document, Example
from heedful.data.readers import read_documents, read_labelled, read_tagged
from heedful.data.readers.folders import text_files
from heedful.data.readers.labelled import LabelledFormat, Unlabelled
from heedful.data.readers.plain import DocumentRule
from heedful.runs.held_out import pseudo_random
from heedful.runs.recipe import find_data
from heedful.tasks.default_recipe import (
    TOKENS_PER_WORD,
    WORD_TYPES,
    data_table,
    refuse_pipe,
    vocabulary,
    words_in,
)

SEED = 1
PIPE = (
    "standard input can be read only once, so no recipe can be chosen for it; save it to a file, "
    "or give a recipe"
)


class Size(NamedTuple):
    """The size of a set of examples."""

    examples: int
    words: int
    word_types: int
    longest: int
    """Characters of the longest example."""
    share: float
    """The share of examples held out for validation, and the same share for test."""


def measure_texts(examples_read: Iterable[Example], where: str) -> Size:
    """Count examples and their words, once.

    Raises:
        UserError: there are no examples.
    """
    examples = words = longest = 0
    types: set[str] = set()
    places = array("d")
    for example in examples_read:
        own = words_in(example.text)
        places.append(pseudo_random(example.identity, SEED))
        examples += 1
        words += len(own)
        longest = max(longest, len(example.text))
        if len(types) < WORD_TYPES:
            types.update(word.lower() for word in own)
    if not examples:
        raise UserError(f"{where} has nothing to train on")
    return Size(examples, words, len(types), longest, _share(places))


def _share(places: "array[float]") -> float:
    """The share to hold out: 10 %, at most 1,000 examples; more if this gives no examples; or 0."""
    share = round(min(0.1, 1000 / len(places)), 6)
    while share < 0.35:
        validation = sum(place < share for place in places)
        test = sum(share <= place < 2 * share for place in places)
        if validation and test and validation + test < len(places):
            return share
        share = round(share * 1.25, 6)
    return 0.0


def choose_classification(
    paths: list[str],
    *,
    text: Sequence[str] | None = None,
    label: str | None = None,
    encoding: str | None = None,
    format: LabelledFormat | None = None,
    unlabelled: Unlabelled = "error",
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for a classifier of texts or pairs of texts; returns its tables.

    The model is a bidirectional LSTM with structured self-attention, which needs few examples and
    shows its attention. docs/texts.md gives the reasons.

    Raises:
        UserError: the files are invalid, or have no such columns.
    """
    refuse_pipe(paths, PIPE)
    text, label = text or ["text"], label or "label"
    found = read_labelled(
        find_data(paths, folder),
        text=text,
        label=label,
        encoding=encoding,
        format=format,
        unlabelled=unlabelled,
    )
    size = measure_texts(found, paths[0])
    return {
        "task": "classification",
        "seed": SEED,
        "data": {
            **data_table(paths, text=list(text), label=label, encoding=encoding, format=format),
            "unlabelled": unlabelled,
            **shares(size),
        },
        "tokeniser": tokeniser(size),
        "max_tokens": _row(size),
        "model": {
            "kind": "recurrent-encoder",
            "hidden_size": 128,
            "embedding_size": 128,
            "hops": 4,
            "attention_size": 64,
            "dropout": 0.4,
            "pairs": "apart" if len(text) == 2 else "joined",
            "max_length": _row(size),
        },
        "training": {**steps(size, passes=12), "penalty": 0.03, "choose_by": "accuracy"},
    }


def choose_tagging(
    paths: list[str],
    *,
    column: str | None = None,
    encoding: str | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for a tagger; returns its tables.

    Raises:
        UserError: the files are invalid, or have no such column.
    """
    refuse_pipe(paths, PIPE)
    column = column or "upos"
    found = read_tagged(find_data(paths, folder), column=column, encoding=encoding)
    size = measure_texts(found, paths[0])
    return {
        "task": "tagging",
        "seed": SEED,
        "data": {
            **data_table(paths, column=column, encoding=encoding),
            **shares(size),
        },
        "tokeniser": {**tokeniser(size), "lower_case": False},
        "max_tokens": _row(size),
        "model": {
            "kind": "recurrent-encoder",
            "hidden_size": 128,
            "embedding_size": 128,
            "pooling": "mean",
            "dropout": 0.3,
            "max_length": _row(size),
        },
        "training": {**steps(size, passes=12), "choose_by": "accuracy"},
    }


def choose_language_model(
    paths: list[str],
    *,
    documents: DocumentRule | None = None,
    encoding: str | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Choose a recipe for a small GPT; returns its tables.

    Raises:
        UserError: the files are invalid or empty.
    """
    refuse_pipe(paths, PIPE)
    rule = documents or "blank-lines"
    files = find_data(paths, folder, files_of=text_files)
    found = read_documents(files, document=rule, blank_lines=True, encoding=encoding)
    size = measure_texts((Document("\n".join(lines)) for lines in found), paths[0])
    small = size.words < 1_000_000
    training = steps(size, passes=8)
    return {
        "task": "language-model",
        "seed": SEED,
        "data": {
            **data_table(paths, documents=documents, encoding=encoding),
            **shares(size),
        },
        "tokeniser": {
            "kind": "bytes",
            "vocabulary_size": vocabulary(size.word_types, 2000 if small else 8000),
        },
        "context": 128,
        "model": {"kind": "gpt", "size": "tiny", "dropout": 0.2 if small else 0.1},
        "training": {**training, "learning_rate": 1e-3, "optimiser": "adamw"},
    }


def adapt_to_start(tables: dict[str, Any], start: Any) -> dict[str, Any]:
    """Adapt a chosen recipe to training that starts from another run.

    Args:
        tables: the recipe, without a model.
        start: the other run's recipe, of a task of single texts.
    """
    training = {**tables["training"], "learning_rate": 3e-4, "layer_decay": 0.95, "penalty": 0.0}
    for length in ("max_tokens", "context"):
        if length in tables:
            tables = {**tables, length: min(tables[length], start.model.max_length)}
    return {**tables, "training": training}


def shares(size: Size) -> dict[str, float]:
    return {"validation_share": size.share, "test_share": size.share} if size.share else {}


def tokeniser(size: Size) -> dict[str, Any]:
    return {"vocabulary_size": vocabulary(size.word_types, 8000), "lower_case": True}


def _row(size: Size) -> int:
    """Maximum tokens of a row: enough for the longest example, within 32 and 512.

    A token is at least one character, except for rare characters, which are encoded as bytes.
    """
    return max(32, min(512, size.longest + 3))


def steps(size: Size, passes: int) -> dict[str, Any]:
    tokens = size.words * TOKENS_PER_WORD
    batch_tokens = 1024 if tokens < 200_000 else 2048 if tokens < 5_000_000 else 4096
    steps = max(200, min(50_000, round(passes * tokens / batch_tokens)))
    every = max(25, round(steps / passes))
    return {
        "max_steps": steps,
        "batch_tokens": batch_tokens,
        "learning_rate": 2e-3,
        "warmup_steps": max(10, steps // 20),
        "validate_every": every,
        "checkpoint_every": every,
        **({"patience": 5} if size.share else {}),
    }
