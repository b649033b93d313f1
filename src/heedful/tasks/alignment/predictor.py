"""An aligner, opened for use."""

from collections.abc import Iterable
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.evaluation.aligner import AlignedPair, Aligner, Direction
from heedful.inference.translator import Translator


class AlignmentPredictor(Translator):
    """The model of a run for alignment, which links the words of pairs."""

    task = "alignment"

    def predict(self, inputs: Iterable[Any]) -> list[AlignedPair]:
        """The links of each pair ``(source, target)``, in their order.

        Raises:
            UserError: a text is given where a pair is needed.
        """
        given = list(inputs)
        if any(isinstance(one, str) for one in given):
            raise UserError("predict takes pairs of texts; give a list, [(source, target)]")
        return Aligner([Direction(self, turned=False)]).align([Pair(*one) for one in given])
