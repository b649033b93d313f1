"""Loads the predictors of runs for single texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from heedful.basics.device import check_precision, choose_device
from heedful.basics.errors import UserError
from heedful.inference.classifier import Classifier
from heedful.inference.fastest_precision import resolve_precision
from heedful.inference.fill_mask import FillMask
from heedful.inference.generator import Generator
from heedful.inference.tagger import Tagger
from heedful.runs.calibration import temperature_of
from heedful.runs.opening import open_run
from heedful.runs.settings import Recipe
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.building import load_text_model
from heedful.tasks.texts.run import TextRun
from heedful.tasks.texts.spec import TextSpec

P = TypeVar("P")


def load_classifier(
    path: str | Path,
    *,
    head: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> Classifier:
    """The classifier of a run.

    Args:
        path: the run's folder.
        head: the head of a multi-task run; its only classification head if None.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: the precision of matrix products; ``auto`` chooses the fastest.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

    Raises:
        UserError: the folder is not a run of a classifier.
    """
    return load_reader(Classifier, "classification", path, head, device, precision, checkpoint)


def load_tagger(
    path: str | Path,
    *,
    head: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> Tagger:
    """The tagger of a run; the arguments are those of :func:`load_classifier`.

    Raises:
        UserError: the folder is not a run of a tagger.
    """
    return load_reader(Tagger, "tagging", path, head, device, precision, checkpoint)


def load_filler(
    path: str | Path,
    *,
    head: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> FillMask:
    """The predictor of masked tokens of a run; the arguments are those of :func:`load_classifier`.

    Raises:
        UserError: the folder is not a run of a masked language model.
    """
    return load_reader(FillMask, "masked", path, head, device, precision, checkpoint)


def load_generator(
    path: str | Path,
    *,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> Generator:
    """The text generator of a run; the arguments are those of :func:`load_classifier`.

    Raises:
        UserError: the folder is not a run of a language model.
    """
    return load_reader(Generator, "language-model", path, None, device, precision, checkpoint)


def load_reader(
    make: Callable[..., P],
    task: str,
    path: str | Path,
    head: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> P:
    """The predictor of a run for single texts.

    Args:
        make: its class, called with the model, the vocabulary, the arguments of
            :meth:`~heedful.tasks.texts.spec.TextSpec.predictor_arguments`, device and precision.
        task: the task of its head.
        path: the run's folder.
        head: the head of a multi-task run; its only head for ``task`` if None.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: the precision of matrix products; ``auto`` chooses the fastest.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

    Raises:
        UserError: the folder is not a run with such a head.
    """
    run = cast(TextRun, open_run(path))  # whatever has such a head is one
    name = _head(path, run.recipe, task, head)
    spec = cast(TextSpec, spec_named(task))
    if precision == "int8" and not spec.has_int8:
        raise UserError(
            f"{path} is a run for {run.recipe.task}: int8 is available for translation and "
            "generation only; use float32 or bfloat16"
        )
    chosen = choose_device(device)
    products = check_precision(precision, chosen, int8=True)
    model: Any = load_text_model(run, checkpoint)
    model.to(chosen).eval()
    products = resolve_precision(model, products, chosen)
    own = spec.predictor_arguments(run, name)
    if spec.has_probabilities:
        own = {**own, "temperature": temperature_of(run, name, checkpoint)}
    model = cast(TextSpec, spec_named(run.recipe.task)).model_of_head(model, run.recipe, name)
    return make(model, run.vocabulary(), **own, device=chosen, precision=products)


def _head(path: str | Path, recipe: Recipe, task: str, head: str | None) -> str:
    """The head for a task.

    Raises:
        UserError: the run has no such head, or several and none is named.
    """
    spec = spec_named(recipe.task)
    heads = spec.heads(recipe) | spec.inner_heads(recipe)
    wanted = spec_named(task)
    command = wanted.command
    fitting = [
        name
        for name, own in heads.items()
        if spec_named(own).command == command and spec_named(own).gives_sets == wanted.gives_sets
    ]
    if head is not None and head in fitting:
        return head
    if head is not None:
        named = ", ".join(fitting) or "none"
        raise UserError(f"{path} has no head '{head}' for heedful {command}; there is {named}")
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UserError(f"{path} has several heads for this: choose one (--head {fitting[0]}, …)")
    others = ", ".join(sorted({f"heedful {spec_named(own).command}" for own in heads.values()}))
    raise UserError(f"{path} is a run for {recipe.task}; use it with {others}")
