"""Training on the boundaries of answers.

Shapes: B rows, L tokens of a row.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from heedful.basics.device import autocast
from heedful.data.batching import FEWEST
from heedful.data.examples import SpanQuestion
from heedful.data.positions import SINGLE, Position, Rank
from heedful.evaluation.span_answers import Scores, best_threshold, score_answer, summary
from heedful.inference.span_reader import Question, SpanAnswer, SpanReader
from heedful.inference.span_windows import answer_in, right_in
from heedful.models.encoders import HeadedEncoder
from heedful.models.span_layer import FAR_BELOW, answer_places
from heedful.tasks.answer_spans.batches import SpanBatch, SpanBatches
from heedful.training.distillation import wide
from heedful.training.protocol import Loss, Sample, TaskDefaults, Validation


class SpanTask(TaskDefaults):
    """The training task of answers in texts.

    The loss of a window is the mean of the cross-entropies of start and end, over BEGIN and the
    tokens of the text (Devlin et al. 2019, section 4.2).

    Args:
        model: an encoder with the reader's head.
        train: the training windows.
        validation: questions to validate on; may be empty.
        reader: answers the validation questions with ``model``.
        device: where the model is.
        precision: precision of matrix products in training; validation is in float32.
        samples: number of answers shown at validation.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: SpanBatches,
        validation: Sequence[SpanQuestion],
        reader: SpanReader,
        *,
        device: torch.device,
        precision: str = "float32",
        samples: int = 3,
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.validation = train, validation
        self.reader, self.head = reader, reader.head
        self.device, self.precision, self.samples = device, precision, samples

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, SpanBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: SpanBatch) -> Loss:
        """The summed loss of the windows."""
        with autocast(self.device, self.precision):
            logits = self.model.heads[self.head](self.model.encoder(batch.rows))
        allowed = answer_places(batch.rows).unsqueeze(-1)
        scores = wide(logits).masked_fill(~allowed, FAR_BELOW)  # [B, L, 2]
        total = F.cross_entropy(scores, batch.boundaries, reduction="sum") / 2
        return Loss(total, {"loss": total.detach()})

    def split(self, batch: SpanBatch, count: int, fewest: int = FEWEST) -> list[SpanBatch]:
        """Split the rows."""
        return batch.split(count, fewest)

    def validate(self) -> Validation:
        """``loss`` per window (nats), exact match and F1 (percent).

        If questions may have no answer, the threshold with the best F1 is stored in the head.
        """
        if not self.validation:
            return Validation({}, [])
        reader = self.reader
        asked = [Question(one.question, one.context) for one in self.validation]
        windows = [reader.windows_of(one, number) for number, one in enumerate(asked, start=1)]
        answers = [answer_in(one, reader.locate(one.context))[0] for one in self.validation]
        right = [
            [right_in(answer, window) for window in own]
            for answer, own in zip(answers, windows, strict=True)
        ]
        found = reader.read(windows, right)
        losses = [one.loss for own in found for one in own]
        given = [reader.answer(*each) for each in zip(asked, windows, found, strict=True)]
        if reader.may_refuse:
            self._store(choose_threshold(self.validation, given))
            given = [reader.answer(*each) for each in zip(asked, windows, found, strict=True)]
        scores = scores_of(self.validation, [one.answer for one in given])
        figures = {
            "loss": sum(losses) / len(losses),
            **summary(scores, [bool(one.answers) for one in self.validation]),
        }
        shown = [
            Sample(example.question, one.answer, _right(example))
            for example, one in zip(self.validation[: self.samples], given, strict=False)
        ]
        return Validation(figures, shown)

    def _store(self, threshold: float) -> None:
        head: Any = self.model.heads[self.head]
        head.threshold.fill_(threshold)


def scores_of(examples: Sequence[SpanQuestion], answers: Sequence[str]) -> list[Scores]:
    """The scores of the answers to questions."""
    return [
        score_answer(answer, [text for text, _ in example.answers])
        for example, answer in zip(examples, answers, strict=True)
    ]


def choose_threshold(examples: Sequence[SpanQuestion], found: Sequence[SpanAnswer]) -> float:
    """The threshold of "no answer" with the best F1 on these questions.

    It is in the middle between the scores of two questions, so that rounding changes no answer.
    """
    nothing = [one.no_answer for one in found]
    scores = scores_of(examples, [one.best.text if one.best else "" for one in found])
    answerable = [bool(one.answers) for one in examples]
    best = best_threshold(nothing, [one.f1 for one in scores], answerable).value
    above = [one for one in nothing if one > best]
    return (best + min(above)) / 2 if above else best + 1.0


def _right(example: SpanQuestion) -> str:
    return " / ".join(dict.fromkeys(text for text, _ in example.answers)) or "(no answer)"
