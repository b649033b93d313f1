"""Whole texts: split into parts for a model, and joined from their translations."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from heedful.data.sentences import SentenceFailures, split_into_sentences
from heedful.decoding import length_penalty
from heedful.inference.assembly import word_starts
from heedful.inference.splitting import Part, split_text
from heedful.inference.translation import Translation
from heedful.inference.word_alignment import WordAlignment

_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_NEEDS_SPACE = re.compile(r"[.!?…؟।][\"'”’»)\]]*$")
# The boundary of two sentences in a script without spaces.
_UNSPACED_END = re.compile(r"(?<![。！？｡])[。！？｡]+[」』”’）]*$")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True)
class SplitText:
    """A text in parts, which are translated separately."""

    text: str
    parts: tuple[Part, ...]
    """The parts, none of them empty; line breaks and empty lines are in the white space before."""
    lengths: tuple[int, ...]
    """Number of tokens of each part."""
    after: str
    """The white space after the last part."""


def split_into_parts(
    text: str,
    count: Callable[[Sequence[str]], list[int]],
    limit: int,
    language: str | None = None,
    failures: SentenceFailures | None = None,
) -> SplitText:
    """Cut a text at its line breaks, and lines of more than ``limit`` tokens into parts.

    The parts and their white space, concatenated, are the text itself.

    Args:
        text: any text.
        count: counts the tokens of texts.
        limit: maximum number of tokens of a part.
        language: also split lines into sentences by the rules of this language (ISO 639); unknown
            languages use the rules of another one.
        failures: counts the lines that could not be split into sentences.

    Raises:
        UserError: the text is not valid Unicode.
    """
    lines, after = split_at_line_breaks(text)
    if language is not None:
        lines = [sentence for line in lines for sentence in _sentences(line, language, failures)]
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
    return SplitText(text, tuple(parts), tuple(lengths), after)


def join_translations(
    cut: SplitText,
    translations: Sequence[Translation],
    *,
    exponent: float,
    threshold: float | None = None,
) -> Translation:
    """The translation of a text from those of its parts; each line remains one line.

    The i-th alternative consists of the parts' i-th ones (the last one of a part with fewer).

    Args:
        cut: the text.
        translations: one per part.
        exponent: the exponent of the length penalty.
        threshold: the threshold of alignment links.
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
    """A translation of a line as one line, without line breaks that the model generated."""
    return _LINE_BREAK.sub(" ", text)


def split_at_line_breaks(text: str) -> tuple[list[Part], str]:
    """The lines that are not empty, and the white space after the last."""
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


def _sentences(line: Part, language: str, failures: SentenceFailures | None) -> list[Part]:
    """A line's sentences; the white space around the whole line stays with its first and last."""
    found: list[Part] = []
    before, text = line.before, ""
    for piece in split_into_sentences(line.text, language, failures):
        if text.strip() and piece.strip():
            found.append(Part(before, text.rstrip()))
            own = piece.lstrip()
            before = text[len(text.rstrip()) :] + piece[: len(piece) - len(own)]
            text = own
        else:
            text += piece
    return [*found, Part(before, text)]


def _joined(cut: SplitText, chosen: Sequence[Translation], exponent: float) -> Translation:
    total = sum(one.log_probability for one in chosen)
    length = sum(len(one.tokens) + 1 for one in chosen)  # END counts
    texts = [one_line(one.text) for one in chosen]
    between = gaps(cut, texts)
    return Translation(
        source=cut.text,
        text="".join(gap + text for gap, text in zip(between, texts, strict=True)) + cut.after,
        score=total / length_penalty(float(length), exponent),
        log_probability=total,
        tokens=tuple(token for one in chosen for token in one.tokens),
        token_scores=tuple(score for one in chosen for score in one.token_scores),
    )


def gaps(cut: SplitText, texts: Sequence[str]) -> list[str]:
    """The white space before each part's translation, which is that before the part.

    A space is added after a sentence if the source has none, as in scripts without spaces. Parts
    that were cut inside a word are joined without a space.
    """
    found = []
    for place, part in enumerate(cut.parts):
        missing = bool(place) and not part.before and bool(_NEEDS_SPACE.search(texts[place - 1]))
        source_before = cut.parts[place - 1].text if place else ""
        unspaced = _UNSPACED_END.search(source_before) or _UNSPACED.match(part.text)
        found.append(" " if missing and unspaced else part.before)
    return found


def _alignment(
    cut: SplitText, translations: Sequence[Translation], threshold: float | None
) -> WordAlignment | None:
    own = [one.alignment for one in translations if one.alignment is not None]
    if len(own) < len(cut.parts):
        return None
    sources = word_starts([part.before for part in cut.parts], [part.text for part in cut.parts])
    texts = [one_line(one.text) for one in translations]
    targets = word_starts(gaps(cut, texts), texts)
    return WordAlignment.joined(own, sources, targets, threshold)
