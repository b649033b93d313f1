"""What ``heedful train`` is asked for, as tables of a recipe."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.subwords import VocabularyTooLargeError
from heedful.tasks.pairs.aligners import DIRECTIONS
from heedful.tasks.pairs.choosing import choose_aligning_recipe, choose_recipe
from heedful.tasks.texts.choosing import choose_classification, choose_language_model, choose_tagging, fine_tuned
from heedful.runs.recipe import (
    check_recipe,
    find_recipe,
    read_recipe,
    with_overrides,
    with_setting,
)
from heedful.runs.run import open_run
from heedful.training.starting import find_start, with_start
from heedful.training.train import train

Choose = Callable[..., dict[str, Any]]

_STARTED = ("model", "tokeniser")
"""What a run that starts from another takes from it."""
_NAMES = {
    "translate": "translation",
    "align": "alignment",
    "classify": "classification",
    "tag": "tagging",
    "language-model": "language-model",
}
"""Task of the command line → task of its recipes."""
_READING = {
    "translate": ("encoding",),
    "classify": ("encoding", "format", "unlabelled"),
    "tag": ("encoding",),
    "language-model": ("encoding", "documents"),
}
"""What ``--set data.…`` says of how files are read, which a choice of a recipe must know."""
_OPTIONS = {
    "translate": {"--from": "source", "--to": "target"},
    "align": {"--from": "source", "--to": "target"},
    "classify": {"--text": "text", "--label": "label"},
    "tag": {"--column": "column"},
    "language-model": {},
}
"""Task of the command line → its options → the data's settings."""
_CHOOSE: dict[str, Choose] = {
    "translate": choose_recipe,
    "classify": choose_classification,
    "tag": choose_tagging,
    "language-model": choose_language_model,
}


def task_asked_for(task: str | None, start_from: Path | None) -> str:
    """What is to be trained for without a recipe: what is said, or what a run was trained for.

    Raises:
        UserError: the run that is started from was trained for what needs a recipe.
    """
    if task is not None or start_from is None:
        return task or "translate"
    known = open_run(start_from).recipe.task
    for name, own in _NAMES.items():
        if own == known:
            return name
    raise UserError(f"{start_from} is a run for {known}: say what to train for with --task, or how")


def settings_of(
    task: str, options: Mapping[str, Any], overrides: Sequence[str], *, chosen: bool
) -> tuple[dict[str, Any], Choose]:
    """What options say of the data, and what makes a recipe for the task.

    Args:
        task: of the command line.
        options: their values by name; None for those not given.
        overrides: of ``--set``.
        chosen: whether a recipe is to be chosen; with one of the user's, any option may be meant.

    Raises:
        UserError: an option is not for this task.
    """
    every = {option: name for own in _OPTIONS.values() for option, name in own.items()}
    known = _OPTIONS[task] if chosen else every
    for option, value in options.items():
        if value is not None and option not in known:
            fitting = " or ".join(name for name, own in _OPTIONS.items() if option in own)
            raise UserError(f"{option} is for --task {fitting}, not for {task}")
    # A recipe has only the settings that are given; a choice needs them all.
    named = {name: options.get(option) for option, name in known.items()}
    if not chosen:
        named = {name: value for name, value in named.items() if value is not None}
    data = with_overrides({}, overrides).get("data", {})
    reading = {name: data[name] for name in _READING.get(task, ()) if name in data}
    return named, partial(_CHOOSE.get(task, choose_recipe), **reading)


def train_from_command(
    recipe: str | None,
    out: Path,
    data: list[str],
    *,
    given: Mapping[str, Any],
    overrides: list[str],
    start_from: Path | None,
    task: str | None = None,
    choose: Choose = choose_recipe,
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
        choose: makes a recipe for files, from ``given``.

    Raises:
        UserError: neither a recipe nor data are given, or they cannot be used.
    """
    start = find_start(out, start_from)  # a wrong one is said before the corpus is read
    tables, where, folder = _tables(recipe, out, data, given, choose)
    known = tables.get("task", "translation")
    if task is not None and _NAMES[task] != known:
        raise UserError(f"{where} is for task = '{known}', not for --task {task}; leave that out")
    if start is not None:
        if recipe is None:
            tables = {key: table for key, table in tables.items() if key not in _STARTED}
            if known not in ("translation", "alignment"):
                tables = fine_tuned(tables, open_run(start).recipe)
        tables = dict(with_start(tables, start))
    if recipe is None and not (out / "run.json").exists():
        _say_chosen(with_overrides(tables, overrides), out)
    checked = check_recipe(with_overrides(tables, overrides), where)
    try:
        return train(checked, out, data=folder, start_from=start_from)
    except VocabularyTooLargeError as error:
        asked = any(override.startswith("tokeniser.vocabulary") for override in overrides)
        if recipe is not None or asked:
            raise
        # Nobody asked for this size: it was chosen before the corpus was looked at so closely.
        smaller = f"tokeniser.vocabulary={error.supported}"
        notice(f"the corpus supports a vocabulary of {error.supported:,}: taken")
        checked = check_recipe(with_overrides(tables, [*overrides, smaller]), where)
        return train(checked, out, data=folder, start_from=start_from)


def train_aligner_from_command(
    out: Path,
    data: list[str],
    *,
    source: str | None,
    target: str | None,
    overrides: list[str],
) -> bool:
    """Train aligners of both directions into ``out/forward`` and ``out/reverse``.

    The same again goes on where it stopped.

    Raises:
        UserError: no corpus is given, ``out`` is a run, or the corpus cannot be used.
    """
    if (out / "run.json").exists():
        raise UserError(f"{out} is a run; --task align makes a folder of two: use another --out")
    for (name, is_reversed), languages in zip(
        DIRECTIONS.items(), ((source, target), (target, source)), strict=True
    ):
        finished = train_from_command(
            None,
            out / name,
            data,
            given={"source": languages[0], "target": languages[1]},
            overrides=overrides,
            start_from=None,
            choose=partial(choose_aligning_recipe, reversed=is_reversed),
        )
        if not finished:
            return False
    notice(f"trained: heedful align {out} FILE links words by both directions")
    return True


def _tables(
    recipe: str | None,
    out: Path,
    data: list[str],
    given: Mapping[str, Any],
    choose: Choose,
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
        f"{tables['tokeniser']['vocabulary']:,}, at most {training['max_steps']:,} steps of "
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
