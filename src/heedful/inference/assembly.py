"""Assembles the translation of a text from the hypotheses of its parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from heedful.decoding import Hypothesis, length_penalty
from heedful.inference.protection import Protection
from heedful.inference.splitting import Part
from heedful.inference.translation import Translation
from heedful.inference.word_alignment import WordAlignment


@dataclass
class PartResult:
    """The results of search and alignment for one part."""

    hypotheses: list[Hypothesis]
    soft: Tensor | None
    """Weights ``[target words, source words]`` of the best hypothesis."""
    at_limit: bool


def assemble(
    source: str,
    parts: Sequence[Part],
    found: Sequence[PartResult],
    protection: Protection,
    exponent: float,
    threshold: float | None = None,
    after: str = "",
) -> Translation:
    """The translation of ``source`` and its alternatives, from the hypotheses of its parts.

    The i-th hypothesis of a text consists of the i-th hypotheses of its parts (the last one of a
    part with fewer). ``exponent`` is that of the length penalty, ``threshold`` that of alignment
    links, and ``after`` the white space after the last part.
    """
    ranks = range(max(len(one.hypotheses) for one in found))
    ranked = [_joined(source, parts, found, rank, protection, exponent, after) for rank in ranks]
    best, texts = ranked[0]
    alignment = None
    soft = [WordAlignment(one.soft) for one in found if one.soft is not None]
    if len(soft) == len(found):
        source_starts = word_starts([part.before for part in parts], [part.text for part in parts])
        target_starts = word_starts([part.before for part in parts], texts)
        alignment = WordAlignment.joined(soft, source_starts, target_starts, threshold)
    return replace(
        best,
        alignment=alignment,
        alternatives=tuple(one for one, _ in ranked[1:]),
        parts=len(parts),
        at_limit=any(one.at_limit for one in found),
    )


def _joined(
    source: str,
    parts: Sequence[Part],
    found: Sequence[PartResult],
    rank: int,
    protection: Protection,
    exponent: float,
    after: str,
) -> tuple[Translation, list[str]]:
    """The translation from the hypotheses of one rank, and the texts of the parts."""
    chosen = [one.hypotheses[min(rank, len(one.hypotheses) - 1)] for one in found]
    own = [part.text for part in parts]
    texts = [
        protection.decode(*each) for each in zip(own, (one.tokens for one in chosen), strict=True)
    ]
    length = sum(len(one.token_log_probabilities) for one in chosen)
    total = sum(one.log_probability for one in chosen)
    translation = Translation(
        source=source,
        text="".join(part.before + text for part, text in zip(parts, texts, strict=True)) + after,
        score=total / length_penalty(float(length), exponent),
        log_probability=total,
        tokens=tuple(
            piece
            for text, one in zip(own, chosen, strict=True)
            for piece in protection.pieces(text, one.tokens)
        ),
        token_scores=tuple(
            score for one in chosen for score in one.token_log_probabilities[: len(one.tokens)]
        ),
    )
    return translation, texts


def word_starts(before: Sequence[str], texts: Sequence[str]) -> list[int]:
    """The index of each text's first word in the concatenation of all.

    Without white space between two texts, the last word of one continues in the next.
    """
    starts, words, open_word = [], 0, False
    for gap, text in zip(before, texts, strict=True):
        own = len(text.split())
        glued = open_word and not gap and bool(text) and not text[0].isspace()
        start = words - 1 if glued else words
        starts.append(start)
        words = start + own if own else words
        if text or gap:
            open_word = bool(text) and not text[-1].isspace()
    return starts
