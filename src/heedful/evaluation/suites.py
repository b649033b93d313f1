"""The official metrics of GLUE, SuperGLUE and Russian SuperGLUE, and the averages of leaderboards.

Figures are from 0 to 100, correlations from −100 to 100.
"""

import math
import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from heedful.data.suites.forms import Item
from heedful.data.suites.tasks import TRUE, SuiteTask, tasks_of
from heedful.evaluation.correlation import correlations

Answer = Any
"""The prediction for an item: a label, a number, the index of a choice, the label of each answer
(MultiRC), or a text (ReCoRD)."""
Outputs = Sequence[Mapping[str, float] | float]
"""For each row of an item, the probabilities of the labels, or a number."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_of(item: Item, outputs: Outputs, task: SuiteTask) -> Answer:
    """The prediction for an item from what a model returned for its rows.

    Of several choices or candidates, it is the one with the highest probability of ``true``, the
    first of equal ones.
    """
    if task.form in ("choice", "cloze"):
        best = max(range(len(outputs)), key=lambda row: _probability(outputs[row], TRUE))
        return best if task.form == "choice" else item.names[best]
    if task.is_numeric:
        return outputs[0]
    labels = [_likeliest(one, task.labels) for one in outputs]
    return tuple(labels) if task.form == "answers" else labels[0]


def gold_of(item: Item, task: SuiteTask) -> Any:
    """The right answer of an item with labels, in the form of :func:`answer_of`.

    For ReCoRD, all right answers.
    """
    assert item.labels is not None
    if task.form == "choice":
        return item.labels.index(TRUE)
    if task.form == "cloze":
        return item.gold
    if task.is_numeric:
        return float(item.labels[0])
    return item.labels if task.form == "answers" else item.labels[0]


def score_items(
    items: Sequence[Item], answers: Sequence[Answer], task: SuiteTask
) -> dict[str, float]:
    """The official metrics of a task.

    Raises:
        ValueError: there is not one answer for each item.
    """
    if len(items) != len(answers) or not items:
        raise ValueError(f"{len(answers)} answers for {len(items)} items")
    return score_answers([gold_of(item, task) for item in items], answers, task)


def score_answers(
    gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask
) -> dict[str, float]:
    """As :func:`score_items`, from right answers.

    Example:
        >>> from heedful.data.suites.tasks import task_named
        >>> score_answers(["0", "1", "1", "0"], ["0", "1", "0", "0"], task_named("glue/mrpc"))
        {'f1': 66.66..., 'accuracy': 75.0}
    """
    return {name: 100 * METRICS[name](gold, answers, task) for name in task.metrics}


def _accuracy(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    right: int = sum(map(operator.eq, gold, answers))
    return right / len(gold)


def _matthews(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    """Matthews' correlation for any number of labels (Gorodkin 2004); 0 if one side is constant."""
    total = len(gold)
    right: int = sum(map(operator.eq, gold, answers))
    true, given = Counter(gold), Counter(answers)
    both = sum(true[label] * given[label] for label in true)
    spreads = [total**2 - sum(count**2 for count in side.values()) for side in (true, given)]
    if not all(spreads):
        return 0.0
    return (right * total - both) / math.sqrt(math.prod(spreads))


def _f1_of(label: str, gold: Sequence[Any], answers: Sequence[Answer]) -> float:
    """F1 of a label; 0 if it occurs on neither side."""
    right = Counter(zip(gold, answers, strict=True))[label, label]
    occurring = list(gold).count(label) + list(answers).count(label)
    return 2 * right / occurring if occurring else 0.0


def _f1(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    """F1 of the label 1."""
    return _f1_of("1", gold, answers)


def _macro_f1(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    """The mean F1 of the labels of the task."""
    return fmean(_f1_of(label, gold, answers) for label in task.labels)


def _pearson(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    return correlations(gold, answers)["pearson"]


def _spearman(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    return correlations(gold, answers)["spearman"]


def _f1a(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    """F1 of the label 1 over the answers of all questions (Khashabi et al. 2018)."""
    flat = [[label for labels in side for label in labels] for side in (gold, answers)]
    return _f1(flat[0], flat[1], task)


def _exact_match(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    """The share of questions whose answers are all right; of queries with a right answer."""
    if task.form == "cloze":
        return fmean(
            max(float(normalised(one) == normalised(given)) for one in right)
            for right, given in zip(gold, answers, strict=True)
        )
    return _accuracy([tuple(one) for one in gold], [tuple(one) for one in answers], task)


def _token_f1(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    """The mean of the highest F1 of words with a right answer (Rajpurkar et al. 2016)."""
    return fmean(
        max(word_f1(one, given) for one in right)
        for right, given in zip(gold, answers, strict=True)
    )


def _gender_parity(gold: Sequence[Any], answers: Sequence[Answer], task: SuiteTask) -> float:
    """The share of pairs of neighbours, which differ in a pronoun only, with equal answers."""
    pairs = zip(answers[::2], answers[1::2], strict=True)
    return fmean(one == other for one, other in pairs)


METRICS: dict[str, Callable[[Sequence[Any], Sequence[Answer], SuiteTask], float]] = {
    "accuracy": _accuracy,
    "matthews": _matthews,
    "f1": _f1,
    "macro_f1": _macro_f1,
    "pearson": _pearson,
    "spearman": _spearman,
    "f1a": _f1a,
    "exact_match": _exact_match,
    "token_f1": _token_f1,
    "gender_parity": _gender_parity,
}
"""Metric → its function of right answers and answers; values are at most 1."""


METRIC_TITLES = {
    "matthews": "MCC",
    "f1": "F1",
    "macro_f1": "macro F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "f1a": "F1a",
    "exact_match": "EM",
    "token_f1": "F1",
    "gender_parity": "gender parity",
}
"""Metric → its name in tables, if it differs."""


def normalised(text: str) -> str:
    """Lower case, without punctuation, English articles and repeated white space (SQuAD).

    Example:
        >>> normalised("The  U.S. Senate")
        'us senate'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def word_f1(right: str, given: str) -> float:
    """F1 of the words of two normalised texts, from 0 to 1.

    Example:
        >>> word_f1("the United States", "United Kingdom")
        0.5
    """
    first, second = normalised(right).split(), normalised(given).split()
    common = (Counter(first) & Counter(second)).total()
    if not common:
        return 0.0
    return 2 * common / (len(first) + len(second))


def task_score(figures: Mapping[str, float]) -> float:
    """The score of a task on the leaderboards: the mean of its figures.

    Of MNLI, the figures are those of both test sets.
    """
    return fmean(figures.values())


def suite_average(suite: str, scores: Mapping[str, float]) -> float | None:
    """The average of a leaderboard; None unless all tasks that count have a score.

    It is the unweighted mean over tasks. GLUE counts nine tasks, without its diagnostic; SuperGLUE
    eight, without its two diagnostics; Russian SuperGLUE nine, with LiDiRus.

    Args:
        suite: the benchmark.
        scores: key of each task → its score.
    """
    counted = [task.key for task in tasks_of(suite) if task.counted]
    if any(key not in scores for key in counted):
        return None
    return math.fsum(scores[key] for key in counted) / len(counted)


def _probability(output: Mapping[str, float] | float, label: str) -> float:
    assert isinstance(output, Mapping)
    return output.get(label, 0.0)


def _likeliest(output: Mapping[str, float] | float, labels: Sequence[str]) -> str:
    """The most probable label; the first label of the task for a text without any."""
    assert isinstance(output, Mapping)
    return max(labels, key=lambda label: output.get(label, 0.0))
