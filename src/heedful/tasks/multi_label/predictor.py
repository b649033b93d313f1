"""Any number of labels for texts and pairs of texts.

Shapes: C labels.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.classifier import LEAST
from heedful.inference.sliding_windows import count_phrase
from heedful.inference.text_reader import Advance, Row, Text, TextReader
from heedful.inference.trace import Trace
from heedful.models.encoders import HeadedEncoder
from heedful.models.label_set_layer import LabelSetLayer


@dataclass(frozen=True)
class LabelSet:
    """The labels of one text."""

    labels: tuple[str, ...]
    """Those whose probability reaches the threshold, in the order of the model's labels."""
    probabilities: dict[str, float]
    """The probability of each label of the model; they do not sum to 1."""
    windows: int = 1
    """Number of windows; more than 1 if the text is longer than the model's maximum."""

    @property
    def given(self) -> tuple[str, ...]:
        """The labels."""
        return self.labels

    def log_odds(self, label: str) -> float:
        """ln p(label) − ln(1 − p(label)), in nats."""
        found = self.probabilities[label]
        return math.log(max(found, LEAST)) - math.log(max(1 - found, LEAST))

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields of this class."""
        return {**vars(self), "labels": list(self.labels)}


class MultiLabelClassifier(TextReader):
    """A predictor of sets of labels: an encoder with a head of one output for each label.

    The probability of a label is the sigmoid of its output. The probabilities of a long text are
    averaged over its windows, which :class:`~heedful.inference.text_reader.TextReader` describes.
    An empty text has no labels.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        labels: the names of the labels, in the order of the head's outputs.
        threshold: a label is given if its probability is at least this; the thresholds of the head
            if None.
        separator: stands between the labels of a line of text.
        head: the name of the head.
        how: further arguments of :class:`~heedful.inference.text_reader.TextReader`.
    """

    task = "multi-label"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        *,
        threshold: float | None = None,
        separator: str = ";",
        head: str = "multi-label",
        **how: Any,
    ) -> None:
        super().__init__(model, vocabulary, head=head, **how)
        self.labels, self.separator = tuple(labels), separator
        self._threshold = threshold

    @property
    def layer(self) -> LabelSetLayer:
        """The output layer."""
        return cast(LabelSetLayer, self.model.heads[self.head])

    @property
    def thresholds(self) -> dict[str, float]:
        """The threshold of each label."""
        if self._threshold is not None:
            return dict.fromkeys(self.labels, self._threshold)
        return dict(zip(self.labels, self.layer.thresholds(), strict=True))

    def predict(self, texts: Iterable[Text]) -> list[LabelSet]:
        """The labels of each text, in the order of the texts.

        Raises:
            UserError: a text is not valid Unicode, or pairs are given instead of texts or vice
                versa.
        """
        require_list(texts, "predict")
        return [one for block in self.classify_blocks([list(texts)]) for one in block]

    def classify(self, texts: Iterable[Text]) -> list[LabelSet]:
        """The same as :meth:`predict`, as a classifier with one label for each text has it."""
        return self.predict(texts)

    def classify_blocks(
        self, blocks: Iterable[Sequence[Text]], *, advance: Advance | None = None
    ) -> Iterator[list[LabelSet]]:
        """The same as `predict`, block by block; the texts of a block are batched together."""
        counts: Counter[str] = Counter()
        for block in blocks:
            found = self.classify_rows([self.rows(text) for text in block], advance)
            counts["windows"] += sum(one.windows > 1 for one in found)
            counts["empty"] += sum(not one.windows for one in found)
            yield found
        if long := counts["windows"]:
            self.notify(
                f"{count_phrase(long, 'text')} longer than the model's {self.max_length:,} tokens: "
                "read in windows, whose probabilities are averaged"
            )
        if empty := counts["empty"]:
            self.notify(f"{count_phrase(empty, 'text')} empty and got no labels")

    def classify_rows(
        self, rows: Sequence[Sequence[Row]], advance: Advance | None = None
    ) -> list[LabelSet]:
        """The labels of each text, given its windows."""
        # In float64, so that 1 − p keeps its digits.
        found = self.outputs(rows, lambda logits: logits.cpu().double().sigmoid(), advance)
        return [self._label_set(own) for own in found]

    def _label_set(self, windows: Sequence[Tensor]) -> LabelSet:
        """The labels of a text from the probabilities ``[C]`` of its windows."""
        if not windows:
            return LabelSet((), dict.fromkeys(self.labels, 0.0), 0)
        mean = torch.stack(list(windows)).mean(0).tolist()
        found = LabelSet((), dict(zip(self.labels, mean, strict=True)), len(windows))
        return self.at_thresholds(found)

    def at_thresholds(self, found: LabelSet) -> LabelSet:
        """The labels that the same probabilities give with the thresholds of this predictor."""
        least = self.thresholds
        reached = (name for name, own in found.probabilities.items() if own >= least[name])
        return replace(found, labels=tuple(reached) if found.windows else ())

    def trace(self, text: Text, *, label: str | None = None, relevance: bool = True) -> Trace:
        """The attention weights of the model for ``text``; what is decided is the set of labels.

        Args:
            text: a text, or a pair, that fits into one window.
            label: the label to compute gradients for; the most probable one by default. If it is
                given, it is what is decided.
            relevance: whether to add attention rollout and the gradients of the log-probability of
                the label.

        Raises:
            UserError: the text is empty or too long, or the label is unknown.
        """
        if label is not None and label not in self.labels:
            raise UserError(f"unknown label '{label}'; known labels are {', '.join(self.labels)}")

        def decide(outputs: Tensor) -> tuple[str, Tensor]:
            scores = torch.nn.functional.logsigmoid(outputs)
            if label is not None:
                return label, scores[self.labels.index(label)]
            values = outputs.detach().cpu().double().sigmoid().tolist()
            own = LabelSet((), dict(zip(self.labels, values, strict=True)))
            return ", ".join(self.at_thresholds(own).labels) or "(none)", scores.max()

        return self.trace_text(text, decide, relevance=relevance)
