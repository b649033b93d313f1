"""Runs for single texts."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.data.examples import (
    Document,
    Example,
    Labelled,
    MultiLabelled,
    Rated,
    Similar,
    SpanQuestion,
    Tagged,
)
from heedful.data.saved_vocabularies import load_vocabulary
from heedful.data.vocabularies import SavedVocabulary
from heedful.runs.registry import kind_of
from heedful.runs.run import Run, no_examples, other_vocabulary
from heedful.tasks.texts.recipe import TextRecipe


@dataclass(frozen=True)
class TextRun(Run):
    """A run for single texts; ``facts["sets"]`` describes the data of each head."""

    recipe: TextRecipe

    def vocabulary(self) -> SavedVocabulary:
        """The run's own vocabulary.

        Raises:
            UserError: the vocabulary is missing, damaged or changed.
        """
        self.require_unchanged("tokeniser/")
        found = load_vocabulary(self.path / "tokeniser")
        if found.size != self.facts["vocabulary"]["size"]:
            raise other_vocabulary(self.path)
        return found

    def labels(self, name: str) -> list[str]:
        """The labels or tags of the head ``name``, by number."""
        return [str(label) for label in self.facts["sets"][name]["labels"]]

    def set_folder(self, name: str) -> Path:
        """The folder with the data of the head ``name``."""
        return self.path / "data" / name

    def labelled(self, name: str, part: str) -> list[Labelled]:
        """The labelled texts of ``validation`` or ``test`` stored in the run."""
        found = self._kept(name, part)
        if not all(_is_labelled(example) for example in found):
            raise no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [Labelled(tuple(texts), label) for texts, label in found]

    def rated(self, name: str, part: str) -> list[Rated]:
        """The texts with numbers of ``validation`` or ``test`` stored in the run."""
        found = self._kept(name, part)
        if not all(_is_rated(example) for example in found):
            raise no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [Rated(tuple(texts), value) for texts, value in found]

    def multi_labelled(self, name: str, part: str) -> list[MultiLabelled]:
        """The texts with several labels of ``validation`` or ``test`` stored in the run."""
        found = self._kept(name, part)
        if not all(_is_multi_labelled(example) for example in found):
            raise no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [MultiLabelled(tuple(texts), tuple(labels)) for texts, labels in found]

    def similar(self, name: str, part: str) -> list[Similar]:
        """The texts, similar or rated, of ``validation`` or ``test`` stored in the run."""
        found = self._kept(name, part)
        if not all(_is_similar(example) for example in found):
            raise no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [Similar(tuple(texts), rating) for texts, rating in found]

    def tagged(self, name: str, part: str) -> list[Tagged]:
        """The tagged sentences of ``validation`` or ``test`` stored in the run."""
        found = self._kept(name, part)
        if not all(_is_tagged(example) for example in found):
            raise no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [Tagged(tuple(words), tuple(tags)) for words, tags in found]

    def questions(self, name: str, part: str) -> list[SpanQuestion]:
        """The questions with answers of ``validation`` or ``test`` stored in the run."""
        found = self._kept(name, part)
        if not all(_is_asked(example) for example in found):
            raise no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [
            SpanQuestion(question, context, tuple((text, start) for text, start in answers), own)
            for question, context, answers, own in found
        ]

    def documents(self, name: str, part: str) -> list[Document]:
        """The documents of ``validation`` or ``test`` stored in the run."""
        return [Document(text) for text in self._kept(name, part)]

    def _kept(self, name: str, part: str) -> list[Any]:
        path = self.set_folder(name) / f"{part}.jsonl"
        self.require_unchanged(path.relative_to(self.path).as_posix())
        return list(read_json_lines(path))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_labelled(example: Any) -> bool:
    right = isinstance(example, list) and len(example) == 2
    return right and _is_texts(example[0]) and isinstance(example[1], str)


def _is_rated(example: Any) -> bool:
    right = isinstance(example, list) and len(example) == 2 and _is_texts(example[0])
    return right and isinstance(example[1], int | float) and math.isfinite(example[1])


def _is_similar(example: Any) -> bool:
    if isinstance(example, list) and len(example) == 2 and example[1] is None:
        return _is_texts(example[0])
    return _is_rated(example)


def _is_multi_labelled(example: Any) -> bool:
    return isinstance(example, list) and len(example) == 2 and all(map(_is_texts, example))


def _is_tagged(example: Any) -> bool:
    right = isinstance(example, list) and len(example) == 2 and all(map(_is_texts, example))
    return right and len(example[0]) == len(example[1])


def _is_asked(example: Any) -> bool:
    if not (isinstance(example, list) and len(example) == 4 and isinstance(example[2], list)):
        return False
    return _is_texts([*example[:2], example[3]]) and all(
        isinstance(one, list)
        and len(one) == 2
        and isinstance(one[0], str)
        and isinstance(one[1], int)
        for one in example[2]
    )


def as_text_run(run: Run) -> TextRun:
    """The run, typed as a run for single texts.

    Raises:
        UserError: the run is for another kind of task.
    """
    if kind_of(run.recipe).family not in ("encoder", "language"):
        raise UserError(f"{run.path} is a run for {run.recipe.task}, not for single texts")
    return cast(TextRun, run)


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Write held-out examples as JSON lines, atomically."""
    with atomic_file(path) as file:
        for example in examples:
            file.write((json.dumps(example, ensure_ascii=False) + "\n").encode("utf-8"))
