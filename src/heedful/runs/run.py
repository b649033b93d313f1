"""The run: a folder that holds all there is of a training."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.locking import locked
from heedful.basics.reading import parse_toml, read_json, read_json_lines
from heedful.data.examples import Labelled, Pair, Tagged
from heedful.data.tokeniser import Tokenisers
from heedful.data.vocabularies import SavedVocabulary, load_vocabulary
from heedful.runs.checkpoints import Checkpoint, find_checkpoint, whole_checkpoints
from heedful.runs.facts import PairFacts, TextFacts, check_facts
from heedful.runs.recipe import PairRecipe, Recipe, TextRecipe, check_recipe
from heedful.runs.sealing import (
    FACTS,
    RECIPE,
    read_facts,
    read_manifest,
    read_recipe_text,
    read_sealed,
    require_unchanged,
    seal_files,
)

FORMAT = 1
RESULT, AVERAGE = "result.json", "average"

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
    manifest: dict[str, str] | None = None
    """Hashes of the files that are written once; None in runs of versions that kept none."""

    def require_unchanged(self, *names: str) -> None:
        """Raise UserError if one of these files, or of those in these folders, has changed.

        Args:
            names: paths from the run's folder; folders with a slash at the end.
        """
        require_unchanged(self.path, self.manifest, *names)

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

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The records of ``metrics.jsonl``, each with ``kind`` and ``step``.

        Raises:
            UserError: the file is damaged.
        """
        for record in read_json_lines(self.metrics_file, growing=True):
            if not isinstance(record, dict) or not (
                isinstance(record.get("kind"), str) and type(record.get("step")) is int
            ):
                raise UserError(f"{self.metrics_file}: a line is no record; the file is damaged")
            yield record

    @property
    def result(self) -> dict[str, Any] | None:
        """``result.json``, written at the end of training: which checkpoint was chosen, and why.

        Raises:
            UserError: it is damaged or was changed.
        """
        if not (self.path / RESULT).exists():
            return None
        values = read_sealed(self.path, RESULT, sealed=self.manifest is not None)
        figures = values.get("validation", {})
        if (
            not isinstance(values.get("chosen"), str)
            or type(values.get("step")) is not int
            or not isinstance(figures, dict)
            or not all(isinstance(figure, int | float) for figure in figures.values())
        ):
            raise UserError(
                f"{self.path / RESULT}: 'chosen', 'step' or 'validation' is missing or of a wrong "
                "type; the file is damaged: delete it to use the best checkpoint"
            )
        return values

    def checkpoints(self) -> list[Checkpoint]:
        """The undamaged checkpoints, by step."""
        return whole_checkpoints(self.checkpoint_folder)

    def chosen(self, name: str | int | None = None) -> Checkpoint:
        """The checkpoint to use: ``best``, ``last``, ``average``, a step, or by default the choice.

        The choice is made at the end of training; before that it is the best on validation so far.

        Raises:
            UserError: there is no such checkpoint.
        """
        if name is None and (result := self.result) is not None:
            where = str(self.path / RESULT)
            chosen = find_checkpoint(self.checkpoint_folder, result["chosen"], where)
            if chosen is not None:
                return chosen
        if name == AVERAGE:
            average = find_checkpoint(self.checkpoint_folder, AVERAGE, str(self.path))
            if average is None:
                raise UserError(
                    f"{self.path} has no average: training.average makes one at the end"
                )
            return average
        found = self.checkpoints()
        if not found:
            raise UserError(f"{self.path} has no checkpoint yet; train first: heedful train --out")
        if name is None or name == "best":
            best = [point for point in found if point.state.get("best_step") == point.step]
            return best[-1] if best else found[-1]
        if name == "last":
            return found[-1]
        for point in found:
            if str(name) in (str(point.step), point.path.name):
                return point
        steps = ", ".join(str(point.step) for point in found)
        raise UserError(f"{self.path} has no checkpoint '{name}'; there are best, last, {steps}")


@dataclass(frozen=True)
class PairRun(Run):
    """A run that learns from pairs of texts."""

    recipe: PairRecipe

    def tokenisers(self) -> Tokenisers:
        """The run's own tokenisers.

        Raises:
            UserError: they are missing, damaged or were changed.
        """
        self.require_unchanged("tokeniser/")
        found = Tokenisers.load(self.path / "tokeniser")
        known = self.facts["vocabulary"]
        if (found.source.size, found.target.size) != (known["source"], known["target"]):
            raise _other_vocabulary(self.path)
        return found

    def pairs(self, part: str) -> list[Pair]:
        """The ``validation`` or ``test`` pairs that the run keeps; none if it was given none."""
        name = f"data/{part}.jsonl"
        self.require_unchanged(name)
        try:
            pairs = [Pair(*pair) for pair in read_json_lines(self.path / name)]
        except TypeError as error:
            raise _no_examples(self.path / name) from error
        if not all(isinstance(text, str) for pair in pairs for text in pair):
            raise _no_examples(self.path / name)
        return pairs


@dataclass(frozen=True)
class TextRun(Run):
    """A run for single texts; ``facts["sets"]`` tells of the data of each thing that is learnt."""

    recipe: TextRecipe

    def vocabulary(self) -> SavedVocabulary:
        """The run's own vocabulary.

        Raises:
            UserError: it is missing, damaged or was changed.
        """
        self.require_unchanged("tokeniser/")
        found = load_vocabulary(self.path / "tokeniser")
        if found.size != self.facts["vocabulary"]["size"]:
            raise _other_vocabulary(self.path)
        return found

    def labels(self, name: str) -> list[str]:
        """The labels or tags of what is learnt as ``name``, by number."""
        return [str(label) for label in self.facts["sets"][name]["labels"]]

    def set_folder(self, name: str) -> Path:
        """Where the data of what is learnt as ``name`` are."""
        return self.path / "data" / name

    def labelled(self, name: str, part: str) -> list[Labelled]:
        """The labelled texts that the run keeps of ``validation`` or ``test``."""
        found = self._kept(name, part)
        if not all(_is_labelled(example) for example in found):
            raise _no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [Labelled(tuple(texts), label) for texts, label in found]

    def tagged(self, name: str, part: str) -> list[Tagged]:
        """The tagged sentences that the run keeps of ``validation`` or ``test``."""
        found = self._kept(name, part)
        if not all(_is_tagged(example) for example in found):
            raise _no_examples(self.set_folder(name) / f"{part}.jsonl")
        return [Tagged(tuple(words), tuple(tags)) for words, tags in found]

    def documents(self, name: str, part: str) -> list[str]:
        """The documents that the run keeps of ``validation`` or ``test``."""
        return [str(document) for document in self._kept(name, part)]

    def _kept(self, name: str, part: str) -> list[Any]:
        path = self.set_folder(name) / f"{part}.jsonl"
        self.require_unchanged(path.relative_to(self.path).as_posix())
        return list(read_json_lines(path))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_labelled(example: Any) -> bool:
    right = isinstance(example, list) and len(example) == 2
    return right and _is_texts(example[0]) and isinstance(example[1], str)


def _is_tagged(example: Any) -> bool:
    right = isinstance(example, list) and len(example) == 2 and all(map(_is_texts, example))
    return right and len(example[0]) == len(example[1])


def _no_examples(path: Path) -> UserError:
    return UserError(f"{path}: a line is no example of this run; the file is damaged")


def _other_vocabulary(run: Path) -> UserError:
    return UserError(
        f"{run / 'tokeniser'}: the vocabulary has another size than {run / FACTS} tells; the files "
        "are of different runs"
    )


def open_run(path: str | Path) -> Run:
    """The run in a folder.

    Raises:
        UserError: the folder is missing or is no run, or one of a later version; a file of it is
            damaged, or was changed since heedful wrote it.
    """
    folder = Path(path)
    _require_run(folder)
    manifest = read_manifest(folder)
    return _opened(folder, read_facts(folder, manifest), manifest)


def _require_run(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is no run: it is a file, a run is a folder")
    if not folder.is_dir():
        raise UserError(f"no run at {folder}: there is no such folder")
    if not (folder / FACTS).exists():
        raise UserError(f"{folder} is no run: it has no run.json (heedful train makes one)")


def _opened(folder: Path, facts: dict[str, Any], manifest: dict[str, str] | None) -> Run:
    """The run, its facts and recipe checked."""
    if facts.get("format") != FORMAT:
        raise UserError(
            f"{folder} is a run of format {facts.get('format')}, this version reads {FORMAT}; "
            "update heedful"
        )
    content = read_recipe_text(folder, sealed=manifest is not None)
    where = str(folder / RECIPE)
    recipe = check_recipe(parse_toml(content, where), where, written=True)
    if isinstance(recipe, PairRecipe):
        check_facts(PairFacts, facts, folder / FACTS)
        return PairRun(folder, recipe, facts, manifest)
    if isinstance(recipe, TextRecipe):
        check_facts(TextFacts, facts, folder / FACTS)
        if facts["sets"].keys() != recipe.sets().keys():
            raise UserError(
                f"{folder / FACTS}: it is about {', '.join(facts['sets']) or 'nothing'}, the "
                f"recipe about {', '.join(recipe.sets())}; the files are of different runs"
            )
        return TextRun(folder, recipe, facts, manifest)
    raise TypeError(f"no runs for {recipe.task}")


def accept_changes(path: str | Path) -> None:
    """Record the hashes of a run's files as they are now, after an edit on purpose.

    Also gives hashes to a run of a version that kept none. Checkpoints keep their own.

    Raises:
        UserError: the folder is no run, its recipe or ``run.json`` cannot be used, or it is being
            trained.
    """
    folder = Path(path)
    _require_run(folder)
    with locked(folder, doing="trained"):
        _opened(folder, read_json(folder / FACTS), None)
        seal_files(folder)


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
