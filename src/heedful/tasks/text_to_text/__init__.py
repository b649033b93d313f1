"""Text to text: pairs of a text and its summary, a question and its answer, and the like."""

from heedful.tasks.spec import register
from heedful.tasks.translation.spec import TextToTextSpec


class TextToText(TextToTextSpec):
    """Generates a text from another text."""

    name = "text-to-text"
    place = 2
    command = "translate"


register(TextToText())
