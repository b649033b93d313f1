"""The examples of a recipe for single texts, which can be read repeatedly, and held-out parts."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Example
from heedful.runs.held_out import part_of
from heedful.tasks.preparation import (
    HELD_OUT,
    content_hashes,
    find_files,
    held_out_shares,
    is_large,
)
from heedful.tasks.texts.data import ExampleData

PARTS = ("train", *HELD_OUT)


class Examples:
    """The examples of one data table.

    Args:
        name: the table's name in the recipe, for messages.
        data: the table.
        seed: determines which examples are held out.
        folder: standard input is copied to this folder.
        data_folder: base folder of relative paths; the current folder if None.
        tokeniser: the folder in which the run's vocabulary is saved before examples are encoded;
            None if they are not encoded.

    Raises:
        UserError: a file is missing or cannot be read.
    """

    def __init__(
        self,
        name: str,
        data: ExampleData,
        seed: int,
        folder: Path,
        data_folder: Path | None,
        tokeniser: Path | None = None,
    ) -> None:
        self.name, self.data, self.seed = name, data, seed
        self.tokeniser = tokeniser
        spooled = folder / "standard-input"
        self.files = find_files(data.files, data_folder, spooled, files_of=data.files_of)
        self.shares = held_out_shares(self.files, data)
        self.labels: list[str] = []
        """Labels or tags of the training examples, sorted; found by `find_labels`."""
        self._kept: frozenset[str] = frozenset()
        """Labels whose examples would all be held out; these examples are used for training."""
        self._held_out: dict[str, list[Example]] = {}
        """The examples of the parts that are shares of the training files."""

    @cached_property
    def hashes(self) -> dict[str, list[str]]:
        """The content hashes of the files of each part."""
        return content_hashes(self.files, self.data.files_of)

    @cached_property
    def is_large(self) -> bool:
        """Whether the training files are so large that they are sampled."""
        return is_large(self.files["train"], self.data.files_of)

    @property
    def identity(self) -> dict[str, Any]:
        """A JSON value that determines the examples of all parts."""
        data = self.data.model_dump(mode="json")
        return {"data": data, "hashes": self.hashes, "seed": self.seed}

    def find_labels(self, see: Callable[[Example], None] | None = None) -> list[str]:
        """Collect the labels, and the examples to hold out, in one pass over the training files.

        Call it once, before reading a part; documents have no labels.

        Args:
            see: called with each training example.

        Raises:
            UserError: there is only one label, no example, or nothing to hold out, or the labels
                are values that are not classes.
        """
        counts = dict.fromkeys(PARTS, 0)
        found: dict[str, set[str]] = {part: set() for part in PARTS}
        held_out: dict[str, list[Example]] = {part: [] for part in HELD_OUT}
        first: Example | None = None
        labelled: Counter[str] = Counter()
        for example in self.data.read(self.files["train"]):
            first = first or example
            labelled.update(example.labels)
            part = part_of(example.identity, self.seed, self.shares)
            counts[part] += 1
            found[part].update(example.labels)
            if part != "train":
                held_out[part].append(example)
            elif see is not None:
                see(example)
        files, number = ", ".join(self.data.train), sum(counts.values())
        every = set().union(*found.values())
        self._kept = frozenset(every - found["train"])
        self._held_out = {
            part: [one for one in own if self._kept.isdisjoint(one.labels)]
            for part, own in held_out.items()
        }
        if self._kept:
            named = [" ".join(label.split()) for label in sorted(self._kept)[:5]]
            shown = ", ".join(named) + (", …" if len(self._kept) > 5 else "")
            notice(
                f"{self.name}: all examples of some rare labels would have been held out; they are "
                f"used for training instead: {shown} ({len(self._kept):,} labels)"
            )
        if not counts["train"] and not self._kept:
            raise UserError(f"{files}: all {number:,} examples were held out; lower the shares")
        for part, share in self.shares.items():
            if share and not counts[part]:
                raise UserError(
                    f"{self.name}.{part}_share = {share} holds out none of the {number:,} examples "
                    f"of {files}: raise it, or name files in {self.name}.{part}"
                )
        if len(every) == 1:
            only = min(every)
            known = (
                f"every example of {files} has the label '{only}'"
                if labelled[only] == number
                else f"{files}: the only label is '{only}'"
            )
            raise UserError(f"{known}; give examples of at least two labels")
        self.data.check_labels(labelled, first, files)
        self.labels = sorted(every)
        return self.labels

    def of(self, part: str) -> Iterator[Example]:
        """The examples of ``train``, ``validation`` or ``test``.

        Raises:
            UserError: a file is invalid.
        """
        if part != "train" and self.files[part]:
            yield from self.data.held_out().read(self.files[part])
            return
        if part != "train":
            yield from self._held_out[part]
            return
        for example in self.data.read(self.files["train"]):
            if self._part(example) == part:
                yield example

    @property
    def moves_rare(self) -> bool:
        """Whether training examples were not passed to ``see`` of `find_labels`."""
        return bool(self._kept)

    def _part(self, example: Example) -> str:
        if not self._kept.isdisjoint(example.labels):
            return "train"
        return part_of(example.identity, self.seed, self.shares)

    def texts(self) -> Iterator[str]:
        """All training texts."""
        for example in self.of("train"):
            yield from example.texts


def check_labels(examples: Sequence[Example], known: Sequence[str], where: str) -> None:
    """Raise UserError for a held-out label that does not occur in the training examples."""
    seen = set(known)
    for number, example in enumerate(examples, start=1):
        for label in example.labels:
            if label not in seen:
                text = example.identity
                raise UserError(
                    f"{where}: the label '{label}' does not occur in the training examples "
                    f"(example {number:,}, '{text[:40]}'); correct it, leave it out, or add "
                    "examples of it"
                )
