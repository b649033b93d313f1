"""A word aligner: computes the links of pairs with the translators of one or both directions."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.evaluation.forced_alignment import Advance, align_translations
from heedful.evaluation.symmetrisation import DEFAULT_JOIN, Join, symmetrise
from heedful.inference import Translator, WordAlignment
from heedful.inference.files import opened_output
from heedful.inference.line_windows import WINDOW

Weighted = dict[tuple[int, int], float]


class Direction(NamedTuple):
    """A translator that aligns, and its direction."""

    translator: Translator
    turned: bool = False
    """Whether it reads the target of a pair and writes the source."""


@dataclass(frozen=True)
class AlignedPair:
    """A pair and its word links."""

    pair: Pair
    weights: Weighted
    """(source word, target word) → weight; with both directions, the mean of their weights."""

    @property
    def links(self) -> list[tuple[int, int]]:
        """(source word, target word) by target word, then source word."""
        return sorted(self.weights, key=lambda link: link[::-1])

    def pharaoh(self) -> str:
        """The links as ``source-target``: ``0-0 2-1``."""
        return " ".join(f"{source}-{target}" for source, target in self.links)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/aligning.md."""
        links = [[*link, round(self.weights[link], 4)] for link in self.links]
        return {"source": self.pair.source, "target": self.pair.target, "links": links}


class Aligner:
    """Aligns the words of pairs.

    Args:
        directions: one direction, or two of which one is reversed (``turned``).
        join: how the links of two directions are combined.
    """

    def __init__(self, directions: Sequence[Direction], join: Join = DEFAULT_JOIN) -> None:
        turned = sorted(direction.turned for direction in directions)
        if turned not in ([False], [True], [False, True]):
            raise ValueError("give one direction, or two of which one is reversed")
        # The forward direction is first, because the last steps of joining prefer it.
        self.directions = sorted(directions, key=lambda direction: direction.turned)
        self.join = join

    def align(
        self,
        pairs: Sequence[Pair],
        *,
        advance: Advance | None = None,
        left_out: Counter[str] | None = None,
    ) -> list[AlignedPair]:
        """The links of each pair, in order; none if a side is empty or too long.

        Args:
            pairs: words are separated as by ``str.split``.
            advance: called with the number of pairs finished.
            left_out: counts pairs without links by reason; if None, a notice reports them.

        Raises:
            UserError: one pair is given instead of a list, or a translator has no attention to
                its source.
        """
        if any(isinstance(pair, str) for pair in pairs):
            raise UserError("align takes a list of pairs; give [pair] for a single one")
        found = [
            [_weighted(alignment, turned) for alignment in alignments]
            for turned, alignments in self._directions(pairs, advance, left_out)
        ]
        return [
            AlignedPair(pair, self._joined(*weights))
            for pair, *weights in zip(pairs, *found, strict=True)
        ]

    def weights(self, pairs: Sequence[Pair]) -> list[Weighted]:
        """The weights of all word pairs, without a rule for links.

        With both directions, their geometric means.
        """
        found = [
            [
                {link[::-1] if turned else link: weight for link, weight in each.weights().items()}
                for each in alignments
            ]
            for turned, alignments in self._directions(pairs, None, None)
        ]
        if len(found) == 1:
            return found[0]
        return [
            {
                link: (weight * second[link]) ** 0.5
                for link, weight in first.items()
                if link in second
            }
            for first, second in zip(*found, strict=True)
        ]

    def _directions(
        self, pairs: Sequence[Pair], advance: Advance | None, left_out: Counter[str] | None
    ) -> Iterator[tuple[bool, list[WordAlignment]]]:
        """Whether a direction is reversed, and its alignments; for each direction."""
        for number, (translator, turned) in enumerate(self.directions, start=1):
            sides = [pair[::-1] if turned else (pair.source, pair.target) for pair in pairs]
            alignments = align_translations(
                translator,
                [source for source, _ in sides],
                [target for _, target in sides],
                advance=advance if number == len(self.directions) else None,
                left_out=left_out if number == 1 or left_out is None else Counter(),
            )
            yield turned, alignments

    def _joined(self, first: Weighted, second: Weighted | None = None) -> Weighted:
        if second is None:
            return first
        return {
            link: (first.get(link, 0.0) + second.get(link, 0.0)) / 2
            for link in symmetrise(first, second, self.join)
        }


def _weighted(alignment: WordAlignment, turned: bool) -> Weighted:
    found = {}
    for own, written in alignment.links:
        link = (written, own) if turned else (own, written)
        found[link] = float(alignment.soft[written, own])
    return found


def align_corpus(
    aligner: Aligner,
    pairs: Iterable[Pair],
    output: Path | None,
    *,
    as_json: bool = False,
    advance: Advance | None = None,
    left_out: Counter[str] | None = None,
) -> int:
    """Write the links of a corpus, one line per pair, in order.

    Args:
        aligner: computes the links.
        pairs: read as a stream, in windows of 10,000 that are sorted by length.
        output: a file, written atomically; standard output if None.
        as_json: write one JSON object per line instead of Pharaoh links.
        advance: called with the number of pairs finished.
        left_out: counts pairs without links by reason.

    Returns:
        The number of pairs.

    Raises:
        UserError: the corpus cannot be read, has one empty side, or the output cannot be written.
    """
    remaining = iter(pairs)
    done = 0
    with opened_output(output) as file:
        while window := list(islice(remaining, WINDOW)):
            if not done:
                require_two_sides(window)
            for found in aligner.align(window, advance=advance, left_out=left_out):
                line = (
                    json.dumps(found.to_json(), ensure_ascii=False) if as_json else found.pharaoh()
                )
                file.write(line.encode() + b"\n")
            file.flush()
            done += len(window)
    return done


def require_two_sides(pairs: Sequence[Pair]) -> None:
    """Raise UserError if one side is empty in all pairs and the other is not."""
    there = [any(text.strip() for text in side) for side in zip(*pairs, strict=True)]
    if any(there) and not all(there):
        side = "target" if there[0] else "source"
        raise UserError(
            f"the {side} side is empty in all of the first {len(pairs):,} pairs of the corpus, so "
            "there is nothing to align; check the files"
        )
