"""Reads the official files of benchmarks: TSV (GLUE), JSON lines, CSV (RuCoLA)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice_left_out
from heedful.data.examples import Labelled
from heedful.data.readers.kinds import extension
from heedful.data.readers.labelled import (
    Row,
    csv_rows,
    field,
    json_objects,
    nearest,
    tsv_rows,
)
from heedful.data.readers.opening import Input, open_input
from heedful.data.subwords import refuse_surrogates
from heedful.data.suites.forms import Item, items_of
from heedful.data.suites.tasks import SuiteTask

_INDEX = ("index", "id", "idx")
PACKED = ("", ".xz", ".gz")
"""What may follow an official file name."""


def read_items(path: str | Path, task: SuiteTask) -> Iterator[Item]:
    """Stream the items of an official file, in its order.

    Args:
        path: plain, gzip or xz.
        task: the task of the file.

    Raises:
        UserError: the file is missing or invalid, a column or field is missing, a label is not one
            of the task's, or only some of the examples have labels. The message has file and line.
    """
    labelled: bool | None = None
    with open_input(path) as file:
        for where, record in _records(file, task):
            for item in items_of(record, task, where):
                for text in (text for texts in item.rows for text in texts):
                    refuse_surrogates(text, where)
                has = item.labels is not None
                if labelled not in (None, has):
                    raise UserError(f"{where}: some examples have a label, others have none")
                labelled = has
                yield item
    if labelled is None:
        raise UserError(f"{path}: the file is empty")


def read_rows(paths: Sequence[str | Path], task: SuiteTask) -> Iterator[Labelled]:
    """Stream the rows of official files with labels, for training and validation.

    Rows with an empty text are left out and counted.

    Raises:
        UserError: as in :func:`read_items`, or the examples have no labels.
    """
    for path in paths:
        empty = 0
        for item in read_items(path, task):
            if item.labels is None:
                raise UserError(
                    f"{path}: the examples have no labels ('{task.label}'): this is a test set; "
                    "heedful evaluate --benchmark writes its predictions"
                )
            for texts, label in zip(item.rows, item.labels, strict=True):
                if all(text.strip() for text in texts):
                    yield Labelled(texts, label)
                else:
                    empty += 1
        if empty:
            notice_left_out(path, {"rows with an empty text": empty})


def find_file(folder: Path, name: str, task: SuiteTask) -> Path | None:
    """The file of this name in a folder, plain or packed, or its name in another distribution."""
    for own in (name, task.instead.get(name)):
        for packing in PACKED if own is not None else ():
            path = folder / f"{own}{packing}"
            if path.is_file():
                return path
    return None


def _records(file: Input, task: SuiteTask) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kind = extension(file.name)
    if task.suite == "glue":
        return _table(file, tsv_rows(file, None), task)
    if kind == ".csv" or task.dev[0].endswith(".csv"):
        return _table(file, csv_rows(file, None), task)
    return _objects(file, task)


def _objects(file: Input, task: SuiteTask) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, found in json_objects(file, None):
        if found is None:
            raise UserError(f"{where}: this line is empty; each line has an example")
        for name in (*task.read, "idx"):
            field(found, name, where)
        yield where, found


def _table(
    file: Input, rows: Iterator[Row], task: SuiteTask
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The records of a table, whose first line names the columns unless the task has no such line.

    A record has the fields ``idx``, the columns that the task reads and, if there is one, its
    label.
    """
    header: list[str] | None = None
    place, counts = 0, Counter[str]()
    for number, row in rows:
        where = f"{file.name}:{number}"
        if header is None:
            header, is_header = _header(row, task, where)
            if is_header:
                continue
        if not "".join(row).strip():
            raise UserError(f"{where}: this line is empty; each line has an example")
        if len(row) != len(header):
            if task.incomplete and Path(file.name).name.startswith(task.train[0]):
                counts[f"rows with {len(row)} instead of {len(header)} columns"] += 1
                continue
            raise UserError(
                f"{where}: columns: {len(row)} instead of {len(header)}; correct the line"
            )
        values = dict(zip(header, row, strict=True))
        index = next((values[name] for name in _INDEX if name in values), str(place))
        place += 1
        named = {name: values[name] for name in (*task.read, task.label) if name in values}
        yield where, {**named, "idx": index}
    notice_left_out(file.name, counts)


def _header(row: Sequence[str], task: SuiteTask, where: str) -> tuple[list[str], bool]:
    """The names of the columns, and whether this line has them."""
    names = [task.renamed.get(name.strip(), name.strip()) for name in row]
    for name in (*task.read, task.label, *_INDEX):
        if names.count(name) > 1:
            raise UserError(f"{where}: two columns have the name '{name}'; rename one of them")
    if set(task.read) <= set(names):
        return names, True
    if task.headless and len(row) == len(task.headless):
        return list(task.headless), False
    missing = next(name for name in task.read if name not in names)
    raise UserError(
        f"{where}: there is no column '{missing}' of {task.title}; {nearest(missing, names)}"
    )
