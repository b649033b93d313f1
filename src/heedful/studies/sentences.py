"""Generated English sentences with a known subject, for the study ``anaphora``.

    when the duke arrived , the nurse that the kings met was tired before the boy left because she
    lost her key .

The verb (was, were) agrees with the subject, the nurse; the pronoun and the possessive refer to it.
All other persons are attractors: they can stand before the subject, between the subject and the
verb, and between the verb and the pronoun.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

LENGTH = 32
"""Words of a text; a shorter sentence is filled up with full stops."""
MEN = ("king", "monk", "uncle", "waiter", "actor", "prince", "duke", "wizard", "boy", "father")
WOMEN = (
    "queen",
    "nun",
    "aunt",
    "waitress",
    "actress",
    "princess",
    "duchess",
    "witch",
    "girl",
    "nurse",
)
PRONOUNS = {"he": "his", "she": "her", "they": "their"}
VERBS = {"he": "was", "she": "was", "they": "were"}
ADJECTIVES = ("tired", "happy", "late", "angry", "early", "calm", "ill", "glad", "sad", "proud")
THINGS = ("key", "coat", "ring", "map", "letter", "ticket", "purse", "lamp", "hat", "book")
PARTS = ("train", "validation", "test")
_MET = ("saw", "met", "thanked", "praised", "called", "helped")
_NEAR = ("near", "with", "behind")
_WHEN = ("when", "while")
_LEFT = ("arrived", "slept", "sang", "left")
_MOST = 2
"""Attractors between subject and verb, and between verb and pronoun."""


class Sentence(NamedTuple):
    """A text, and where its dependencies are; places count words from 0."""

    words: tuple[str, ...]
    subject: int
    """The place of the noun that verb and pronoun depend on."""
    verb: int
    """The place of was or were."""
    pronoun: int
    nouns: tuple[int, ...]
    """The places of all persons, the subject included."""

    def place_of(self, dependency: str) -> int:
        """The place of the dependent word, by "verb" or "pronoun"."""
        return self.verb if dependency == "verb" else self.pronoun

    def distance(self, dependency: str) -> int:
        """The number of words from the subject to the dependent word."""
        return self.place_of(dependency) - self.subject


def plural(noun: str) -> str:
    """The plural of a noun.

    Example:
        >>> plural("witch"), plural("boy")
        ('witches', 'boys')
    """
    return noun + ("es" if noun.endswith(("s", "ch")) else "s")


NOUNS: dict[str, str] = {
    **dict.fromkeys(MEN, "he"),
    **dict.fromkeys(WOMEN, "she"),
    **dict.fromkeys([plural(noun) for noun in (*MEN, *WOMEN)], "they"),
}
"""Noun → the pronoun that refers to it."""


def dependent(noun: str, dependency: str) -> str:
    """The verb or pronoun that depends on a noun."""
    pronoun = NOUNS[noun]
    return VERBS[pronoun] if dependency == "verb" else pronoun


def part_of(first: str, second: str) -> str:
    """The part of the data that a pair of words belongs to: a tenth each is for validation and the
    test.

    Example:
        >>> part_of("nurse", "king") == part_of("nurse", "king")
        True
    """
    rest = crc32(f"{first} {second}".encode()) % 10
    return "test" if rest == 0 else "validation" if rest == 1 else "train"


def sentences(part: str, seed: int, count: int) -> Iterator[Sentence]:
    """Sentences of a part: all pairs of subject and attractor, and the pair of adjective and thing,
    belong to it.

    Args:
        part: "train", "validation" or "test".
        seed: of the random choices.
        count: number of sentences.
    """
    rng = np.random.default_rng([seed, PARTS.index(part)])
    pairs = [(a, b) for a in ADJECTIVES for b in THINGS if part_of(a, b) == part]
    others = {one: [other for other in NOUNS if part_of(one, other) == part] for one in NOUNS}
    by_pronoun = {
        pronoun: [one for one in NOUNS if NOUNS[one] == pronoun and others[one]]
        for pronoun in PRONOUNS
    }
    for _ in range(count):
        pronoun = _choice(rng, list(PRONOUNS))
        subject = _choice(rng, by_pronoun[pronoun])
        yield _sentence(rng, subject, others[subject], *pairs[rng.integers(len(pairs))])


def _sentence(
    rng: np.random.Generator, subject: str, attractors: Sequence[str], adjective: str, thing: str
) -> Sentence:
    words: list[str] = []
    nouns: list[int] = []

    def person(noun: str) -> None:
        nouns.append(len(words) + 1)
        words.extend(("the", noun))

    def event(first: str) -> None:
        words.append(first)
        person(_choice(rng, attractors))
        words.append(_choice(rng, _LEFT))

    if rng.random() < 0.5:
        event(_choice(rng, _WHEN))
        words.append(",")
    place = len(words) + 1
    person(subject)
    for _ in range(rng.integers(_MOST + 1)):
        if rng.random() < 0.5:
            words.append(_choice(rng, _NEAR))
            person(_choice(rng, attractors))
        else:
            words.append("that")
            person(_choice(rng, attractors))
            words.append(_choice(rng, _MET))
    pronoun, verb = NOUNS[subject], len(words)
    words += [VERBS[pronoun], adjective]
    for _ in range(rng.integers(_MOST + 1)):
        event(_choice(rng, ("before", "after")))
    words.append("because")
    at = len(words)
    words += [pronoun, "lost", PRONOUNS[pronoun], thing]
    words += ["."] * (LENGTH - len(words))
    return Sentence(tuple(words), place, verb, at, tuple(nouns))


def _choice(rng: np.random.Generator, some: Sequence[str]) -> str:
    return some[int(rng.integers(len(some)))]
