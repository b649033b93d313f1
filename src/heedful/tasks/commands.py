"""From the options of ``heedful train`` to a recipe."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice, without_notices
from heedful.basics.urls import url_of
from heedful.data.subwords import VocabularyTooLargeError
from heedful.runs.opening import open_run
from heedful.runs.recipe import (
    DEFAULT,
    check_recipe,
    find_recipe,
    read_recipe,
    with_overrides,
    with_setting,
)
from heedful.tasks.options import flag, parameters
from heedful.tasks.spec import TaskSpec, spec_named, spec_of_run, specs
from heedful.training.encoded import encoded_facts
from heedful.training.processes import join
from heedful.training.train import train
from heedful.training.warm_start import find_start, with_start

Choose = Callable[..., dict[str, Any]]

_STARTED = ("model", "tokeniser")
"""Tables of the recipe that a run takes from the run it starts from."""


def trainable() -> dict[str, TaskSpec]:
    """Value of ``heedful train --task`` → task; the default first."""
    return {spec.train_option: spec for spec in specs() if spec.train_option}


def choose_task(task: str | None, start_from: Path | None) -> str:
    """The task to train without a recipe: ``task``, else that of the run to start from.

    Raises:
        UserError: the task of the run to start from cannot be trained without a recipe.
    """
    if task is not None or start_from is None:
        return task or next(iter(trainable()))
    spec = spec_of_run(start_from)[1]
    if spec.train_option:
        return spec.train_option
    raise UserError(
        f"{start_from} is a run for {spec.name}, which needs a recipe: give a recipe or --task"
    )


def settings_of(
    task: str, options: Mapping[str, Any], overrides: Sequence[str], *, chosen: bool
) -> tuple[dict[str, Any], Choose]:
    """The settings of the data from the options, and the function that chooses a recipe.

    Args:
        task: the value of ``--task``.
        options: the values of the data options of all tasks by name; None for those not given.
        overrides: the values of ``--set``.
        chosen: whether a recipe is chosen; with a user's recipe, the options of all tasks are
            accepted.

    Raises:
        UserError: an option belongs to another task.
    """
    by_option = {
        name: {one.name: flag(one) for one in parameters(spec.data_options())}
        for name, spec in trainable().items()
    }
    spec, known = trainable()[task], list(by_option[task] if chosen else options)
    for name, value in options.items():
        if value is not None and name not in known:
            fitting = [one for one, own in by_option.items() if name in own]
            option = by_option[fitting[0]][name]
            raise UserError(f"{option} is for --task {' or '.join(fitting)}, not for {task}")
    # A recipe gets only the options that were given; choosing a recipe needs all of them.
    named = {name: options.get(name) for name in known}
    if not chosen:
        named = {name: value for name, value in named.items() if value is not None}
    data = with_overrides({}, overrides).get("data", {})
    reading = {name: data[name] for name in spec.reading_settings if name in data}
    return named, partial(spec.choose_recipe, **reading)


def train_from_command(
    recipe: str | None,
    out: Path,
    data: list[str],
    *,
    given: Mapping[str, Any],
    overrides: list[str],
    start_from: Path | None,
    task: str | None = None,
    choose: Choose | None = None,
    profile: int = 0,
) -> bool:
    """Train from a recipe or from a corpus alone.

    Args:
        recipe: a file or the name of a recipe; ``choose`` makes one if None.
        out: the run's folder.
        data: a recipe's data folder, or the files of a corpus.
        given: settings of the data by name (languages or columns); None for those not given.
        overrides: the values of ``--set``.
        start_from: a run to start from.
        task: the value of ``--task``, if it was given.
        choose: makes a recipe for files and ``given``; that of translation if None.
        profile: number of steps to profile.

    Returns:
        True when training has ended, False when it was interrupted.

    Raises:
        UserError: neither a recipe nor data are given, or they cannot be used.
    """
    start = find_start(out, start_from)  # fails before the corpus is read
    find = partial(_tables, recipe, out, data, given, choose)
    # A corpus is read by one process; a recipe by all of them, which compare it.
    tables, where, folder = join().by_first(find) if recipe is None else find()
    known = tables.get("task", DEFAULT)
    if task is not None and trainable()[task].name != known:
        raise UserError(f"{where} has task = '{known}', not --task {task}; leave out --task")
    if start is not None:
        if recipe is None:
            tables = {key: table for key, table in tables.items() if key not in _STARTED}
            tables = spec_named(known).adapt_chosen(tables, open_run(start))
        tables = dict(with_start(tables, start))
    changed = with_overrides(tables, overrides)
    checked = check_recipe(changed, where)
    if recipe is None and folder is None and not (out / "run.json").exists():
        _report_chosen(changed, out)
    try:
        return train(checked, out, data=folder, start_from=start_from, profile=profile)
    except VocabularyTooLargeError as error:
        is_set = any(override.startswith("tokeniser.vocabulary_size") for override in overrides)
        if recipe is not None or is_set:
            raise
        # The size was chosen from an estimate: use the largest that the corpus supports.
        smaller = f"tokeniser.vocabulary_size={error.supported}"
        notice(f"using a vocabulary of {error.supported:,}, the largest that the corpus supports")
        checked = check_recipe(with_overrides(tables, [*overrides, smaller]), where)
        return train(checked, out, data=folder, start_from=start_from, profile=profile)


def _tables(
    recipe: str | None,
    out: Path,
    data: list[str],
    given: Mapping[str, Any],
    choose: Choose | None,
) -> tuple[dict[str, Any], str, Path | None]:
    """The tables of the recipe, their origin for messages, and the folder of data paths."""
    if recipe is not None:
        if len(data) > 1:
            raise UserError("with a recipe, --data is one folder: the base of its data paths")
        path = find_recipe(recipe)
        tables = read_recipe(path)
        for name, value in given.items():
            if value is not None:
                tables = with_setting(tables, f"data.{name}", value, str(path))
        return tables, str(path), Path(data[0]) if data else None
    if (out / "run.json").exists():
        return _tables_of_run(out, data, given)
    if len(data) == 1 and encoded_facts(Path(data[0])) is not None:
        return _tables_of_encoded(data[0], given)
    if not data:
        raise UserError(
            "give a recipe, or a corpus with --data FILE (and --from and --to, or a --task)"
        )
    choose = spec_named(DEFAULT).choose_recipe if choose is None else choose
    with without_notices():  # the run's preparation reads the corpus again
        tables = choose(data, **given)
    return tables, f"the recipe chosen for {', '.join(data)}", None


def _tables_of_encoded(
    place: str, given: Mapping[str, Any]
) -> tuple[dict[str, Any], str, Path | None]:
    """Like :func:`_tables`, for an encoded corpus: the recipe that it was encoded with."""
    if url_of(place) is not None:
        raise UserError(f"{place} is an encoded corpus at a URL: give its recipe, too")
    tables = open_run(place).recipe.as_tables()
    for name, value in given.items():
        if value is not None and value != tables.get("data", {}).get(name):
            raise UserError(f"{place} was encoded without data.{name} = {value!r}; leave it out")
    return tables, f"the recipe of {place}", Path(place)


def _tables_of_run(
    out: Path, data: list[str], given: Mapping[str, Any]
) -> tuple[dict[str, Any], str, Path | None]:
    """Like :func:`_tables`, for a run that is resumed: the recipe that was chosen before."""
    tables = open_run(out).recipe.as_tables()
    for name, value in given.items():
        known = tables.get("data", {}).get(name)
        if value is not None and value != known:
            raise UserError(f"{out} was started with data.{name} = {known!r}, not {value!r}")
    is_corpus = data == tables.get("data", {}).get("train")
    if len(data) == 1 and Path(data[0]).is_dir() and not is_corpus:
        return tables, str(out), Path(data[0])
    if data and "data" not in tables:
        raise UserError(f"{out} has several data sets; with --data, give the folder of its files")
    if data:
        tables = tables | {"data": tables["data"] | {"train": data}}
    return tables, str(out), None


def _report_chosen(tables: dict[str, Any], out: Path) -> None:
    training, model = tables["training"], tables["model"]
    unit = spec_named(tables.get("task", DEFAULT)).batch_unit
    name = f"{model.get('size') or model.get('cell') or ''} {model['kind']}".strip()
    if "vocabulary_size" in tables.get("tokeniser", {}):
        name = f"{name}, vocabulary {tables['tokeniser']['vocabulary_size']:,}"
    notice(
        f"recipe chosen from the corpus: {name}, at most {training['max_steps']:,} steps of "
        f"{training['batch_tokens']:,} {unit}; {_held_out(tables['data'])}; written to "
        f"{out / 'recipe.toml'}"
    )


def _held_out(data: Mapping[str, Any]) -> str:
    shares = [
        f"{share:.1%} of the examples for {part}"
        for part in ("validation", "test")
        if (share := data.get(f"{part}_share"))
    ]
    return f"held out: {' and '.join(shares)}" if shares else "too few examples to hold any out"
