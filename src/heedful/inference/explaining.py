"""Explanations of a classification: attention to each word, and the effect of leaving it out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from heedful.data.vocabulary import Vocabulary
from heedful.inference.text_reader import Row, Text
from heedful.inference.trace import Trace
from heedful.inference.tracing import DECISION


class Labelled(Protocol):
    """What a classifier finds in one text."""

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each label."""
        ...

    @property
    def given(self) -> tuple[str, ...]:
        """The labels that the text gets."""
        ...

    def log_odds(self, label: str) -> float:
        """The log-odds of a label, in nats."""
        ...

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        ...


LabelledT = TypeVar("LabelledT", bound=Labelled)
LabelledT_co = TypeVar("LabelledT_co", bound=Labelled, covariant=True)


class Labeller(Protocol[LabelledT_co]):
    """A classifier that can be explained: one label for a text, or any number."""

    vocabulary: Vocabulary

    def rows(self, text: Text) -> list[Row]:
        """The windows of a text."""
        ...

    def classify_rows(self, rows: Sequence[Sequence[Row]]) -> Sequence[LabelledT_co]:
        """What is found in each text, given its windows."""
        ...

    def trace(self, text: Text, *, label: str | None = None) -> Trace:
        """The attention weights for a text, with the gradients of a label."""
        ...


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
class Explanation(Generic[LabelledT]):
    """What is found in a text, and the effect of each of its words on one label."""

    classification: LabelledT
    label: str
    """The label that is explained."""
    words: tuple[Reason, ...]
    """The words in order; those of both texts of a pair."""
    trace: Trace = field(repr=False)

    def __str__(self) -> str:
        """The label with its probability, then one line per word with its ``fall``."""
        probability = self.classification.probabilities[self.label]
        lines = [f"{one.fall:+.4f}  {one.word}" for one in self.words]
        return "\n".join([f"{self.label}  {probability:.4f}", *lines])

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        words = [dict(vars(one)) for one in self.words]
        return {**self.classification.to_json(), "words": words}


def explain(
    classifier: Labeller[LabelledT], text: Text, *, label: str | None = None
) -> Explanation[LabelledT]:
    """What is found in ``text``, and the words that support one label.

    Args:
        classifier: the predictor.
        text: a text, or a pair, that fits into one window.
        label: the label to explain; the most probable one by default.

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
    found = whole.probabilities
    chosen = max(found, key=found.__getitem__) if label is None else label
    shares = word_shares(trace, len(words))
    falls = [whole.probabilities[chosen] - one.probabilities[chosen] for one in left]
    evidence = [whole.log_odds(chosen) - one.log_odds(chosen) for one in left]
    reasons = map(Reason, words, falls, evidence, shares)
    return Explanation(whole, chosen, tuple(reasons), trace)


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


def _without(classifier: Labeller[Any], row: Row, word: int) -> Row:
    """A row without one of its words, counted through both texts."""
    indices = classifier.vocabulary.word_indices(row.first)
    kept = [token for token, own in zip(row.first, indices, strict=True) if own != word]
    if row.second is None:
        return Row(kept, None)
    before = max(indices, default=-1) + 1
    of_second = classifier.vocabulary.word_indices(row.second)
    second = zip(row.second, of_second, strict=True)
    return Row(kept, [token for token, own in second if own + before != word or own < 0])
