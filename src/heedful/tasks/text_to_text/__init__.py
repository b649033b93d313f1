"""Text to text: pairs of a text and its summary, a question and its answer, and the like."""

from heedful.tasks.pairs.spec import PairSpec
from heedful.tasks.spec import register


class TextToText(PairSpec):
    """Texts into other texts."""

    name = "text-to-text"
    place = 2
    command = "translate"


register(TextToText())
