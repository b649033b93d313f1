"""Questions with answers in texts: readers, places of tokens, and SQuAD's official figures."""

import json
import lzma
import re
import string
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.readers.opening import open_input
from heedful.data.readers.questions import QuestionColumns, read_asked, read_questions
from heedful.data.token_offsets import TokenLocator, WholeWords
from heedful.data.vocabularies import VocabularySettings, train_vocabulary
from heedful.evaluation.span_answers import (
    Scores,
    best_threshold,
    normalised,
    score_answer,
    summary,
)
from heedful.inference.span_windows import answer_in, boundaries, right_in, windows_of

CONTEXT = "The  café was built in 1066, by William.\nIt's (very) old; Straße ☃!"
XQUAD = Path(__file__).parents[1] / "../shared/data/xquad"
KINDS = [
    VocabularySettings(kind="bpe", vocabulary_size=366, lower_case=True),
    VocabularySettings(kind="unigram", vocabulary_size=363),
    VocabularySettings(kind="bytes", vocabulary_size=280),
    VocabularySettings(kind="characters", vocabulary_size=99),
    VocabularySettings(kind="words", vocabulary_size=12, lower_case=True),
    VocabularySettings(kind="words", vocabulary_size=99, split="spaces"),
]


def squad(folder: Path, *qas: dict[str, object], context: str = CONTEXT) -> Path:
    path = folder / "file.json"
    one = {"title": "x", "paragraphs": [{"context": context, "qas": list(qas)}]}
    path.write_text(json.dumps({"version": "v2.0", "data": [one]}), encoding="utf-8")
    return path


def asked(text: str, start: int, name: str = "1") -> dict[str, object]:
    return {"id": name, "question": "When?", "answers": [{"text": text, "answer_start": start}]}


# Places of tokens


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.vocabulary_size}")
def test_tokens_have_the_places_of_their_characters(kind: VocabularySettings) -> None:
    vocabulary = train_vocabulary(lambda: [CONTEXT] * 9, kind, seed=1, where="the test")
    located = TokenLocator(vocabulary)(CONTEXT)
    assert len(located.tokens) == len(located.ranges)
    covered = "".join(
        CONTEXT[a:b] for a, b in dict.fromkeys(own for own in located.ranges if own[0] < own[1])
    )
    assert covered == "".join(CONTEXT.split())
    if kind.kind in ("bytes", "characters"):  # each token spells what is at its place
        for token, (a, b) in zip(located.tokens, located.ranges, strict=True):
            text = vocabulary.decode([token]).strip()
            assert text in (CONTEXT[a:b], "") or "\N{REPLACEMENT CHARACTER}" in text


@pytest.mark.parametrize("kind", KINDS[:5], ids=lambda kind: f"{kind.kind}")
def test_answers_get_exactly_the_tokens_of_their_characters(kind: VocabularySettings) -> None:
    vocabulary = train_vocabulary(lambda: [CONTEXT] * 9, kind, seed=1, where="the test")
    located = TokenLocator(vocabulary)(CONTEXT)
    for answer in ("café", "1066", "William", "built in 1066, by", "old", "☃"):
        start = CONTEXT.index(answer)
        found = boundaries(located, start, start + len(answer))
        assert found is not None
        first, last = found
        a, b = located.ranges[first][0], located.ranges[last][1]
        assert answer in CONTEXT[a:b]
        assert len(CONTEXT[a:b]) < len(answer) + 3  # a subword may have a mark, never a word


def test_a_token_across_the_boundary_is_counted() -> None:
    kind = VocabularySettings(kind="words", vocabulary_size=99)
    vocabulary = train_vocabulary(lambda: [CONTEXT], kind, seed=1, where="the test")
    locate = TokenLocator(vocabulary)
    from heedful.data.examples import SpanQuestion

    whole = SpanQuestion("When?", CONTEXT, (("1066", CONTEXT.index("1066")),), "1")
    part = SpanQuestion("When?", CONTEXT, (("106", CONTEXT.index("1066")),), "1")
    assert answer_in(whole, locate(CONTEXT))[1]
    same, exact = answer_in(part, locate(CONTEXT))
    assert same == answer_in(whole, locate(CONTEXT))[0]
    assert not exact


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=60, deadline=None)
def test_places_of_any_text_are_in_order_and_cover_it(text: str) -> None:
    located = TokenLocator(_bytes())(text)
    assert len(located.tokens) == len(located.ranges)
    shown = [own for own in located.ranges if own[0] < own[1]]
    assert shown == sorted(shown)
    assert "".join(text[a:b] for a, b in dict.fromkeys(shown)) == "".join(text.split())


_KEPT: list = []


def _bytes():
    if not _KEPT:
        kind = VocabularySettings(kind="bytes", vocabulary_size=270)
        _KEPT.append(train_vocabulary(lambda: [CONTEXT] * 9, kind, seed=1, where="the test"))
    return _KEPT[0]


# Windows


@pytest.mark.parametrize(
    ("text", "inside", "expected"),
    [
        ("a strawberry, ripe", "awb", "strawberry"),
        ("a strawberry, ripe", "berry, ri", "strawberry, ripe"),
        ("in 1066, by", "06", "1066"),
        ("the café.", "caf", "café"),
        ("the cafe\u0301.", "cafe", "cafe\u0301"),
        ("विद्यालय में", "द्या", "विद्यालय"),
        ("don't (very)", "very", "very"),
        ("state-of-the-art", "of", "of"),
        ("東京都に住む", "京都", "京都"),
        ("ภาษาไทยง่าย", "ไทย", "ไทย"),
        ("年1066年", "06", "1066"),
    ],
)
def test_answers_are_whole_words_in_scripts_with_spaces(
    text: str, inside: str, expected: str
) -> None:
    start = text.index(inside)
    first, last = WholeWords(text)(start, start + len(inside))
    assert text[first:last] == expected


@given(st.text(alphabet="ab \u0301東,", max_size=30), st.data())
@settings(max_examples=60, deadline=None)
def test_whole_words_do_not_depend_on_what_was_asked_before(text: str, data: st.DataObject) -> None:
    places = st.integers(0, len(text))
    asked = data.draw(st.lists(st.tuples(places, places), max_size=6))
    one = WholeWords(text)
    assert [one(*span) for span in asked] == [WholeWords(text)(*span) for span in asked]


def test_windows_overlap_and_cover_the_text_with_the_whole_question_in_each() -> None:
    context = list(range(100, 150))
    found = windows_of([7, 8, 9], context, 26, 5)  # 20 tokens of the text fit
    assert all(one.row.first == [7, 8, 9] for one in found)
    ranges = [(one.begin, one.begin + len(one.row.second or [])) for one in found]
    assert (ranges[0][0], ranges[-1][1]) == (0, 50)
    assert all(b - c >= 5 for (_, b), (c, _) in pairwise(ranges))
    assert all(context[a:b] == one.row.second for (a, b), one in zip(ranges, found, strict=True))
    inside = [right_in((18, 21), one) for one in found]
    assert (0, 0) in inside
    for one, (a, b) in zip(found, inside, strict=True):
        if a:
            row = [2, *one.row.first, 3, *(one.row.second or []), 3]
            assert row[a : b + 1] == context[18:22]


def test_a_question_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(UserError, match=r"20 tokens, which leave no room .* in the 26 tokens"):
        windows_of([5] * 20, [6] * 30, 26, 5)


def test_tokens_are_kept_for_few_texts_only() -> None:
    kind = VocabularySettings(kind="words")
    locate = TokenLocator(train_vocabulary(lambda: ["a b"], kind, seed=1, where="the test"))
    long = "a b " * 20_000
    found = locate(long)
    assert locate(long) is found
    for number in range(3):
        locate(f"{number} {long}")
    assert locate(long) is not found
    assert locate(long) == found


# Readers


def test_squad_files_keep_all_answers_and_questions_without(tmp_path: Path) -> None:
    both = asked("1066", CONTEXT.index("1066"))
    both["answers"] = [*both["answers"], {"text": "in 1066", "answer_start": 20}]  # type: ignore[misc]
    none = {"id": "2", "question": "Who left?", "answers": [], "is_impossible": True}
    found = list(read_questions([squad(tmp_path, both, none)]))
    assert found[0].answers == (("1066", CONTEXT.index("1066")), ("in 1066", 20))
    assert (found[1].name, found[1].answers) == ("2", ())
    assert {one.identity for one in found} == {CONTEXT}  # questions about a text stay together


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (asked("1066", 3), "question 1: the answer '1066' is not in the text at character 3; it"),
        (asked("1067", 3), "not in the text at character 3, and not elsewhere"),
        (asked("1066", -1), "is not in the text at character -1"),
        (asked(" ", 3), "question 1: an answer is empty"),
        ({**asked("1066", 23), "question": " "}, "question 1: the question is empty"),
        ({**asked("1066", 23), "answers": []}, "question 1 has no answer; add one, or is_imp"),
        ({**asked("1066", 23), "answers": [{"text": "x"}]}, "'answer_start' is not a whole number"),
        ({"id": "1", "answers": []}, "no text 'question'; the file is not in SQuAD's format"),
        ({**asked("1066", 23), "id": None}, "'id' must be a text or a whole number"),
        ({**asked("1066", 23), "id": "x\ud800"}, "'id': character 2 is a lone surrogate"),
        ({**asked("1066", 23), "is_impossible": "false"}, "must be true or false"),
        ({**asked("1066", 23), "is_impossible": True}, "has answers, but is_impossible is true"),
    ],
)
def test_bad_questions_give_one_clear_line(
    tmp_path: Path, given: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError) as error:
        list(read_questions([squad(tmp_path, given)]))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_broken_json_is_named_with_its_place(tmp_path: Path) -> None:
    path = Path(squad(tmp_path, asked("1066", CONTEXT.index("1066"))))
    path.write_text(path.read_text().rstrip()[:-1] + ",}")
    with pytest.raises(UserError, match=r"valid JSON \(line 1, column \d+: .*\); the file is"):
        list(read_questions([path]))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "latin-1"])
def test_squad_files_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = Path(squad(tmp_path, asked("1066", CONTEXT.index("1066"))))
    mark = "\ufeff" if encoding == "utf-8" else ""
    path.write_text(mark + path.read_text(), encoding=encoding)
    assert [one.name for one in read_questions([path], encoding=encoding)] == ["1"]


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    path = squad(tmp_path, asked("1066", CONTEXT.index("1066")))
    for encoding in ("nonsense", "base64"):
        with open_input(path) as file, pytest.raises(UserError, match="unknown encoding"):
            read_asked(file, encoding)


def test_json_lines_with_a_version_are_no_squad_file(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    row = {"version": 1, "context": "a b", "question": "q", "answer": "b"}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    assert [one.answers for one in read_questions([path])] == [(("b", 2),)] * 2


def test_misplaced_answers_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = squad(tmp_path, asked("1066", 3), asked("1066", CONTEXT.index("1066"), "2"))
    found = list(read_questions([path], misplaced="skip"))
    assert [one.name for one in found] == ["2"]
    assert "1 question with an answer that is not in the text" in capsys.readouterr().err


def test_tables_have_answers_with_and_without_a_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    rows = [
        {"context": "a b a", "question": "q", "answer": "a", "start": 4},
        {"context": "a b a", "question": "q", "answer": "", "start": None},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    placed = list(read_questions([path], columns=QuestionColumns(start="start")))
    assert [one.answers for one in placed] == [(("a", 4),), ()]
    first = list(read_questions([path]))
    assert first[0].answers == (("a", 0),)
    assert "answers that occur several times in their texts: 1;" in capsys.readouterr().err
    path.write_text('{"context": "a b", "question": "q", "answer": "c"}\n')
    with pytest.raises(UserError, match=r"t\.jsonl:1: the answer 'c' does not occur in the text"):
        list(read_questions([path]))


@pytest.mark.skipif(not XQUAD.exists(), reason="../shared/data/xquad is absent")
@pytest.mark.parametrize("language", ["en", "de", "es", "ru"])
def test_xquad_is_read_whole_and_its_answers_are_at_their_places(language: str) -> None:
    path = XQUAD / f"xquad.{language}.json.xz"
    found = list(read_questions([path]))
    assert (len(found), len({one.context for one in found})) == (1190, 240)
    with lzma.open(path) as file:
        paragraph = json.load(file)["data"][3]["paragraphs"][1]
    assert paragraph["context"] in {one.context for one in found}
    vocabulary = _bytes()
    locate = TokenLocator(vocabulary)
    inexact = sum(not answer_in(one, locate(one.context))[1] for one in found[:100])
    assert inexact <= 2  # bytes: only merged bytes across a boundary


# The official figures, by their published definitions


def official_normalised(text: str) -> str:
    kept = "".join(one for one in text.lower() if one not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def official_f1(given: str, wanted: str) -> float:
    first, second = (official_normalised(one).split() for one in (given, wanted))
    if not first or not second:
        return float(first == second)
    same = sum((Counter(first) & Counter(second)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(first), same / len(second)
    return 2 * precision * recall / (precision + recall)


WORDS = st.lists(
    st.sampled_from(["The", "a", "cat", "cat,", "dog", "(an)", "Straße", "10.5", "theatre", "-"]),
    max_size=5,
).map(" ".join)


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_scores_are_those_of_the_published_definition(answer: str, right: list[str]) -> None:
    wanted = [one for one in right if official_normalised(one)] or [""]
    exact = max(float(official_normalised(answer) == official_normalised(one)) for one in wanted)
    score = score_answer(answer, right)
    assert score.exact == exact
    assert score.f1 == pytest.approx(max(official_f1(answer, one) for one in wanted), abs=1e-12)


def test_scores_of_examples_made_by_hand() -> None:
    assert normalised("The U.S. (an ally)") == "us ally"
    assert score_answer("in the year 1066", ["1066", "year 1066"]) == Scores(0.0, 0.8)
    assert score_answer("", []) == Scores(1.0, 1.0)  # no answer, and none given
    assert score_answer("1066", []) == Scores(0.0, 0.0)
    figures = summary([Scores(1, 1), Scores(0, 0.5), Scores(1, 1)], [True, True, False])
    assert figures["exact_match"] == pytest.approx(200 / 3)
    assert figures["has_answer_f1"] == 75
    assert figures["no_answer_f1"] == 100


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.sampled_from([0.0, 0.5, 1.0]), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=200, deadline=None)
def test_the_best_threshold_is_the_best_of_all_thresholds(
    rows: list[tuple[int, float, bool]],
) -> None:
    nothing, scores = [float(n) for n, _, _ in rows], [s if has else 0.0 for _, s, has in rows]
    answerable = [has for _, _, has in rows]

    def mean(threshold: float) -> float:
        parts = [
            own if n <= threshold else float(not has)
            for n, own, has in zip(nothing, scores, answerable, strict=True)
        ]
        return sum(parts) / len(parts)

    found = best_threshold(nothing, scores, answerable)
    assert found.score == pytest.approx(mean(found.value))
    assert found.score == pytest.approx(max(map(mean, [-9.0, *nothing])))
