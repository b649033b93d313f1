"""Filters and overlap: what is left out is what should be, and it is counted."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.basics.settings import check
from heedful.data.examples import Pair
from heedful.data.filters import (
    NO_FILTERS,
    FilterSettings,
    HashSet,
    count_words,
    filter_pairs,
    hash_pair,
)
from heedful.data.overlap import count_overlap

TEXTS = st.text(max_size=12)
PAIRS = st.lists(st.builds(Pair, TEXTS, TEXTS), max_size=30)


def run(pairs: list[Pair], **changes: object) -> tuple[list[Pair], Counter[str]]:
    left_out: Counter[str] = Counter()
    chosen = NO_FILTERS.model_copy(update=changes)
    return list(filter_pairs(pairs, chosen, left_out)), left_out


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_without_being_counted(pairs: list[Pair]) -> None:
    left_out: Counter[str] = Counter()
    kept = list(filter_pairs(pairs, FilterSettings(max_words=3, max_characters=9), left_out))
    assert len(kept) + left_out.total() == len(pairs)
    assert len(set(kept)) == len(kept)


@given(PAIRS)
@settings(max_examples=30, deadline=None)
def test_no_filters_keep_everything_in_order(pairs: list[Pair]) -> None:
    assert run(pairs) == (pairs, Counter())


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_duplicates_keep_the_first_of_each(pairs: list[Pair]) -> None:
    kept, left_out = run(pairs, duplicates=True)
    assert kept == list(dict.fromkeys(pairs))
    assert left_out.total() == len(pairs) - len(kept)


def test_pairs_that_join_to_the_same_text_are_different() -> None:
    assert hash_pair(Pair("a", "bc")) != hash_pair(Pair("ab", "c"))


def test_each_filter_says_its_reason() -> None:
    pairs = [
        Pair("a", " \n"),
        Pair("w " * 11, "w " * 11),
        Pair("x" * 41, "x"),
        Pair("one", "w " * 10),
        Pair("kept", "kept"),
        Pair("kept", "kept"),
    ]
    kept, left_out = run(
        pairs, empty=True, max_words=10, max_characters=40, max_ratio=3.0, duplicates=True
    )
    assert kept == [Pair("kept", "kept")]
    assert left_out == {
        "empty": 1,
        "longer than 10 words": 1,
        "longer than 40 characters": 1,
        "length ratio above 3": 1,
        "duplicate": 1,
    }


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Yes.", "Ja, das ist durchaus so."),
        ("The members of the committee met on Tuesday.", "委员会成员星期二举行了会议。"),
        (
            "The members of the committee met on Tuesday.",
            "委員会のメンバーは火曜日に会合を開いた。",
        ),
        ("The members of the committee met on Tuesday.", "สมาชิกคณะกรรมการประชุมกันเมื่อวันอังคาร"),
        ("I will not be able to go there with them.", "Gidemeyeceğim onlarla."),
    ],
)
def test_the_ratio_spares_short_texts_and_scripts_without_spaces(source: str, target: str) -> None:
    pair = Pair(source, target)
    assert run([pair], max_ratio=FilterSettings().max_ratio) == ([pair], Counter())


def test_words_of_mixed_scripts() -> None:
    assert count_words("") == 0
    assert count_words("Größe  zwei") == 2
    assert count_words("用 Python 写") == 2


def test_settings_refuse_nonsense() -> None:
    with pytest.raises(UserError, match="max_ratio"):
        check(FilterSettings, {"max_ratio": 0.5}, "filters")
    with pytest.raises(UserError, match="did you mean 'max_words'"):
        check(FilterSettings, {"max_word": 5}, "filters")


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=60))
@settings(max_examples=60, deadline=None)
def test_the_hash_set_is_a_set(values: list[int]) -> None:
    table, reference = HashSet(), set()
    for value in values:
        new = (value or 1) not in reference
        reference.add(value or 1)
        assert table.add(value) is new
    assert len(table) == len(reference)


def test_the_hash_set_grows() -> None:
    table = HashSet()
    values = [(number * 0x9E3779B97F4A7C15) % 2**64 or 1 for number in range(5000)]
    assert all(table.add(value) for value in values)
    assert not any(table.add(value) for value in values)


@given(st.lists(TEXTS, max_size=10), st.lists(TEXTS, max_size=10))
@settings(max_examples=60, deadline=None)
def test_overlap_counts_held_out_sources(train: list[str], held_out: list[str]) -> None:
    stripped = {text.strip() for text in train}
    expected = sum(1 for text in held_out if text.strip() and text.strip() in stripped)
    assert count_overlap(train, held_out) == expected
