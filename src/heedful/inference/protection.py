"""Protected spans in translation: placeholders replace them before search, text after it."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.examples import Pair
from heedful.data.protected.adjusting import CASE, PUNCTUATION
from heedful.data.protected.known import KnownSpans
from heedful.data.protected.pairs import Rules, protect_both, protect_pair
from heedful.data.protected.spans import ORDERED, PAIRS, SINGLES, Protected
from heedful.data.protected.unknown import KnownWords
from heedful.data.subwords import PLACEHOLDERS
from heedful.data.tokeniser import Tokeniser, Tokenisers
from heedful.decoding.kept_placeholders import Placeholders

PLACEHOLDER_TOKENS = Placeholders(END + 1, SINGLES, ORDERED, PAIRS)
"""The tokens of placeholders, which are the same in all vocabularies that heedful trains."""

_PLACEHOLDER = re.compile(r"⟦\d{1,2}⟧")


class Protection:
    """Encodes and decodes the texts of a translator that keeps protected spans.

    Args:
        tokenisers: of both sides.
        rules: the rules for protected spans; None for none.
    """

    def __init__(self, tokenisers: Tokenisers, rules: Rules | None) -> None:
        self.tokenisers, self.rules = tokenisers, rules

    def with_known_spans(self, known: KnownSpans) -> "Protection":
        """A copy that also protects the given spans of certain texts."""
        rules = None if self.rules is None else replace(self.rules, known=known)
        return Protection(self.tokenisers, rules)

    def with_known_words(self, words: KnownWords) -> "Protection":
        """A copy that also protects names that are not known.

        Raises:
            UserError: the model knows no placeholders.
        """
        if self.rules is None:
            raise UserError(
                "unknown names are kept by placeholders, which this model does not know: train a "
                "run with data.protect"
            )
        return Protection(self.tokenisers, replace(self.rules, words=words))

    def for_prefixes(self) -> "Protection":
        """A copy that leaves capital letters and ends as they are: given beginnings stay."""
        if self.rules is None:
            return self
        names = tuple(name for name in self.rules.names if name not in (CASE, PUNCTUATION))
        return Protection(self.tokenisers, replace(self.rules, names=names))

    def protect(self, text: str) -> Protected:
        """A source with placeholders, each with its text in the target."""
        return Protected(text, {}) if self.rules is None else self.rules.protect(text)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of sources."""
        if self.rules is not None:
            texts = [self.protect(text).text for text in texts]
        return self.tokenisers.source.encode_batch(texts)

    def counter(self, limit: int) -> Callable[[Sequence[str]], list[int]]:
        """A function that counts the tokens of sources, for splitting them.

        A source that needs more placeholders than there are counts as longer than ``limit``, so
        that all spans of its parts are kept.
        """

        def count(texts: Sequence[str]) -> list[int]:
            found = [self.protect(text) for text in texts]
            encoded = self.tokenisers.source.encode_batch([one.text for one in found])
            return [
                max(len(tokens), math.ceil(limit * one.load))
                for one, tokens in zip(found, encoded, strict=True)
            ]

        return count

    def encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The tokens of sources and targets, with placeholders for common spans."""
        if self.rules is not None:
            pairs = [
                protect_pair(Pair(source, target), self.rules)
                for source, target in zip(sources, targets, strict=True)
            ]
            sources = [pair.source for pair in pairs]
            targets = [pair.target for pair in pairs]
        encode_source, encode_target = (
            self.tokenisers.source.encode_batch,
            self.tokenisers.target.encode_batch,
        )
        return encode_source(sources), encode_target(targets)

    def encode_prefix(self, source: str, prefix: str) -> list[int]:
        """The tokens of the beginning of a source's translation."""
        spans = self.protect(source).spans
        if self.rules is not None:
            prefix, _, _ = self.rules.without_accelerator(prefix)
        for number, text in sorted(spans.items(), key=lambda span: -len(span[1])):
            prefix = prefix.replace(text, PLACEHOLDERS[number], 1)
        return self.tokenisers.target.encode(prefix)

    def decode(self, source: str, tokens: Sequence[int]) -> str:
        """The text that was generated for a source.

        If spans are protected, white space around it is removed; that around the source is kept
        by the caller.
        """
        text = self.tokenisers.target.decode(tokens)
        return text if self.rules is None else self.protect(source).restore(text).strip()

    def pieces(self, source: str, tokens: Sequence[int]) -> list[str]:
        """The generated tokens for a source, in readable form."""
        pieces = self.tokenisers.target.pieces(tokens)
        if self.rules is None or not any(piece in PLACEHOLDERS for piece in pieces):
            return pieces
        spans = self.protect(source).spans
        names = {PLACEHOLDERS[number]: text for number, text in spans.items()}
        return [names.get(piece, piece) for piece in pieces]

    def words(
        self, source: str | None, target: str | None, own: Sequence[int], written: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """The index of the word that each source token, and each target token, belongs to.

        Args:
            source: the text; if None, placeholders count as words.
            target: the text if it was given; if None, it is the translation of the source.
            own: tokens of the source.
            written: tokens of the target.
        """
        both = Protected("", {}), Protected("", {})
        if self.rules is not None and source is not None:
            if target is None:
                both = (self.protect(source),) * 2
            else:
                both = protect_both(Pair(source, target), self.rules)
        sides = self.tokenisers.source, self.tokenisers.target
        return word_indices(sides[0], own, both[0]), word_indices(sides[1], written, both[1])


def word_indices(tokeniser: Tokeniser, tokens: Sequence[int], protected: Protected) -> list[int]:
    """The index of the word that each token belongs to, in the text without placeholders.

    A placeholder belongs to the first word of the text that it replaces. See
    :meth:`heedful.data.tokeniser.Tokeniser.word_indices`.
    """
    indices = tokeniser.word_indices(tokens)
    if not protected.spans:
        return indices
    # Adjustments are of whole texts; only what ends the text may have been taken from the middle.
    own = replace(protected, adjustment=None)
    masked = tokeniser.decode(tokens)
    words = own.spaced(masked).split()
    counts = [max(1, len(own.restore(word).split())) for word in words]
    last = protected.adjustment.last if protected.adjustment else ""
    if last in words[:-1]:
        counts[words.index(last)] = 0
    starts = [0, *accumulate(counts)]
    found = _moved(indices, tokens, masked.split(), words)
    return [starts[index] if index >= 0 else -1 for index in found]


def _moved(
    indices: Sequence[int], tokens: Sequence[int], before: Sequence[str], after: Sequence[str]
) -> Sequence[int]:
    """The index of each token's word after white space beside placeholders has moved.

    Args:
        indices: the index of each token's word before.
        tokens: the tokens.
        before: the words before.
        after: the words after, with the same characters.
    """
    if before == after:
        return indices
    begins, ends = [0, *accumulate(map(len, before))], list(accumulate(map(len, after)))
    passed = [0] * len(before)  # placeholders of each word that were passed
    found = []
    for index, token in zip(indices, tokens, strict=True):
        if index < 0:
            found.append(-1)
            continue
        places = [place.span() for place in _PLACEHOLDER.finditer(before[index])]
        count = passed[index]
        is_placeholder = 0 <= token - END - 1 < len(PLACEHOLDERS) and count < len(places)
        at = places[count][0] if is_placeholder else places[count - 1][1] if count else 0
        passed[index] += is_placeholder
        found.append(bisect_right(ends, begins[index] + at))
    return found
