"""Texts with summaries: JSON lines, and tables with named columns.

A text of JSON lines may be a list of sentences, and there may be several summaries, as in the files
of SciTLDR and AESLC.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.readers.kinds import extension
from heedful.data.readers.labelled import (
    FORMATS,
    ColumnError,
    LabelledFormat,
    Record,
    field,
    json_objects,
    read_records,
)
from heedful.data.readers.opening import Input, open_input
from heedful.data.subwords import refuse_surrogates


class TextAndSummaries(NamedTuple):
    """A text, and its summaries."""

    where: str
    """File and line, for messages."""
    source: str
    targets: list[str]
    """Empty if summaries are not read."""


def read_summaries(
    path: str, *, source: str, target: str | None, encoding: str | None = None
) -> Iterator[TextAndSummaries]:
    """Stream the examples of a file. Empty lines are skipped.

    Args:
        path: JSON lines (``.jsonl``), TSV or CSV, plain, gzip or xz; without one of these
            extensions, the first line decides between JSON lines and TSV.
        source: name of the column, or field, of the text.
        target: name of the column of the summary; None if there are no summaries.
        encoding: of the text; default: UTF-8.

    Raises:
        UserError: a column is missing, or a text or summary is empty; the message has file and
            line.
    """
    with open_input(path) as file:
        form = _format(file)
        if form == "jsonl":
            yield from _of_objects(file, source, target, encoding)
            return
    names = [source] if target is None else [source, target]
    for where, values in _rows(path, form, names, encoding):
        if values is not None:
            yield TextAndSummaries(where, values[0], values[1:])


def read_texts_to_summarise(path: str, source: str, encoding: str | None) -> Iterator[str | None]:
    """The texts of a table, without summaries; None for an empty line.

    Raises:
        UserError: as in :func:`read_summaries`.
    """
    with open_input(path) as file:
        form = _format(file)
        if form == "jsonl":
            for where, own in json_objects(file, encoding):
                yield None if own is None else _joined(own, source, where)
            return
    for _, values in _rows(path, form, [source], encoding):
        yield None if values is None else values[0]


def _format(file: Input) -> LabelledFormat:
    first = file.head().split(b"\n", 1)[0].lstrip(b"\xef\xbb\xbf \t")
    return FORMATS.get(extension(file.name), "jsonl" if first.startswith(b"{") else "tsv")


def _rows(
    path: str, form: LabelledFormat, names: list[str], encoding: str | None
) -> Iterator[Record]:
    """The values of each row of a table, which are not empty; None for an empty line."""
    # Without summaries, the file is the input of a command, whose option names the column.
    named_by = (
        "--column names the column"
        if len(names) == 1
        else "data.source_column and data.target_column name the columns"
    )
    try:
        for where, values in read_records(path, names, encoding, form):
            for name, value in zip(names, values or (), strict=False):
                _check(value, name, where)
            yield where, values
    except ColumnError as error:
        raise UserError(f"{error.reason} ({named_by})") from error


def _joined(found: dict[str, Any], source: str, where: str) -> str:
    text = " ".join(filter(None, (one.strip() for one in _texts(found, source, where))))
    _check(text, source, where)
    return text


def _of_objects(
    file: Input, source: str, target: str | None, encoding: str | None
) -> Iterator[TextAndSummaries]:
    for where, found in json_objects(file, encoding):
        if found is None:
            continue
        text = _joined(found, source, where)
        targets = [] if target is None else _texts(found, target, where)
        for one in targets:
            _check(one, str(target), where)
        yield TextAndSummaries(where, text, targets)


def _texts(found: dict[str, Any], name: str, where: str) -> list[str]:
    """The texts of a field: one text, or a list of texts."""
    value = field(found, name, where)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise UserError(f"{where}: '{name}' must be a text or a list of texts")
    if not texts:
        raise UserError(f"{where}: '{name}' is empty; fill it in or remove the line")
    return texts


def _check(text: str, name: str, where: str) -> None:
    if not text.strip():
        raise UserError(f"{where}: '{name}' is empty; fill it in or remove the line")
    refuse_surrogates(text, where)
