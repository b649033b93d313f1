"""Explanations of a classification: attention to each word, and the effect of leaving it out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heedful.inference.classifier import Classification, Classifier
from heedful.inference.text_reader import Row, Text
from heedful.inference.trace import Trace
from heedful.inference.tracing import DECISION

_LEAST = 1e-45
"""The smallest probability that float32 holds."""


@dataclass(frozen=True)
class Reason:
    """A word and its effect on the class of a text."""

    word: str
    fall: float
    """The decrease of the label's probability without the word; negative if it increases."""
    log_odds: float
    """The decrease of the label's log-odds without the word, in nats. Unlike ``fall``, it does not
    vanish if the label's probability is close to 0 or 1."""
    share: float | None
    """The word's share of attention × gradient of the label. The shares of all words sum to 1, or
    are all 0 if nothing that was attended to supports the label. None for a model that does not
    attend to words. It shows where the model attends, and identifies the deciding word far less
    often than ``fall``."""


@dataclass(frozen=True)
class Explanation:
    """The class of a text, and the effect of each of its words."""

    classification: Classification
    words: tuple[Reason, ...]
    """The words in order; those of both texts of a pair."""
    trace: Trace = field(repr=False)

    def __str__(self) -> str:
        """The label with its probability, then one line per word with its ``fall``."""
        found = self.classification
        lines = [f"{one.fall:+.4f}  {one.word}" for one in self.words]
        return "\n".join([f"{found.label}  {found.probability:.4f}", *lines])

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        words = [dict(vars(one)) for one in self.words]
        return {**self.classification.to_json(), "words": words}


def explain(classifier: Classifier, text: Text, *, label: str | None = None) -> Explanation:
    """The class of ``text``, and the words that support it.

    Args:
        classifier: the predictor.
        text: a text, or a pair, that fits into one window.
        label: the class to explain; the most probable one by default.

    Raises:
        UserError: the text is empty or too long, or the label is unknown.
    """
    trace = classifier.trace(text, label=label)
    [row] = classifier.rows(text)
    first, second = classifier.vocabulary.decode(row.first), ""
    if row.second is not None:
        second = classifier.vocabulary.decode(row.second)
    words = [*first.split(), *second.split()]
    without = [_without(classifier, row, word) for word in range(len(words))]
    whole, *left = classifier.classify_rows([[row], *([one] for one in without)])
    chosen = whole.label if label is None else label
    assert chosen is not None
    shares = word_shares(trace, len(words))
    falls = [whole.probabilities[chosen] - one.probabilities[chosen] for one in left]
    odds = _log_odds(whole.probabilities, chosen)
    evidence = [odds - _log_odds(one.probabilities, chosen) for one in left]
    reasons = map(Reason, words, falls, evidence, shares)
    return Explanation(whole, tuple(reasons), trace)


def _log_odds(probabilities: Mapping[str, float], label: str) -> float:
    """ln p(label) − ln p(any other label).

    The probabilities of the others are summed, because 1 − p loses digits if p is close to 1.
    """
    others = math.fsum(value for name, value in probabilities.items() if name != label)
    return math.log(max(probabilities[label], _LEAST)) - math.log(max(others, _LEAST))


def word_shares(trace: Trace, words: int) -> Sequence[float | None]:
    """Each word's share of attention × gradient for the only decision of a trace.

    Args:
        trace: from :meth:`heedful.inference.classifier.Classifier.trace`.
        words: number of words in all texts.

    Returns:
        See :attr:`Reason.share`.
    """
    maps = [one for one in trace.maps if (one.query_axis, one.kind) == (DECISION, "gradient")]
    if not maps:
        return [None] * words
    shares = [0.0] * words
    first = 0
    for axis in ("text", "first", "second"):
        own = trace.words.get(axis, [])
        for one in maps:
            if one.key_axis == axis:
                for word, weight in zip(own, one.weights[0, 0].tolist(), strict=True):
                    if word >= 0:
                        shares[first + word] += weight
        if axis == "first":
            first = max(own, default=-1) + 1
    total = sum(shares)
    return [share / total if total else 0.0 for share in shares]


def _without(classifier: Classifier, row: Row, word: int) -> Row:
    """A row without one of its words, counted through both texts."""
    indices = classifier.vocabulary.word_indices(row.first)
    kept = [token for token, own in zip(row.first, indices, strict=True) if own != word]
    if row.second is None:
        return Row(kept, None)
    before = max(indices, default=-1) + 1
    of_second = classifier.vocabulary.word_indices(row.second)
    second = zip(row.second, of_second, strict=True)
    return Row(kept, [token for token, own in second if own + before != word or own < 0])
