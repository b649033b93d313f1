"""The demo grammar: correct German and English, checked against sentences written by hand."""

import random
import re
from pathlib import Path

import pytest

from heedful.data.demo.english import english
from heedful.data.demo.german import german, nominal, noun_form
from heedful.data.demo.grammar import sentence
from heedful.data.demo.nouns import ADJECTIVES, NOUNS
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
    Pronoun,
    Question,
    QuestionWord,
    Sentence,
    Statement,
    Tense,
)
from heedful.data.demo.verbs import CLAUSE_VERBS, PREPOSITIONS, VERBS, Case
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
)

NOUN = {noun.english: noun for noun in NOUNS}
PLURAL = {noun.plural: noun for noun in NOUNS if noun.plural}
ADJECTIVE = {adjective.english: adjective for adjective in ADJECTIVES}
VERB = {verb.base: verb for verb in VERBS}
CLAUSE_VERB = {verb.base: verb for verb in CLAUSE_VERBS}
MODAL = {modal.english: modal for modal in MODALS}
TIMES = (*PRESENT_TIMES, *PAST_TIMES, *FUTURE_TIMES)
TIME = {time.english: time for time in TIMES}
FREQUENCY = {word.english: word for word in FREQUENCIES}
NAME = {name.english: name for name in (*PEOPLE, *CITIES)}
NUMBER = {number.english: number for number in NUMBERS}
PERSONS: dict[str, Person] = {
    "I": "I",
    "you": "you",
    "he": "he",
    "she": "she",
    "we": "we",
    "they": "they",
}
DETERMINERS: dict[str, Determiner] = {
    "the": "the",
    "a": "a",
    "my": "my",
    "your": "your",
    "his": "his",
    "her": "her",
    "our": "our",
    **NUMBER,
}
CONJUNCTIONS: dict[str, Conjunction] = {"because": "because", "that": "that", "if": "if"}
WORDS: dict[str, QuestionWord] = {"": "", "where": "where", "when": "when", "why": "why"}


def read_nominal(text: str) -> Nominal:
    """Read "the old man", "two books", "bread", "she", "Anna"."""
    if text in PERSONS:
        return Pronoun(PERSONS[text])
    if text in NAME:
        return Name(NAME[text])
    *before, last = text.split()
    adjective = ADJECTIVE[before.pop()] if before and before[-1] in ADJECTIVE else None
    determiner: Determiner = DETERMINERS[before[0]] if before else ""
    if last in NOUN:
        return NounPhrase(NOUN[last], determiner, False, adjective)
    return NounPhrase(PLURAL[last], determiner, True, adjective)


def read_argument(text: str) -> Argument:
    if "/" in text:
        group, word, rest = text.split("/")
        case: Case = "accusative" if group in ("into", "laying", "for", "of") else "dative"
        preposition = next(item for item in PREPOSITIONS[group] if item.english == word)
        return Argument(read_nominal(rest), case, preposition)
    short, _, rest = text.partition(" ")
    return Argument(read_nominal(rest), "accusative" if short == "acc" else "dative")


def read_clause(text: str, clause_verb: bool = False) -> tuple[Clause, Front, QuestionWord | None]:
    """Read a clause; what stands in front of it; and what is asked, if it is a question."""
    subject, base, *rest = text.split("; ")
    verb = None if base == "be" else (CLAUSE_VERB if clause_verb else VERB)[base]
    tense: Tense = "past" if "past" in rest else "future" if "future" in rest else "present"
    named = dict(item.split(" ", 1) for item in rest if " " in item and "/" not in item[:7])
    asked = [item.removeprefix("ask").strip() for item in rest if item.startswith("ask")]
    clause = Clause(
        read_nominal(subject),
        verb,
        tense,
        MODAL[named["modal"]] if "modal" in named else None,
        "not" in rest,
        tuple(
            read_argument(item)
            for item in rest
            if item.startswith(("acc ", "dat ")) or ("/" in item and not item.startswith("place"))
        ),
        read_argument(named["place"]) if "place" in named else None,
        TIME.get(named["time"], Both("tomorrow", "morgen")) if "time" in named else None,
        FREQUENCY[named["frequency"]] if "frequency" in named else None,
        ADJECTIVE[named["is"]] if "is" in named else None,
    )
    fronts: dict[str, Front] = {"time": "time", "place": "place"}
    front = fronts.get(named.get("front", ""), "")
    return clause, front, WORDS[asked[0]] if asked else None


def read_sentence(meaning: str) -> Sentence:
    parts = re.split(r" (>>|<<) (\w+): ", meaning)
    if len(parts) == 4:
        main, arrow, conjunction, subordinate = parts
        return Complex(
            read_clause(main, conjunction == "that")[0],
            CONJUNCTIONS[conjunction],
            read_clause(subordinate)[0],
            arrow == "<<",
        )
    clause, front, asked = read_clause(meaning)
    return Statement(clause, front) if asked is None else Question(clause, asked)


SENTENCES = Path(__file__).parent / "data" / "demo_sentences.txt"
LINES = [
    line
    for line in SENTENCES.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
CASES = [
    (*pair.split(" | "), meaning.strip())
    for pair, meaning in zip(LINES[::2], LINES[1::2], strict=True)
]


@pytest.mark.parametrize(("in_english", "in_german", "meaning"), CASES)
def test_hand_written_sentences(in_english: str, in_german: str, meaning: str) -> None:
    read = read_sentence(meaning)
    assert english(read) == in_english
    assert german(read) == in_german


@pytest.fixture(scope="module")
def drawn() -> list[tuple[Sentence, str, str]]:
    source = random.Random(7)
    sentences = [sentence(source) for _ in range(40_000)]
    return [(item, english(item), german(item)) for item in sentences]


def test_each_sentence_has_one_translation_in_both_directions(
    drawn: list[tuple[Sentence, str, str]],
) -> None:
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for _, first, second in drawn:
        assert there.setdefault(first, second) == second
        assert back.setdefault(second, first) == first
    assert len(there) > 0.9 * len(drawn)  # the grammar is far from exhausted


def test_texts_are_well_formed(drawn: list[tuple[Sentence, str, str]]) -> None:
    shape = re.compile(r"[A-ZÄÖÜ][\w,]*( [\w,]+)+[.?]")
    # "jung" is an adjective besides
    nouns = {noun.german.lower() for noun in NOUNS} - {"junge"}
    for item, first, second in drawn:
        assert shape.fullmatch(first), first
        assert shape.fullmatch(second), second
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", first), first
        assert not nouns & set(re.findall(r"\w+", second)), second
        assert ("?" in first) == ("?" in second) == isinstance(item, Question)
        # German commas only before or after a subordinate clause
        assert ("," in second) == isinstance(item, Complex)


def test_finite_verb_is_second_first_or_last(drawn: list[tuple[Sentence, str, str]]) -> None:
    finite = {form for verb in VERBS for form in (verb.second, verb.third, verb.infinitive)}
    finite |= {verb.infinitive.removesuffix("n") for verb in VERBS}
    finite |= {form for modal in MODALS for form in (modal.singular, modal.second, modal.plural)}
    finite |= {"bin", "bist", "ist", "sind", "war", "warst", "waren"}
    finite |= {"habe", "hast", "hat", "haben", "werde", "wirst", "wird", "werden"}
    for item, _, text in drawn:
        words = text[:-1].split()
        if isinstance(item, Question):
            assert words[1 if item.word else 0].lower() in finite, text
        elif isinstance(item, Complex):
            last = text[:-1].split(",")[0 if item.subordinate_first else 1].split()[-1]
            prefixes = {verb.prefix for verb in VERBS if verb.prefix}
            bare = [last, *(last.removeprefix(prefix) for prefix in prefixes)]
            assert any(word in finite for word in bare), text
        elif item.front == "time" and item.clause.time is not None:
            assert words[len(item.clause.time.german.split())] in finite, text


def test_the_tables_name_each_word_once() -> None:
    for table in (NOUNS, ADJECTIVES):
        assert len({word.english for word in table}) == len(table)
        assert len({word.german for word in table}) == len(table)
    for forms in ([v.base for v in VERBS], [v.prefix + v.infinitive for v in VERBS]):
        assert len(set(forms)) == len(forms)
    assert len(NOUNS) >= 60
    assert len(VERBS) >= 30
    assert len(ADJECTIVES) >= 25


def test_every_participle_and_plural_looks_german() -> None:
    for verb in VERBS:
        # verkaufen, besuchen, vergessen, reparieren, gehören: without a further ge-
        stem = verb.participle.removeprefix(verb.prefix)
        assert stem.startswith(("ge", "be", "ver", "repar")), verb
        assert stem.endswith(("t", "en")) or stem == "gestanden", verb
        assert verb.infinitive.endswith("en"), verb
    for noun in NOUNS:
        assert noun.plural == "" or noun_form(noun, "dative", True).endswith(("n", "s")), noun


@pytest.mark.parametrize(
    ("text", "nominative", "accusative", "dative"),
    [
        ("the old man", "der alte Mann", "den alten Mann", "dem alten Mann"),
        ("the old woman", "die alte Frau", "die alte Frau", "der alten Frau"),
        ("the old book", "das alte Buch", "das alte Buch", "dem alten Buch"),
        ("the old men", "die alten Männer", "die alten Männer", "den alten Männern"),
        ("a old man", "ein alter Mann", "einen alten Mann", "einem alten Mann"),
        ("a old woman", "eine alte Frau", "eine alte Frau", "einer alten Frau"),
        ("a old book", "ein altes Buch", "ein altes Buch", "einem alten Buch"),
        ("my old books", "meine alten Bücher", "meine alten Bücher", "meinen alten Büchern"),
        ("our old book", "unser altes Buch", "unser altes Buch", "unserem alten Buch"),
        ("old men", "alte Männer", "alte Männer", "alten Männern"),
        ("two old books", "zwei alte Bücher", "zwei alte Bücher", "zwei alten Büchern"),
        ("cold coffee", "kalter Kaffee", "kalten Kaffee", "kaltem Kaffee"),
        ("cold milk", "kalte Milch", "kalte Milch", "kalter Milch"),
        ("cold water", "kaltes Wasser", "kaltes Wasser", "kaltem Wasser"),
        ("the expensive cars", "die teuren Autos", "die teuren Autos", "den teuren Autos"),
        ("a tired boy", "ein müder Junge", "einen müden Jungen", "einem müden Jungen"),
    ],
)
def test_inflection(text: str, nominative: str, accusative: str, dative: str) -> None:
    phrase = read_nominal(text)
    assert nominal(phrase, "nominative") == nominative
    assert nominal(phrase, "accusative") == accusative
    assert nominal(phrase, "dative") == dative


@pytest.mark.parametrize(
    ("text", "accusative", "dative"),
    [
        ("a old man", "keinen alten Mann", "keinem alten Mann"),
        ("old books", "keine alten Bücher", "keinen alten Büchern"),
        ("cold milk", "keine kalte Milch", "keiner kalten Milch"),
        ("the old man", "den alten Mann", "dem alten Mann"),
    ],
)
def test_kein(text: str, accusative: str, dative: str) -> None:
    phrase = read_nominal(text)
    assert nominal(phrase, "accusative", negated=True) == accusative
    assert nominal(phrase, "dative", negated=True) == dative
