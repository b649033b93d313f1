"""Tagging: a tag for each word of a sentence."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Command, Opening, Panel, register
from heedful.tasks.texts.spec import EncoderSpec

if TYPE_CHECKING:
    from torch import nn

    from heedful.data.examples import Tagged
    from heedful.runs.run import Run
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.texts.evaluation_options import TextEvaluation
    from heedful.tasks.texts.examples import Examples
    from heedful.tasks.texts.part import Training
    from heedful.tasks.texts.recipe import TaggingRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import TextScore
    from heedful.training.protocol import Task


class Tagging(EncoderSpec):
    """A tag for each word."""

    name = "tagging"
    place = 5
    command = "tag"
    does = "tags"
    panel = Panel("tag", "Tag")
    train_option = "tag"
    corpus = "CoNLL-U"
    reading_settings = ("encoding",)

    def data_options(self) -> type[Any]:
        from heedful.tasks.texts.data_options import TaggedColumn

        return TaggedColumn

    def recipe_type(self) -> "type[TaggingRecipe]":
        from heedful.tasks.texts.recipe import TaggingRecipe

        return TaggingRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.texts.default_recipe import choose_tagging

        return choose_tagging(files, **settings)

    def weight_name(self, run: "Run") -> str:
        return "words"

    def encode(
        self, folder: Path, settings: Any, examples: "Examples", vocabulary: Any, recipe: Any
    ) -> dict[str, Any]:
        """Write the encoded training examples; returns facts about them."""
        from heedful.tasks.tagging.head import encode

        return encode(folder, examples, vocabulary, recipe.max_tokens)

    def layers(
        self, name: str, settings: Any, encoder: Any, labels: int, recipe: Any
    ) -> "dict[str, nn.Module]":
        """The modules of the head."""
        from heedful.tasks.tagging.head import layers

        return layers(name, encoder, labels, recipe)

    def build_part(self, name: str, settings: Any, training: "Training") -> "Task":
        """The task for the training loop."""
        from heedful.tasks.tagging.head import build_part

        return build_part(name, training)

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.texts.loading import load_tagger

        return load_tagger(run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        return {"head": head, "tags": run.labels(head)}

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.tagging.endpoints import ENDPOINTS

        return ENDPOINTS

    def facts(self, predictor: Any) -> dict[str, Any]:
        return {**super().facts(predictor), "labels": list(predictor.tags)}

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        return (super().traced(source, target)[0].split(),)

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["Tagged"]:
        return run.tagged(name, part)

    def score(
        self,
        run: "TextRun",
        name: str,
        examples: Sequence[Any],
        options: "TextEvaluation",
        opening: Opening,
    ) -> "TextScore":
        from heedful.tasks.tagging.evaluation import score_tags

        predictor = opening.load(run.path, head=name)
        return score_tags(name, predictor, examples, max(options.sentences, 0))

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.tagging.command import Tag, run

        return [Command(self.command, Tag, run)]

    def write_result(self, result: Any) -> str:
        return " ".join(result.tags)


register(Tagging())
