"""Evaluates runs as a benchmark does: official metrics, one table, and submissions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.suites.forms import Item
from heedful.data.suites.reading import find_file, read_items
from heedful.data.suites.submissions import write_submission
from heedful.data.suites.tasks import TASKS, SuiteTask, tasks_of
from heedful.evaluation.outcome import Evaluation, Figure, ReportTable
from heedful.evaluation.suites import (
    METRIC_TITLES,
    Answer,
    Outputs,
    answer_of,
    score_items,
    suite_average,
    task_score,
)
from heedful.tasks.spec import Opening, spec_of_run
from heedful.tasks.texts.recipe import TextRecipe
from heedful.tasks.texts.run import TextRun, as_text_run


class _LackingError(Exception):
    """A task cannot be scored, or has no submission; the message has the reason."""


@dataclass(frozen=True)
class Trained:
    """A head of a run that was trained on a task of a benchmark."""

    run: TextRun
    head: str
    opening: Opening

    @cached_property
    def predictor(self) -> Any:
        """The predictor of the head."""
        return self.opening.load(self.run.path, head=self.head)

    def answers(self, items: Sequence[Item], task: SuiteTask) -> list[Answer]:
        """The prediction for each item.

        Raises:
            UserError: the labels of the run are not those of the task.
        """
        known = [] if task.is_numeric else list(self.predictor.labels)
        if set(known) - set(task.labels):
            raise UserError(
                f"{self.run.path}: its labels {', '.join(known)} are not those of {task.key}: "
                f"{', '.join(task.labels)}"
            )
        rows = [texts if len(texts) > 1 else texts[0] for item in items for texts in item.rows]
        found = iter(self.predictor.predict(rows))
        return [
            answer_of(item, self._outputs([next(found) for _ in item.rows], task), task)
            for item in items
        ]

    def _outputs(self, found: Sequence[Any], task: SuiteTask) -> Outputs:
        if not task.is_numeric:
            return [one.probabilities for one in found]
        return [self.predictor.mean if one.value is None else one.value for one in found]

    def kept_files(self) -> list[Path]:
        """The official files that the run keeps: those of its recipe's test set."""
        folder = self.run.set_folder(self.head)
        files = sorted(folder.glob("official-*/*"))
        for path in files:
            self.run.require_unchanged(path.relative_to(self.run.path).as_posix())
        return files


@dataclass(frozen=True)
class Scored:
    """The figures of a run on the labelled files of a task."""

    task: SuiteTask
    run: str
    files: Sequence[str]
    examples: int
    figures: Mapping[str, float]

    @property
    def score(self) -> float:
        """The mean of the figures."""
        return task_score(self.figures)

    def to_json(self) -> dict[str, Any]:
        """All fields as a value that :mod:`json` can write."""
        own = {name: getattr(self, name) for name in ("run", "files", "examples", "figures")}
        return {**own, "score": self.score}


def evaluate_suite(
    suite: str,
    paths: Sequence[Path],
    data: Path | None,
    output: Path | None,
    opening: Opening,
) -> Evaluation:
    """Score runs on the tasks of a benchmark.

    Args:
        suite: ``glue``, ``superglue`` or ``russian-superglue``.
        paths: the runs, at most one for each task.
        data: the folder with a folder of official files for each task. The development set is
            scored, or a test set with labels if there is no development set. None: the test sets of
            the recipes, which the runs keep.
        output: the folder for submissions: the predictions for the test sets in ``data``.
        opening: loads the runs.

    Raises:
        UserError: a run is not of a task of the benchmark, two are of the same, or a file is
            invalid.
    """
    tasks = tasks_of(suite)
    if output is not None and data is None:
        raise UserError("--output needs the test sets: give the benchmark's folder with --data")
    if data is not None and not data.is_dir():
        raise UserError(f"--data {data} is not a folder: give the folder of the tasks' folders")
    if output is not None and output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is a file: give a folder for the submissions")
    runs = _by_task(paths, suite, opening)
    scored: list[Scored] = []
    missing: dict[str, str] = {}
    written: list[Path] = []
    for task in tasks:
        trained = runs.get(task.trained_on or task.key)
        if trained is None:
            missing[task.title] = f"no run of {task.trained_on or task.key}"
            continue
        try:
            scored.append(_score(trained, task, data))
        except _LackingError as reason:
            missing[task.title] = f"not scored: {reason}"
        if output is not None and data is not None:
            try:
                written += _submit(trained, task, data, output)
            except _LackingError as reason:
                before = f"{missing[task.title]}; " if task.title in missing else ""
                missing[task.title] = f"{before}no submission: {reason}"
    return _report(suite, scored, missing, written)


def _by_task(paths: Sequence[Path], suite: str, opening: Opening) -> dict[str, Trained]:
    """The head that is trained on each task."""
    found: dict[str, Trained] = {}
    for path in paths:
        run, spec = spec_of_run(path)
        sets = run.recipe.sets() if isinstance(run.recipe, TextRecipe) else {}
        named = {name: getattr(own, "benchmark", None) for name, own in sets.items()}
        heads = {name: key for name, key in named.items() if key is not None}
        if not heads:
            raise UserError(
                f"{path} is a run for {spec.name} without a benchmark's task: its recipe needs "
                f"data.benchmark, such as '{tasks_of(suite)[0].key}'"
            )
        if not any(TASKS[key].suite == suite for key in heads.values()):
            raise UserError(f"{path} is a run of {', '.join(heads.values())}, not of {suite}")
        for name, key in heads.items():
            if key in found:
                raise UserError(f"{found[key].run.path} and {path} are both of {key}; give one")
            found[key] = Trained(as_text_run(run), name, opening)
    return found


def _score(trained: Trained, task: SuiteTask, data: Path | None) -> Scored:
    """Score the development set, or another set with labels."""
    figures: dict[str, float] = {}
    files, examples = _labelled_files(trained, task, data), 0
    for path, name in zip(files, _names(files), strict=True):
        items = list(read_items(path, task))
        if items[0].labels is None:
            raise _LackingError(f"{path} has no labels")
        if "gender_parity" in task.metrics and len(items) % 2:
            raise UserError(
                f"{path}: the number of examples is odd ({len(items):,}), but they are pairs"
            )
        own = score_items(items, trained.answers(items, task), task)
        ending = f" ({name})" if len(files) > 1 else ""
        figures |= {f"{metric}{ending}": value for metric, value in own.items()}
        examples += len(items)
    return Scored(task, str(trained.run.path), [path.name for path in files], examples, figures)


def _labelled_files(trained: Trained, task: SuiteTask, data: Path | None) -> list[Path]:
    if data is None:
        found = [] if task.trained_on else trained.kept_files()
        if not found:
            raise _LackingError("give the benchmark's folder with --data")
        return found
    for part in (task.dev, task.test):
        files = _files(data, task, part)
        if files and next(read_items(files[0], task)).labels is not None:
            return files
    raise _LackingError(
        f"{data / task.title} has no {' or '.join(task.dev)}, nor a test set with labels"
    )


def _files(data: Path, task: SuiteTask, names: Sequence[str]) -> list[Path]:
    """The files of a part of a task; none unless all are there."""
    found = [find_file(data / task.title, name, task) for name in names]
    files = [path for path in found if path is not None]
    return files if len(files) == len(names) else []


def _submit(trained: Trained, task: SuiteTask, data: Path, output: Path) -> list[Path]:
    """Write the predictions for the test set, a file for each of its files."""
    files = _files(data, task, task.test)
    if not files:
        raise _LackingError(f"{data / task.title} has no {' or '.join(task.test)}")
    written = []
    for path, name in zip(files, task.submission_files, strict=True):
        items = list(read_items(path, task))
        write_submission(output / name, items, trained.answers(items, task), task)
        written.append(output / name)
    return written


def _report(
    suite: str, scored: Sequence[Scored], missing: Mapping[str, str], written: Sequence[Path]
) -> Evaluation:
    scores = {one.task.key: one.score for one in scored}
    average = suite_average(suite, scores)
    counted = [one.score for one in scored if one.task.counted]
    rows = [
        (
            one.task.title,
            one.run,
            ", ".join(one.files),
            f"{one.examples:,}",
            ", ".join(f"{_titled(name)} {value:.1f}" for name, value in one.figures.items()),
            f"{one.score:.1f}",
        )
        for one in scored
    ]
    columns = ("task", "run", "scored on", "examples", "figures", "score")
    tables = [ReportTable(suite, columns, rows)]
    number = sum(task.counted for task in tasks_of(suite))
    if counted:
        of = f"mean of {len(counted)} of {number} tasks"
        name = of if average is None else f"average of all {number} tasks"
        own = [(name, f"{fmean(counted):.1f}")]
        if average is None:
            own.append(("average of the leaderboard", f"needs all {number} tasks"))
        tables.append(ReportTable("average", ("average", "score"), own))
    if missing:
        tables.append(ReportTable("missing", ("task", "reason"), list(missing.items())))
    if written:
        lines = [(str(path),) for path in written]
        tables.append(ReportTable("submissions", ("file",), lines))
    details = {
        "benchmark": suite,
        "tasks": {one.task.key: one.to_json() for one in scored},
        "mean": fmean(counted) if counted else None,
        "average": average,
        "missing": dict(missing),
        "submissions": [str(path) for path in written],
    }
    figures = {key: Figure(value) for key, value in scores.items()}
    return Evaluation(suite, figures, tables=tables, details=details)


def _names(files: Sequence[Path]) -> list[str]:
    """A name for each file; those of the same name are numbered."""
    stems = [_stem(path) for path in files]
    return [
        f"{stem} {1 + stems[:place].count(stem)}" if stems.count(stem) > 1 else stem
        for place, stem in enumerate(stems)
    ]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".xz").removesuffix(".gz").rpartition(".")[0]


def _titled(name: str) -> str:
    metric, space, rest = name.partition(" ")
    return METRIC_TITLES.get(metric, metric) + space + rest
