"""The recipe of models that generate a text from a text."""

from typing import Literal

from heedful.tasks.pairs.recipe import PairRecipe


class TextToTextRecipe(PairRecipe):
    """All settings of a run for other pairs than translations.

    A text and its summary, a question and its answer, a turn of a dialogue and the next.
    """

    task: Literal["text-to-text"] = "text-to-text"
