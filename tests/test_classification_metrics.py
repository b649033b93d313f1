"""Scores of decisions, against their definitions and against scikit-learn's defaults."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef

from heedful.basics.errors import UserError
from heedful.evaluation.classification import (
    SHOWN_WHOLE,
    score_classification,
    score_tagging,
    spread,
)

LABELS = ["yes", "no", "perhaps"]
decisions = st.lists(
    st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS), st.floats(0, 1)), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(found=decisions)
def test_scores_are_their_definitions(found: list[tuple[str, str, float]]) -> None:
    gold, given_labels, sure = (list(column) for column in zip(*found, strict=True))
    report = score_classification(gold, given_labels, labels=LABELS, probabilities=sure)
    right = sum(a == b for a, b in zip(gold, given_labels, strict=True))
    assert report.accuracy == pytest.approx(right / len(gold))
    f1 = []
    for label in {*gold, *given_labels}:
        both = sum(a == b == label for a, b in zip(gold, given_labels, strict=True))
        f1.append(2 * both / (gold.count(label) + given_labels.count(label)))
    assert report.macro_f1 == pytest.approx(sum(f1) / len(f1))
    assert sum(map(sum, report.confusion)) == report.count == len(gold)
    assert [sum(row) for row in report.confusion] == [gold.count(name) for name in report.labels]
    assert [each.count for each in report.by_label] == [gold.count(name) for name in report.labels]
    chances = [mistake.probability for mistake in report.worst]
    assert chances == sorted(chances, reverse=True)
    assert len(report.worst) == min(10, len(gold) - right)
    for mistake in report.worst:
        place = mistake.line - 1
        assert (mistake.gold, mistake.predicted) == (gold[place], given_labels[place])
        assert mistake.gold != mistake.predicted


@settings(max_examples=60, deadline=None)
@given(found=decisions)
def test_scores_are_scikit_learns(found: list[tuple[str, str, float]]) -> None:
    gold, given_labels, _ = (list(column) for column in zip(*found, strict=True))
    report = score_classification(gold, given_labels, labels=LABELS)
    assert report.figures() == {
        "accuracy": pytest.approx(accuracy_score(gold, given_labels)),
        "macro_f1": pytest.approx(f1_score(gold, given_labels, average="macro", zero_division=0)),
        "matthews": pytest.approx(
            matthews_corrcoef(gold, given_labels) if len({*gold, *given_labels}) > 1 else 0
        ),
    }
    names = list(report.labels)
    if len(names) > 1:
        expected = confusion_matrix(gold, given_labels, labels=names).tolist()
        assert [list(row) for row in report.confusion] == expected


def test_matthews_of_two_labels_by_hand() -> None:
    """tp 3, tn 2, fp 1, fn 2: (6 - 2) / sqrt(4 · 5 · 3 · 4)."""
    gold = ["+", "+", "+", "+", "+", "-", "-", "-"]
    found = ["+", "+", "+", "-", "-", "-", "-", "+"]
    report = score_classification(gold, found, labels=["-", "+"])
    assert report.matthews == pytest.approx(4 / math.sqrt(240))
    assert report.confusion == ((2, 1), (2, 3))
    assert score_classification(["+"] * 3, ["+"] * 3, labels=["+"]).matthews == 0.0


def test_labels_that_training_never_saw() -> None:
    gold, found = ["yes", "never", "yes", "other"], ["yes", "no", "no", "no"]
    with pytest.raises(
        UserError, match=r"'never' \(example 2; one of 2 .*does not occur in training"
    ):
        score_classification(gold, found, labels=["yes", "no"])
    report = score_classification(gold, found, labels=["yes", "no"], unseen="count")
    assert report.unseen == {"never": 1, "other": 1}
    assert report.accuracy == 0.25
    assert report.labels == ("yes", "no", "never", "other")
    assert report.macro_f1 == pytest.approx((2 / 3 + 0 + 0 + 0) / 4)
    assert "labels that training never saw" in report.text()
    with pytest.raises(ValueError, match="labels were given"):
        score_classification(["yes"], ["nope"], labels=["yes"])


def test_wrong_counts_are_refused() -> None:
    with pytest.raises(UserError, match="1 predictions, but 2 gold labels"):
        score_classification(["a", "b"], ["a"], labels=["a", "b"])
    with pytest.raises(UserError, match="no predictions to score"):
        score_classification([], [], labels=["a"])
    with pytest.raises(UserError, match="sentence 2: 1 gold tags, but 2 predicted"):
        score_tagging([["a"], ["a"]], [["a"], ["a", "a"]], labels=["a"])
    with pytest.raises(UserError, match="2 sentences with gold tags, but 1"):
        score_tagging([["a"], ["a"]], [["a"]], labels=["a"])


def test_tags_are_counted_by_words() -> None:
    report = score_tagging(
        [["D", "N"], ["V"]],
        [["D", "V"], ["N"]],
        labels=["D", "N", "V"],
        words=[["the", "cat"], ["sat"]],
        probabilities=[[0.9, 0.6], [0.8]],
    )
    assert (report.count, report.accuracy) == (3, pytest.approx(1 / 3))
    assert [(each.line, each.text) for each in report.worst] == [(3, "sat"), (2, "cat")]


def test_the_macro_f1_of_tags_leaves_out_what_is_outside_of_names() -> None:
    gold, given = [["O", "PER", "O", "ORG"]], [["O", "PER", "PER", "O"]]
    labels = ["O", "ORG", "PER"]
    report = score_tagging(gold, given, labels=labels)
    assert report.macro_f1 == pytest.approx((0 + 2 / 3) / 2)  # ORG, PER
    assert [score.label for score in report.by_label] == labels
    assert score_tagging([["O"]], [["O"]], labels=labels).macro_f1 == 1
    assert score_classification(gold[0], given[0], labels=labels).macro_f1 == pytest.approx(
        (0.5 + 0 + 2 / 3) / 3
    )


def test_the_report_is_written_as_text_and_json() -> None:
    gold, found = ["yes", "no", "no"], ["yes", "yes", "no"]
    texts = [("a", "b"), ("tab\there", "x\ny"), ("c", "d")]
    report = score_classification(
        gold, found, labels=LABELS, probabilities=[1, 0.75, 1], texts=texts
    )
    text = report.text()
    assert "accuracy\t66.67 %" in text
    assert "gold \\ given\tyes\tno" in text
    assert "2\t0.750\tyes\tno\ttab here ‖ x y" in text
    values = json.loads(json.dumps(report.as_json()))
    assert values["confusion"] == [[1, 0], [1, 1]]
    assert values["worst"][0] == {
        "line": 2,
        "probability": 0.75,
        "predicted": "yes",
        "gold": "no",
        "text": "tab\there ‖ x\ny",
    }
    many = [str(number) for number in range(SHOWN_WHOLE + 1)]
    whole = score_classification(many, [*many[1:], many[0]], labels=many)
    assert f"the largest of {len(many)} confusions" in whole.text()


def test_seeds_are_averaged_with_their_spread() -> None:
    found = spread([0.25, 0.75, 0.5])
    assert (found.mean, found.deviation) == (0.5, 0.25)
    assert spread([0.5]).deviation == 0.0
    with pytest.raises(ValueError, match="no values"):
        spread([])
