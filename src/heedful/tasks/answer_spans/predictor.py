"""The predictor of answers for the command line, the server and Python."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.json_models import read_object
from heedful.data.examples import require_list
from heedful.inference.span_reader import Question, SpanAnswer, SpanReader
from heedful.inference.text_reader import Advance
from heedful.inference.trace import Trace
from heedful.tasks.answer_spans.examples import AskedOfText

Asked = AskedOfText | Question | tuple[str, str] | Mapping[str, str]
"""A question and its text: an object, a pair, or a dictionary with ``question`` and ``context``."""


class SpanPredictor(SpanReader):
    """A :class:`~heedful.inference.span_reader.SpanReader` that also reads JSON objects."""

    def predict(
        self,
        questions: Iterable[Asked],
        *,
        advance: Advance | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[SpanAnswer]:
        """The answer to each question, in order.

        Args:
            questions: with their texts.
            advance: called with the number of questions that are finished.
            numbers: of the questions, for messages; by default their places, from 1.

        Raises:
            UserError: a question or its text is empty, or a question leaves no room for the text.
        """
        require_list(questions, "predict", '[("Who?", text)]')
        asked = list(map(asked_of, questions))
        return super().predict(asked, advance=advance, numbers=numbers)

    def trace(self, asked: Asked, *, relevance: bool = True) -> Trace:
        return super().trace(asked_of(asked), relevance=relevance)


def asked_of(given: Any) -> Question:
    """A question from what a caller gives.

    Raises:
        UserError: a dictionary has no question or text, or other keys; or a string is given.
    """
    if isinstance(given, Mapping):
        given = read_object(AskedOfText, dict(given), "the input")
    if isinstance(given, AskedOfText):
        return Question(given.question, given.context)
    if isinstance(given, str):
        raise UserError("a question has no text; give a question and a text")
    return Question(*given)
