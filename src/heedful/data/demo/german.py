"""German: inflection and word order of the demo grammar.

Word order follows the field model of the German clause: *front field | finite verb | middle field |
verbs at the end*. A question leaves the front field empty, a subordinate clause sends the finite
verb to the end.
"""

from typing import NamedTuple

from heedful.data.demo.nouns import Noun
from heedful.data.demo.syntax import (
    Argument,
    Clause,
    Complex,
    Name,
    Nominal,
    NounPhrase,
    Person,
    Pronoun,
    Question,
    Sentence,
    Statement,
)
from heedful.data.demo.verbs import Case
from heedful.data.demo.words import Both

# One row a case; columns: masculine, feminine, neuter, plural.
_COLUMN = {"m": 0, "f": 1, "n": 2}
_DEFINITE: dict[Case, tuple[str, ...]] = {
    "nominative": ("der", "die", "das", "die"),
    "accusative": ("den", "die", "das", "die"),
    "dative": ("dem", "der", "dem", "den"),
}
# Endings of ein, kein and the possessives.
_EIN: dict[Case, tuple[str, ...]] = {
    "nominative": ("", "e", "", "e"),
    "accusative": ("en", "e", "", "e"),
    "dative": ("em", "er", "em", "en"),
}
# Adjective endings: after der; after ein-words; without an article or after a number.
_WEAK: dict[Case, tuple[str, ...]] = {
    "nominative": ("e", "e", "e", "en"),
    "accusative": ("en", "e", "e", "en"),
    "dative": ("en", "en", "en", "en"),
}
_MIXED: dict[Case, tuple[str, ...]] = {
    "nominative": ("er", "e", "es", "en"),
    "accusative": ("en", "e", "es", "en"),
    "dative": ("en", "en", "en", "en"),
}
_STRONG: dict[Case, tuple[str, ...]] = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
}
_EIN_WORDS = {
    "a": "ein",
    "my": "mein",
    "your": "dein",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
}
_PRONOUNS: dict[Person, dict[Case, str]] = {
    "I": {"nominative": "ich", "accusative": "mich", "dative": "mir"},
    "you": {"nominative": "du", "accusative": "dich", "dative": "dir"},
    "he": {"nominative": "er", "accusative": "ihn", "dative": "ihm"},
    "she": {"nominative": "sie", "accusative": "sie", "dative": "ihr"},
    "we": {"nominative": "wir", "accusative": "uns", "dative": "uns"},
    "they": {"nominative": "sie", "accusative": "sie", "dative": "ihnen"},
}
_CONTRACTIONS = {("in", "dem"): "im", ("in", "das"): "ins", ("von", "dem"): "vom"}
# Columns of irregular verbs: ich, du, er, plural.
_SEIN = ("bin", "bist", "ist", "sind")
_WAR = ("war", "warst", "war", "waren")
_HABEN = ("habe", "hast", "hat", "haben")
_WERDEN = ("werde", "wirst", "wird", "werden")
_QUESTION_WORDS = {"where": "wo", "when": "wann", "why": "warum"}
_CONJUNCTIONS = {"because": "weil", "that": "dass", "if": "wenn"}


def noun_form(noun: Noun, case: Case, plural: bool) -> str:
    """The noun in a case: weak masculines take -(e)n, dative plurals -n.

    >>> from heedful.data.demo.nouns import NOUNS
    >>> boy = next(noun for noun in NOUNS if noun.english == "boy")
    >>> noun_form(boy, "nominative", False), noun_form(boy, "accusative", False)
    ('Junge', 'Jungen')
    """
    if not plural:
        return noun.german + ("" if case == "nominative" else noun.weak)
    if case == "dative" and not noun.german_plural.endswith(("n", "s")):
        return noun.german_plural + "n"
    return noun.german_plural


def nominal(phrase: Nominal, case: Case, *, negated: bool = False) -> str:
    """A nominal in a case; with `negated`, an indefinite one becomes "kein"."""
    if isinstance(phrase, Pronoun):
        return _PRONOUNS[phrase.person][case]
    if isinstance(phrase, Name):
        return phrase.name.german
    column = 3 if phrase.plural else _COLUMN[phrase.noun.gender]
    determiner = phrase.determiner
    if negated and phrase.indefinite:
        first, endings = "kein" + _EIN[case][column], _MIXED
    elif isinstance(determiner, Both):
        first, endings = determiner.german, _STRONG
    elif determiner == "":
        first, endings = "", _STRONG
    elif determiner == "the":
        first, endings = _DEFINITE[case][column], _WEAK
    else:
        first, endings = _EIN_WORDS[determiner] + _EIN[case][column], _MIXED
    words = [first] if first else []
    if phrase.adjective is not None:
        words.append(phrase.adjective.stem + endings[case][column])
    return " ".join([*words, noun_form(phrase.noun, case, phrase.plural)])


def argument(item: Argument, *, negated: bool = False) -> str:
    """An argument with its preposition, which may melt with the article (im, ins)."""
    text = nominal(item.nominal, item.case, negated=negated)
    if item.preposition is None:
        return text
    first, _, rest = text.partition(" ")
    melted = _CONTRACTIONS.get((item.preposition.german, first))
    return f"{melted} {rest}" if melted else f"{item.preposition.german} {text}"


def _column(subject: Nominal) -> int:
    """Which verb form the subject asks for: 0 ich, 1 du, 2 er, 3 plural."""
    if isinstance(subject, Pronoun):
        return {"I": 0, "you": 1, "he": 2, "she": 2, "we": 3, "they": 3}[subject.person]
    return 3 if isinstance(subject, NounPhrase) and subject.plural else 2


class _Parts(NamedTuple):
    subject: str
    finite: str
    middle: list[str]
    end: list[str]
    """The infinitive, participle or separated prefix."""
    prefix: str
    """The separable prefix if it is what stands at the end."""


def _verbs(clause: Clause) -> tuple[str, list[str], str]:
    """Return the finite verb, what stands at the end, and the prefix that stands there."""
    column = _column(clause.subject)
    verb = clause.verb
    if verb is None:
        if clause.tense == "future":
            return _WERDEN[column], ["sein"], ""
        return (_SEIN if clause.tense == "present" else _WAR)[column], [], ""
    if clause.modal is not None:
        modal = clause.modal
        forms = (modal.singular, modal.second, modal.singular, modal.plural)
        return forms[column], [verb.prefix + verb.infinitive], ""
    if clause.tense == "future":
        return _WERDEN[column], [verb.prefix + verb.infinitive], ""
    if clause.tense == "past":
        auxiliary = _SEIN if "sein" in verb.traits else _HABEN
        return auxiliary[column], [verb.participle], ""
    # wissen is the only verb here whose ich is like its er.
    first = verb.third if verb.infinitive == "wissen" else verb.infinitive.removesuffix("n")
    finite = (first, verb.second, verb.third, verb.infinitive)[column]
    return finite, [verb.prefix] if verb.prefix else [], verb.prefix


def _parts(clause: Clause, *, time: bool = True, place: bool = True) -> _Parts:
    finite, end, prefix = _verbs(clause)
    objects = [item for item in clause.arguments if item.preposition is None]
    others = [item for item in clause.arguments if item.preposition is not None]
    # "kein" goes on the last object, if that is indefinite; else "nicht" follows the objects.
    last = objects[-1].nominal if clause.negated and objects else None
    with_kein = isinstance(last, NounPhrase) and last.indefinite
    middle = [argument(item) for item in objects if isinstance(item.nominal, Pronoun)]
    if time and clause.time is not None:
        middle.append(clause.time.german)
    if clause.frequency is not None:
        middle.append(clause.frequency.german)
    middle += [
        argument(item, negated=with_kein and item is objects[-1])
        for item in objects
        if not isinstance(item.nominal, Pronoun)
    ]
    if clause.negated and not with_kein:
        middle.append("nicht")
    middle += [argument(item) for item in others]
    if place and clause.place is not None:
        middle.append(argument(clause.place))
    if clause.adjective is not None:
        middle.append(clause.adjective.german)
    return _Parts(nominal(clause.subject, "nominative"), finite, middle, end, prefix)


def _verb_second(clause: Clause) -> str:
    parts = _parts(clause)
    return " ".join([parts.subject, parts.finite, *parts.middle, *parts.end])


def _verb_first(clause: Clause, *, time: bool = True, place: bool = True) -> str:
    """The clause from its finite verb on, as it follows a front field."""
    parts = _parts(clause, time=time, place=place)
    return " ".join([parts.finite, parts.subject, *parts.middle, *parts.end])


def _verb_last(clause: Clause) -> str:
    parts = _parts(clause)
    verbs = [parts.prefix + parts.finite] if parts.prefix else [*parts.end, parts.finite]
    return " ".join([parts.subject, *parts.middle, *verbs])


def _words(sentence: Sentence) -> str:
    match sentence:
        case Statement(clause, "time") if clause.time is not None:
            return f"{clause.time.german} {_verb_first(clause, time=False)}."
        case Statement(clause, "place") if clause.place is not None:
            return f"{argument(clause.place)} {_verb_first(clause, place=False)}."
        case Statement(clause):
            return f"{_verb_second(clause)}."
        case Question(clause, ""):
            return f"{_verb_first(clause)}?"
        case Question(clause, word):
            return f"{_QUESTION_WORDS[word]} {_verb_first(clause)}?"
        case Complex(main, conjunction, subordinate, subordinate_first):
            dependent = f"{_CONJUNCTIONS[conjunction]} {_verb_last(subordinate)}"
            if subordinate_first:
                return f"{dependent}, {_verb_first(main)}."
            return f"{_verb_second(main)}, {dependent}."


def german(sentence: Sentence) -> str:
    """The sentence in German."""
    text = _words(sentence)
    return text[0].upper() + text[1:]
