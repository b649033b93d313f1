"""The recipe of translators."""

from typing import Literal

from heedful.tasks.pairs.recipe import PairRecipe


class TranslationRecipe(PairRecipe):
    """All settings of a run that translates."""

    task: Literal["translation"] = "translation"

    @property
    def keeps_memory(self) -> bool:
        return self.data.keep_memory
