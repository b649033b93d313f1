"""Any number of labels for texts and pairs of texts.

Shapes: C labels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.sliding_windows import count_phrase
from heedful.inference.text_reader import Text, TextReader
from heedful.inference.trace import Trace
from heedful.models.encoders import HeadedEncoder


@dataclass(frozen=True)
class LabelSet:
    """The labels of one text."""

    labels: tuple[str, ...]
    """Those whose probability reaches the threshold, in the order of the model's labels."""
    probabilities: dict[str, float]
    """The probability of each label of the model; they do not sum to 1."""
    windows: int = 1
    """Number of windows; more than 1 if the text is longer than the model's maximum."""

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
        threshold: a label is given if its probability is at least this.
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
        threshold: float = 0.5,
        head: str = "multi-label",
        **how: Any,
    ) -> None:
        super().__init__(model, vocabulary, head=head, **how)
        self.labels, self.threshold = tuple(labels), threshold

    def predict(self, texts: Iterable[Text]) -> list[LabelSet]:
        """The labels of each text, in the order of the texts.

        Raises:
            UserError: a text is not valid Unicode, or pairs are given instead of texts or vice
                versa.
        """
        require_list(texts, "predict")
        rows = [self.rows(text) for text in texts]
        found = [self._label_set(own) for own in self.outputs(rows, torch.sigmoid)]
        if long := sum(one.windows > 1 for one in found):
            self.notify(
                f"{count_phrase(long, 'text')} longer than the model's {self.max_length:,} tokens: "
                "read in windows, whose probabilities are averaged"
            )
        if empty := sum(not one.windows for one in found):
            self.notify(f"{count_phrase(empty, 'text')} empty and got no labels")
        return found

    def _label_set(self, windows: Sequence[Tensor]) -> LabelSet:
        """The labels of a text from the probabilities ``[C]`` of its windows."""
        if not windows:
            return LabelSet((), dict.fromkeys(self.labels, 0.0), 0)
        mean = torch.stack(list(windows)).double().mean(0).tolist()
        probabilities = dict(zip(self.labels, mean, strict=True))
        given = tuple(label for label, own in probabilities.items() if own >= self.threshold)
        return LabelSet(given, probabilities, len(windows))

    def trace(self, text: Text, *, relevance: bool = True) -> Trace:
        """The attention weights of the model for ``text``; what is decided is the set of labels.

        Args:
            text: a text, or a pair, that fits into one window.
            relevance: whether to add attention rollout and the gradients of the log-probability of
                the most probable label.

        Raises:
            UserError: the text is empty or too long.
        """

        def decide(outputs: Tensor) -> tuple[str, Tensor]:
            chosen = (outputs.sigmoid() >= self.threshold).nonzero()[:, 0].tolist()
            name = ", ".join(self.labels[one] for one in chosen) or "(none)"
            return name, torch.nn.functional.logsigmoid(outputs.max())

        return self.trace_text(text, decide, relevance=relevance)
