"""Classification: a label for a text or a pair of texts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Command, Panel, register
from heedful.tasks.texts.pairs import PairSpec

if TYPE_CHECKING:
    from heedful.data.examples import Labelled
    from heedful.evaluation.calibration import Calibration
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.texts.heads import ClassificationHead
    from heedful.tasks.texts.recipe import ClassificationRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore


class Classification(PairSpec):
    """A label for each text."""

    name = "classification"
    place = 4
    command = "classify"
    does = "classifies"
    panel = Panel("classify", "Classify")
    train_option = "classify"
    has_probabilities = True
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

    def head_type(self) -> "type[ClassificationHead]":
        from heedful.tasks.texts.heads import ClassificationHead

        return ClassificationHead

    def head_module(self) -> Any:
        from heedful.tasks.classification import head

        return head

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.texts.loading import load_classifier

        return load_classifier(run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        pairs = len(run.recipe.parts()[head].data.text) == 2
        return {"head": head, "labels": run.labels(head), "pairs": pairs}

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.classification.endpoints import ENDPOINTS

        return ENDPOINTS

    def facts(self, predictor: Any) -> dict[str, Any]:
        own = {"labels": list(predictor.labels), "pairs": predictor.pairs}
        return {**super().facts(predictor), **own}

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["Labelled"]:
        return run.labelled(name, part)

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.classification.evaluation import score_labels

        return score_labels(head.name, head.predictor(), head.examples, head.worst)

    def calibration_of(self, predictor: Any, examples: Sequence[Any]) -> "Calibration":
        from heedful.tasks.classification.calibration import calibration_of
        from heedful.tasks.texts.training import read

        found = predictor.classify([read(example) for example in examples])
        return calibration_of(found, [example.label for example in examples])

    def surprise_of(self, predictor: Any, examples: Sequence[Any]) -> Callable[[float], float]:
        from heedful.tasks.classification.calibration import surprise_of

        return surprise_of(predictor, examples)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.classification.command import Classify, run

        return [Command(self.command, Classify, run)]

    def write_result(self, result: Any) -> str:
        return str(result.label or "")


register(Classification())
