"""Runs that begin with the weights and the vocabulary of another (``--start-from``).

The weights are copied into the new run before its ``run.json`` says where they are from: what
becomes of the other run afterwards changes nothing in this one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.runs.checkpoints import MODEL, Checkpoint
from heedful.runs.preparation import Start
from heedful.runs.recipe import Recipe
from heedful.runs.run import open_run


def find_start(out: Path, start_from: str | Path | None) -> Path | None:
    """The run whose model and tokeniser are taken: ``out`` itself, once it has them.

    Raises:
        UserError: ``start_from`` is no run, or ``out`` is one that was not begun with it.
    """
    if start_from is None:
        return None
    if not (out / "run.json").exists():
        return open_run(start_from).path
    known = open_run(out).facts.get("started_from")
    if known is None:
        raise UserError(
            f"{out} was begun without --start-from and goes on with its own weights; leave it "
            "out, or give another --out"
        )
    if not _is_start(known, start_from):
        raise UserError(
            f"{out} was begun with --start-from {known['run']}, not {start_from}; leave it out, "
            "or give another --out"
        )
    return out


def _is_start(known: dict[str, Any], start_from: str | Path) -> bool:
    """Whether ``start_from`` is the run that was known, which may have moved since."""
    if Path(known["run"]).resolve() == Path(start_from).resolve():
        return True
    return _hash(open_run(start_from).chosen()) == str(known["weights"])


def with_start(tables: Mapping[str, Any], start: Path | None) -> Mapping[str, Any]:
    """``tables`` with the model and the tokeniser of the run that is started from, unless given."""
    if start is None:
        return tables
    recipe = open_run(start).recipe.as_tables()
    return {"model": recipe["model"], "tokeniser": recipe["tokeniser"], **tables}


def open_start(start_from: str | Path, recipe: Recipe) -> Start:
    """What a new run takes from another.

    Raises:
        UserError: the recipe's model or tokeniser is another than that run's.
    """
    run = open_run(start_from)
    now, known = recipe.as_tables(), run.recipe.as_tables()
    for table in ("model", "tokeniser"):
        if now[table] != known[table]:
            raise UserError(
                f"the recipe's [{table}] differs from that of {run.path}: a run that starts "
                "from another has its model and tokeniser; leave the table out"
            )
    point = run.chosen()
    facts = {"run": str(start_from), "checkpoint": point.path.name, "weights": _hash(point)}
    return Start(run, point.weights(), facts)


def _hash(point: Checkpoint) -> str:
    return str(point.state["hashes"][MODEL])
