"""English: agreement, articles, *do* and word order of the demo grammar."""

from typing import NamedTuple

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
from heedful.data.demo.words import Both

_OBJECT_PRONOUNS: dict[Person, str] = {
    "I": "me",
    "you": "you",
    "he": "him",
    "she": "her",
    "we": "us",
    "they": "them",
}


def nominal(phrase: Nominal, *, subject: bool = False) -> str:
    """A nominal, with "an" before a vowel."""
    if isinstance(phrase, Pronoun):
        return phrase.person if subject else _OBJECT_PRONOUNS[phrase.person]
    if isinstance(phrase, Name):
        return phrase.name.english
    words = [phrase.noun.plural if phrase.plural else phrase.noun.english]
    if phrase.adjective is not None:
        words.insert(0, phrase.adjective.english)
    determiner = phrase.determiner
    if isinstance(determiner, Both):
        words.insert(0, determiner.english)
    elif determiner == "a":
        # No word of the lexicon is spelt with a vowel and spoken without, or the other way round.
        words.insert(0, "an" if words[0][0] in "aeiou" else "a")
    elif determiner:
        words.insert(0, determiner)
    return " ".join(words)


def argument(item: Argument) -> str:
    """An argument with its preposition."""
    text = nominal(item.nominal)
    return text if item.preposition is None else f"{item.preposition.english} {text}"


def _be(subject: Nominal, past: bool) -> str:
    if isinstance(subject, Pronoun):
        if subject.person == "I":
            return "was" if past else "am"
        if subject.person in ("you", "we", "they"):
            return "were" if past else "are"
    if isinstance(subject, NounPhrase) and subject.plural:
        return "were" if past else "are"
    return "was" if past else "is"


def _third_person(subject: Nominal) -> bool:
    if isinstance(subject, Pronoun):
        return subject.person in ("he", "she")
    return not (isinstance(subject, NounPhrase) and subject.plural)


class _Verbs(NamedTuple):
    auxiliary: str
    """Empty where a plain statement has none; a question and a negation then need *do*."""
    finite: str
    """What a plain statement without an auxiliary says."""
    rest: str
    """What follows the auxiliary."""
    support: str
    """The form of *do*, where there is no auxiliary."""


def _verbs(clause: Clause) -> _Verbs:
    subject, verb, modal = clause.subject, clause.verb, clause.modal
    third = _third_person(subject)
    if verb is None:
        if clause.tense == "future":
            return _Verbs("will", "", "be", "")
        return _Verbs(_be(subject, clause.tense == "past"), "", "", "")
    if modal is not None:
        if modal.english in ("can", "should"):
            return _Verbs(modal.english, "", verb.base, "")
        if modal.english == "be allowed to":
            return _Verbs(_be(subject, past=False), "", f"allowed to {verb.base}", "")
        inflected = {"have to": "has to", "want to": "wants to"}[modal.english]
        rest = f"{modal.english} {verb.base}"
        finite = f"{inflected} {verb.base}" if third else rest
        return _Verbs("", finite, rest, "does" if third else "do")
    if clause.tense == "future":
        return _Verbs("will", "", verb.base, "")
    if clause.tense == "past":
        return _Verbs("", verb.past, verb.base, "did")
    finite = verb.third_person if third else verb.base
    return _Verbs("", finite, verb.base, "does" if third else "do")


def _tail(clause: Clause, *, time: bool, place: bool) -> list[str]:
    """What follows the verb: objects, then place, then time."""
    tail = [argument(item) for item in clause.arguments]
    if clause.adjective is not None:
        tail.append(clause.adjective.english)
    if place and clause.place is not None:
        tail.append(argument(clause.place))
    if time and clause.time is not None:
        tail.append(clause.time.english)
    return tail


def _statement(clause: Clause, *, time: bool = True, place: bool = True) -> str:
    verbs = _verbs(clause)
    words = [nominal(clause.subject, subject=True)]
    if clause.negated:
        auxiliary = verbs.auxiliary or verbs.support
        words.append("cannot" if auxiliary == "can" else f"{auxiliary} not")
        words.append(verbs.rest)
    else:
        words += [verbs.auxiliary, verbs.rest] if verbs.auxiliary else [verbs.finite]
        if clause.frequency is not None:
            words.insert(1, clause.frequency.english)
    return " ".join(word for word in [*words, *_tail(clause, time=time, place=place)] if word)


def _question(clause: Clause) -> str:
    verbs = _verbs(clause)
    words = [verbs.auxiliary or verbs.support, nominal(clause.subject, subject=True), verbs.rest]
    return " ".join(word for word in [*words, *_tail(clause, time=True, place=True)] if word)


def _words(sentence: Sentence) -> str:
    match sentence:
        case Statement(clause, "time") if clause.time is not None:
            return f"{clause.time.english} {_statement(clause, time=False)}."
        case Statement(clause, "place") if clause.place is not None:
            return f"{argument(clause.place)} {_statement(clause, place=False)}."
        case Statement(clause):
            return f"{_statement(clause)}."
        case Question(clause, ""):
            return f"{_question(clause)}?"
        case Question(clause, word):
            return f"{word} {_question(clause)}?"
        case Complex(main, conjunction, subordinate, subordinate_first):
            dependent = f"{conjunction} {_statement(subordinate)}"
            if subordinate_first:
                return f"{dependent}, {_statement(main)}."
            return f"{_statement(main)} {dependent}."


def english(sentence: Sentence) -> str:
    """The sentence in English."""
    text = _words(sentence)
    return text[0].upper() + text[1:]
