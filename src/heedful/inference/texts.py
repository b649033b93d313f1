"""Whole texts: cut into the parts that a model takes, and put together from their translations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from heedful.data.tokeniser import Tokeniser
from heedful.decoding import length_penalty
from heedful.inference.alignment import join
from heedful.inference.assembling import word_starts
from heedful.inference.splitting import Part, split_text
from heedful.inference.translation import Translation, WordAlignment

_LINE_BREAK = re.compile(r"\r\n|[\r\n]")


@dataclass(frozen=True)
class Cut:
    """A text as parts, each of which goes through a model for itself."""

    text: str
    parts: tuple[Part, ...]
    """None of them empty; line breaks and empty lines stand before them."""
    lengths: tuple[int, ...]
    """Each part's tokens."""
    after: str
    """The white space after the last part."""


def cut_text(text: str, tokeniser: Tokeniser, limit: int) -> Cut:
    """Cut a text at its line breaks, and lines of more than ``limit`` tokens into parts.

    The parts joined, with what stands before each and after the last, are the text itself.

    Raises:
        UserError: the text is not valid Unicode.
    """

    def count(texts: Sequence[str]) -> list[int]:
        return [len(tokens) for tokens in tokeniser.encode_batch(list(texts))]

    lines, after = _lines(text)
    parts: list[Part] = []
    lengths: list[int] = []
    for line, length in zip(lines, count([line.text for line in lines]), strict=True):
        if length <= limit:
            parts.append(line)
            lengths.append(length)
            continue
        first, *others = split_text(line.text, count, limit)
        own = [Part(line.before + first.before, first.text), *others]
        parts += own
        lengths += count([part.text for part in own])
    return Cut(text, tuple(parts), tuple(lengths), after)


def join_translations(
    cut: Cut,
    translations: Sequence[Translation],
    *,
    exponent: float,
    threshold: float | None = None,
) -> Translation:
    """The translation of a text from those of its parts; every line stays one line.

    The i-th alternative is made of the parts' i-th ones (the last where a part has fewer).

    Args:
        cut: the text.
        translations: one a part.
        exponent: the length penalty's.
        threshold: that of the alignment's links.
    """
    if not cut.parts:
        return Translation(cut.text, cut.text)
    ranked = [[one, *one.alternatives] for one in translations]
    best, *others = (
        _joined(cut, [of[min(rank, len(of) - 1)] for of in ranked], exponent)
        for rank in range(max(map(len, ranked)))
    )
    return replace(
        best,
        alignment=_alignment(cut, translations, threshold),
        alternatives=tuple(others),
        parts=len(cut.parts),
        at_limit=any(one.at_limit for one in translations),
    )


def one_line(text: str) -> str:
    """A translation of a line as one line, whatever the model wrote."""
    return _LINE_BREAK.sub(" ", text)


def _lines(text: str) -> tuple[list[Part], str]:
    """The lines with something in them, and what stands after the last."""
    lines: list[Part] = []
    before, start = "", 0
    ends = [*_LINE_BREAK.finditer(text), None]
    for end in ends:
        line = text[start : end.start() if end else len(text)]
        if line.strip():
            lines.append(Part(before, line))
            before = ""
        else:
            before += line
        if end:
            before += end[0]
            start = end.end()
    return lines, before


def _joined(cut: Cut, chosen: Sequence[Translation], exponent: float) -> Translation:
    total = sum(one.log_probability for one in chosen)
    length = sum(len(one.tokens) + 1 for one in chosen)  # END counts
    texts = [one_line(one.text) for one in chosen]
    return Translation(
        source=cut.text,
        text="".join(part.before + text for part, text in zip(cut.parts, texts, strict=True))
        + cut.after,
        score=total / length_penalty(float(length), exponent),
        log_probability=total,
        tokens=tuple(token for one in chosen for token in one.tokens),
        token_scores=tuple(score for one in chosen for score in one.token_scores),
    )


def _alignment(
    cut: Cut, translations: Sequence[Translation], threshold: float | None
) -> WordAlignment | None:
    soft = [one.alignment.soft for one in translations if one.alignment is not None]
    if len(soft) < len(cut.parts):
        return None
    before = [part.before for part in cut.parts]
    sources = word_starts(before, [part.text for part in cut.parts])
    targets = word_starts(before, [one.text for one in translations])
    return WordAlignment(join(soft, sources, targets), threshold)
