"""Word alignments, stored part by part.

A text that was translated in parts has weights only between words of the same part, so that memory
is linear in the length of the text.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inference.alignment import join


class Block(NamedTuple):
    """The weights of a part."""

    weights: Tensor
    """``[target words, source words]``, float32 on the CPU."""
    target: int = 0
    """The index of its first target word in the whole text."""
    source: int = 0
    """The index of its first source word."""


class Row(NamedTuple):
    """A target word's weights; those of all other source words are 0."""

    first: int
    """The source word of the first weight."""
    weights: Tensor
    """``[source words of its part]``."""


class WordAlignment:
    """A word alignment of source and target; words are separated by white space.

    Args:
        soft: weights ``[target words, source words]``, float32 on the CPU; a row sums to at most 1.
        threshold: the minimum weight of a link; if None, each target word is linked to the source
            word with the largest weight.
    """

    def __init__(self, soft: Tensor, threshold: float | None = None) -> None:
        self.blocks: tuple[Block, ...] = (Block(soft),)
        self.threshold = threshold

    @classmethod
    def joined(
        cls,
        parts: Sequence["WordAlignment"],
        source_starts: Sequence[int],
        target_starts: Sequence[int],
        threshold: float | None = None,
    ) -> "WordAlignment":
        """The alignment of a text from those of its consecutive parts.

        A word that was split between two parts gets the mean of both rows.

        Args:
            parts: at least one.
            source_starts: the index of each part's first source word in the whole text.
            target_starts: the same for its first target word.
            threshold: as above.
        """
        found = cls(torch.zeros(0, 0), threshold)
        found.blocks = tuple(
            Block(block.weights, target + block.target, source + block.source)
            for part, source, target in zip(parts, source_starts, target_starts, strict=True)
            for block in part.blocks
        )
        return found

    @property
    def size(self) -> int:
        """The number of stored weights."""
        return sum(block.weights.numel() for block in self.blocks)

    @cached_property
    def soft(self) -> Tensor:
        """All weights ``[target words, source words]``, with zeros between parts.

        For a long text this is a large matrix; `rows` and `links` do not need it.
        """
        weights, targets, sources = zip(*self.blocks, strict=True)
        return weights[0] if len(weights) == 1 else join(weights, sources, targets)

    def rows(self) -> Iterator[Row]:
        """The weights of each target word, in order."""
        of_word: dict[int, list[Row]] = {}
        for block in self.blocks:
            for word, weights in enumerate(block.weights, start=block.target):
                of_word.setdefault(word, []).append(Row(block.source, weights))
        for word in range(max(of_word, default=-1) + 1):
            yield _mean(of_word.get(word, []))

    @property
    def links(self) -> list[tuple[int, int]]:
        """``(source word, target word)``, by target word: the largest, or all above it."""
        if len(self.blocks) == 1:
            return _links(*self.blocks[0], self.threshold)
        return [
            link
            for target, row in enumerate(self.rows())
            for link in _links(row.weights.unsqueeze(0), target, row.first, self.threshold)
        ]

    def weights(self, minimum: float = 0.01) -> dict[tuple[int, int], float]:
        """(source word, target word) → weight, of all pairs from a minimum weight on."""
        return {
            (row.first + own, target): weight
            for target, row in enumerate(self.rows())
            for own, weight in enumerate(row.weights.tolist())
            if weight >= minimum
        }

    def pharaoh(self) -> str:
        """The links as ``source-target`` pairs, by target word: ``0-0 2-1``."""
        return " ".join(f"{source}-{target}" for source, target in self.links)


def _mean(rows: Sequence[Row]) -> Row:
    """One row from those of all parts that a word belongs to."""
    if len(rows) == 1:
        return rows[0]
    if not rows:
        return Row(0, torch.zeros(0))
    first = min(row.first for row in rows)
    total = torch.zeros(max(row.first + len(row.weights) for row in rows) - first)
    for row in rows:
        start = row.first - first
        total[start : start + len(row.weights)] += row.weights
    return Row(first, total / len(rows))


def _links(
    weights: Tensor, target: int, source: int, threshold: float | None
) -> list[tuple[int, int]]:
    """The links of weights ``[T, S]`` whose first words are ``target`` and ``source``."""
    if not weights.numel():
        return []
    if threshold is not None:
        heavy = (weights >= threshold) & (weights > 0)
        return [(source + own, target + row) for row, own in heavy.nonzero().tolist()]
    best = weights.max(dim=1)
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(source + own, target + row) for row, (own, weight) in enumerate(found) if weight > 0]
