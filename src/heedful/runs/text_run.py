"""Runs of what reads or writes single texts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.data.examples import Labelled, Tagged
from heedful.data.vocabularies import SavedVocabulary, load_vocabulary
from heedful.runs.run import Run
from heedful.runs.text_recipe import TextRecipe

Example = Labelled | Tagged | str
"""A labelled text, a tagged sentence, or a document."""


@dataclass(frozen=True)
class TextRun(Run):
    """A run for single texts; ``facts["sets"]`` tells of the data of each thing that is learnt."""

    recipe: TextRecipe

    def vocabulary(self) -> SavedVocabulary:
        """The run's own vocabulary."""
        return load_vocabulary(self.path / "tokeniser")

    def labels(self, name: str) -> list[str]:
        """The labels or tags of what is learnt as ``name``, by number."""
        return [str(label) for label in self.facts["sets"][name]["labels"]]

    def set_folder(self, name: str) -> Path:
        """Where the data of what is learnt as ``name`` are."""
        return self.path / "data" / name

    def labelled(self, name: str, part: str) -> list[Labelled]:
        """The labelled texts that the run keeps of ``validation`` or ``test``."""
        return [Labelled(tuple(texts), label) for texts, label in self._kept(name, part)]

    def tagged(self, name: str, part: str) -> list[Tagged]:
        """The tagged sentences that the run keeps of ``validation`` or ``test``."""
        return [Tagged(tuple(words), tuple(tags)) for words, tags in self._kept(name, part)]

    def documents(self, name: str, part: str) -> list[str]:
        """The documents that the run keeps of ``validation`` or ``test``."""
        return [str(document) for document in self._kept(name, part)]

    def _kept(self, name: str, part: str) -> list[Any]:
        path = self.set_folder(name) / f"{part}.jsonl"
        if not path.exists():
            return []
        with path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def as_text_run(run: Run) -> TextRun:
    """The same run, if it is one for single texts.

    Raises:
        UserError: it is for pairs of texts.
    """
    if not isinstance(run, TextRun):
        raise UserError(f"{run.path} is a run for {run.recipe.task}, not for single texts")
    return run


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Write held-out examples as JSON lines, whole or not at all."""
    with atomic_file(path) as file:
        for example in examples:
            file.write((json.dumps(example, ensure_ascii=False) + "\n").encode("utf-8"))
