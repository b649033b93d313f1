"""Tagging: a tag for each word of a sentence."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.tasks.spec import Command, Panel, register
from heedful.tasks.texts.spec import HeadSpec

if TYPE_CHECKING:
    from heedful.data.examples import Tagged
    from heedful.evaluation.calibration import Calibration
    from heedful.runs.run import Run
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.texts.examples import Examples
    from heedful.tasks.texts.heads import TaggingHead
    from heedful.tasks.texts.recipe import TaggingRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore


class Tagging(HeadSpec):
    """A tag for each word."""

    name = "tagging"
    place = 5
    command = "tag"
    does = "tags"
    panel = Panel("tag", "Tag")
    train_option = "tag"
    has_probabilities = True
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

    def head_type(self) -> "type[TaggingHead]":
        from heedful.tasks.texts.heads import TaggingHead

        return TaggingHead

    def head_module(self) -> Any:
        from heedful.tasks.tagging import head

        return head

    def encode(
        self, folder: Path, settings: Any, examples: "Examples", vocabulary: Any, recipe: Any
    ) -> dict[str, Any]:
        from heedful.data.tag_schemes import mark_spans

        head, _, figure = recipe.training.choose_by.rpartition(".")
        here = not head or examples.name == recipe.table_of(head)
        if figure == "span_f1" and here and not mark_spans(examples.labels):
            raise UserError(
                f"training.choose_by = '{recipe.training.choose_by}' needs tags of spans, such as "
                f"B-PER, I-PER and O; {examples.name} has {', '.join(examples.labels[:5])}"
            )
        return super().encode(folder, settings, examples, vocabulary, recipe)

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.texts.loading import load_tagger

        return load_tagger(run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        scheme = run.recipe.parts()[head].data.scheme
        return {"head": head, "tags": run.labels(head), "scheme": scheme}

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.tagging.endpoints import ENDPOINTS

        return ENDPOINTS

    def facts(self, predictor: Any) -> dict[str, Any]:
        return {**super().facts(predictor), "labels": list(predictor.tags)}

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        return (super().traced(source, target)[0].split(),)

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["Tagged"]:
        return run.tagged(name, part)

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.tagging.evaluation import score_tags

        return score_tags(head.name, head.predictor(), head.examples, head.worst)

    def calibration_of(self, predictor: Any, examples: Sequence[Any]) -> "Calibration":
        from heedful.tasks.tagging.calibration import calibration_of

        return calibration_of(predictor.taggings([one.words for one in examples]), examples)

    def surprise_of(self, predictor: Any, examples: Sequence[Any]) -> Callable[[float], float]:
        from heedful.tasks.tagging.calibration import surprise_of

        return surprise_of(predictor, examples)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.tagging.command import Tag, run

        return [Command(self.command, Tag, run)]

    def write_result(self, result: Any) -> str:
        return " ".join(result.tags)


register(Tagging())
