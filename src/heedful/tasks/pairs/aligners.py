"""Loads one or two runs as a word aligner: their directions, alignment rules, and the join."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.evaluation.aligner import Aligner, Direction
from heedful.evaluation.symmetrisation import DEFAULT_JOIN, Join
from heedful.inference import Translator
from heedful.tasks.pairs.alignment_rules import joined_rule_of, rule_of
from heedful.tasks.pairs.building import load_translator
from heedful.tasks.pairs.run import PairRun, open_pair_run

Languages = tuple[str | None, str | None]

DIRECTIONS = {"forward": False, "reverse": True}
"""The runs in a folder from ``heedful train --task align``, and whether they are reversed."""


@dataclass(frozen=True)
class RunDirection:
    """A run, its translator, and which side of the corpus it reads."""

    run: PairRun
    translator: Translator
    turned: bool


def runs_of(path: Path) -> list[Path]:
    """A run itself, or the two runs of an aligner's folder."""
    both = [path / name for name in DIRECTIONS]
    if not (path / "run.json").exists() and all((run / "run.json").exists() for run in both):
        return both
    return [path]


def load_directions(
    paths: Sequence[Path],
    *,
    languages: Languages = (None, None),
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> list[RunDirection]:
    """Load one run, or two of opposite directions.

    Args:
        paths: the runs.
        languages: of the source and target side of the corpus; default: those of the first run.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: precision of matrix products.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

    Raises:
        UserError: a folder is not a run, a run does not attend to its source, or the languages of
            runs and corpus do not match.
    """
    runs = [open_pair_run(path) for path in paths]
    if len(runs) == 2:
        _require_opposite(*runs)
    turned = _is_turned(runs[0], languages)
    found = []
    for number, run in enumerate(runs):
        translator = load_translator(
            [run.path], device=device, precision=precision, checkpoint=checkpoint
        )
        try:
            translator.require_alignments()
        except UserError as error:
            raise UserError(f"{run.path}: {error}") from error
        found.append(RunDirection(run, translator, turned != bool(number)))
    return found


def build_aligner(directions: Sequence[RunDirection], join: Join | None) -> Aligner:
    """The aligner of one or two runs, with the rules chosen for them; notices report the rules.

    Args:
        directions: from `load_directions`.
        join: how two directions are joined. If None, the join that was chosen with the rules, or
            `DEFAULT_JOIN`.
    """
    rules = [joined_rule_of(each.run, each.translator.models[0]) for each in directions]
    known = [rule for rule in rules if rule is not None]
    together = len(directions) == 2 and len(known) == 2 and known[0].key == known[1].key
    if together and join in (None, known[0].join):
        # The best rule of a single run may not be the best for joining.
        for each, joined in zip(directions, known, strict=True):
            each.translator.rules = (joined.rule,)
            notice(f"{each.run.path}: alignments from {joined.rule.describe()}")
        notice(f"joined by {known[0].join}: rules {known[0].origin} together")
        join = known[0].join
    else:
        for each in directions:
            report_rule(each.run, each.translator)
    pieces = [Direction(each.translator, each.turned) for each in directions]
    return Aligner(pieces, join or DEFAULT_JOIN)


def report_rule(run: PairRun, translator: Translator) -> None:
    """Print a notice with the alignment rule of a run and its origin."""
    known = rule_of(run, translator.models[0])
    if known is not None:
        notice(f"{run.path}: alignments from {known.rule.describe()} ({known.origin})")


def _require_opposite(run: PairRun, other: PairRun) -> None:
    if run.path.resolve() == other.path.resolve():
        raise UserError(f"{run.path} is given twice; the second run must be the other direction")
    first, second = _languages(run), _languages(other)
    if _differ(first, second[::-1]):
        same = not _differ(first, second)
        raise UserError(
            f"{run.path} translates {_described(first)} and {other.path} {_described(second)}"
            + (" too" if same else "")
            + f"; the second run must translate {_described(first[::-1])}"
        )
    if None in (*first, *second) and _sides(run) == _sides(other):
        raise UserError(
            f"{run.path} and {other.path} were trained on the same files in the same order, so on "
            "the same direction; the second run must translate the other way"
        )


def _sides(run: PairRun) -> tuple[list[str], bool]:
    """The hashes of the run's training files, and whether they are reversed."""
    return run.facts["data"]["hashes"].get("train", [str(run.path)]), run.recipe.data.reversed


def _is_turned(run: PairRun, languages: Languages) -> bool:
    """Whether the source language of the run is the target side of the corpus.

    Raises:
        UserError: the languages of corpus and run do not match.
    """
    own = _languages(run)
    if not _differ(own, languages):
        return False
    if not _differ(own[::-1], languages):
        return True
    raise UserError(
        f"{run.path} translates {_described(own)}, but the corpus is {_described(languages)} "
        "(--from, --to)"
    )


def _languages(run: PairRun) -> Languages:
    return run.recipe.data.source, run.recipe.data.target


def _differ(one: Languages, other: Languages) -> bool:
    """Whether languages are known to differ; ``en`` and ``en-US`` do not."""
    return any(
        a is not None and b is not None and _base(a) != _base(b)
        for a, b in zip(one, other, strict=True)
    )


def _base(language: str) -> str:
    return language.lower().replace("_", "-").partition("-")[0]


def _described(languages: Languages) -> str:
    return " to ".join(language or "?" for language in languages)
