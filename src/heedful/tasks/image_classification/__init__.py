"""The label of an image."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.tasks.image_spec import ImageSpec
from heedful.tasks.spec import Command, Opening, maps_of, register

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from heedful.data.columns import Codec
    from heedful.evaluation.calibration import Calibration
    from heedful.evaluation.outcome import Figure
    from heedful.models import ImageModel
    from heedful.tasks.calibrating import Calibrated
    from heedful.tasks.image_classification.examples import Named
    from heedful.tasks.image_classification.predictor import ImageClassifier
    from heedful.tasks.image_classification.recipe import ImageRecipe
    from heedful.tasks.image_classification.training import ImageTask
    from heedful.tasks.sketch import Sketch


class ImageClassification(ImageSpec):
    """One label for each image."""

    name = "image-classification"
    place = 60
    command = "classify-images"
    does = "classifies images"
    train_option = "classify-images"
    corpus = "a folder with a folder of images for each label, or a table with paths and labels"
    reading_settings = ("encoding",)
    reads_folders = True

    def recipe_type(self) -> "type[ImageRecipe]":
        from heedful.tasks.image_classification.recipe import ImageRecipe

        return ImageRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.image_classification.default_recipe import choose

        return choose(files, **settings)

    def files_of(self, folder: str) -> "list[Path]":
        from heedful.data.readers.images import image_files

        return image_files(folder)

    def known(self, examples: Iterable["Named"], recipe: Any) -> dict[str, Any]:
        labels = {one.label for one in examples}
        if len(labels) < 2:
            raise UserError(
                f"all training images have the label {', '.join(labels) or '(none)'}; there must "
                "be at least two labels"
            )
        return {"labels": sorted(labels), "form": list(recipe.data.form)}

    def codecs(self, known: Mapping[str, Any]) -> "Mapping[str, Codec]":
        from heedful.data import columns

        return {"image": columns.image(), "label": columns.label(len(known["labels"]) + 1)}

    def encode(self, example: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
        row: dict[str, Any] = {"image": example.pixels(known["form"])}
        label = getattr(example, "label", None)
        if label is None:
            return row
        labels = known["labels"]
        return {**row, "label": labels.index(label) if label in labels else len(labels)}

    def fresh_model(self, run: Any) -> "ImageModel":
        from heedful.models import build_image_model

        known = run.facts["known"]
        shape = self.shape_of(known)
        try:
            return build_image_model(run.recipe.model, shape, len(known["labels"]))
        except ValueError as error:
            raise UserError(f"model.kind = '{run.recipe.model.kind}': {error}") from error

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.image_classification.sketch import sketch_image_model

        return sketch_image_model(recipe)

    def task_type(self) -> "type[ImageTask]":
        from heedful.tasks.image_classification.training import ImageTask

        return ImageTask

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "ImageTask":
        from heedful.data.store import Store

        train, held_out = (Store.open(run.path / "data" / part) for part in ("train", "validation"))
        stores = (train, held_out if len(held_out) else None)
        labels = len(run.facts["known"]["labels"])
        made = self.task_type()
        return made(model, training, labels, stores, device=device, precision=precision)

    def predictor_type(self) -> "type[ImageClassifier]":
        from heedful.tasks.image_classification.predictor import ImageClassifier

        return ImageClassifier

    def load(self, run: "str | Path", *, checkpoint: str | int | None = None, **how: Any) -> Any:
        from heedful.runs.calibration import temperature_of
        from heedful.runs.opening import open_run

        made = super().load(run, checkpoint=checkpoint, **how)
        made.temperature = temperature_of(open_run(run), self.name, checkpoint)
        return made

    def calibrate(self, run: Any, head: str | None, opening: Opening) -> "Calibrated":
        from heedful.tasks.image_classification.calibration import calibrate_run

        self.refuse_head(run.path, head)
        return calibrate_run(self, run, opening)

    def calibration(self, run: Any, head: str | None, opening: Opening) -> "Calibration":
        from heedful.tasks.image_classification.calibration import calibration_of_run

        self.refuse_head(run.path, head)
        return calibration_of_run(self, run, opening)

    def figures(
        self, examples: Sequence[Any], results: Sequence[Any], known: Mapping[str, Any]
    ) -> "Mapping[str, Figure]":
        from heedful.tasks.image_classification.calibration import calibration_of

        errors = calibration_of(results, [one.label for one in examples]).figures()
        return {**super().figures(examples, results, known), **errors}

    def facts(self, predictor: Any) -> dict[str, Any]:
        model = predictor.model
        kinds = dict.fromkeys((*model.grids, "places"), "image")
        return {"maps": maps_of(model, **kinds), "labels": predictor.known["labels"]}

    def reference(self, example: "Named") -> str:
        return example.label

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.image_classification.command import ImageOptions, run

        return [Command(self.command, ImageOptions, run)]


register(ImageClassification())
