"""Chooses the rule by which alignments are read from attention, on manual gold links.

Which head of which layer aligns words, and whether it does so where a word is predicted or where it
is fed in, differs between models (Kobayashi et al. 2020, "Attention is not only a weight", section
5; Chen et al. 2020, "Accurate word alignment induction from neural machine translation"). All
candidates are scored on development links, and the best one is chosen.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from heedful.basics.errors import UserError
from heedful.data.links import Link
from heedful.evaluation.alignment_error import AlignmentScore, GoldLinks, alignment_error_rate
from heedful.evaluation.forced_alignment import candidate_weights
from heedful.evaluation.symmetrisation import DEFAULT_JOIN, JOINS, Join, symmetrise
from heedful.inference import AlignmentRule, Translator, WordAlignment
from heedful.models.pairs import AlignmentSource

THRESHOLDS: tuple[float | None, ...] = (None, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
"""The thresholds that are tried; None links each word to the source word with most weight."""

_OTHER_PLACES = 3
"""Number of further candidates that are tried in joining, in addition to the best one."""


class ScoredRule(NamedTuple):
    """A rule and the agreement of its links with the gold."""

    rule: AlignmentRule
    score: AlignmentScore


class JoinedRules(NamedTuple):
    """Rules of both directions, how their links are joined, and the agreement of the result."""

    forward: AlignmentRule
    reverse: AlignmentRule
    join: Join
    score: AlignmentScore


class RuleSearch:
    """All rules of one model, scored on some pairs.

    Args:
        translator: a translator with one model.
        sources: texts with gold links.
        targets: the translation of each text.
        gold: the gold links of each pair.

    Raises:
        UserError: the model does not attend to its source, or the gold does not fit the pairs.
    """

    def __init__(
        self,
        translator: Translator,
        sources: Sequence[str],
        targets: Sequence[str],
        gold: Sequence[GoldLinks],
    ) -> None:
        self.gold = gold
        self.weights: Mapping[AlignmentSource, list[Tensor]] = candidate_weights(
            translator, sources, targets
        )
        if not self.weights:
            raise UserError("no pair has words on both sides, so no alignment rule can be chosen")
        scored = [
            ScoredRule(rule, alignment_error_rate(gold, self.links(rule)))
            for where in self.weights
            for rule in (AlignmentRule(where, threshold) for threshold in THRESHOLDS)
        ]
        # Sorting is stable: all heads precede single ones, predicted precedes fed in.
        self.ranked: list[ScoredRule] = sorted(scored, key=lambda each: each.score.aer)

    @property
    def best(self) -> ScoredRule:
        """The rule with the lowest error rate."""
        return self.ranked[0]

    def links(self, rule: AlignmentRule) -> list[list[Link]]:
        """The links of each pair by a rule."""
        return [WordAlignment(soft, rule.threshold).links for soft in self.weights[rule.where]]

    def candidates(self) -> list[AlignmentRule]:
        """The best candidate with every threshold, and the best rules of some other candidates.

        The best rule alone may not be the best when joined: an intersection needs many links.
        """
        first = self.best.rule.where
        chosen = [AlignmentRule(first, threshold) for threshold in THRESHOLDS]
        others: dict[AlignmentSource, AlignmentRule] = {}
        for rule, _ in self.ranked:
            if rule.where != first:
                others.setdefault(rule.where, rule)
        return chosen + list(others.values())[:_OTHER_PLACES]


def choose_joined(forward: RuleSearch, reverse: RuleSearch) -> JoinedRules:
    """The rules of both directions, and the join, with the lowest error rate together.

    Args:
        forward: for the model that writes the target side of the gold.
        reverse: for the model that writes its source side, on the same pairs reversed.
    """
    own = {rule: forward.links(rule) for rule in forward.candidates()}
    other = {
        rule: [[(source, target) for target, source in links] for links in reverse.links(rule)]
        for rule in reverse.candidates()
    }
    # The default join is first, so that it is chosen among equals.
    joins = sorted(JOINS, key=lambda join: join != DEFAULT_JOIN)
    best: JoinedRules | None = None
    lowest = math.inf
    for one, of_one in own.items():
        for two, of_two in other.items():
            for join in joins:
                links = [symmetrise(*both, join) for both in zip(of_one, of_two, strict=True)]
                score = alignment_error_rate(forward.gold, links)
                if score.aer < lowest:
                    lowest, best = score.aer, JoinedRules(one, two, join, score)
    if best is None:
        raise ValueError("there are no rules to join")
    return best


def exchanged_sides(gold: Sequence[GoldLinks]) -> list[GoldLinks]:
    """Gold links with source and target exchanged."""
    return [
        GoldLinks(
            sure=frozenset((j, i) for i, j in links.sure),
            possible=frozenset((j, i) for i, j in links.possible),
        )
        for links in gold
    ]
