"""A description of an image."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.image_spec import ImageSpec
from heedful.tasks.spec import Command, Demo, maps_of, register

if TYPE_CHECKING:
    import torch

    from heedful.data.columns import Codec
    from heedful.evaluation.outcome import Examples, Figure
    from heedful.models import CaptionModel
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.captioning.examples import Described
    from heedful.tasks.captioning.predictor import Captioner
    from heedful.tasks.captioning.recipe import CaptionRecipe
    from heedful.tasks.captioning.training import CaptionTask
    from heedful.tasks.sketch import Sketch


@dataclass(frozen=True)
class CaptionData:
    """The options that describe the data."""

    images: Annotated[
        str | None,
        typer.Option(
            "--images",
            help="Folder that the paths of images are relative to; default: the table's.",
        ),
    ] = None


class Captioning(ImageSpec):
    """One description for each image."""

    name = "captioning"
    place = 61
    command = "caption"
    does = "describes images"
    train_option = "caption"
    corpus = "tables with the path of an image and a caption in each row"
    reading_settings = ("encoding",)

    def data_options(self) -> type[CaptionData]:
        return CaptionData

    def make_demo(self, folder: Path) -> Demo:
        from heedful.tasks.captioning.demonstration import make_demo

        return make_demo(folder)

    def recipe_type(self) -> "type[CaptionRecipe]":
        from heedful.tasks.captioning.recipe import CaptionRecipe

        return CaptionRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.captioning.default_recipe import choose

        return choose(files, **settings)

    def check_files(self, files: Mapping[str, Sequence[str]], recipe: Any) -> None:
        from heedful.data.readers.images import notice_uncaptioned

        data = recipe.data
        tables = [path for part in files.values() for path in part]
        notice_uncaptioned(tables, data.image, data.caption, data.images, data.encoding)

    def known(self, examples: Iterable["Described"], recipe: Any) -> dict[str, Any]:
        from heedful.tasks.captioning.words import collect

        return collect(examples, recipe.data, recipe.model.max_length)

    def codecs(self, known: Mapping[str, Any]) -> "Mapping[str, Codec]":
        from heedful.data import columns
        from heedful.tasks.captioning.words import words_of

        return {"image": columns.image(), "captions": columns.texts(words_of(known).size)}

    def encode(self, example: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
        from heedful.tasks.captioning.words import encode

        row: dict[str, Any] = {"image": example.pixels(known["form"])}
        captions = getattr(example, "captions", None)
        return row if captions is None else {**row, "captions": encode(captions, known)}

    def prepare(
        self, path: Path, recipe: Any, data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        from heedful.runs.recipe import find_data
        from heedful.tasks.captioning.starting import keep_weights, read_weights

        if recipe.data.encoder_weights is not None:
            [file] = find_data([recipe.data.encoder_weights], data_folder)
            keep_weights(path, read_weights(Path(file), recipe))
        return super().prepare(path, recipe, data_folder, start)

    def load_start(self, run: Any, model: Any) -> None:
        from heedful.tasks.captioning.starting import load_kept

        load_kept(run.path, model)
        super().load_start(run, model)

    def fresh_model(self, run: Any) -> "CaptionModel":
        from heedful.models import build_caption_model
        from heedful.tasks.captioning.words import words_of

        known = run.facts["known"]
        shape = self.shape_of(known)
        try:
            return build_caption_model(run.recipe.model, shape, words_of(known).size)
        except ValueError as error:
            raise UserError(f"model.kind = '{run.recipe.model.kind}': {error}") from error

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.captioning.sketch import sketch_caption_model

        return sketch_caption_model(recipe)

    def task_type(self) -> "type[CaptionTask]":
        from heedful.tasks.captioning.training import CaptionTask

        return CaptionTask

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "CaptionTask":
        from heedful.decoding import SearchOptions
        from heedful.tasks.captioning.predictor import find_captions
        from heedful.tasks.captioning.terms import terms_of
        from heedful.tasks.captioning.words import written

        known, greedy = run.facts["known"], SearchOptions(beam=1)

        def describe(images: "torch.Tensor") -> list[str]:
            found = find_captions(model, images, greedy)
            return [written(best.tokens, known) for best, *_ in found]

        return self.task_type()(
            model,
            training,
            terms_of(model, training),
            self.stores(run),
            describe=describe,
            write=lambda tokens: written(tokens, known),
            device=device,
            precision=precision,
        )

    def predictor_type(self) -> "type[Captioner]":
        from heedful.tasks.captioning.predictor import Captioner

        return Captioner

    def facts(self, predictor: Any) -> dict[str, Any]:
        model = predictor.model
        kinds = dict.fromkeys(model.grids, "image")
        return {"maps": maps_of(model, frames="frames", **kinds)}

    def amount(self, run: Any) -> str:
        return f"{run.facts['data']['train']:,} images"

    def weight_name(self, run: Any) -> str:
        return "tokens"

    def figures(
        self, examples: Sequence["Described"], results: Sequence[Any], known: Mapping[str, Any]
    ) -> "Mapping[str, Figure]":
        from heedful.tasks.captioning.figures import caption_figures
        from heedful.tasks.captioning.words import in_words

        outputs = [in_words(one.text, known) for one in results]
        return caption_figures(outputs, _references(examples, known))

    def one_by_one(
        self,
        examples: Sequence[Any],
        outputs: Sequence[str],
        figures: "Mapping[str, Figure]",
        known: Mapping[str, Any],
    ) -> "Examples":
        from heedful.evaluation.outcome import Examples
        from heedful.tasks.captioning.figures import measures
        from heedful.tasks.captioning.words import in_words

        inputs = [self._input_of(one).model_dump_json() for one in examples]
        written = [in_words(one, known) for one in outputs]
        references = _references(examples, known)
        first = [own[0] for own in references]
        return Examples(inputs, first, written, measures(references))

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.captioning.command import CaptionOptions, run

        return [Command(self.command, CaptionOptions, run)]


def _references(examples: Sequence[Any], known: Mapping[str, Any]) -> list[list[str]]:
    from heedful.tasks.captioning.words import in_words

    return [[in_words(caption, known) for caption in one.captions] for one in examples]


register(Captioning())
