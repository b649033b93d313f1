"""Runs that start with the weights and the vocabulary of another run (``--start-from``).

The weights are copied into the new run before ``run.json`` names their source. Later changes to the
other run therefore have no effect.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.runs.checkpoints import MODEL, Checkpoint
from heedful.runs.kind import Kind
from heedful.runs.opening import open_run
from heedful.runs.recipe import DEFAULT
from heedful.runs.registry import kind_named, kind_of
from heedful.runs.run import Run
from heedful.runs.settings import Recipe
from heedful.runs.start import Start
from heedful.training.resuming import flat


def find_start(out: Path, start_from: str | Path | None) -> Path | None:
    """The run that gives model and tokeniser: ``out`` if it exists, otherwise ``start_from``.

    Raises:
        UserError: ``start_from`` is not a run, or ``out`` is a run that was not started from it.
    """
    if start_from is None:
        return None
    if not (out / "run.json").exists():
        return open_run(start_from).path
    known = open_run(out).facts.get("started_from")
    if known is None:
        raise UserError(
            f"{out} was started without --start-from and is resumed with its own weights; leave "
            "out --start-from, or give another --out"
        )
    if not _is_start(known, start_from):
        raise UserError(
            f"{out} was started with --start-from {known['run']}, not {start_from}; leave out "
            "--start-from, or give another --out"
        )
    return out


def _is_start(known: dict[str, Any], start_from: str | Path) -> bool:
    """Whether ``start_from`` is the recorded run, which may have moved since."""
    if Path(known["run"]).resolve() == Path(start_from).resolve():
        return True
    return _hash(open_run(start_from).chosen()) == str(known["weights"])


def with_start(tables: Mapping[str, Any], start: Path | None) -> Mapping[str, Any]:
    """``tables`` with the model and the tokeniser of the run to start from.

    Settings in ``tables`` take precedence. A model of another kind is kept here, and refused later.
    later.

    Raises:
        UserError: the run's model does not fit the task of ``tables``.
    """
    if start is None:
        return tables
    run = open_run(start)
    kind = kind_named(tables.get("task", DEFAULT), "the recipe")
    _require_fitting(run, kind)
    known = kind.tables_from(run)
    result = dict(tables)
    for table in ("model", "tokeniser"):
        if table not in known:
            continue
        given, own = tables.get(table, {}), known[table]
        if not isinstance(given, Mapping) or given.get("kind", own.get("kind")) != own.get("kind"):
            continue
        result[table] = {**own, **given}
        for key, value in given.items():
            if isinstance(value, Mapping) and isinstance(own.get(key), Mapping):
                result[table][key] = {**own[key], **value}
    return result


def _require_fitting(run: Run, kind: Kind) -> None:
    """Raise UserError unless runs of a task can start from a run."""
    if not kind.starts_from(kind_of(run.recipe)):
        raise UserError(
            f"{run.path} is a run for {run.recipe.task}, whose model does not fit: a run for "
            f"task = '{kind.name}' cannot start from it"
        )


def open_start(start_from: str | Path, recipe: Recipe) -> Start:
    """Open the run that a new run starts from.

    Raises:
        UserError: the recipe's model or tokeniser differs from that run's.
    """
    run = open_run(start_from)
    kind = kind_of(recipe)
    _require_fitting(run, kind)
    now, known = flat(recipe.as_tables()), flat(kind.tables_from(run))
    for key in sorted(now.keys() | known.keys()):
        table = key.partition(".")[0]
        if table not in ("model", "tokeniser") or now.get(key) == known.get(key):
            continue
        length = key == "model.max_length" and kind_of(run.recipe).reads_any_length(run)
        if length or key in kind.changeable_at_start:
            continue
        raise UserError(
            f"the recipe's [{table}] differs from that of {run.path} in {key} ({now.get(key)!r}, "
            f"there {known.get(key)!r}): a run that starts from another uses its model and "
            f"tokeniser, only dropout may differ; leave out {key}"
        )
    if recipe.as_tables().get("vectors"):
        raise UserError(
            f"[vectors] and --start-from {run.path} both give initial embeddings; leave one of "
            "them out"
        )
    point = run.chosen()
    facts = {"run": str(start_from), "checkpoint": point.path.name, "weights": _hash(point)}
    return Start(run, point.weights(), facts)


def _hash(point: Checkpoint) -> str:
    return str(point.state["hashes"][MODEL])


def start_hash(start_from: str | Path) -> str:
    """The content hash of a run's weights."""
    return _hash(open_run(start_from).chosen())
