"""What runs and training need of a task. Tasks are in the room above and register themselves."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.runs.facts import Facts
    from heedful.runs.run import Run
    from heedful.runs.settings import Recipe
    from heedful.runs.start import Start


class Kind(ABC):
    """How the runs of one task are created and trained.

    The methods import modules when they are called, so that the command line can list the tasks
    without importing PyTorch.
    """

    name: str
    """The value of ``task`` in a recipe."""
    place: int = 100
    """Sort key in lists of tasks, ascending."""
    falling: frozenset[str] = frozenset({"loss"})
    """Validation figures that are better if lower; all others are better if higher."""
    family: str = ""
    """Tasks of one family have models that can share weights."""
    starts: frozenset[str] = frozenset()
    """Families whose weights a run can start with."""
    counted: str = "tokens"
    """The unit in which ``heedful info`` counts training data."""
    batch_unit: str = "tokens"
    """The unit of ``training.batch_tokens``."""
    changeable_at_start: frozenset[str] = frozenset()
    """Model settings that may differ from those of the run that a run starts from."""

    # The recipe and the run's folder

    @abstractmethod
    def recipe_type(self) -> "type[Recipe]":
        """The class of the task's recipes."""

    def run_type(self) -> "type[Run]":
        """The class of the task's runs."""
        from heedful.runs.run import Run

        return Run

    def facts_type(self) -> "type[Facts]":
        """The required fields of ``run.json``."""
        from heedful.runs.facts import Facts

        return Facts

    def check_run(self, run: "Run") -> None:  # noqa: B027 - most tasks have nothing to check
        """Raise UserError if a run's facts do not fit its recipe."""

    def without_unused(self, tables: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """The tables of a recipe that heedful wrote, without settings that have no effect."""
        return tables

    def setting_of_files(self, recipe: "Recipe", part: str) -> str:
        """The setting whose files ``run.json`` lists under ``part``."""
        return f"data.{part}"

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        """Lines of ``heedful info``, in its order: the run, then its vocabulary and its data."""
        return [("run", f"{summary['run']} ({summary['task']})")]

    # Training

    def require_usable(self, recipe: Any) -> None:  # noqa: B027 - a task may need nothing
        """Raise UserError, before data are read, if a requirement is not available."""

    @abstractmethod
    def prepare(
        self, path: Path, recipe: Any, data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        """Prepare a new run.

        Args:
            path: the run's folder.
            recipe: all settings.
            data_folder: the base of relative data paths; the current folder if None.
            start: the weights of another run to start with.
        """

    @abstractmethod
    def data_hashes(self, recipe: Any, data_folder: Path | None) -> dict[str, list[str]]:
        """Content hashes of a recipe's files by the dotted key of the setting."""

    def fresh_model(self, run: Any) -> "nn.Module":
        """The run's model with random weights, as its constructor initialises them.

        :meth:`build_model` and :meth:`outline_model` call it unless a task overrides both.

        Raises:
            ValueError: the settings are incompatible.
        """
        raise NotImplementedError

    def build_model(self, run: Any) -> "nn.Module":
        """The run's model with random weights, determined by the recipe's seed."""
        from heedful.runs.building import build

        return build(run, lambda: self.fresh_model(run))

    def outline_model(self, run: Any) -> "nn.Module":
        """The model on the device ``meta``, without allocating memory."""
        from heedful.runs.building import outline

        return outline(run, lambda: self.fresh_model(run))

    @abstractmethod
    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> Any:
        """The task that the training loop trains: a :class:`heedful.training.protocol.Task`.

        Args:
            run: the run.
            model: the run's model, on ``device``.
            training: the current training settings; those of the run may be older.
            device: the training device.
            precision: of matrix products in training.
        """

    def load_start(self, run: Any, model: Any) -> None:
        """Load the weights that a run was started with, if any, into its model.

        Raises:
            UserError: weights are missing, damaged or belong to another model.
        """
        from heedful.runs.checkpoints import load_model_tensors, open_checkpoint

        if run.facts.get("started_from") is not None:
            point = open_checkpoint(run.start_folder)
            load_model_tensors(model, point.weights(), point.path)

    @abstractmethod
    def amount(self, run: Any) -> str:
        """The size of the training data for messages: "28,997 pairs"."""

    def weight_name(self, run: Any) -> str:
        """The unit of a batch's weight for messages: "tokens"."""
        return "examples"

    def compile_name(self, run: Any) -> str:
        """The method that ``training.compile`` compiles, with dots for submodules of the model."""
        return "forward"

    def falls(self, recipe: Any, figure: str) -> bool:
        """Whether a validation figure is better if lower.

        Args:
            recipe: the recipe of the run.
            figure: the name of the figure, as in ``training.choose_by``.
        """
        return figure in self.falling

    # Runs that start from another

    def starts_from(self, other: "Kind") -> bool:
        """Whether a run of this task can start with the weights of a run of another task."""
        return other.family in self.starts

    def tables_from(self, run: "Run") -> dict[str, Any]:
        """The tables ``model`` and ``tokeniser`` of a recipe that starts from ``run``."""
        tables = run.recipe.as_tables()
        return {"model": tables["model"], "tokeniser": tables["tokeniser"]}

    def adapt_chosen(self, tables: dict[str, Any], start: "Run") -> dict[str, Any]:
        """Adapt a recipe that was chosen from a corpus to the run that it starts from."""
        return tables

    def reads_any_length(self, run: "Run") -> bool:
        """Whether the model reads texts of any length, that is, no weight belongs to a position."""
        return False
