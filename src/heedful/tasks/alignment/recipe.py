"""The recipe of word aligners."""

from typing import ClassVar, Literal

from pydantic import model_validator

from heedful.tasks.pairs.recipe import PairRecipe


class AlignmentRecipe(PairRecipe):
    """All settings of a run that aligns words."""

    model_generates: ClassVar[bool] = False
    task: Literal["alignment"] = "alignment"

    @model_validator(mode="after")
    def _aligns(self) -> "AlignmentRecipe":
        if self.training.choose_by != "loss":
            raise ValueError("task = 'alignment' has no translations: training.choose_by = 'loss'")
        if self.vectors is not None and self.vectors.target:
            raise ValueError("the aligner embeds the source only: leave out vectors.target")
        return self
