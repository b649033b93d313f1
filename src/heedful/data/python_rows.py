"""Store rows of Python data in a file of JSON lines.

A row is a tuple or list of values, or a mapping from column names to values: a dictionary, a row of
a pandas DataFrame, or a row of a dataset of the package ``datasets``.
"""

import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.limits import LARGEST_NUMBER
from heedful.data.readers.labelled import nearest

SUFFIX = ".python-rows"
"""The extension of such files."""


class RowError(ValueError):
    """A row is invalid; the message has the reason."""


def write_rows(rows: Iterable[Any], example: Callable[[Any], Any], path: Path, where: str) -> None:
    """Convert rows with ``example`` and write them as JSON lines.

    Args:
        rows: rows, or a DataFrame.
        example: converts a row to JSON data; raises `RowError`.
        path: the file.
        where: description of the rows, for messages.

    Raises:
        UserError: a row is invalid; the message has its number, from 1.
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
    """Read the rows that `write_rows` wrote."""
    for path in paths:
        yield from read_json_lines(Path(path))


def are_rows(paths: Sequence[str | Path]) -> bool:
    """Whether `write_rows` wrote the files."""
    return bool(paths) and all(str(path).endswith(SUFFIX) for path in paths)


def values(row: Any, names: Sequence[str]) -> list[Any]:
    """The values of a row: by name, or in a tuple or list by position.

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
        RowError: it is not a string, or not valid Unicode.
    """
    if not isinstance(value, str):
        raise RowError(f"'{name}' is a {type(value).__name__}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"'{name}' is not valid Unicode (a lone surrogate)") from error
    return str(value)


def label(value: Any, name: str) -> str:
    """A label or a tag: a non-empty text or an integer.

    Raises:
        RowError: it is something else.
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


def number(value: Any, name: str) -> float:
    """A finite number.

    Raises:
        RowError: it is something else, or too large.
    """
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if isinstance(value, bool) or not math.isfinite(found):
        raise RowError(f"'{name}' is {repr(value)[:40]}, not a number")
    if abs(found) > LARGEST_NUMBER:
        raise RowError(f"'{name}' is {found:g}, not between ±{LARGEST_NUMBER:g}")
    return found


def filled(value: Any, name: str) -> str:
    """A non-empty text.

    Raises:
        RowError: it is not a text, or it is empty.
    """
    found = text(value, name)
    if not found.strip():
        raise RowError(f"'{name}' is empty")
    return found
