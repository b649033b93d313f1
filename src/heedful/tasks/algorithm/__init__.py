"""Problems that are solved by an algorithm: copy, recall, sort, n-grams, shortest paths."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.tasks.spec import Opening, TaskSpec, maps_of, register

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.evaluation.outcome import Evaluation
    from heedful.runs.run import Run
    from heedful.runs.settings import Recipe
    from heedful.runs.start import Start
    from heedful.tasks.algorithm.predictor import AlgorithmPredictor
    from heedful.tasks.algorithm.training import AlgorithmTask
    from heedful.tasks.sketch import Sketch


class Algorithm(TaskSpec):
    """Models of sequences of vectors, trained on examples that are drawn at random."""

    name = "algorithm"
    place = 60
    does = "solves problems such as copying a sequence"
    family = "algorithm"
    starts = frozenset({"algorithm"})
    falling = frozenset({"loss", "bits", "wrong_bits"})
    counted = "bits"

    def recipe_type(self) -> "type[Recipe]":
        from heedful.tasks.algorithm.recipe import AlgorithmRecipe

        return AlgorithmRecipe

    def require_usable(self, recipe: Any) -> None:
        from heedful.models import build_sequence_model
        from heedful.runs.model_size import require_trainable

        widths = recipe.data.widths
        require_trainable(recipe, lambda: build_sequence_model(recipe.model, *widths))

    def prepare(
        self, path: Path, recipe: Any, data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        from heedful.runs.opening import open_run
        from heedful.tasks.preparation import write_run

        kept = {} if start is None else start.weights
        write_run(path, recipe, {"data": {"hashes": {}}}, None, start, kept)
        return open_run(path)

    def data_hashes(self, recipe: Any, data_folder: Path | None) -> dict[str, list[str]]:
        return {}

    def fresh_model(self, run: Any) -> "nn.Module":
        from heedful.models import build_sequence_model

        return build_sequence_model(run.recipe.model, *run.recipe.data.widths)

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.algorithm.sketch import sketch_sequence_model

        return sketch_sequence_model(recipe)

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "AlgorithmTask":
        from heedful.tasks.algorithm.training import AlgorithmTask

        return AlgorithmTask(
            model,
            run.recipe.data,
            run.recipe.seed,
            training.batch_tokens,
            device=device,
            precision=precision,
        )

    def amount(self, run: Any) -> str:
        data = run.recipe.data
        low, high = data.sizes
        return f"{data.kind}, {low}–{high} {data.size_name}, drawn at random"

    def weight_name(self, run: Any) -> str:
        return "bits"

    def tables_from(self, run: "Run") -> dict[str, Any]:
        return {"model": run.recipe.as_tables()["model"]}

    def reads_any_length(self, run: "Run") -> bool:
        return True

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        from heedful.runs.opening import open_run

        return [
            ("run", f"{summary['run']} ({summary['task']})"),
            ("trained on", self.amount(open_run(summary["run"]))),
        ]

    def load(
        self,
        run: str | Path,
        *,
        head: str | None = None,
        device: str = "auto",
        precision: str = "float32",
        checkpoint: str | int | None = None,
    ) -> "AlgorithmPredictor":
        from heedful.basics.device import check_precision, choose_device
        from heedful.runs.building import load
        from heedful.runs.opening import open_run
        from heedful.tasks.algorithm.predictor import AlgorithmPredictor

        opened = open_run(run)
        if opened.recipe.task != self.name:
            raise UserError(f"{run} is a run for {opened.recipe.task}, not for {self.name}")
        self.refuse_head(run, head)
        where = choose_device(device)
        products = check_precision(precision, where)
        model: Any = load(opened, lambda: self.fresh_model(opened), checkpoint=checkpoint)
        products = "float32" if products == "auto" else products
        return AlgorithmPredictor(
            opened.recipe, model.to(where).eval(), device=where, precision=products
        )

    def input_type(self) -> Any:
        from heedful.tasks.algorithm.predictor import Asked

        return Asked

    def facts(self, predictor: Any) -> dict[str, Any]:
        return {"maps": maps_of(predictor.model, slots="slots")}

    def evaluation_options(self) -> type[Any]:
        from heedful.tasks.algorithm.evaluation import AlgorithmEvaluation

        return AlgorithmEvaluation

    def evaluate(
        self, run: "Run", data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        from heedful.tasks.algorithm.evaluation import evaluate

        if data is not None:
            raise UserError(
                f"{run.path} is a run for {self.name}, whose examples are drawn at random; "
                "leave out --data"
            )
        found: Evaluation = evaluate(opening.load(run.path), run.recipe, options.size or [])
        return found


register(Algorithm())
