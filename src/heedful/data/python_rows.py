"""Rows of Python data, written to a file of JSON lines and read from it.

A row is a tuple or a list of values, or anything that gives a value by its column's name: a
dictionary, a row of a pandas DataFrame, a row of a dataset of the package ``datasets``.
"""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.data.readers.labelled import nearest

SUFFIX = ".python-rows"
"""How the names of such files end."""


class RowError(ValueError):
    """A row that cannot be used, and why."""


def write_rows(rows: Iterable[Any], example: Callable[[Any], Any], path: Path, where: str) -> None:
    """Write what ``example`` makes of each of ``rows``, which are read once, as JSON lines.

    Args:
        rows: rows, or a DataFrame.
        example: what a row means, as JSON can hold it; raises `RowError`.
        path: the file.
        where: what the rows are called in a message.

    Raises:
        UserError: a row cannot be used; its number, counted from 1, is in the message.
    """
    if isinstance(rows, str | bytes | Path) or not isinstance(rows, Iterable):
        raise UserError(
            f"{where} is a {type(rows).__name__}; give rows: a list, a generator, a DataFrame or a "
            "dataset (files are named in the recipe)"
        )
    count = 0
    by_index = getattr(rows, "iterrows", None)  # a DataFrame iterates over its columns' names
    with atomic_file(path) as file:
        for row in rows if by_index is None else (row for _, row in by_index()):
            count += 1
            try:
                line = json.dumps(example(row))
            except RowError as error:
                raise UserError(f"{where}, row {count:,}: {error}") from error
            file.write(line.encode() + b"\n")
    if not count:
        raise UserError(f"{where} has no rows (a generator can be read only once: make a new one)")


def read_rows(paths: Sequence[str | Path]) -> Iterator[Any]:
    """What `write_rows` wrote."""
    for path in paths:
        yield from read_json_lines(Path(path))


def are_rows(paths: Sequence[str | Path]) -> bool:
    """Whether files are of `write_rows`."""
    return bool(paths) and all(str(path).endswith(SUFFIX) for path in paths)


def values(row: Any, names: Sequence[str]) -> list[Any]:
    """The values of a row by name, or, of a tuple or a list, by place.

    Raises:
        RowError: a column is missing, or there are too many or too few values.
    """
    if isinstance(row, tuple | list):
        if len(row) != len(names):
            raise RowError(f"{len(row)} values instead of {len(names)} ({', '.join(names)})")
        return list(row)
    known = getattr(row, "keys", None)
    if known is None:
        raise RowError(
            f"a {type(row).__name__} is not a row; give a tuple ({', '.join(names)}) or a "
            "dictionary"
        )
    columns = [str(name) for name in known()]
    for name in names:
        if name not in columns:
            raise RowError(f"there is no column '{name}'; {nearest(name, columns)}")
    return [row[name] for name in names]


def text(value: Any, name: str) -> str:
    """A text.

    Raises:
        RowError: it is none, or no valid Unicode.
    """
    if not isinstance(value, str):
        raise RowError(f"'{name}' is a {type(value).__name__}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"'{name}' is not valid Unicode (a lone surrogate)") from error
    return str(value)


def label(value: Any, name: str) -> str:
    """A label or a tag: a text that is not empty, or a whole number.

    Raises:
        RowError: it is neither.
    """
    if not isinstance(value, str):
        if isinstance(value, bool):
            return "true" if value else "false"
        try:
            return str(operator.index(value))
        except TypeError:
            what = type(value).__name__
            raise RowError(f"'{name}' is a {what}, neither a text nor a whole number") from None
    found = text(value, name).strip()
    if not found:
        raise RowError(f"'{name}' is empty")
    return found


def filled(value: Any, name: str) -> str:
    """A text that is not empty.

    Raises:
        RowError: it is no text, or empty.
    """
    found = text(value, name)
    if not found.strip():
        raise RowError(f"'{name}' is empty")
    return found
