"""Scores by length, ranking of sentences, faults, and the report made of them."""

import json

import pytest

from heedful.basics.errors import UserError
from heedful.evaluation.breakdown import (
    find_faults,
    natural_unit,
    rank_sentences,
    repeats_itself,
    score_by_length,
)
from heedful.evaluation.metrics import bleu
from heedful.evaluation.report import ReportSettings, build_report

SOURCES = ["one two", "one two three four five six", " ".join(["word"] * 61), "", "ein Haus"]
REFERENCES = ["eins zwei", "eins zwei drei vier fünf sechs", " ".join("abc" * 20), "", "a house"]
OUTPUTS = ["eins zwei", "eins zwei drei vier sechs fünf", "a b c", "", "a mouse"]


def test_buckets_hold_every_sentence_once() -> None:
    buckets = score_by_length(SOURCES, OUTPUTS, REFERENCES, bootstrap=10)
    assert [bucket.name for bucket in buckets] == ["0–5", "6–10", "61–80"]
    assert [bucket.count for bucket in buckets] == [3, 1, 1]
    assert buckets[1].scores[0].value == pytest.approx(bleu([OUTPUTS[1]], [REFERENCES[1]]))
    assert [score.name for score in buckets[0].scores] == ["BLEU", "chrF2"]


def test_bounds_belong_to_the_shorter_bucket() -> None:
    sources = [" ".join("x" * length) for length in (1, 2, 3, 4)]
    buckets = score_by_length(sources, sources, sources, bounds=(2, 3), bootstrap=0)
    assert [(bucket.name, bucket.count) for bucket in buckets] == [
        ("1–2", 2),
        ("3–3", 1),
        ("4+", 1),
    ]


@pytest.mark.parametrize("bounds", [(3, 3), (5, 2), (0, 4)])
def test_bounds_must_rise(bounds: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="increasing"):
        score_by_length(["a"], ["a"], ["a"], bounds=bounds)


def test_scripts_without_spaces_are_measured_in_characters() -> None:
    assert natural_unit(["我们明天早上去公园里面散步。"]) == "characters"
    assert natural_unit(["Donaudampfschifffahrt ist ein Wort"]) == "words"
    assert natural_unit([""]) == "words"


def test_ranking_goes_from_worst_to_best_and_leaves_out_empty_pairs() -> None:
    ranked = rank_sentences(OUTPUTS, REFERENCES)
    assert [sentence.index for sentence in ranked] == [2, 4, 1, 0]
    assert ranked[-1].chrf == pytest.approx(100)
    assert all(0 <= sentence.bleu <= 100 + 1e-9 for sentence in ranked)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("a red house a red house", True),
        ("he saw the man in the man in the park", True),
        ("very very very", True),
        ("on and on and on and on", True),
        ("very very good", False),
        ("that that is is", False),
        ("the man and the man", False),
        ("我很好我很好我很好我很好我很好", True),
        ("hahahahaha", True),
        ("今天天气很好", False),
        ("100 000 000", False),
        ("", False),
    ],
)
def test_repetition_as_defined(text: str, repeats: bool) -> None:
    assert repeats_itself(text) is repeats


def test_faults_are_found_and_what_the_reference_does_too_is_none() -> None:
    sources = ["Berlin", "good morning", "hello", "no", "yes", "a long text", "x"]
    references = ["Berlin", "guten Morgen", "hallo", "nein nein nein", "ja", "ein " * 30, "x"]
    outputs = ["Berlin", "good  morning", " ", "nein nein nein", "ja ja ja", "ein", "x" + " y" * 30]
    faults = find_faults(sources, outputs, references)
    assert faults.count == 7
    assert faults.copies == [1]
    assert faults.empty == [2]
    assert faults.repeats == [4, 6]
    assert faults.too_short == [5]
    assert faults.too_long == [6]


def test_uneven_sources_are_refused() -> None:
    with pytest.raises(UserError, match="2 sources but 1 hypotheses"):
        find_faults(["a", "b"], ["a"], ["a"])


def test_the_report_holds_all_that_was_asked_for_and_can_be_written() -> None:
    settings = ReportSettings(by_length=True, bootstrap=20, sentences=2)
    report = build_report(
        "ours",
        OUTPUTS,
        REFERENCES,
        settings,
        sources=SOURCES,
        against="theirs",
        against_hypotheses=REFERENCES,
    )
    values = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert [score["name"] for score in values["scores"]] == ["BLEU", "chrF2", "TER"]
    assert values["worst"][0]["line"] == 3
    assert values["best"][0]["line"] == 1
    assert values["comparisons"][0]["difference"] > 0
    assert sum(bucket["count"] for bucket in values["by_length"]) == report.count
    titles = [table.title for table in report.tables()]
    assert titles == [
        "ours: 5 sentences",
        "ours against theirs",
        "faults",
        "by source length",
        "worst sentences",
        "best sentences",
        "how it was scored",
    ]
    for table in report.tables():
        assert all(len(row) == len(table.header) for row in table.rows)
        assert len(table.plain().split("\n")) == len(table.rows) + 2


def test_without_sources_nothing_is_said_of_them() -> None:
    report = build_report("x", ["a"], ["a"], ReportSettings(by_length=True, bootstrap=0))
    assert report.faults is None
    assert report.by_length == []
    assert (len(report.worst), len(report.best)) == (1, 0)
