"""Multi-task models: one encoder with a head for each task."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from heedful.basics.errors import UserError
from heedful.tasks.spec import TaskSpec, register, spec_named, spec_of_run
from heedful.tasks.texts.spec import EncoderSpec, TextSpec

if TYPE_CHECKING:
    import torch

    from heedful.inference.trace import Trace
    from heedful.runs.run import Run
    from heedful.tasks.texts.recipe import SeveralRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.training.protocol import Task


_OF_A_HEAD = "call this method of the task of a head: TaskSpec.task_of_head"


class Several(EncoderSpec):
    """A multi-task model; the tasks of its heads make the predictions."""

    name = "several"
    place = 7
    command = "predict"

    def recipe_type(self) -> "type[SeveralRecipe]":
        from heedful.tasks.texts.recipe import SeveralRecipe

        return SeveralRecipe

    def weight_name(self, run: "Run") -> str:
        return "batches"

    def falls(self, recipe: Any, figure: str) -> bool:
        name, dot, own = figure.partition(".")
        return spec_named(self.heads(recipe)[name]).falls(recipe, own) if dot else figure == "loss"

    def inner_heads(self, recipe: Any) -> dict[str, str]:
        return {name: task for name, (_, _, task) in self._inner(recipe).items()}

    def model_of_head(self, model: Any, recipe: Any, head: str) -> Any:
        found = self._inner(recipe).get(head)
        if found is None:
            return model
        name, inner, _ = found
        own = cast(TextSpec, spec_named(self.heads(recipe)[name]))
        return own.inner_model(model.heads[name], inner, head)

    def _inner(self, recipe: Any) -> dict[str, tuple[str, str, str]]:
        """Name of each inner head → the head that has it, its name there, and its task."""
        return {
            f"{name}_{inner}": (name, inner, task)
            for name, head in self.heads(recipe).items()
            for inner, task in spec_named(head).inner_heads(recipe).items()
        }

    def build_task(
        self, run: "TextRun", model: Any, training: Any, device: "torch.device", precision: str
    ) -> "Task":
        from heedful.tasks.several.building import build_task
        from heedful.tasks.texts.building import training_of

        return build_task(training_of(run, model, training, device, precision))

    def load(self, run: str | Path, *, head: str | None = None, **how: Any) -> Any:
        return self.task_of_head(run, head).load(run, head=head, **how)

    def task_of_head(self, run: str | Path, head: str | None) -> TaskSpec:
        """The task of a head of a run.

        Raises:
            UserError: no head is named, or the run has no such head.
        """
        recipe = spec_of_run(run)[0].recipe
        heads = self.heads(recipe) | self.inner_heads(recipe)
        if head not in heads:
            missing = f"no head '{head}'" if head else "several heads"
            raise UserError(f"{run} has {missing}: give --head with one of {', '.join(heads)}")
        return spec_named(heads[head])

    def write_result(self, result: Any) -> str:
        raise TypeError(_OF_A_HEAD)

    def trace(self, predictor: Any, *given: Any, **options: Any) -> "Trace":
        raise TypeError(_OF_A_HEAD)


register(Several())
