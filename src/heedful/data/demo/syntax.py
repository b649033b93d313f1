"""What a demo sentence says, apart from the language that it is said in.

`english.py` and `german.py` each turn the same `Sentence` into text, which is why the translation
is known to be right: neither text is made from the other.
"""

from dataclasses import dataclass
from typing import Literal

from heedful.data.demo.nouns import Adjective, Noun
from heedful.data.demo.verbs import Case, Preposition, Verb
from heedful.data.demo.words import Both, Modal

Person = Literal["I", "you", "he", "she", "we", "they"]
Tense = Literal["present", "past", "future"]
Possessor = Literal["my", "your", "his", "her", "our"]
Determiner = Literal["the", "a", "", "my", "your", "his", "her", "our"] | Both
"""`""` is no article; with a plural noun, "a" is never used; a number is a `Both`."""


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A personal pronoun."""

    person: Person


@dataclass(frozen=True, slots=True)
class Name:
    """A person or a city by name."""

    name: Both


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A noun with its determiner and at most one adjective."""

    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjective: Adjective | None = None

    @property
    def indefinite(self) -> bool:
        """Whether it is negated with "kein"."""
        return self.determiner in ("a", "")


Nominal = Pronoun | Name | NounPhrase


@dataclass(frozen=True, slots=True)
class Argument:
    """An object, a companion or a place: a nominal in a German case, maybe after a preposition."""

    nominal: Nominal
    case: Case
    preposition: Preposition | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """Who does what, when, where; or, without a verb, who is how."""

    subject: Nominal
    verb: Verb | None
    tense: Tense = "present"
    modal: Modal | None = None
    negated: bool = False
    arguments: tuple[Argument, ...] = ()
    place: Argument | None = None
    time: Both | None = None
    frequency: Both | None = None
    adjective: Adjective | None = None


QuestionWord = Literal["", "where", "when", "why"]
Front = Literal["", "time", "place"]
Conjunction = Literal["because", "that", "if"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A main clause; `front` is what stands before the verb instead of the subject."""

    clause: Clause
    front: Front = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, to be answered with yes or no unless it has a question word."""

    clause: Clause
    word: QuestionWord = ""


@dataclass(frozen=True, slots=True)
class Complex:
    """A main clause and a subordinate one, which stands first if `subordinate_first`."""

    main: Clause
    conjunction: Conjunction
    subordinate: Clause
    subordinate_first: bool = False


Sentence = Statement | Question | Complex
