"""Numbers for texts and pairs of texts.

Shapes: B rows.
"""

from collections.abc import Iterable
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
class Regressed:
    """The number of one text."""

    value: float | None
    """None for an empty text."""
    windows: int = 1
    """Number of windows; more than 1 if the text is longer than the model's maximum."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields of this class."""
        return dict(vars(self))


class Regressor(TextReader):
    """A predictor of numbers: an encoder with a head of one output, and its vocabulary.

    The output of the head is in units of the standard deviation of the training numbers, from
    their mean. The numbers of a long text are averaged over its windows, which
    :class:`~heedful.inference.text_reader.TextReader` describes.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        mean: mean of the training numbers.
        deviation: their standard deviation, above 0.
        head: the name of the head.
        how: further arguments of :class:`~heedful.inference.text_reader.TextReader`.
    """

    task = "regression"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        *,
        mean: float,
        deviation: float,
        head: str = "regression",
        **how: Any,
    ) -> None:
        super().__init__(model, vocabulary, head=head, **how)
        self.mean, self.deviation = mean, deviation

    def predict(self, texts: Iterable[Text]) -> list[Regressed]:
        """The number of each text, in the order of the texts.

        Raises:
            UserError: a text is not valid Unicode, or pairs are given instead of texts or vice
                versa.
        """
        require_list(texts, "predict")
        rows = [self.rows(text) for text in texts]
        found = []
        for windows in self.outputs(rows, lambda outputs: outputs):
            value = None
            if windows:
                value = self.mean + self.deviation * float(torch.stack(windows).double().mean())
            found.append(Regressed(value, len(windows)))
        if long := sum(one.windows > 1 for one in found):
            self.notify(
                f"{count_phrase(long, 'text')} longer than the model's {self.max_length:,} tokens: "
                "read in windows, whose numbers are averaged"
            )
        if empty := sum(one.value is None for one in found):
            self.notify(f"{count_phrase(empty, 'text')} empty and got no number")
        return found

    def trace(self, text: Text, *, relevance: bool = True) -> Trace:
        """The attention weights of the model for ``text``; what is decided is the number.

        Args:
            text: a text, or a pair, that fits into one window.
            relevance: whether to add attention rollout and gradients.

        Raises:
            UserError: the text is empty or too long.
        """

        def decide(outputs: Tensor) -> tuple[str, Tensor]:
            value = self.mean + self.deviation * outputs[0]
            # A number has no probability; the difference is 0 and has the gradient of the number.
            return f"{float(value.detach()):.4g}", value - value.detach()

        return self.trace_text(text, decide, relevance=relevance)
