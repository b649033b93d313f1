"""Chooses the alignment rules of runs by gold links, and stores them in the runs."""

from collections.abc import Sequence

from heedful.data.examples import Pair
from heedful.evaluation.alignment_error import AlignmentScore, GoldLinks
from heedful.evaluation.outcome import ReportTable
from heedful.evaluation.rule_selection import RuleSearch, choose_joined, exchanged_sides
from heedful.inference.alignment import AlignmentRule
from heedful.tasks.pairs.aligners import RunDirection
from heedful.tasks.pairs.alignment_rules import chosen_on, write_rule

_SHOWN = 10
_HEADER = ("module", "heads", "row", "links", "AER", "precision", "recall", "F1")


def choose_rules(
    directions: Sequence[RunDirection],
    pairs: Sequence[Pair],
    gold: Sequence[GoldLinks],
    where: str,
    checkpoint: str | int | None = None,
) -> list[ReportTable]:
    """Choose each run's rule by the alignment error rate, and store it in the run.

    With two directions, the best combination of rules and join is also chosen.

    Args:
        directions: one run, or two of opposite directions.
        pairs: texts with gold links.
        gold: their links.
        where: the file of the links.
        checkpoint: the checkpoint that was loaded.

    Returns:
        Tables of the best rules of each run, and of the joined rules.
    """
    searches, tables = [], []
    for each in directions:
        sides = [pair[::-1] if each.turned else (pair.source, pair.target) for pair in pairs]
        right = exchanged_sides(gold) if each.turned else gold
        sources, targets = [side[0] for side in sides], [side[1] for side in sides]
        search = RuleSearch(each.translator, sources, targets, right)
        searches.append(search)
        rows = [_row(rule, score) for rule, score in search.ranked[:_SHOWN]]
        title = f"{each.run.path}: the best of {len(search.ranked)} rules on {len(pairs)} pairs"
        tables.append(ReportTable(title, _HEADER, rows))
    facts = [chosen_on(each.run, where, len(pairs), checkpoint) for each in directions]
    if len(directions) == 1:
        write_rule(directions[0].run, searches[0].best, facts[0])
        return tables
    # Links are joined in the direction of the corpus, so the run that is not turned is forward.
    order = sorted((0, 1), key=lambda number: directions[number].turned)
    both = choose_joined(*(searches[number] for number in order))
    for number, rule in zip(order, (both.forward, both.reverse), strict=True):
        write_rule(directions[number].run, searches[number].best, facts[number], (rule, both))
    rows = [_row(rule, both.score) for rule in (both.forward, both.reverse)]
    tables.append(ReportTable(f"joined by {both.join}", _HEADER, rows))
    return tables


def _row(rule: AlignmentRule, score: AlignmentScore) -> tuple[str, ...]:
    module, heads, shift = rule.where
    return (
        module,
        "all" if heads is None else ", ".join(str(head + 1) for head in heads),
        "fed in" if shift else "predicted",
        "heaviest" if rule.threshold is None else f"≥ {rule.threshold:g}",
        *(f"{100 * figure:.1f} %" for figure in (score.aer, score.precision, score.recall)),
        f"{100 * score.f1:.1f} %",
    )
