"""Exact match and F1 of answers that are spans of texts, as SQuAD's official scorers define them.

Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", section 6.1;
Rajpurkar, Jia, Liang 2018, "Know What You Don't Know: Unanswerable Questions for SQuAD", section 5.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Lower case, without ASCII punctuation and English articles, with single spaces.

    Example:
        >>> normalised("The  Battle, of\\tHastings!")
        'battle of hastings'
    """
    lower = answer.lower().translate(_MARKS)
    return " ".join(_ARTICLES.sub(" ", lower).split())


def exact_match(answer: str, right: str) -> float:
    """1 if the normalised answers are equal, else 0."""
    return float(normalised(answer) == normalised(right))


def f1(answer: str, right: str) -> float:
    """The harmonic mean of precision and recall of the normalised answer's words.

    If one of the two has no words, 1 if both have none, else 0.

    Example:
        >>> f1("in the year 1066", "1066")
        0.5
    """
    given, wanted = normalised(answer).split(), normalised(right).split()
    if not given or not wanted:
        return float(given == wanted)
    common = (Counter(given) & Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


class Scores(NamedTuple):
    """The scores of one answer, each 0 to 1."""

    exact: float
    f1: float


def score_answer(answer: str, right: Sequence[str]) -> Scores:
    """The best scores over all right answers.

    Right answers without words after normalisation are left out, as the official scorer does. If
    none is left, the question has no answer, and only an empty answer is right.
    """
    wanted = [one for one in right if normalised(one)] or [""]
    return Scores(
        max(exact_match(answer, one) for one in wanted), max(f1(answer, one) for one in wanted)
    )


class Threshold(NamedTuple):
    """The best threshold of "no answer", and the mean score with it."""

    value: float
    """An answer is given where the score of "no answer" is at most this."""
    score: float
    """0 to 1."""


def best_threshold(
    nothing: Sequence[float], with_answer: Sequence[float], answerable: Sequence[bool]
) -> Threshold:
    """The threshold with the highest mean score.

    Args:
        nothing: of each question, the score of "no answer" relative to that of the best answer.
        with_answer: the score of the best answer of each question.
        answerable: whether each question has an answer; without one, "no answer" scores 1.

    Example:
        >>> best_threshold([-3.0, 2.0, 1.0], [1.0, 0.0, 0.5], [True, False, True])
        Threshold(value=1.0, score=0.8333333333333334)
    """
    order = sorted(range(len(nothing)), key=nothing.__getitem__)
    total = float(sum(not each for each in answerable))
    best, value = total, min(nothing, default=0.0) - 1.0
    for place, index in enumerate(order):
        total += with_answer[index] if answerable[index] else -1.0
        following = order[place + 1] if place + 1 < len(order) else None
        tied = following is not None and nothing[following] == nothing[index]
        if not tied and total > best:
            best, value = total, nothing[index]
    return Threshold(value, best / max(1, len(order)))


def summary(scores: Sequence[Scores], answerable: Sequence[bool]) -> dict[str, float]:
    """Means in percent: ``exact_match`` and ``f1``, and these of questions with and without an
    answer (``has_answer_…``, ``no_answer_…``) if there are both."""
    parts = {"": list(scores)}
    if not all(answerable) and any(answerable):
        pairs = list(zip(scores, answerable, strict=True))
        parts["has_answer_"] = [one for one, has in pairs if has]
        parts["no_answer_"] = [one for one, has in pairs if not has]
    return {
        f"{part}{name}": 100 * sum(getattr(one, field) for one in own) / max(1, len(own))
        for part, own in parts.items()
        for name, field in (("exact_match", "exact"), ("f1", "f1"))
    }
