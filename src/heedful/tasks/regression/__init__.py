"""Regression: a number for a text or a pair of texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import register
from heedful.tasks.texts.pairs import PairSpec

if TYPE_CHECKING:
    from heedful.data.examples import Rated
    from heedful.tasks.texts.heads import RegressionHead
    from heedful.tasks.texts.recipe import RegressionRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore


class Regression(PairSpec):
    """A number for each text."""

    name = "regression"
    place = 9
    does = "predicts numbers"
    train_option = "regression"
    corpus = "a table (CSV, TSV, JSON lines) with a column of numbers"
    reading_settings = ("encoding", "format", "unlabelled")
    falling = frozenset({"loss"})

    def data_options(self) -> type[Any]:
        from heedful.tasks.texts.data_options import LabelledColumns

        return LabelledColumns

    def recipe_type(self) -> "type[RegressionRecipe]":
        from heedful.tasks.texts.recipe import RegressionRecipe

        return RegressionRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.texts.default_recipe import choose_classification

        tables = choose_classification(files, **settings)
        training = {**tables["training"], "choose_by": "pearson"}
        return {**tables, "task": self.name, "training": training}

    def head_type(self) -> "type[RegressionHead]":
        from heedful.tasks.texts.heads import RegressionHead

        return RegressionHead

    def head_module(self) -> Any:
        from heedful.tasks.regression import head

        return head

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.regression.predictor import Regressor
        from heedful.tasks.texts.loading import load_reader

        return load_reader(Regressor, self.name, run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        pairs = len(run.recipe.parts()[head].data.text) == 2
        return {"head": head, "pairs": pairs, **self.facts_of_outputs(run, head)}

    def facts_of_outputs(self, run: "TextRun", head: str) -> dict[str, Any]:
        facts = run.facts["sets"][head]
        return {key: float(facts[key]) for key in ("mean", "deviation")}

    def facts(self, predictor: Any) -> dict[str, Any]:
        return {**super().facts(predictor), "pairs": predictor.pairs}

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["Rated"]:
        return run.rated(name, part)

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.regression.evaluation import score_numbers

        return score_numbers(head.name, head.predictor(), head.examples)

    def write_result(self, result: Any) -> str:
        return "" if result.value is None else f"{result.value:.6g}"


register(Regression())
