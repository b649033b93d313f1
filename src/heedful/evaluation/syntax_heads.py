"""Attention heads against the arcs of dependency trees.

A head predicts, for each word, the other word that it attends to most. It is right for an arc in
the direction "to the head" if the dependent's prediction is its head in the tree, and in the
direction "to the dependent" if the head's prediction is the dependent. The baseline predicts the
word at a fixed offset.

Clark et al. 2019, "What Does BERT Look At? An Analysis of BERT's Attention", section 4.
Shapes: N attention heads, W words.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.readers.trees import ROOT, Tree

TO_HEAD, TO_DEPENDENT = "to the head", "to the dependent"
DIRECTIONS = (TO_HEAD, TO_DEPENDENT)
ALL = "all but punct"
"""All relations together, without punctuation."""
_PUNCTUATION = "punct"


def strongest_words(weights: Tensor, *, causal: bool) -> Tensor:
    """The other word that each word attends to most ``[N, W]``; −1 if there is none.

    Args:
        weights: between words, ``[N, W, W]``.
        causal: whether a word can only attend to earlier ones.

    Example:
        >>> strongest_words(torch.tensor([[[0.9, 0.1], [0.5, 0.5]]]), causal=False)
        tensor([[1, 0]])
        >>> strongest_words(torch.tensor([[[0.9, 0.1], [0.5, 0.5]]]), causal=True)
        tensor([[-1,  0]])
    """
    count = weights.shape[-1]
    others = torch.ones(count, count, dtype=torch.bool).tril(-1)
    if not causal:
        others = others | others.T
    best = weights.masked_fill(~others, -torch.inf).argmax(-1)
    return best.masked_fill(~others.any(-1), -1)


@dataclass
class ArcCounts:
    """How many arcs each head predicts, by direction and relation.

    Args:
        heads: number of attention heads N.
        causal: whether the model attends to earlier words only. Then only arcs whose predicted
            word is the earlier one are counted.
    """

    heads: int
    causal: bool = False
    arcs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(direction, relation) → number of arcs."""
    hits: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    """(direction, relation) → number of arcs that each head predicts ``[N]``."""
    offsets: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    """(direction, relation) → how many predicted words are at an offset from the other word."""

    def add(self, strongest: Tensor, tree: Tree) -> None:
        """Count the arcs of a sentence, given :func:`strongest_words`.

        Raises:
            ValueError: the numbers of words differ.
        """
        if strongest.shape != (self.heads, len(tree.words)):
            raise ValueError(f"{list(strongest.shape)} predictions for {len(tree.words)} words")
        for dependent, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head == ROOT:
                continue
            names = [relation] if relation == _PUNCTUATION else [relation, ALL]
            for direction, asked, wanted in (
                (TO_HEAD, dependent, head),
                (TO_DEPENDENT, head, dependent),
            ):
                if self.causal and wanted > asked:
                    continue
                right = strongest[:, asked] == wanted
                for name in names:
                    self._count((direction, name), right, wanted - asked)

    def _count(self, key: tuple[str, str], right: Tensor, offset: int) -> None:
        self.arcs[key] += 1
        self.hits[key] = self.hits.get(key, torch.zeros(self.heads, dtype=torch.long)) + right
        self.offsets.setdefault(key, Counter())[offset] += 1

    def accuracy(self, direction: str, relation: str) -> Tensor:
        """The share of arcs that each head predicts ``[N]``, in float64; NaN without arcs."""
        key = direction, relation
        return self.hits.get(key, torch.zeros(self.heads)).double() / self.arcs[key]


class RelationScore(NamedTuple):
    """The head for one relation and direction."""

    relation: str
    direction: str
    arcs: int
    """Number of arcs that are scored."""
    head: int
    """The index of the chosen head."""
    accuracy: float
    """Its share of predicted arcs."""
    offset: int
    """The chosen offset of the baseline: −1 is the previous word."""
    baseline: float
    """The share of arcs that it predicts."""


def relation_scores(chosen_on: ArcCounts, scored_on: ArcCounts, least: int) -> list[RelationScore]:
    """The best head and the best offset for each relation and direction, on other sentences.

    Args:
        chosen_on: counts with which heads and offsets are chosen; the first of equal heads, and the
            nearest of equal offsets, is chosen.
        scored_on: counts of other sentences, which are scored.
        least: the least number of arcs in each of the two, at least 1; other relations have no
            score.

    Returns:
        Scores in the order of relations with most arcs; both directions of a relation follow
        one another.
    """
    frequent = Counter[str]()
    for (_, relation), count in scored_on.arcs.items():
        frequent[relation] += count
    found = []
    for relation, _ in sorted(frequent.items(), key=lambda one: (-one[1], one[0])):
        for direction in DIRECTIONS:
            key = direction, relation
            if min(chosen_on.arcs[key], scored_on.arcs[key]) < least:
                continue
            head = int(chosen_on.accuracy(*key).argmax())
            offset = _nearest_best(chosen_on.offsets[key])
            arcs = scored_on.arcs[key]
            found.append(
                RelationScore(
                    relation,
                    direction,
                    arcs,
                    head,
                    float(scored_on.accuracy(*key)[head]),
                    offset,
                    scored_on.offsets[key][offset] / arcs,
                )
            )
    return found


def count_arcs(
    trees: Sequence[Tree],
    strongest: Iterable[tuple[int, Tensor]],
    heads: int,
    *,
    causal: bool,
) -> ArcCounts:
    """Count the arcs of trees.

    Args:
        trees: the trees.
        strongest: index of a tree and its :func:`strongest_words`.
        heads: number of attention heads.
        causal: see :class:`ArcCounts`.
    """
    counts = ArcCounts(heads, causal)
    for index, own in strongest:
        counts.add(own, trees[index])
    return counts


def _nearest_best(offsets: Counter[int]) -> int:
    return min(offsets, key=lambda offset: (-offsets[offset], abs(offset), offset))
