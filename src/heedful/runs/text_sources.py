"""The examples of a recipe for single texts: read as often as asked for, held-out ones apart."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.data.examples import Labelled, Tagged
from heedful.data.readers import read_documents, read_labelled, read_tagged
from heedful.runs.holding_out import part_of
from heedful.runs.recipe import find_data
from heedful.runs.run import Example
from heedful.runs.text_recipe import DocumentData, FileSettings, LabelledData, TaggedData

PARTS = ("train", "validation", "test")


class Examples:
    """The examples of one data table.

    Args:
        name: what is learnt from them, for messages.
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
            if part_of(known_by(example), self.seed, self.shares) == part:
                yield example

    def texts(self) -> Iterator[str]:
        """All texts that are learnt from."""
        for example in self.of("train"):
            if isinstance(example, Labelled):
                yield from example.texts
            elif isinstance(example, Tagged):
                yield " ".join(example.words)
            else:
                yield example

    def _read(self, files: Sequence[str]) -> Iterator[Example]:
        data = self.data
        if isinstance(data, LabelledData):
            return read_labelled(
                files,
                text=data.text,
                label=data.label,
                encoding=data.encoding,
                format=data.format,
            )
        if isinstance(data, TaggedData):
            return read_tagged(files, column=data.column, encoding=data.encoding)
        if isinstance(data, DocumentData):
            found = read_documents(
                files, document=data.documents, blank_lines=True, encoding=data.encoding
            )
            return ("\n".join(lines) for lines in found)
        raise TypeError(f"no reader for {type(data).__name__}")


def known_by(example: Example) -> str:
    """What an example is known by: those with the same text are held out together."""
    if isinstance(example, Labelled):
        return example.texts[0]
    return " ".join(example.words) if isinstance(example, Tagged) else example


def labels_of(examples: Examples) -> list[str]:
    """The labels or tags of the training examples, sorted; none of documents.

    Raises:
        UserError: there is but one of them, or no example.
    """
    if isinstance(examples.data, DocumentData):
        return []
    found: set[str] = set()
    count = 0
    for example in examples.of("train"):
        count += 1
        if isinstance(example, Labelled):
            found.add(example.label)
        elif isinstance(example, Tagged):
            found.update(example.tags)
    files = ", ".join(examples.data.train)
    if not count:
        raise UserError(f"{files} has nothing to train on")
    if len(found) == 1:
        (only,) = found
        raise UserError(
            f"every example of {files} is labelled '{only}': there is nothing to tell apart; "
            "give examples of at least two labels"
        )
    return sorted(found)


def check_labels(examples: Sequence[Example], known: Sequence[str], where: str) -> None:
    """Raise UserError for a held-out label that training has never seen."""
    seen = set(known)
    for example in examples:
        own = (
            (example.label,)
            if isinstance(example, Labelled)
            else example.tags
            if isinstance(example, Tagged)
            else ()
        )
        for label in own:
            if label not in seen:
                text = known_by(example)
                raise UserError(
                    f"{where}: '{label}' is no label of the training examples (of "
                    f"'{text[:40]}'); correct it, leave it out, or add examples of it"
                )
