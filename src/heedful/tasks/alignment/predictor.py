"""The predictor of alignment runs."""

from collections.abc import Iterable
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.evaluation.aligner import AlignedPair, Aligner, Direction
from heedful.inference.translator import Translator


class AlignmentPredictor(Translator):
    """Aligns the words of pairs with the model of an alignment run."""

    task = "alignment"

    def predict(self, inputs: Iterable[Any]) -> list[AlignedPair]:
        """The links of each pair ``(source, target)``, in the same order.

        Raises:
            UserError: an input is a text instead of a pair.
        """
        pairs = list(inputs)
        if any(isinstance(one, str) for one in pairs):
            raise UserError("predict needs pairs of texts; give a list, [(source, target)]")
        return Aligner([Direction(self, turned=False)]).align([Pair(*one) for one in pairs])
