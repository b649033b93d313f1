"""Text to text: pairs of a text and its summary, a question and its answer, and the like."""

from typing import TYPE_CHECKING

from heedful.tasks.spec import register
from heedful.tasks.translation.spec import TextToTextSpec

if TYPE_CHECKING:
    from heedful.tasks.text_to_text.recipe import TextToTextRecipe


class TextToText(TextToTextSpec):
    """Generates a text from another text."""

    name = "text-to-text"
    place = 2
    command = "translate"

    def recipe_type(self) -> "type[TextToTextRecipe]":
        from heedful.tasks.text_to_text.recipe import TextToTextRecipe

        return TextToTextRecipe


register(TextToText())
