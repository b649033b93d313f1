"""Answers to questions that are spans of a text: the predictor.

Shapes: B windows, L tokens of a window, N best spans.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.notices import counted_notice, notice
from heedful.data.token_offsets import TokenLocator, WholeWords
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import Item, token_batches
from heedful.inference.inference_mode import ready
from heedful.inference.sliding_windows import count_phrase
from heedful.inference.span_trace import trace_window
from heedful.inference.span_windows import Window, rows_of, windows_of
from heedful.inference.text_reader import Advance, check_head
from heedful.inference.trace import Trace
from heedful.models.encoders import HeadedEncoder, Sequences
from heedful.models.span_layer import FAR_BELOW, best_spans, log_probabilities

_KEPT = 5
"""Best spans of a window."""


class Question(NamedTuple):
    """A question and the text that is searched for its answer."""

    question: str
    context: str


@dataclass(frozen=True)
class Candidate:
    """A possible answer."""

    text: str
    start: int
    """Index of its first character in the text."""
    end: int
    """Index after its last character."""
    probability: float
    """``P(start) · P(end)`` in its window, of the span of tokens that was extended."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields of this class."""
        return dict(vars(self))


@dataclass(frozen=True)
class SpanAnswer:
    """The answer to one question."""

    answer: str
    """Empty if the text has no answer, or if the question and the text are empty."""
    best: Candidate | None
    """The best span, even if ``answer`` is empty; None if there is none."""
    no_answer: float
    """The score of "no answer" minus that of the best span, in nats."""
    candidates: tuple[Candidate, ...] = field(repr=False, default=())
    """The best spans, best first."""
    windows: int = 1
    """Number of windows in which the text was read."""
    window: int = 1
    """The window of the best span, from 1."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/span-answers.md."""
        best = self.best
        return {
            "answer": self.answer,
            "start": best.start if best and self.answer else None,
            "end": best.end if best and self.answer else None,
            "probability": best.probability if best else None,
            "no_answer": self.no_answer,
            "candidates": [one.to_json() for one in self.candidates],
            "windows": self.windows,
            "window": self.window,
        }


class Found(NamedTuple):
    """What was read in one window."""

    nothing: float
    """``log P(start = BEGIN) + log P(end = BEGIN)``."""
    spans: list[tuple[float, int, int]]
    """The best spans: score, index of the first and of the last token in the text."""
    loss: float
    """−log-probability of the right boundaries, averaged over the two; 0 if none are given."""


class SpanReader:
    """A predictor of answers: an encoder with a head for spans, and its vocabulary.

    A text longer than the model reads is read in windows that overlap; the question is whole in
    each of them. The answer is the span with the highest probability in its window, of all windows,
    extended to whole words (not in scripts without spaces between words).
    The score of "no answer" is its lowest one over all windows.

    Args:
        model: the encoder and its heads.
        vocabulary: text to tokens.
        may_refuse: whether a question may have no answer: then the answer is empty where the score
            of "no answer" is above ``threshold``.
        threshold: that of the head, chosen by validation, if None.
        overlap: least number of tokens that neighbouring windows share.
        longest: maximum tokens of an answer.
        head: the name of the head.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16 or float16.
        batch_tokens: maximum number of padded tokens in a batch.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        ValueError: the model has no such head, or no states of tokens.
    """

    task = "answer-spans"

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        *,
        may_refuse: bool,
        overlap: int,
        longest: int,
        threshold: float | None = None,
        head: str = "answer-spans",
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        notify: Callable[[str], None] = notice,
    ) -> None:
        check_head(model, head)
        if model.encoder.dim is None:
            raise ValueError("this encoder gives tokens no vectors of their own")
        self.model, self.vocabulary, self.head = model, vocabulary, head
        self.locate = TokenLocator(vocabulary)
        self.may_refuse, self.overlap, self.longest = may_refuse, overlap, longest
        self._threshold = threshold
        self.device, self.precision = torch.device(device), precision
        self.batch_tokens, self.notify = batch_tokens, notify
        self.max_length = model.max_length

    @property
    def threshold(self) -> float:
        """The score of "no answer" above which the answer is empty."""
        if self._threshold is not None:
            return self._threshold
        head: Any = self.model.heads[self.head]
        return float(head.threshold)

    def predict(
        self,
        questions: Iterable[Question | tuple[str, str]],
        *,
        advance: Advance | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[SpanAnswer]:
        """The answer to each question, in order; empty for an empty question about an empty text.

        Args:
            questions: with their texts.
            advance: called with the number of questions that are finished.
            numbers: of the questions, for messages; by default their places, from 1.

        Raises:
            UserError: a question or its text is empty, or a question leaves no room for the text.
        """
        asked = [Question(*one) for one in questions]
        named = range(1, len(asked) + 1) if numbers is None else numbers
        windows = [self.windows_of(*each) for each in zip(asked, named, strict=True)]
        found = self.read(windows, advance=advance)
        answers = list(map(self.answer, asked, windows, found))
        long = sum(len(own) > 1 for own in windows)
        counted_notice(self.notify, self._long, long)
        return answers

    def _long(self, long: int) -> str:
        return (
            f"{count_phrase(long, 'text')} longer than the model's {self.max_length:,} tokens: "
            "read in windows, and the best answer of all is given"
        )

    def windows_of(self, asked: Question, number: int = 1) -> list[Window]:
        """The windows of a question and its text.

        Raises:
            UserError: one of the two is empty, or the question leaves no room for the text.
        """
        if not asked.question.strip() and not asked.context.strip():
            return []
        for what, text in (("question", asked.question), ("text", asked.context)):
            if not text.strip():
                raise UserError(
                    f"question {number}: the {what} is empty; give a question and a text"
                )
        question = self.vocabulary.encode(asked.question)
        context = self.locate(asked.context).tokens
        try:
            return windows_of(question, context, self.max_length, self.overlap)
        except UserError as error:
            raise UserError(f"question {number}: {error}") from error

    def trace(self, asked: Question | tuple[str, str], *, relevance: bool = True) -> Trace:
        """The attention weights of the model in the window of the best answer.

        What is decided are the first and the last token of that answer. The map "answer" has the
        probability of each token of the window to be the first or the last one.

        Raises:
            UserError: the question or its text is empty, or the question is too long.
        """
        asked = Question(*asked)
        windows = self.windows_of(asked)
        if not windows:
            raise UserError("the question is empty; give a question and a text")
        answer = self.answer(asked, windows, self.read([windows])[0])
        return trace_window(self, windows[max(answer.window, 1) - 1], asked, relevance=relevance)

    def read(
        self,
        windows: Sequence[Sequence[Window]],
        right: Sequence[Sequence[tuple[int, int]]] | None = None,
        advance: Advance | None = None,
    ) -> list[list[Found]]:
        """What is found in each window of each question.

        Args:
            windows: the windows of each question.
            right: the right boundaries in each window, as positions in its row, for the loss.
            advance: called with the number of questions that are finished.
        """
        found: list[list[Found | None]] = [[None] * len(own) for own in windows]
        items = [
            Item(line, part, [*one.row.first, *(one.row.second or [])])
            for line, own in enumerate(windows)
            for part, one in enumerate(own)
        ]
        missing = [len(own) for own in windows]
        with ready(self.model, self.device, self.precision):
            for batch in token_batches(items, 1, self.batch_tokens):
                chosen = [windows[item.line][item.part] for item in batch]
                scores = self.scores(rows_of(chosen, self.device))
                wanted = None if right is None else [right[i.line][i.part] for i in batch]
                for item, own in zip(batch, self._found(scores, chosen, wanted), strict=True):
                    found[item.line][item.part] = own
                    missing[item.line] -= 1
                if advance is not None:
                    advance(sum(not missing[line] for line in {item.line for item in batch}))
        return [[one for one in own if one is not None] for own in found]

    def scores(self, rows: Sequences) -> Tensor:
        """Log-probabilities of starts and ends ``[B, L, 2]``."""
        logits = self.model.heads[self.head](self.model.encoder(rows)).float()
        return log_probabilities(logits, rows)

    def _found(
        self,
        scores: Tensor,
        windows: Sequence[Window],
        right: Sequence[tuple[int, int]] | None,
    ) -> list[Found]:
        best = [one.tolist() for one in best_spans(scores, self.longest, _KEPT)]
        nothing = scores[:, 0].sum(-1).tolist()
        losses = [0.0] * len(windows)
        if right is not None:
            wanted = torch.tensor(right, device=scores.device).unsqueeze(1)  # [B, 1, 2]
            losses = (-scores.double().gather(1, wanted).mean((1, 2))).tolist()
        found = []
        for row, window in enumerate(windows):
            spans_of = [
                (score, start - window.shift, end - window.shift)
                for score, start, end in zip(*(own[row] for own in best), strict=True)
                if score > FAR_BELOW / 2
            ]
            found.append(Found(nothing[row], spans_of, losses[row]))
        return found

    def answer(
        self, asked: Question, windows: Sequence[Window], found: Sequence[Found]
    ) -> SpanAnswer:
        """The answer of what :meth:`read` found in the windows of a question."""
        if not found:
            return SpanAnswer("", None, 0.0, windows=0, window=0)
        ranked = sorted(
            ((one, part) for part, own in enumerate(found) for one in own.spans),
            key=lambda pair: -pair[0][0],
        )
        check_cancelled()
        located, words = self.locate(asked.context), WholeWords(asked.context)
        seen: set[tuple[int, int]] = set()
        candidates: dict[tuple[int, int], Candidate] = {}
        (highest, *_), window = ranked[0]
        for (score, first, last), part in ranked:
            place = words(located.ranges[first][0], located.ranges[last][1])
            one = None if place in seen else _candidate(asked.context, *place, score)
            seen.add(place)
            if one is None:
                continue
            if not candidates:
                highest, window = score, part
            candidates.setdefault((one.start, one.end), one)
            if len(candidates) == _KEPT:
                break
        best = next(iter(candidates.values()), None)
        nothing = min(one.nothing for one in found) - highest
        refused = best is None or (self.may_refuse and nothing > self.threshold)
        return SpanAnswer(
            "" if best is None or refused else best.text,
            best,
            nothing,
            tuple(candidates.values()),
            len(windows),
            window + 1,
        )


def _candidate(context: str, start: int, end: int, score: float) -> Candidate | None:
    """A span of characters without white space around; None if there is nothing else."""
    text = context[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    if not text:
        return None
    return Candidate(text, start, start + len(text), float(torch.tensor(score).exp()))
