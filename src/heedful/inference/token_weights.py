"""Word alignments between parts of words, which are cut at punctuation.

A tag may begin inside a word, as in ``<b>Community</b>-Kopf`` or ``COUNT(<i>field</i>)``. Words of
an alignment are separated by white space, so that their weights are passed on to their parts.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_WORD = re.compile(r"\S+")
_TOKEN = re.compile(r"[^\W_]+|[^\w\s]|_")

Weights = Mapping[tuple[int, int], float]
"""(source word, target word) → weight, from 0 to 1; pairs that are not in it have weight 0."""


@dataclass(frozen=True)
class Words:
    """The words of a text and their tokens: runs of letters and digits, and single signs.

    Attributes:
        text: the text.
        tokens: the positions of all tokens, in characters.
        of_word: the tokens of each word.
        word_starts: the tokens that begin a word.
    """

    text: str
    tokens: tuple[tuple[int, int], ...]
    of_word: tuple[range, ...]
    word_starts: frozenset[int]

    @classmethod
    def of(cls, text: str) -> "Words":
        """The words of a text.

        Example:
            >>> Words.of("e-mail me").of_word
            (range(0, 3), range(3, 4))
        """
        tokens: list[tuple[int, int]] = []
        of_word = []
        for word in _WORD.finditer(text):
            first = len(tokens)
            tokens += [found.span() for found in _TOKEN.finditer(text, *word.span())]
            of_word.append(range(first, len(tokens)))
        starts = frozenset(word.start for word in of_word if word)
        return cls(text, tuple(tokens), tuple(of_word), starts)

    def token(self, index: int) -> str:
        """The text of a token."""
        return self.text[slice(*self.tokens[index])]


def token_weights(source: Words, target: Words, weights: Weights) -> dict[tuple[int, int], float]:
    """(source token, target token) → weight.

    In a pair of words, tokens with the same signs around them are partners, as ``field`` and
    ``feld`` in ``COUNT(field)`` and ``COUNT(feld)``. Those without a partner share half the weight.
    """
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    for (own, other), weight in weights.items():
        if own < len(source.of_word) and other < len(target.of_word):
            for pair, share in _shares(source, target, own, other).items():
                found[pair] = max(found[pair], weight * share)
    return dict(found)


def _shares(source: Words, target: Words, own: int, other: int) -> dict[tuple[int, int], float]:
    """The shares of a pair of words' weight that the pairs of their tokens get."""
    first, second = source.of_word[own], target.of_word[other]
    if len(first) == 1 and len(second) == 1:
        return {(first[0], second[0]): 1.0}
    words = [i for i in first if source.token(i).isalnum()]
    others = [j for j in second if target.token(j).isalnum()]
    if len(first) == 1 or len(second) == 1:
        return {(i, j): 1.0 for i in words for j in others}
    partners = _partners([source.token(i) for i in first], [target.token(j) for j in second])
    shares = {(first[i], second[j]): 1.0 for i, j in partners}
    done = {i for i, _ in shares}, {j for _, j in shares}
    for i in words:
        for j in others:
            if i not in done[0] or j not in done[1]:
                shares.setdefault((i, j), 0.5)
    return shares


def _partners(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    """The tokens that correspond if letters and digits are not compared."""
    own, other = (["a" if token.isalnum() else token for token in side] for side in (first, second))
    blocks = SequenceMatcher(None, own, other, autojunk=False).get_matching_blocks()
    return [(block.a + n, block.b + n) for block in blocks for n in range(block.size)]
