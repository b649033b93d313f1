"""The spec of tasks whose input is a text or a pair of texts."""

from collections.abc import Sequence
from typing import Any

from pydantic import StrictStr

from heedful.basics.errors import UserError
from heedful.tasks.spec import Pair
from heedful.tasks.texts.spec import HeadSpec


class PairSpec(HeadSpec):
    """A task whose inputs are texts or pairs of texts; a TAB separates the texts of a line."""

    def input_type(self) -> Any:
        return StrictStr | Pair

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        return (source if target is None else (source, target),)

    def read_input(self, line: str) -> Any:
        first, tab, second = line.partition("\t")
        return (first, second) if tab else first

    def predict_next(
        self, predictor: Any, inputs: Sequence[Any], first: int, lines: Sequence[int]
    ) -> Sequence[Any]:
        texts = inputs
        if predictor.pairs is not None:
            given = (one if isinstance(one, str) else "\t".join(one) for one in inputs)
            texts = [
                text_of_line(line, predictor.pairs, number)
                for line, number in zip(given, lines, strict=True)
            ]
        return super().predict_next(predictor, texts, first, lines)


def text_of_line(line: str, pairs: bool | None, number: int) -> str | tuple[str, str]:
    """The text of a line, or its two texts for a model of pairs.

    Args:
        line: the line.
        pairs: whether the model reads pairs; if it may read both, the line is one text.
        number: of the line, for messages.

    Raises:
        UserError: a line for a model of pairs is not empty and has not one TAB.

    Example:
        >>> text_of_line("The dog sleeps.\\tNothing moves.", True, 1)
        ('The dog sleeps.', 'Nothing moves.')
    """
    if not pairs:
        return line
    if not line.strip():
        return "", ""
    first, *others = line.split("\t")
    if len(others) != 1:
        raise UserError(
            f"line {number}: {len(others)} TABs; this model needs one TAB between two texts"
        )
    return first, others[0]
