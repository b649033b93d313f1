"""The examples of a recipe for single texts: read as often as asked for, held-out ones apart."""

import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice
from heedful.data.examples import Labelled, Tagged
from heedful.data.readers import read_documents, read_labelled, read_tagged
from heedful.runs.holding_out import part_of
from heedful.runs.recipe import find_data
from heedful.tasks.texts.recipe import DocumentData, FileSettings, LabelledData, TaggedData
from heedful.tasks.texts.run import Example

PARTS = ("train", "validation", "test")
_MOST_REAL_LABELS = 10
"""Ratings from 0.5 to 5 in half steps are ten classes."""
_MOST_DISTINCT_LABELS = 20
"""Fewer different labels may be classes, of however few examples."""


class Examples:
    """The examples of one data table.

    Args:
        name: the table's name in the recipe, for messages.
        data: the table.
        seed: chooses what is held out.
        folder: where what is read from a pipe is kept.
        data_folder: where relative paths start; the current folder if None.

    Raises:
        UserError: a file is missing or cannot be read.
    """

    def __init__(
        self, name: str, data: FileSettings, seed: int, folder: Path, data_folder: Path | None
    ) -> None:
        self.name, self.data, self.seed = name, data, seed
        self.files = {part: find_data(paths, data_folder) for part, paths in data.files.items()}
        if "-" in self.files["train"]:
            # A pipe can be read once, and its examples are read more often.
            spooled = folder / "standard-input"
            with atomic_file(spooled) as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            self.files["train"] = [str(spooled)]
        self.shares = {
            "validation": 0.0 if self.files["validation"] else data.validation_share,
            "test": 0.0 if self.files["test"] else data.test_share,
        }
        self.labels: list[str] = []
        """Labels or tags of the training examples, sorted; found by `find_labels`."""
        self._kept: frozenset[str] = frozenset()
        """Labels so rare that all their examples would be held out: they are trained on."""

    def find_labels(self) -> list[str]:
        """Find the labels, once, before anything is read by its part; documents have none.

        Raises:
            UserError: there is but one label, no example, or nothing to hold out, or the labels
                are numbers or other values rather than classes.
        """
        counts = dict.fromkeys(PARTS, 0)
        found: dict[str, set[str]] = {part: set() for part in PARTS}
        first: Example | None = None
        labelled: Counter[str] = Counter()
        for example in self._read(self.files["train"]):
            first = first or example
            labelled.update(labels_in(example))
            part = part_of(known_by(example), self.seed, self.shares)
            counts[part] += 1
            found[part].update(labels_in(example))
        files, number = ", ".join(self.data.train), sum(counts.values())
        every = set().union(*found.values())
        self._kept = frozenset(every - found["train"])
        if self._kept:
            named = [" ".join(label.split()) for label in sorted(self._kept)[:5]]
            shown = ", ".join(named) + (", …" if len(self._kept) > 5 else "")
            notice(
                f"{self.name}: labels so rare that all their examples would have been held out are "
                f"trained on instead: {shown} ({len(self._kept):,} in all)"
            )
        if not counts["train"] and not self._kept:
            raise UserError(f"{files}: all {number:,} examples were held out; lower the shares")
        for part, share in self.shares.items():
            if share and not counts[part]:
                raise UserError(
                    f"{self.name}.{part}_share = {share} holds out none of the {number:,} examples "
                    f"of {files}: raise it, or name files in {self.name}.{part}"
                )
        _doubt_first_line(self.data, first, labelled)
        if len(every) == 1 and not isinstance(self.data, DocumentData):
            raise UserError(
                f"every example of {files} is labelled '{min(every)}': there is nothing to tell "
                "apart; give examples of at least two labels"
            )
        if isinstance(self.data, LabelledData):
            _require_classes(labelled, files)
        self.labels = sorted(every)
        return self.labels

    def of(self, part: str) -> Iterator[Example]:
        """The examples of ``train``, ``validation`` or ``test``.

        Raises:
            UserError: a file is broken.
        """
        if part != "train" and self.files[part]:
            yield from self._read(self.files[part])
            return
        if part != "train" and not self.shares[part]:
            return
        for example in self._read(self.files["train"]):
            if self._part(example) == part:
                yield example

    def _part(self, example: Example) -> str:
        if not self._kept.isdisjoint(labels_in(example)):
            return "train"
        return part_of(known_by(example), self.seed, self.shares)

    def texts(self) -> Iterator[str]:
        """All texts that are learnt from."""
        for example in self.of("train"):
            yield from example.texts if isinstance(example, Labelled) else (text_of(example),)

    def _read(self, files: Sequence[str]) -> Iterator[Example]:
        data = self.data
        if isinstance(data, LabelledData):
            return read_labelled(
                files,
                text=data.text,
                label=data.label,
                encoding=data.encoding,
                format=data.format,
                unlabelled=data.unlabelled,
            )
        if isinstance(data, TaggedData):
            return read_tagged(files, column=data.column, encoding=data.encoding)
        if isinstance(data, DocumentData):
            found = read_documents(
                files, document=data.documents, blank_lines=True, encoding=data.encoding
            )
            return ("\n".join(lines) for lines in found)
        raise TypeError(f"no reader for {type(data).__name__}")


def _require_classes(labelled: Counter[str], files: str) -> None:
    """Refuse a column that holds values rather than classes.

    Class numbers (0, 1, 2) and ratings (1 to 5, or in half steps) are classes.

    Raises:
        UserError: there are more than 20 labels and most examples have one of their own, or there
            are more than 10 numeric labels that are not all whole.
    """
    number, many = labelled.total(), len(labelled)
    numeric = all(map(_is_number, labelled))
    whole = numeric and all(float(label).is_integer() for label in labelled)
    if numeric and not whole and many > _MOST_REAL_LABELS:
        raise UserError(
            f"{files}: the labels are {many:,} different real numbers; heedful classifies and has "
            "no regression: choose another label column, or group the numbers into classes"
        )
    if many > _MOST_DISTINCT_LABELS and 2 * many > number:
        raise UserError(
            f"{files}: {many:,} different labels in {number:,} examples are too many to learn "
            "from: choose another label column, or group the values into classes"
        )


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def _doubt_first_line(data: FileSettings, first: Example | None, labelled: Counter[str]) -> None:
    """Say if a table that is read by numbers seems to name its columns in its first line."""
    if not isinstance(data, LabelledData) or not data.label.isdigit():
        return
    if isinstance(first, Labelled) and labelled[first.label] == 1 and len(labelled) > 2:
        notice(
            f"{data.train[0]}: only its first line is labelled '{first.label}'; if that line names "
            "the columns, it is learnt as an example: choose them by name, not by number"
        )


def known_by(example: Example) -> str:
    """What an example is known by: those with the same text are held out together."""
    return example.texts[0] if isinstance(example, Labelled) else text_of(example)


def text_of(example: Example) -> str:
    """All that is read of an example."""
    if isinstance(example, Labelled):
        return "\t".join(example.texts)
    return " ".join(example.words) if isinstance(example, Tagged) else example


def labels_in(example: Example) -> tuple[str, ...]:
    """The label of a text, the tags of a sentence; a document has none."""
    if isinstance(example, Labelled):
        return (example.label,)
    return example.tags if isinstance(example, Tagged) else ()


def check_labels(examples: Sequence[Example], known: Sequence[str], where: str) -> None:
    """Raise UserError for a held-out label that training has never seen."""
    seen = set(known)
    for number, example in enumerate(examples, start=1):
        for label in labels_in(example):
            if label not in seen:
                text = known_by(example)
                raise UserError(
                    f"{where}: '{label}' is no label of the training examples (example "
                    f"{number:,}, '{text[:40]}'); correct it, leave it out, or add examples of it"
                )
