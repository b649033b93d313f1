"""The demo corpus: one right answer to a source, parts kept apart, the same for the same seed."""

import random
import re
import time
from collections.abc import Callable

import pytest
from babel import Locale

from heedful.basics.errors import UserError
from heedful.data.demo import DemoCorpus, demo_corpus, describe
from heedful.data.demo.cldr import CldrPairs
from heedful.data.demo.corpus import pieces
from heedful.data.demo.templates import filled_template
from heedful.data.examples import Pair

LANGUAGES = [
    ("en", "de"),
    ("de", "en"),
    ("fr", "ja"),
    ("ar", "hi"),
    ("sw", "th"),
    ("pt-BR", "zh_Hans"),
    ("en", "ko"),
    ("he", "ru"),
    ("vo", "fa"),
    ("hu", "vi"),
    ("so", "en"),  # "6 maalmood" would be both "6 days" and "in 6 days"
]


@pytest.fixture(scope="module", params=[("en", "de"), ("de", "en"), ("fr", "pl"), ("ja", "ar")])
def corpus(request: pytest.FixtureRequest) -> DemoCorpus:
    source, target = request.param
    return demo_corpus(source, target, seed=3, train=6000, validation=150, test=300)


def test_sizes(corpus: DemoCorpus) -> None:
    assert [len(part) for part in corpus] == [6000, 150, 300]


def test_parts_share_no_text(corpus: DemoCorpus) -> None:
    pairs = [pair for part in corpus for pair in part]
    assert len({pair.source for pair in pairs}) == len(pairs)
    assert len({pair.target for pair in pairs}) == len(pairs)


def test_held_out_texts_are_made_of_pieces_seen(corpus: DemoCorpus) -> None:
    for side in (0, 1):
        seen = set().union(*(pieces(pair[side]) for pair in corpus.train))
        for pair in (*corpus.validation, *corpus.test):
            assert pieces(pair[side]) <= seen


def test_texts_are_one_plain_line(corpus: DemoCorpus) -> None:
    for part in corpus:
        for text in (text for pair in part for text in pair):
            assert text == " ".join(text.split(" "))
            assert text.strip() == text != ""
            assert not set(text) & set("\t\n\u00a0\u202f\u2009")


def test_seed_decides() -> None:
    state = random.getstate()
    sizes = {"train": 300, "validation": 10, "test": 10}
    first = demo_corpus("en", "de", seed=1, **sizes)
    assert first == demo_corpus("en", "de", seed=1, **sizes)
    assert first != demo_corpus("en", "de", seed=2, **sizes)
    assert random.getstate() == state


def test_reverse_direction_has_the_same_grammar_sentences() -> None:
    there = demo_corpus("en", "de", seed=5, train=200, validation=0, test=0)
    back = demo_corpus("de", "en", seed=5, train=200, validation=0, test=0)
    turned = {Pair(pair.target, pair.source) for pair in back.train}
    assert len(turned & set(there.train)) > 100


def test_share_of_sentences_between_english_and_german() -> None:
    corpus = demo_corpus("en", "de", seed=5, train=5000, validation=0, test=0)
    sentences = sum(pair.target.endswith((".", "?")) for pair in corpus.train)
    assert 0.65 < sentences / 5000 < 0.75


def test_a_corpus_for_training_is_made_quickly() -> None:
    start = time.process_time()
    demo_corpus("en", "de", seed=1, train=30_000, validation=500, test=500)
    assert time.process_time() - start < 15  # about two seconds on a quiet laptop


@pytest.mark.parametrize(("source", "target"), LANGUAGES)
def test_a_source_has_one_right_target(source: str, target: str) -> None:
    pairs = CldrPairs(
        Locale.parse(source.replace("-", "_")), Locale.parse(target.replace("-", "_"))
    )
    draws = random.Random(11)
    right: dict[str, str] = {}
    for _ in range(8000):
        pair = pairs.draw(draws)
        assert right.setdefault(pair.source, pair.target) == pair.target


def test_the_may_date_is_always_the_long_one() -> None:
    pairs = CldrPairs(Locale("en"), Locale("de"))
    draws = random.Random(2)
    drawn = {pair for pair in (pairs.draw(draws) for _ in range(4000)) if "May" in pair.source}
    dates = [pair for pair in drawn if pair.source.startswith("May") and ":" not in pair.source]
    assert dates
    assert all("Mai" in pair.target for pair in dates)


MONTHS = {
    "January": "Januar",
    "February": "Februar",
    "March": "März",
    "April": "April",
    "May": "Mai",
    "June": "Juni",
    "July": "Juli",
    "August": "August",
    "September": "September",
    "October": "Oktober",
    "November": "November",
    "December": "Dezember",
}
SHORT_MONTHS = {name[:3]: index for index, name in enumerate(MONTHS, 1) if name != "May"}


def swap_marks(number: str) -> str:
    return number.translate(str.maketrans(",.", ".,"))


# English and what German makes of it, stated without Babel.
RULES: list[tuple[str, Callable[[re.Match[str]], str]]] = [
    (r"(\d+) days ago", lambda m: f"vor {m[1]} Tagen"),
    (r"in (\d+) weeks", lambda m: f"in {m[1]} Wochen"),
    (r"([\d.]+)%", lambda m: f"{swap_marks(m[1])} %"),
    (r"([\d,.]+)", lambda m: swap_marks(m[1])),
    (r"([\d.]+) kilometers", lambda m: f"{swap_marks(m[1])} Kilometer"),
    (r"\$([\d,.]+)", lambda m: f"{swap_marks(m[1])} $"),
    (r"([\d,.]+) euros", lambda m: f"{swap_marks(m[1])} Euro"),
    (rf"({'|'.join(MONTHS)}) (\d+), (\d+)", lambda m: f"{m[2]}. {MONTHS[m[1]]} {m[3]}"),
    (
        rf"({'|'.join(SHORT_MONTHS)}) (\d+), (\d+)",
        lambda m: f"{int(m[2]):02}.{SHORT_MONTHS[m[1]]:02}.{m[3]}",
    ),
    (r"(\d+):(\d+) PM", lambda m: f"{int(m[1]) % 12 + 12}:{m[2]}"),
    (r"(\d+):(\d+) AM", lambda m: f"{int(m[1]) % 12:02}:{m[2]}"),
]


def test_values_as_a_person_would_write_them() -> None:
    pairs = CldrPairs(Locale("en"), Locale("de"))
    draws = random.Random(4)
    hits = dict.fromkeys(range(len(RULES)), 0)
    for source, target in (pairs.draw(draws) for _ in range(8000)):
        for index, (pattern, write) in enumerate(RULES):
            if found := re.fullmatch(pattern, source):
                assert target == write(found)
                hits[index] += 1
    assert all(hits.values()), hits


@pytest.mark.parametrize(("english", "german"), [("en", "de"), ("en_AU", "de_CH")])
def test_templates_have_one_right_translation(english: str, german: str) -> None:
    draws = random.Random(6)
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for _ in range(5000):
        pair = filled_template(draws, Locale.parse(english), Locale.parse(german))
        assert there.setdefault(pair.source, pair.target) == pair.target
        assert back.setdefault(pair.target, pair.source) == pair.source
        assert re.fullmatch(r"[A-Z].*[^ ]\.", pair.source)
        assert re.fullmatch(r"[A-Z].*[^ ]\.", pair.target)


@pytest.mark.parametrize(
    ("code", "hint"),
    [("german", "'de'"), ("deu1", "did you mean"), ("pt-BX", "'pt'"), ("", "use one such as")],
)
def test_unknown_language(code: str, hint: str) -> None:
    with pytest.raises(UserError, match=hint) as raised:
        demo_corpus("en", code, seed=1, train=10, validation=0, test=0)
    assert repr(code) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_one_language_only() -> None:
    with pytest.raises(UserError, match="two languages"):
        describe("de", "de")


def test_impossible_sizes() -> None:
    with pytest.raises(UserError, match="0 training"):
        demo_corpus("en", "de", seed=1, train=0, validation=0, test=0)
    with pytest.raises(UserError, match="-1 test"):
        demo_corpus("en", "de", seed=1, train=10, validation=0, test=-1)
    with pytest.raises(UserError, match="of 400 requested test pairs"):
        demo_corpus("fr", "ja", seed=1, train=2, validation=0, test=400)


def test_description() -> None:
    assert describe("en", "de").startswith("English → German: 70 % sentences of a small grammar")
    assert "grammar" in describe("de-AT", "en-GB")
    assert describe("fr", "ja").startswith("French → Japanese: dates, times")
    assert "grammar" not in describe("fr", "ja")
