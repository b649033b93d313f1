"""The teacher of a run: another run of the same task, with the same vocabulary and labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.runs.checkpoints import MODEL
from heedful.runs.opening import open_run
from heedful.runs.run import Run
from heedful.runs.settings import Recipe, TeacherSettings
from heedful.training.distillation import Consistent, Distilled, Predicting
from heedful.training.protocol import Task


class Objectives(Protocol):
    """The training settings that compare two outputs for a batch."""

    @property
    def teacher(self) -> TeacherSettings | None:
        """The run to distil."""
        ...

    @property
    def consistency(self) -> float:
        """α of R-Drop."""
        ...


def with_objectives(
    task: Task, training: Objectives, run: Run, load: Callable[[Run], nn.Module]
) -> Task:
    """The task with the losses that its training settings add.

    Args:
        task: the task of the run.
        training: the training settings.
        run: the run that is trained.
        load: loads the model of a run, on the device of the task's model.

    Raises:
        UserError: the teacher is missing, damaged or does not fit the run, or the task's loss is
            not a cross-entropy of logits.
    """
    if training.teacher is None and not training.consistency:
        return task
    if not isinstance(task, Predicting):
        raise UserError(
            f"training.teacher and training.consistency are not for task = '{run.recipe.task}'; "
            "leave them out"
        )
    if training.teacher is not None:
        found = training.teacher
        if not found.weight and not found.cosine:
            return task  # the teacher has no effect
        return Distilled(
            task,
            load_teacher(run, found, load),
            temperature=found.temperature,
            weight=found.weight,
            cosine=found.cosine,
        )
    return Consistent(task, training.consistency)


def load_teacher(
    run: Run, settings: TeacherSettings, load: Callable[[Run], nn.Module]
) -> nn.Module:
    """The model of a run's teacher; random generators are left as they were.

    Raises:
        UserError: the teacher is missing, damaged or does not fit the run.
    """
    teacher = open_run(settings.run)
    require_fitting(run, teacher)
    known, now = run.facts.get("teacher"), facts_of(teacher)
    if known is not None and known["weights"] != now["weights"]:
        raise UserError(
            f"{run.path} was started with the teacher {known['run']} at {known['checkpoint']}, but "
            f"{teacher.path} now chooses {now['checkpoint']}, which has other weights; train in a "
            "new folder, or give back the teacher's weights"
        )
    with torch.random.fork_rng(devices=[]):
        return load(teacher)


def teacher_of(recipe: Recipe) -> Run | None:
    """The teacher that a recipe names, whose vocabulary a new run takes; None without one.

    Raises:
        UserError: it is no run, or its task or its tokeniser is another one.
    """
    settings: TeacherSettings | None = getattr(recipe.training, "teacher", None)
    if settings is None:
        return None
    teacher = open_run(settings.run)
    _require_same_task(recipe, teacher)
    own, known = recipe.as_tables()["tokeniser"], teacher.recipe.as_tables()["tokeniser"]
    for key in sorted(own.keys() | known.keys()):
        if own.get(key) != known.get(key):
            raise UserError(
                f"tokeniser.{key} is {own.get(key)!r}, but {known.get(key)!r} in the teacher "
                f"{teacher.path}: a student has its teacher's vocabulary; use the same [tokeniser]"
            )
    return teacher


def facts_of(teacher: Run) -> dict[str, str]:
    """What a student's ``run.json`` keeps of its teacher, so that a changed one is noticed."""
    point = teacher.chosen()
    weights = str(point.state["hashes"][MODEL])
    return {"run": str(teacher.path), "checkpoint": point.path.name, "weights": weights}


def facts_of_teacher(recipe: Recipe) -> dict[str, str] | None:
    """As :func:`facts_of`, for the teacher that a recipe names; None without one."""
    teacher = teacher_of(recipe)
    return None if teacher is None else facts_of(teacher)


def require_fitting(run: Run, teacher: Run) -> None:
    """Raise UserError unless a run can learn from a teacher: what differs, and what to do."""
    if Path(teacher.path).resolve() == Path(run.path).resolve():
        raise UserError(f"training.teacher.run: {run.path} cannot be its own teacher; name another")
    _require_same_task(run.recipe, teacher)
    own, known = (each.facts["vocabulary"]["fingerprint"] for each in (run, teacher))
    if own != known:
        raise UserError(
            f"{run.path} and its teacher {teacher.path} have different vocabularies; train the "
            "student in a new folder, where it takes its teacher's vocabulary"
        )
    sets = run.facts.get("sets", {})
    for name, facts in sets.items():
        taught = teacher.facts["sets"].get(name, {}).get("labels")
        if facts["labels"] != taught:
            raise UserError(
                f"{run.path} has the labels {_listed(facts['labels'])}, but its teacher "
                f"{teacher.path} {_listed(taught or [])}; train both on data with the same labels"
            )
    rules, taught_rules = (
        getattr(each.recipe.data_tables().get("data"), "protect", None) for each in (run, teacher)
    )
    if rules != taught_rules:
        raise UserError(
            f"data.protect is {rules}, but {taught_rules} in the teacher {teacher.path}; use the "
            "same rules"
        )


def _require_same_task(recipe: Recipe, teacher: Run) -> None:
    if teacher.recipe.task != recipe.task:
        raise UserError(
            f"training.teacher.run: {teacher.path} is a run for {teacher.recipe.task}, but the "
            f"student's task is {recipe.task}; name a run with the same task"
        )


def _listed(labels: list[str]) -> str:
    shown = ", ".join(labels[:5])
    return f"{shown}, …" if len(labels) > 5 else shown or "(none)"


def initial_layers(student: nn.Module, teacher: nn.Module, where: str) -> dict[str, Tensor]:
    """The teacher's weights by their name in the student, which may have fewer layers.

    Layer i of n starts with layer ⌊i · m / n⌋ of m: every other one if the student has half of the
    layers (Sanh et al. 2019, section 3).

    Args:
        student: the student.
        teacher: the teacher.
        where: the teacher's run, for messages.

    Raises:
        UserError: a weight is missing in the teacher, or has another shape.
    """
    lists = {
        name: len(module)
        for name, module in student.named_modules()
        if isinstance(module, nn.ModuleList)
    }
    parts = dict(teacher.named_modules())
    known, found = teacher.state_dict(), {}
    for name, tensor in student.state_dict().items():
        there = name
        for prefix, own in lists.items():
            stack = parts.get(prefix)
            if name.startswith(f"{prefix}.") and isinstance(stack, nn.ModuleList):
                index, _, rest = name.removeprefix(f"{prefix}.").partition(".")
                there = f"{prefix}.{int(index) * len(stack) // own}.{rest}"
        shape = known[there].shape if there in known else None
        if shape != tensor.shape:
            has = "does not have" if shape is None else f"has with the shape {list(shape)}"
            raise UserError(
                f"training.teacher.initialise: the student's {name} {list(tensor.shape)} starts "
                f"with the teacher's, which {where} {has}; use the same sizes but for the number "
                "of layers, or initialise = false"
            )
        found[name] = known[there]
    return found
