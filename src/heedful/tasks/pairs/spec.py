"""The base class of the specs of tasks for pairs of texts."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Opening, TaskSpec, maps_of

if TYPE_CHECKING:
    from torch import nn

    from heedful.evaluation.outcome import Evaluation
    from heedful.runs.facts import Facts
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.pairs.recipe import PairRecipe
    from heedful.tasks.pairs.run import PairRun
    from heedful.tasks.sketch import Sketch

_LEAST_SYMBOLS = 5
"""A vocabulary size for checking the model before the vocabulary is built."""


class PairSpec(TaskSpec):
    """A task for pairs of texts."""

    corpus = (
        "the corpus (TSV, TMX, PO, XLIFF, or a folder of such files), or twice for two aligned "
        "text files"
    )
    reading_settings: tuple[str, ...] = ("encoding", "links")
    family = "pairs"
    starts = frozenset({"pairs"})
    changeable_at_start = frozenset(
        {"model.dropout", "model.attention_dropout", "model.ffn_dropout"}
    )

    def data_options(self) -> type[Any]:
        from heedful.tasks.pairs.data_options import PairData

        return PairData

    @abstractmethod
    def recipe_type(self) -> "type[PairRecipe]": ...

    def run_type(self) -> "type[PairRun]":
        from heedful.tasks.pairs.run import PairRun

        return PairRun

    def facts_type(self) -> "type[Facts]":
        from heedful.tasks.pairs.facts import PairFacts

        return PairFacts

    def without_unused(self, tables: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        from heedful.tasks.pairs.recipe import without_unused

        return without_unused(self.recipe_type(), tables, where)

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        data, vocabulary = summary["data"], summary["vocabulary"]
        languages = " to ".join(str(summary[side] or "?") for side in ("source", "target"))
        left_out = ", ".join(f"{count:,} {why}" for why, count in data["left_out"].items())
        left_out = f"; left out: {left_out}" if left_out else ""
        held_out = f"{data['validation_pairs']:,} validation, {data['test_pairs']:,} test pairs"
        return [
            ("run", f"{summary['run']} ({summary['task']}, {languages})"),
            (
                "vocabulary",
                f"{vocabulary['source']:,} source, {vocabulary['target']:,} target symbols",
            ),
            ("trained on", f"{data['train_pairs']:,} pairs{left_out}"),
            ("held out", held_out),
        ]

    def require_usable(self, recipe: "PairRecipe") -> None:
        from heedful.models import build_model
        from heedful.runs.model_size import require_trainable
        from heedful.tasks.pairs.recipe import require_scorable

        require_trainable(recipe, lambda: build_model(recipe.model, _LEAST_SYMBOLS, _LEAST_SYMBOLS))
        require_scorable(recipe)

    def sketch(self, recipe: "PairRecipe") -> "Sketch":
        from heedful.tasks.pairs.sketch import sketch_pair_model

        return sketch_pair_model(recipe)

    def prepare(
        self, path: Path, recipe: "PairRecipe", data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        from heedful.tasks.pairs.preparation import prepare_run

        return prepare_run(path, recipe, data_folder, start)

    def data_hashes(self, recipe: "PairRecipe", data_folder: Path | None) -> dict[str, list[str]]:
        from heedful.tasks.pairs.preparation import data_hashes

        return data_hashes(recipe, data_folder)

    def build_model(self, run: "PairRun") -> "nn.Module":
        from heedful.tasks.pairs.building import build_run_model

        return build_run_model(run)

    def outline_model(self, run: "PairRun") -> "nn.Module":
        from heedful.tasks.pairs.building import outline_run_model

        return outline_run_model(run)

    def load_start(self, run: "PairRun", model: Any) -> None:
        from heedful.tasks.pairs.building import load_run_start

        load_run_start(run, model)

    def amount(self, run: "PairRun") -> str:
        return f"{run.facts['data']['train_pairs']:,} pairs"

    def weight_name(self, run: "Run") -> str:
        return "tokens"

    def compile_name(self, run: "Run") -> str:
        return "states"

    def reads_any_length(self, run: Any) -> bool:
        return bool(run.recipe.model.reads_any_length)

    def evaluation_options(self) -> type[Any]:
        from heedful.tasks.pairs.evaluation_options import PairEvaluation

        return PairEvaluation

    def comparison_options(self) -> Any:
        from heedful.tasks.pairs.evaluation_options import PairEvaluation

        return PairEvaluation(attention=True, metrics="bleu,chrf", sentences=0, bootstrap=0)

    def evaluate(
        self, run: "PairRun", data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        from heedful.tasks.pairs.evaluation import evaluate_pairs

        return evaluate_pairs(run, data, options, opening)

    def evaluate_files(self, options: Any) -> "Evaluation":
        from heedful.tasks.pairs.evaluation import evaluate_files

        return evaluate_files(options)

    def set_evaluation_mode(self, predictor: Any) -> None:
        for model in predictor.models:
            model.eval()

    def check_traced(self, source: str) -> None:
        from heedful.tasks.pairs.endpoints import require_one_line

        require_one_line(source, "a trace is")

    def facts(self, predictor: Any) -> dict[str, Any]:
        models, engine = predictor.models, predictor.engine
        sides = predictor.tokenisers
        return {
            "architecture": engine.architecture if engine else type(models[0]).__name__,
            "parameters": engine.parameters if engine else predictor.parameters,
            **predictor.computing,
            "vocabulary": {"source": sides.source.size, "target": sides.target.size},
            "max_tokens": predictor.max_length - 1,
            "aligns": predictor.aligns,
            "examples": list(predictor.examples),
            # An export has no model.
            "maps": maps_of(models[0]) if models else [],
        }

    def search_options(self, run: Path, beam: int | None, where: str) -> Any:
        from heedful.tasks.pairs.run import search_of

        return search_of(run, beam, where)

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        return source, target
