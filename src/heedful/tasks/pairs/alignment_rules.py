"""Alignment rules of runs: where alignments are read, stored in the run's ``alignment.json``."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.basics.files import content_hash
from heedful.evaluation.alignment_error import AlignmentScore
from heedful.evaluation.rule_selection import JoinedRules, ScoredRule
from heedful.evaluation.symmetrisation import Join, check_join
from heedful.inference.alignment import AlignmentRule, cross_modules, default_rule
from heedful.models.pairs import AlignmentSource, PairModel
from heedful.runs.manifest import read_sealed, write_sealed
from heedful.tasks.pairs.recipe import PairRecipe
from heedful.tasks.pairs.run import PairRun

FILE = "alignment.json"
_FORMAT = 1


class KnownRule(NamedTuple):
    """The rule of a run, and its origin."""

    rule: AlignmentRule
    origin: str


class JoinedRule(NamedTuple):
    """The rule of one direction if its links are joined with those of the other direction."""

    rule: AlignmentRule
    join: Join
    key: str
    """The same in both runs."""
    origin: str


class ChosenOn(NamedTuple):
    """The data and the checkpoint that a rule was chosen on."""

    gold: str
    """The file of links."""
    hash: str
    """The content hash of the file."""
    pairs: int
    checkpoint: str
    """The checkpoint that was used."""


def rule_of(run: PairRun, model: PairModel) -> KnownRule | None:
    """The rule chosen for a run, or its model's default; None without cross-attention.

    Raises:
        UserError: the run's ``alignment.json`` is damaged, or names a module that does not exist.
    """
    path = run.path / FILE
    if path.exists():
        values = _read(run)
        return KnownRule(_rule(values, "alone", model, path), _origin(values, "alone", path))
    guided = guided_source(run.recipe, model)
    if guided is not None:
        return KnownRule(AlignmentRule(guided, model.link_threshold), "guided by links in training")
    usual = default_rule(model)
    return None if usual is None else KnownRule(usual, "the model's default")


def guided_source(recipe: PairRecipe, model: PairModel) -> AlignmentSource | None:
    """The attention that a recipe's links guide; None without guided alignment.

    Raises:
        UserError: the model does not attend to its source, or has no such module.
    """
    guided = recipe.training.guided_alignment
    if recipe.data.links is None or not guided.weight:
        return None
    usual, modules = model.alignment, cross_modules(model)
    if usual is None or not modules:
        raise UserError(
            "data.links: this model has no attention to its source that links could guide; leave "
            "out data.links, or choose another model"
        )
    module = guided.module or usual.module
    if module not in modules:
        raise UserError(
            f"training.guided_alignment.module = {module!r}: choose a module with cross-attention: "
            f"{', '.join(modules)}"
        )
    heads = None if guided.head is None else (guided.head - 1,)
    return AlignmentSource(module, heads, usual.shift if guided.shift is None else guided.shift)


def joined_rule_of(run: PairRun, model: PairModel) -> JoinedRule | None:
    """The rule that was chosen for a run together with that of the other direction, if any.

    Raises:
        UserError: as in :func:`rule_of`.
    """
    path = run.path / FILE
    values = _read(run) if path.exists() else {}
    if "joined" not in values:
        return None
    rule = _rule(values, "joined", model, path)
    try:
        join, key = check_join(values["joined"]["join"]), str(values["joined"]["key"])
    except (KeyError, UserError) as error:
        raise _damaged(path) from error
    return JoinedRule(rule, join, key, _origin(values, "joined", path))


def write_rule(
    run: PairRun,
    alone: ScoredRule,
    chosen_on: ChosenOn,
    joined: tuple[AlignmentRule, JoinedRules] | None = None,
) -> None:
    """Store a rule in its run; it is used for all alignments with the run.

    Args:
        run: the run.
        alone: its best rule, with its score.
        chosen_on: the data of the score.
        joined: the rule of this direction for joining, and the rules of both directions.
    """
    values: dict[str, Any] = {
        "format": _FORMAT,
        "chosen_on": chosen_on._asdict(),
        "alone": _table(alone.rule, alone.score),
    }
    if joined is not None:
        own, both = joined
        parts = [_table(both.forward, both.score), _table(both.reverse, both.score)]
        key = f"{chosen_on.hash[:16]} {both.join} " + " ".join(str(part) for part in parts)
        values["joined"] = {**_table(own, both.score), "join": both.join, "key": key}
    write_sealed(run.path, FILE, values)


def chosen_on(run: PairRun, gold: str, pairs: int, checkpoint: str | int | None) -> ChosenOn:
    """The data and the checkpoint that a rule is chosen on."""
    return ChosenOn(gold, content_hash(Path(gold)), pairs, run.chosen(checkpoint).path.name)


def describe_rule(rule: AlignmentRule) -> dict[str, Any]:
    """A rule as plain values; heads are counted from 0."""
    where = rule.where
    return {
        "module": where.module,
        "heads": None if where.heads is None else list(where.heads),
        "shift": where.shift,
        "threshold": rule.threshold,
    }


def _table(rule: AlignmentRule, score: AlignmentScore) -> dict[str, Any]:
    return {**describe_rule(rule), "figures": asdict(score)}


def _read(run: PairRun) -> dict[str, Any]:
    return read_sealed(run.path, FILE, sealed=run.manifest is not None)


def _rule(values: Mapping[str, Any], which: str, model: PairModel, path: Path) -> AlignmentRule:
    try:
        table = values[which]
        heads = None if table["heads"] is None else tuple(int(head) for head in table["heads"])
        threshold = None if table["threshold"] is None else float(table["threshold"])
        where = AlignmentSource(str(table["module"]), heads, int(table["shift"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error
    if values.get("format") != _FORMAT or where.shift not in (0, 1) or (heads and min(heads) < 0):
        raise _damaged(path)
    if where.module not in cross_modules(model):
        raise UserError(
            f"{path}: the model has no cross-attention '{where.module}'; choose the rule again "
            "(heedful align --choose-rule), or delete the file"
        )
    return AlignmentRule(where, threshold)


def _origin(values: Mapping[str, Any], which: str, path: Path) -> str:
    try:
        on, figures = values["chosen_on"], values[which]["figures"]
        return (
            f"chosen on {on['pairs']} pairs of {on['gold']}, "
            f"AER {100 * figures['aer']:.1f} %, F1 {100 * figures['f1']:.1f} %"
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> UserError:
    return UserError(
        f"{path}: the file is damaged; choose the rule again (heedful align --choose-rule), or "
        "delete it"
    )
