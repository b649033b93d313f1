"""Random sentences of the demo grammar: who may do what to whom, and how often.

Choices are made so that the translation is a function in both directions. A few readings are
therefore left out: "you" is always *du*; the English simple past is the German perfect and nothing
else is; the accusative "sie" is always *her*, never *them*; "ihr" before a noun is *her*.
"""

from random import Random

from heedful.data.demo.nouns import ADJECTIVES, NOUNS, Adjective, Noun
from heedful.data.demo.syntax import (
    Argument,
    Clause,
    Complex,
    Conjunction,
    Determiner,
    Front,
    Name,
    Nominal,
    NounPhrase,
    Person,
    Possessor,
    Pronoun,
    Question,
    QuestionWord,
    Sentence,
    Statement,
    Tense,
)
from heedful.data.demo.verbs import CLAUSE_VERBS, PREPOSITIONS, VERBS, Case, Slot, Verb
from heedful.data.demo.words import (
    CITIES,
    FREQUENCIES,
    FUTURE_TIMES,
    MODALS,
    NUMBERS,
    PAST_TIMES,
    PEOPLE,
    PRESENT_TIMES,
    Both,
    Modal,
)

_BY_KIND: dict[str, list[Noun]] = {}
for _noun in NOUNS:
    for _kind in sorted(_noun.kinds):
        _BY_KIND.setdefault(_kind, []).append(_noun)
_FITTING: dict[str, list[Adjective]] = {
    noun.english: [adjective for adjective in ADJECTIVES if adjective.kinds & noun.kinds]
    for noun in NOUNS
}
_HUMAN: list[Adjective] = [adjective for adjective in ADJECTIVES if "person" in adjective.kinds]
_POSSESSORS: tuple[Possessor, ...] = ("my", "your", "his", "her", "our")
_SUBJECTS: tuple[Person, ...] = ("I", "you", "he", "she", "we", "they")
# The same person cannot be subject and object without "myself".
_SAME: dict[Person, tuple[Person, ...]] = {
    "I": ("I", "we"),
    "we": ("I", "we"),
    "you": ("you",),
    "he": (),
    "she": (),
    "they": (),
}
_ACCUSATIVE_PERSONS: tuple[Person, ...] = ("I", "you", "he", "she", "we")
_MODAL_TIMES = (Both("today", "heute"), Both("tomorrow", "morgen"))


def _noun_phrase(
    random: Random,
    kind: str,
    *,
    adjectives: float,
    definite: bool = False,
    numbers: bool = True,
    bare: bool = True,
) -> NounPhrase:
    """A noun of a kind with a determiner; `definite`: none but the, my, your and so on."""
    noun = random.choice(_BY_KIND[kind])
    fitting = _FITTING[noun.english]
    adjective = random.choice(fitting) if fitting and random.random() < adjectives else None
    determiner: Determiner = "the"
    chance = random.random()
    if not noun.plural:
        if not definite and bare and chance < 0.6:
            determiner = ""
        elif chance > 0.9:
            determiner = random.choice(_POSSESSORS)
        return NounPhrase(noun, determiner, adjective=adjective)
    plural = random.random() < 0.28
    if chance < 0.16:
        determiner = random.choice(_POSSESSORS)
        plural = plural and "parent" not in noun.kinds
    elif not definite and chance > 0.6:
        if not plural:
            determiner = "a"
        elif numbers and (not bare or chance > 0.8):
            determiner = random.choice(NUMBERS)
        elif bare:
            determiner = ""
    return NounPhrase(noun, determiner, plural, adjective)


def _subject(
    random: Random, kinds: tuple[str, ...], *, adjectives: float, definite: bool, question: bool
) -> Nominal:
    kind = random.choice(kinds)
    if kind not in ("person", "animal"):
        noun = random.choice(_BY_KIND[kind])
        return NounPhrase(noun, "the", bool(noun.plural) and random.random() < 0.3)
    if kind == "person":
        chance = random.random()
        if chance < 0.3:
            return Pronoun(random.choice(_SUBJECTS[1:] if question else _SUBJECTS))
        if chance < 0.42:
            return Name(random.choice(PEOPLE))
    return _noun_phrase(random, kind, adjectives=adjectives, definite=definite, bare=False)


def _object_pronoun(random: Random, case: Case, subject: Nominal) -> Pronoun:
    persons = _SUBJECTS if case == "dative" else _ACCUSATIVE_PERSONS
    barred = _SAME[subject.person] if isinstance(subject, Pronoun) else ()
    return Pronoun(random.choice([person for person in persons if person not in barred]))


def _argument(
    random: Random,
    slot: Slot,
    subject: Nominal,
    *,
    adjectives: float,
    definite: bool,
    negated: bool,
) -> Argument:
    preposition = random.choice(slot.prepositions) if slot.prepositions else None
    kind = preposition.kind if preposition else random.choice(slot.kinds)
    if kind == "city":
        return Argument(Name(random.choice(CITIES)), slot.case, preposition)
    if kind == "person":
        chance = random.random()
        if chance < 0.3:
            return Argument(_object_pronoun(random, slot.case, subject), slot.case, preposition)
        if chance < 0.4:
            return Argument(Name(random.choice(PEOPLE)), slot.case, preposition)
    phrase = _noun_phrase(
        random,
        kind,
        adjectives=adjectives,
        definite=definite or (negated and preposition is not None),
        numbers=not negated and kind not in ("place", "inside", "building"),
        bare=preposition is None,
    )
    return Argument(phrase, slot.case, preposition)


def _arguments(
    random: Random, verb: Verb, subject: Nominal, *, adjectives: float, negated: bool
) -> tuple[Argument, ...]:
    items = []
    last = len(verb.slots) - 1
    for index, slot in enumerate(verb.slots):
        items.append(
            _argument(
                random,
                slot,
                subject,
                adjectives=adjectives,
                definite=slot.case == "dative" and index < last,
                negated=negated,
            )
        )
    if "with" in verb.traits and random.random() < 0.3:
        slot = Slot((), "dative", PREPOSITIONS["with"])
        items.append(
            _argument(random, slot, subject, adjectives=adjectives, definite=False, negated=negated)
        )
    return tuple(items)


def _place(random: Random, *, adjectives: float, negated: bool) -> Argument:
    preposition = random.choice(PREPOSITIONS["where"])
    phrase = _noun_phrase(
        random,
        preposition.kind,
        adjectives=adjectives,
        definite=negated,
        numbers=False,
        bare=False,
    )
    return Argument(phrase, "dative", preposition)


def _tense(random: Random, verb: Verb | None) -> tuple[Tense, Modal | None]:
    if verb is not None and "state" in verb.traits:
        return "present", None
    chance = random.random()
    if chance < 0.28:
        return "past", None
    if chance < 0.4:
        return "future", None
    if chance < 0.58 and verb is not None:
        return "present", random.choice(MODALS)
    return "present", None


def _time(random: Random, verb: Verb | None, tense: Tense, modal: Modal | None) -> Both | None:
    if verb is not None and "state" in verb.traits:
        return None
    if modal is not None:
        return random.choice(_MODAL_TIMES) if random.random() < 0.25 else None
    if tense == "past":
        # "I read the book" is past only with a time.
        needed = verb is not None and verb.past == verb.base
        return random.choice(PAST_TIMES) if needed or random.random() < 0.5 else None
    if tense == "future":
        return random.choice(FUTURE_TIMES) if random.random() < 0.45 else None
    return random.choice(PRESENT_TIMES) if random.random() < 0.25 else None


def _before_nicht(clause: Clause) -> bool:
    """Whether "nicht" follows an object that is a noun, where a time would be clumsy."""
    objects = [item.nominal for item in clause.arguments if item.preposition is None]
    if not clause.negated or not objects:
        return False
    last = objects[-1]
    return not isinstance(last, Pronoun) and not (isinstance(last, NounPhrase) and last.indefinite)


def _misleading(clause: Clause) -> bool:
    """Whether a noun comes twice, or "her" stands before a noun that is not hers."""
    phrases = [item.nominal for item in clause.arguments]
    if clause.place is not None:
        phrases.append(clause.place.nominal)
    nouns = [
        phrase.noun.english
        for phrase in [clause.subject, *phrases]
        if isinstance(phrase, NounPhrase)
    ]
    names = [phrase.name for phrase in [clause.subject, *phrases] if isinstance(phrase, Name)]
    if len(set(nouns)) < len(nouns) or len(set(names)) < len(names):
        return True
    return phrases[:1] == [Pronoun("she")] and any(
        isinstance(phrase, NounPhrase) and phrase.determiner == "" for phrase in phrases[1:]
    )


def _clause(
    random: Random,
    *,
    adjectives: float = 0.3,
    question: bool = False,
    place: bool = True,
    tense: Tense | None = None,
) -> Clause:
    """A clause with a verb; with `tense`, in that tense and without a modal verb or a time."""
    while True:
        verb = random.choice(VERBS)
        if tense is None:
            own_tense, modal = _tense(random, verb)
        elif tense == "past" and ("state" in verb.traits or verb.past == verb.base):
            continue
        else:
            own_tense, modal = tense, None
        negated = not question and random.random() < 0.17
        subject = _subject(
            random, verb.subjects, adjectives=adjectives, definite=negated, question=question
        )
        arguments = _arguments(random, verb, subject, adjectives=adjectives, negated=negated)
        where = None
        if place and "place" in verb.traits and random.random() < (0.25 if verb.slots else 0.5):
            where = _place(random, adjectives=adjectives, negated=negated)
        time = None if tense else _time(random, verb, own_tense, modal)
        frequency = None
        plain = own_tense == "present" and modal is None and time is None
        if plain and not (negated or question or "state" in verb.traits or tense):
            frequency = random.choice(FREQUENCIES) if random.random() < 0.25 else None
        clause = Clause(subject, verb, own_tense, modal, negated, arguments, where, time, frequency)
        if not _misleading(clause):
            return clause


def _quality(
    random: Random, *, question: bool = False, tense: Tense | None = None, time: bool = True
) -> Clause:
    """A clause that says how somebody or something is."""
    own_tense = tense or _tense(random, None)[0]
    negated = not question and random.random() < 0.2
    if random.random() < 0.55:
        subject = _subject(random, ("person",), adjectives=0.0, definite=True, question=question)
    else:
        kind = random.choice(
            ("thing", "text", "food", "dish", "drink", "place", "animal", "vehicle")
        )
        subject = _noun_phrase(random, kind, adjectives=0.0, definite=True)
    fitting = _FITTING[subject.noun.english] if isinstance(subject, NounPhrase) else _HUMAN
    adjective = random.choice(fitting)
    # "Yesterday the train was red" is right, but who says it?
    when = _time(random, None, own_tense, None) if time and adjective.passing else None
    return Clause(subject, None, own_tense, negated=negated, time=when, adjective=adjective)


def _statement(random: Random) -> Statement:
    clause = _clause(random) if random.random() < 0.85 else _quality(random)
    front: Front = ""
    if clause.time is not None and (_before_nicht(clause) or random.random() < 0.5):
        front = "time"
    elif clause.place is not None and not clause.negated and random.random() < 0.3:
        front = "place"
    return Statement(clause, front)


def _asked(random: Random) -> Question:
    chance = random.random()
    if chance < 0.2:
        return Question(_quality(random, question=True))
    clause = _clause(random, question=True)
    if chance < 0.7 or clause.verb is None:
        return Question(clause)
    words: list[QuestionWord] = ["why"]
    if clause.time is None and "state" not in clause.verb.traits:
        words.append("when")
    if clause.place is None and "place" in clause.verb.traits:
        words.append("where")
    return Question(clause, random.choice(words))


def _dependent(random: Random, tense: Tense | None = None) -> Clause:
    while True:
        if random.random() < 0.3:
            return _quality(random, tense=tense, time=False)
        clause = _clause(random, adjectives=0.1, place=False, tense=tense)
        if clause.time is None or not _before_nicht(clause):
            return clause


def _complex(random: Random) -> Complex:
    conjunction: Conjunction = random.choice(("because", "that", "if"))
    if conjunction == "that":
        verb = random.choice(CLAUSE_VERBS)
        negated = verb.base != "hope" and random.random() < 0.15
        subject = _subject(random, ("person",), adjectives=0.1, definite=True, question=False)
        return Complex(Clause(subject, verb, negated=negated), "that", _dependent(random))
    tense: Tense = "past" if conjunction == "because" and random.random() < 0.4 else "present"
    main = _clause(random, adjectives=0.1, place=False, tense=tense)
    first = conjunction == "if" and random.random() < 0.5
    return Complex(main, conjunction, _dependent(random, tense), first)


def sentence(random: Random) -> Sentence:
    """Draw a sentence: half plain statements, the rest questions and complex sentences."""
    chance = random.random()
    if chance < 0.6:
        return _statement(random)
    if chance < 0.8:
        return _asked(random)
    return _complex(random)
