"""Classification of texts and of pairs of texts.

Shapes: C classes.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.inference.sliding_windows import count_phrase
from heedful.inference.text_reader import Advance, Row, Text, TextReader
from heedful.inference.trace import Trace
from heedful.models.encoders import HeadedEncoder

LEAST = 1e-45
"""The smallest probability that float32 holds."""


@dataclass(frozen=True)
class Classification:
    """One text and its class."""

    label: str | None
    """The most probable label; None for an empty text."""
    probability: float
    probabilities: dict[str, float]
    """The probabilities of all labels, in the order of the labels."""
    windows: int = 1
    """Number of windows; more than 1 if the text is longer than the model's maximum."""

    @property
    def given(self) -> tuple[str, ...]:
        """The label, if the text has one."""
        return () if self.label is None else (self.label,)

    def log_odds(self, label: str) -> float:
        """ln p(label) − ln p(any other label), in nats.

        The probabilities of the others are summed, because 1 − p loses digits if p is close to 1.
        """
        others = math.fsum(value for name, value in self.probabilities.items() if name != label)
        return math.log(max(self.probabilities[label], LEAST)) - math.log(max(others, LEAST))

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        return dict(vars(self))


class Classifier(TextReader):
    """A predictor that classifies texts: an encoder with a head for classes, and its vocabulary.

    The probabilities of a long text are averaged over its windows, which :class:`TextReader`
    describes. An empty text has no label.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        labels: the names of the classes, in the order of the head's outputs.
        head: the name of the head.
        pairs: whether the inputs are pairs of texts; None accepts both.
        temperature: the logits are divided by it, which changes probabilities but no label, except
            possibly that of a text with several windows, whose probabilities are averaged.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        batch_tokens: maximum number of padded tokens in a batch.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head.
    """

    task = "classification"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        *,
        head: str = "classification",
        pairs: bool | None = None,
        temperature: float = 1.0,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        notify: Callable[[str], None] = notice,
    ) -> None:
        super().__init__(
            model,
            vocabulary,
            head=head,
            pairs=pairs,
            device=device,
            precision=precision,
            batch_tokens=batch_tokens,
            notify=notify,
        )
        self.labels = tuple(labels)
        self.temperature = temperature

    def at(self, temperature: float) -> Self:
        """The same classifier with another temperature."""
        other = copy.copy(self)
        other.temperature = temperature
        return other

    def classify(
        self, texts: Iterable[Text], *, advance: Advance | None = None
    ) -> list[Classification]:
        """The class of each text, in the order of the texts.

        Raises:
            UserError: a text is not valid Unicode, or pairs are given instead of texts or vice
                versa.
        """
        require_list(texts, "classify")
        blocks = self.classify_blocks([list(texts)], advance=advance)
        return [one for block in blocks for one in block]

    def predict(self, texts: Iterable[Text]) -> list[Classification]:
        """The same as :meth:`classify`; every predictor has this method."""
        return self.classify(texts)

    def trace(self, text: Text, *, label: str | None = None, relevance: bool = True) -> Trace:
        """The attention weights of the model for ``text``.

        Args:
            text: a text, or a pair, that fits into one window.
            label: the class to compute gradients for; the most probable one by default.
            relevance: whether to add attention rollout and gradients.

        Returns:
            A trace with the axis "text" (``<s>``, the tokens, ``</s>``, and the same for a second
            text) and further axes of the model; ``decided`` is the label. With ``relevance``, it
            also has attention rollout, attention × gradient, and maps from the axis "decision" to
            the text: the rollout's row, and gradients propagated through the layers.

        Raises:
            UserError: the text is empty or too long, or the label is unknown.
        """
        if label is not None and label not in self.labels:
            raise UserError(f"unknown label '{label}'; known labels are {', '.join(self.labels)}")

        def decide(outputs: Tensor) -> tuple[str, Tensor]:
            scores = (outputs / self.temperature).log_softmax(0)
            best = int(scores.argmax()) if label is None else self.labels.index(label)
            return self.labels[best], scores[best]

        return self.trace_text(text, decide, relevance=relevance)

    def classify_blocks(
        self, blocks: Iterable[Sequence[Text]], *, advance: Advance | None = None
    ) -> Iterator[list[Classification]]:
        """The same as `classify`, block by block; the texts of a block are batched together."""
        counts: Counter[str] = Counter()
        for block in blocks:
            found = self.classify_rows([self.rows(text) for text in block], advance)
            counts["windows"] += sum(one.windows > 1 for one in found)
            counts["empty"] += sum(one.label is None for one in found)
            yield found
        if counts["windows"]:
            self.notify(
                f"{count_phrase(counts['windows'], 'text')} longer than the model's "
                f"{self.max_length:,} tokens: read in windows, whose probabilities are averaged"
            )
        if counts["empty"]:
            self.notify(f"{count_phrase(counts['empty'], 'text')} empty and got no label")

    def classification(self, windows: Sequence[Tensor]) -> Classification:
        """The class of a text from the probabilities ``[C]`` of its windows."""
        if not windows:
            return Classification(None, 0.0, dict.fromkeys(self.labels, 0.0), 0)
        mean = torch.stack(list(windows)).double().mean(0)
        best = int(mean.argmax())
        probabilities = dict(zip(self.labels, mean.tolist(), strict=True))
        return Classification(self.labels[best], float(mean[best]), probabilities, len(windows))

    def classify_rows(
        self, rows: Sequence[Sequence[Row]], advance: Advance | None = None
    ) -> list[Classification]:
        """The class of each text, given the windows from `rows`."""
        found = self.outputs(rows, lambda logits: (logits / self.temperature).softmax(1), advance)
        return [self.classification(own) for own in found]
