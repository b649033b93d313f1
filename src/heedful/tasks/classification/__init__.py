"""Classification: a label for a text or a pair of texts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import StrictStr

from heedful.tasks.spec import Command, Opening, Pair, Panel, register
from heedful.tasks.texts.spec import EncoderSpec

if TYPE_CHECKING:
    from torch import nn

    from heedful.data.examples import Labelled
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.texts.evaluation_options import TextEvaluation
    from heedful.tasks.texts.examples import Examples
    from heedful.tasks.texts.part import Training
    from heedful.tasks.texts.recipe import ClassificationRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import TextScore
    from heedful.training.protocol import Task


class Classification(EncoderSpec):
    """A label for each text."""

    name = "classification"
    place = 4
    command = "classify"
    does = "classifies"
    panel = Panel("classify", "Classify")
    train_option = "classify"
    corpus = "a table (CSV, TSV, JSON lines)"
    reading_settings = ("encoding", "format", "unlabelled")

    def data_options(self) -> type[Any]:
        from heedful.tasks.texts.data_options import LabelledColumns

        return LabelledColumns

    def recipe_type(self) -> "type[ClassificationRecipe]":
        from heedful.tasks.texts.recipe import ClassificationRecipe

        return ClassificationRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.texts.default_recipe import choose_classification

        return choose_classification(files, **settings)

    def encode(
        self, folder: Path, settings: Any, examples: "Examples", vocabulary: Any, recipe: Any
    ) -> dict[str, Any]:
        """Write the encoded training examples; returns facts about them."""
        from heedful.tasks.classification.head import encode

        return encode(folder, examples, vocabulary, recipe.max_tokens)

    def layers(
        self, name: str, settings: Any, encoder: Any, labels: int, recipe: Any
    ) -> "dict[str, nn.Module]":
        """The modules of the head."""
        from heedful.tasks.classification.head import layers

        return layers(name, encoder, labels, recipe)

    def build_part(self, name: str, settings: Any, training: "Training") -> "Task":
        """The task for the training loop."""
        from heedful.tasks.classification.head import build_part

        return build_part(name, training)

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.texts.loading import load_classifier

        return load_classifier(run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        pairs = len(run.recipe.parts()[head].data.text) == 2
        return {"head": head, "labels": run.labels(head), "pairs": pairs}

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.classification.endpoints import ENDPOINTS

        return ENDPOINTS

    def input_type(self) -> Any:
        return StrictStr | Pair

    def facts(self, predictor: Any) -> dict[str, Any]:
        own = {"labels": list(predictor.labels), "pairs": predictor.pairs}
        return {**super().facts(predictor), **own}

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        return (source if target is None else (source, target),)

    def read_input(self, line: str) -> Any:
        first, tab, second = line.partition("\t")
        return (first, second) if tab else first

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["Labelled"]:
        return run.labelled(name, part)

    def score(
        self,
        run: "TextRun",
        name: str,
        examples: Sequence[Any],
        options: "TextEvaluation",
        opening: Opening,
    ) -> "TextScore":
        from heedful.tasks.classification.evaluation import score_labels

        predictor = opening.load(run.path, head=name)
        return score_labels(name, predictor, examples, max(options.sentences, 0))

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.classification.command import Classify, run

        return [Command(self.command, Classify, run)]

    def write_result(self, result: Any) -> str:
        return str(result.label or "")


register(Classification())
