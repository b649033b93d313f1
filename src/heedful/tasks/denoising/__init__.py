"""Denoising: an encoder–decoder learns from plain text to restore what was removed from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import register
from heedful.tasks.translation.spec import TextToTextSpec

if TYPE_CHECKING:
    import torch

    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.denoising.recipe import DenoisingRecipe
    from heedful.tasks.pairs.run import PairRun
    from heedful.training.protocol import Task


class Denoising(TextToTextSpec):
    """Restores the removed spans of a text."""

    name = "denoising"
    place = 3
    command = "translate"
    does = "restores removed spans"

    def recipe_type(self) -> "type[DenoisingRecipe]":
        from heedful.tasks.denoising.recipe import DenoisingRecipe

        return DenoisingRecipe

    def prepare(
        self, path: Path, recipe: Any, data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        from heedful.tasks.denoising.preparation import prepare_denoising_run

        return prepare_denoising_run(path, recipe, data_folder, start)

    def data_hashes(self, recipe: Any, data_folder: Path | None) -> dict[str, list[str]]:
        from heedful.tasks.preparation import recipe_hashes

        data = recipe.data
        return recipe_hashes(data.files, recipe.vectors, data_folder, files_of=data.files_of)

    def build_task(
        self, run: "PairRun", model: Any, training: Any, device: "torch.device", precision: str
    ) -> "Task":
        from heedful.tasks.denoising.preparation import noisy_batches
        from heedful.tasks.translation.building import build_task

        batches = noisy_batches(run, training.batch_tokens)
        return build_task(run, model, training, device, precision, batches)

    def amount(self, run: "PairRun") -> str:
        return f"{run.facts['data']['train_pairs']:,} texts"


register(Denoising())
