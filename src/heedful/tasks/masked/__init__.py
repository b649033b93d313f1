"""Masked language model: hidden tokens of a text, and whether a sentence follows another."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import register
from heedful.tasks.texts.spec import EncoderSpec

if TYPE_CHECKING:
    from heedful.tasks.texts.recipe import MaskedRecipe


class Masked(EncoderSpec):
    """What may stand at the hidden places of a text."""

    name = "masked"
    place = 7
    command = "fill"

    def recipe_type(self) -> "type[MaskedRecipe]":
        from heedful.tasks.texts.recipe import MaskedRecipe

        return MaskedRecipe

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.texts.loading import load_filler

        return load_filler(run, **how)

    def write_result(self, result: Any) -> str:
        return str(result.text)


register(Masked())
