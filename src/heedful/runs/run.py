"""The run: a folder that holds all there is of a training."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, read_json
from heedful.data.examples import Labelled, Pair, Tagged
from heedful.data.tokeniser import Tokenisers
from heedful.data.vocabularies import SavedVocabulary, load_vocabulary
from heedful.runs.checkpoints import Checkpoint, open_checkpoint, whole_checkpoints
from heedful.runs.recipe import PairRecipe, Recipe, TextRecipe, check_recipe, read_recipe

FORMAT = 1

Example = Labelled | Tagged | str
"""A labelled text, a tagged sentence, or a document."""


@dataclass(frozen=True)
class Run:
    """A run on disk; :func:`open_run` opens one."""

    path: Path
    recipe: Recipe
    facts: dict[str, Any]
    """``run.json``: format, versions, the data's hashes and counts, vocabulary, another run that
    it was started from."""

    @property
    def train_folder(self) -> Path:
        """The encoded training corpus."""
        return self.path / "data" / "train"

    @property
    def checkpoint_folder(self) -> Path:
        """The checkpoints."""
        return self.path / "checkpoints"

    @property
    def start_folder(self) -> Path:
        """The weights it began with, where it was started from another run."""
        return self.path / "start"

    @property
    def metrics_file(self) -> Path:
        """Figures of training and validation, a JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def result(self) -> dict[str, Any] | None:
        """``result.json``, written at the end of training: which checkpoint was chosen, and why."""
        path = self.path / "result.json"
        return read_json(path) if path.exists() else None

    def checkpoints(self) -> list[Checkpoint]:
        """The undamaged checkpoints, by step."""
        return whole_checkpoints(self.checkpoint_folder)

    def chosen(self, name: str | None = None) -> Checkpoint:
        """The checkpoint to use: ``best``, ``last``, ``average``, a step, or by default the choice.

        The choice is made at the end of training; before that it is the best on validation so far.

        Raises:
            UserError: there is no such checkpoint.
        """
        if name is None and self.result:
            chosen = self.checkpoint_folder / self.result["chosen"]
            if chosen.exists():
                return open_checkpoint(chosen)
        if name == "average":
            if not (self.checkpoint_folder / "average").exists():
                raise UserError(
                    f"{self.path} has no average: training.average makes one at the end"
                )
            return open_checkpoint(self.checkpoint_folder / "average")
        found = self.checkpoints()
        if not found:
            raise UserError(f"{self.path} has no checkpoint yet; train first: heedful train --out")
        if name is None or name == "best":
            best = [point for point in found if point.state.get("best_step") == point.step]
            return best[-1] if best else found[-1]
        if name == "last":
            return found[-1]
        for point in found:
            if name in (str(point.step), point.path.name):
                return point
        steps = ", ".join(str(point.step) for point in found)
        raise UserError(f"{self.path} has no checkpoint '{name}'; there are best, last, {steps}")


@dataclass(frozen=True)
class PairRun(Run):
    """A run that learns from pairs of texts."""

    recipe: PairRecipe

    def tokenisers(self) -> Tokenisers:
        """The run's own tokenisers."""
        return Tokenisers.load(self.path / "tokeniser")

    def pairs(self, part: str) -> list[Pair]:
        """The ``validation`` or ``test`` pairs that the run keeps; none if it was given none."""
        path = self.path / "data" / f"{part}.jsonl"
        if not path.exists():
            return []
        with path.open(encoding="utf-8") as file:
            return [Pair(*json.loads(line)) for line in file]


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


def open_run(path: str | Path) -> Run:
    """The run in a folder.

    Raises:
        UserError: the folder is missing or is no run, or one of a later version.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is no run: it is a file, a run is a folder")
    if not folder.is_dir():
        raise UserError(f"no run at {folder}: there is no such folder")
    if not (folder / "run.json").exists():
        raise UserError(f"{folder} is no run: it has no run.json (heedful train makes one)")
    facts = read_json(folder / "run.json")
    if facts.get("format") != FORMAT:
        raise UserError(
            f"{folder} is a run of format {facts.get('format')}, this version reads {FORMAT}; "
            "update heedful"
        )
    recipe_file = folder / "recipe.toml"
    tables = read_recipe(recipe_file)
    recipe = check_recipe(tables, str(recipe_file), written=True)
    if isinstance(recipe, PairRecipe):
        return PairRun(folder, recipe, facts)
    if isinstance(recipe, TextRecipe):
        return TextRun(folder, recipe, facts)
    raise TypeError(f"no runs for {recipe.task}")


def open_pair_run(path: str | Path) -> PairRun:
    """As :func:`open_run`, of a run that learns from pairs of texts.

    Raises:
        UserError: also for a run of another task.
    """
    run = open_run(path)
    if not isinstance(run, PairRun):
        raise UserError(f"{path} is a run for {run.recipe.task}, not for pairs of texts")
    return run


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    """Write pairs as JSON lines, whole or not at all."""
    with atomic_file(path) as file:
        for pair in pairs:
            file.write((json.dumps(list(pair), ensure_ascii=False) + "\n").encode("utf-8"))


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
