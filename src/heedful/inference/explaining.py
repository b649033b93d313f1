"""Why a text was classified as it was: what was attended to, and what is lost without each word."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heedful.inference.classifier import Classification, Classifier, Row, Text
from heedful.inference.trace import Trace
from heedful.inference.tracing import DECISION

_LEAST = 1e-45
"""The smallest probability that float32 holds."""


@dataclass(frozen=True)
class Reason:
    """A word, and what it had to do with a text's class."""

    word: str
    fall: float
    """By how much the label's probability falls when the word is left out; negative if it rises."""
    log_odds: float
    """By how much the label's log-odds fall when the word is left out, in nats. Unlike ``fall``,
    it does not vanish where the label's probability is near 0 or 1."""
    share: float | None
    """Its share of attention × gradient of the label: all words' sum to 1, or are all 0 if nothing
    attended to spoke for the label. None of a model that does not attend to words. It shows where
    the model looked, and finds the deciding word far less often than ``fall``."""


@dataclass(frozen=True)
class Explanation:
    """A text's class, and each of its words' part in it."""

    classification: Classification
    words: tuple[Reason, ...]
    """In their order; of a pair, both texts'."""
    trace: Trace = field(repr=False)

    def __str__(self) -> str:
        """The label with its probability, then a line a word with its ``fall``."""
        found = self.classification
        lines = [f"{one.fall:+.4f}  {one.word}" for one in self.words]
        return "\n".join([f"{found.label}  {found.probability:.4f}", *lines])

    def to_json(self) -> dict[str, Any]:
        """A JSON object; docs/texts.md says what its fields are."""
        words = [dict(vars(one)) for one in self.words]
        return {**self.classification.to_json(), "words": words}


def explain(classifier: Classifier, text: Text, *, label: str | None = None) -> Explanation:
    """The class of ``text``, and which of its words speak for it.

    Args:
        classifier: what decides.
        text: a text, or a pair, that fits into the model.
        label: the class that is spoken for; the most probable one unless given.

    Raises:
        UserError: the text is empty or too long, or there is no such label.
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

    The others' probability is summed, since 1 − p loses it where p is near 1.
    """
    others = math.fsum(value for name, value in probabilities.items() if name != label)
    return math.log(max(probabilities[label], _LEAST)) - math.log(max(others, _LEAST))


def word_shares(trace: Trace, words: int) -> Sequence[float | None]:
    """Each word's share of what speaks for the one decision of a trace.

    Args:
        trace: as :meth:`heedful.inference.classifier.Classifier.trace` makes it.
        words: how many there are, in all texts.

    Returns:
        As :attr:`Reason.share` says.
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
