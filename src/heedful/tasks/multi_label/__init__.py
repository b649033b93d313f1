"""Multi-label classification: any number of labels for a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Panel, register
from heedful.tasks.texts.pairs import PairSpec

if TYPE_CHECKING:
    from heedful.data.examples import MultiLabelled
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.multi_label.recipe import MultiLabelHead, MultiLabelRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore


class MultiLabel(PairSpec):
    """Any number of labels for each text."""

    name = "multi-label"
    place = 10
    command = "classify"
    does = "gives labels"
    panel = Panel("classify", "Classify")
    gives_sets = True
    exporters: Mapping[str, Mapping[str, str]] = MappingProxyType(
        {"huggingface": {"bert": "bert"}, "onnx": {"bert": "encoder"}}
    )

    def recipe_type(self) -> "type[MultiLabelRecipe]":
        from heedful.tasks.multi_label.recipe import MultiLabelRecipe

        return MultiLabelRecipe

    def head_type(self) -> "type[MultiLabelHead]":
        from heedful.tasks.multi_label.recipe import MultiLabelHead

        return MultiLabelHead

    def head_module(self) -> Any:
        from heedful.tasks.multi_label import head

        return head

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.multi_label.predictor import MultiLabelClassifier
        from heedful.tasks.texts.loading import load_reader

        return load_reader(MultiLabelClassifier, self.name, run, **how)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        own = run.recipe.parts()[head]
        facts = {"labels": run.labels(head), "pairs": len(own.data.text) == 2}
        return {"head": head, **facts, "separator": own.data.separator}

    def facts_of_layer(self, layer: Any) -> dict[str, Any]:
        return {"thresholds": layer.thresholds()}

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.classification.endpoints import ENDPOINTS

        return ENDPOINTS

    def facts(self, predictor: Any) -> dict[str, Any]:
        own = {
            "labels": list(predictor.labels),
            "thresholds": predictor.thresholds,
            "pairs": predictor.pairs,
        }
        return {**super().facts(predictor), **own}

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["MultiLabelled"]:
        return run.multi_labelled(name, part)

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.multi_label.evaluation import score_label_sets

        return score_label_sets(head.name, head.predictor(), head.examples)

    def write_result(self, result: Any) -> str:
        return ", ".join(result.labels)


register(MultiLabel())
