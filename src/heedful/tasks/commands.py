"""What ``heedful train`` is asked for, as tables of a recipe."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
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
from heedful.training.train import train
from heedful.training.warm_start import find_start, with_start

Choose = Callable[..., dict[str, Any]]

_STARTED = ("model", "tokeniser")
"""What a run that starts from another takes from it."""


def trainable() -> dict[str, TaskSpec]:
    """The tasks that ``heedful train --task`` takes, by the option's value, the default first."""
    return {spec.train_option: spec for spec in specs() if spec.train_option}


def task_asked_for(task: str | None, start_from: Path | None) -> str:
    """What is to be trained for without a recipe: what is said, or what a run was trained for.

    Raises:
        UserError: the run that is started from was trained for what needs a recipe.
    """
    if task is not None or start_from is None:
        return task or next(iter(trainable()))
    spec = spec_of_run(start_from)[1]
    if spec.train_option:
        return spec.train_option
    raise UserError(
        f"{start_from} is a run for {spec.name}: say what to train for with --task, or how"
    )


def settings_of(
    task: str, options: Mapping[str, Any], overrides: Sequence[str], *, chosen: bool
) -> tuple[dict[str, Any], Choose]:
    """What options say of the data, and what makes a recipe for the task.

    Args:
        task: of the command line.
        options: the values of the data options of all tasks by name; None for those not given.
        overrides: of ``--set``.
        chosen: whether a recipe is to be chosen; with one of the user's, any option may be meant.

    Raises:
        UserError: an option is not for this task.
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
    # A recipe has only the settings that are given; a choice needs them all.
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
) -> bool:
    """Train from a recipe or from a corpus alone; True when training has ended.

    Args:
        recipe: a file or a recipe's name; ``choose`` makes one if None.
        out: the run's folder.
        data: a recipe's data folder, or the files of a corpus.
        given: settings of the data by name (their languages, or columns); None for those not given.
        overrides: of ``--set``.
        start_from: a run to start from.
        task: of the command line, where it was said.
        choose: makes a recipe for files, from ``given``; that of translation if None.

    Raises:
        UserError: neither a recipe nor data are given, or they cannot be used.
    """
    start = find_start(out, start_from)  # a wrong one is said before the corpus is read
    tables, where, folder = _tables(recipe, out, data, given, choose)
    known = tables.get("task", DEFAULT)
    if task is not None and trainable()[task].name != known:
        raise UserError(f"{where} is for task = '{known}', not for --task {task}; leave that out")
    if start is not None:
        if recipe is None:
            tables = {key: table for key, table in tables.items() if key not in _STARTED}
            tables = spec_named(known).adapt_chosen(tables, open_run(start))
        tables = dict(with_start(tables, start))
    if recipe is None and not (out / "run.json").exists():
        _say_chosen(with_overrides(tables, overrides), out)
    checked = check_recipe(with_overrides(tables, overrides), where)
    try:
        return train(checked, out, data=folder, start_from=start_from)
    except VocabularyTooLargeError as error:
        asked = any(override.startswith("tokeniser.vocabulary_size") for override in overrides)
        if recipe is not None or asked:
            raise
        # Nobody asked for this size: it was chosen before the corpus was looked at so closely.
        smaller = f"tokeniser.vocabulary_size={error.supported}"
        notice(f"the corpus supports a vocabulary of {error.supported:,}: taken")
        checked = check_recipe(with_overrides(tables, [*overrides, smaller]), where)
        return train(checked, out, data=folder, start_from=start_from)


def _tables(
    recipe: str | None,
    out: Path,
    data: list[str],
    given: Mapping[str, Any],
    choose: Choose | None,
) -> tuple[dict[str, Any], str, Path | None]:
    """The recipe's tables, where they are from, and the folder of relative data paths."""
    if recipe is not None:
        if len(data) > 1:
            raise UserError("with a recipe, --data names one folder, where its data paths start")
        path = find_recipe(recipe)
        tables = read_recipe(path)
        for name, value in given.items():
            if value is not None:
                tables = with_setting(tables, f"data.{name}", value, str(path))
        return tables, str(path), Path(data[0]) if data else None
    if (out / "run.json").exists():
        return _tables_of_run(out, data, given)
    for file in data:
        if Path(file).is_dir():
            raise UserError(
                f"--data {file} is a folder: without a recipe, --data names the corpus (one file "
                "of pairs, or twice for two aligned text files; with a --task, its examples)"
            )
    if not data:
        raise UserError(
            "give a recipe, or a corpus with --data FILE (and --from and --to, or a --task)"
        )
    choose = spec_named(DEFAULT).choose_recipe if choose is None else choose
    tables = choose(data, **given)
    return tables, f"the recipe chosen for {', '.join(data)}", None


def _tables_of_run(
    out: Path, data: list[str], given: Mapping[str, Any]
) -> tuple[dict[str, Any], str, Path | None]:
    """As :func:`_tables`, for the same command again: the recipe that was chosen then."""
    tables = open_run(out).recipe.as_tables()
    for name, value in given.items():
        known = tables.get("data", {}).get(name)
        if value is not None and value != known:
            raise UserError(f"{out} was begun with data.{name} = {known!r}, not {value!r}")
    if len(data) == 1 and Path(data[0]).is_dir():
        return tables, str(out), Path(data[0])
    if data and "data" not in tables:
        raise UserError(f"{out} learns from several sets: --data names the folder of its files")
    if data:
        tables = tables | {"data": tables["data"] | {"train": data}}
    return tables, str(out), None


def _say_chosen(tables: dict[str, Any], out: Path) -> None:
    training, model = tables["training"], tables["model"]
    name = f"{model.get('size') or model.get('cell') or ''} {model['kind']}".strip()
    notice(
        f"recipe chosen from the corpus: {name}, vocabulary "
        f"{tables['tokeniser']['vocabulary_size']:,}, at most {training['max_steps']:,} steps of "
        f"{training['batch_tokens']:,} tokens; {_held_out(tables['data'])}; it goes into "
        f"{out / 'recipe.toml'}"
    )


def _held_out(data: Mapping[str, Any]) -> str:
    shares = [
        f"{share:.1%} of the examples for {part}"
        for part in ("validation", "test")
        if (share := data.get(f"{part}_share"))
    ]
    return f"held out: {' and '.join(shares)}" if shares else "nothing is held out of so few"
