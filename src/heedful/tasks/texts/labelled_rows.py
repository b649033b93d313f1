"""Encodes labelled examples as rows of tokens of limited length, each with its labels."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder
from heedful.basics.notices import notice
from heedful.basics.progress import progress
from heedful.data import columns
from heedful.data.columns import Codec
from heedful.data.store import Store, StoreWriter
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.text_reader import rows_of as rows_of_texts
from heedful.tasks.texts.examples import Examples

_AT_ONCE = 4096


def encode_rows(
    folder: Path,
    examples: Examples,
    rows_of: Callable[[Any], Iterable[tuple[list[int], Any]]],
    codecs: Mapping[str, Codec],
    max_tokens: int,
) -> dict[str, Any]:
    """Write the rows of the training examples as a store of ``tokens`` and ``labels``.

    Args:
        folder: the folder of the store.
        examples: their ``train`` part is encoded.
        rows_of: returns the rows of an example; several if it is too long for one.
        codecs: the codecs of both columns.
        max_tokens: maximum tokens of a row, for the message.

    Returns:
        The numbers of examples and rows.
    """
    counts: Counter[str] = Counter()

    def rows() -> Iterator[tuple[list[int], Any]]:
        for example in seen(examples.of("train"), "examples"):
            made = list(rows_of(example))
            counts.update(examples=1, windows=len(made), long=len(made) > 1)
            yield from made

    write_rows(rows(), folder, codecs)
    if counts["long"]:
        notice(
            f"{counts['long']:,} of {counts['examples']:,} training examples are longer than "
            f"max_tokens {max_tokens}: they are split into windows, {counts['windows']:,} in all"
        )
    return {"train": counts["examples"], "windows": counts["windows"]}


def encode_texts(
    folder: Path,
    examples: Examples,
    label_of: Callable[[Any], Any],
    labels: Codec,
    vocabulary: SavedVocabulary,
    max_tokens: int,
) -> dict[str, Any]:
    """Write the rows of whole texts, or of pairs of texts; each window has its example's label.

    Args:
        folder: the folder of the store.
        examples: their ``train`` part is encoded; each example has ``texts``.
        label_of: returns the label of an example.
        labels: the codec of labels.
        vocabulary: text to tokens.
        max_tokens: maximum tokens of a row.

    Returns:
        The numbers of examples and rows, and their unit.
    """

    def rows(example: Any) -> Iterator[tuple[list[int], Any]]:
        label = label_of(example)
        tokens = [vocabulary.encode(text) for text in example.texts]
        return ((row.joined, label) for row in rows_of_texts(tokens, max_tokens))

    codecs = {"tokens": columns.tokens(vocabulary.size), "labels": labels}
    return {**encode_rows(folder, examples, rows, codecs, max_tokens), "unit": "texts"}


def write_rows(
    rows: Iterator[tuple[list[int], Any]], folder: Path, codecs: Mapping[str, Codec]
) -> None:
    """Write rows of tokens and labels as a store, whose codecs have these names."""
    with atomic_folder(folder) as beside, StoreWriter(beside, codecs) as writer:
        while chunk := list(islice(rows, _AT_ONCE)):
            parts = zip(codecs, zip(*chunk, strict=True), strict=True)
            writer.add({name: codecs[name].column(own) for name, own in parts})
        writer.finish({})
    Store.open(folder)


def seen(examples: Iterable[Any], unit: str) -> Iterator[Any]:
    """The examples, with a progress bar."""
    with progress("encoding", None, unit) as advance:
        for example in examples:
            yield example
            advance(1)


def output_layer(
    layer: Callable[[int, int, float, float | None], nn.Module],
    width: int | None,
    labels: int,
    recipe: Any,
    what: str,
) -> nn.Module:
    """The output layer of a head.

    Raises:
        UserError: the encoder has no vectors (``width`` is None) of ``what``.
    """
    if width is None:
        raise UserError(f"model.kind = '{recipe.model.kind}' has no vectors of {what}")
    return layer(width, labels, recipe.head_dropout, recipe.head_max_norm)
