"""Texts with any number of labels: tables with a separator between labels, and JSON lines."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice_left_out
from heedful.data.examples import MultiLabelled
from heedful.data.python_rows import RowError
from heedful.data.readers.labelled import (
    LabelledFormat,
    field,
    json_objects,
    opened_tables,
)
from heedful.data.readers.opening import Input
from heedful.data.subwords import refuse_surrogates


def read_multi_labelled(
    paths: Sequence[str],
    *,
    text: Sequence[str] = ("text",),
    labels: str = "label",
    separator: str = ";",
    encoding: str | None = None,
    format: LabelledFormat | None = None,
) -> Iterator[MultiLabelled]:
    """Stream the texts of files with their labels.

    Formats and errors are those of :func:`heedful.data.readers.read_labelled`. In a table, the
    column of labels has labels with ``separator`` between them; in JSON lines it may be a list. An
    empty column or list, or null, is a text without labels.

    Args:
        paths: plain, gzip or xz; ``-`` is standard input.
        text: the column of the text, or the two columns of a pair.
        labels: the column of the labels.
        separator: stands between two labels.
        encoding: encoding of the files; default: UTF-8.
        format: the format; default: by extension, else JSON lines or TSV by the first line.

    Raises:
        UserError: as in ``read_labelled``; or a label is empty or occurs twice in a row.
    """
    names = [*text, labels]
    for file, records, is_json in opened_tables(paths, text, names, encoding, format):
        counts: Counter[str] = Counter()
        found: Iterator[tuple[str, Sequence[Any] | None]] = (
            _json_records(file, names, encoding) if is_json else records(file, names, encoding)
        )
        for where, values in found:
            if values is None:
                counts["empty lines"] += 1
                continue
            *texts, own = values
            yield _example(texts, text, _labels(own, labels, separator, where), where)
        notice_left_out(file.name, counts)


def several_labels(given: Any, name: str, separator: str) -> tuple[str, ...]:
    """The labels of an example: of a list, or of a text with separators; None is no label.

    Raises:
        RowError: a label is not a text or a whole number, is empty, or occurs twice.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return ()
    parts = given.split(separator) if isinstance(given, str) else given
    if not isinstance(parts, list | tuple | set | frozenset):
        raise RowError(f"'{name}' is neither a text nor a list of labels")
    found = []
    for part in sorted(parts) if isinstance(parts, set | frozenset) else parts:
        if not isinstance(part, str | int) or isinstance(part, bool):
            raise RowError(f"'{name}' has {part!r}, which is neither a text nor a whole number")
        label = str(part).strip()
        if not label:
            raise RowError(f"'{name}' has an empty label; remove it")
        if label in found:
            raise RowError(f"'{name}' has the label '{label}' twice")
        found.append(label)
    return tuple(found)


def _labels(given: Any, name: str, separator: str, where: str) -> tuple[str, ...]:
    try:
        return several_labels(given, name, separator)
    except RowError as error:
        raise UserError(f"{where}: {error}") from error


def _example(
    texts: Sequence[str], names: Sequence[str], labels: tuple[str, ...], where: str
) -> MultiLabelled:
    for name, value in zip(names, texts, strict=True):
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"{where}: '{name}' is empty or not a text; correct or remove the line")
    for value in (*texts, *labels):
        refuse_surrogates(value, where)
    return MultiLabelled(tuple(texts), labels)


def _json_records(
    file: Input, names: Sequence[str], encoding: str | None
) -> Iterator[tuple[str, list[Any] | None]]:
    for where, found in json_objects(file, encoding):
        yield where, None if found is None else [field(found, name, where) for name in names]
