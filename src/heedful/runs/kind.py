"""What runs and training ask of a task. The tasks themselves stand above, and register here."""

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
    """How runs of one task are made and trained.

    The methods import what they need when they are called, so that the command line can list the
    tasks without PyTorch.
    """

    name: str
    """``task`` in a recipe."""
    place: int = 100
    """Where it stands in lists of tasks: a lower number comes first."""
    falling: frozenset[str] = frozenset({"loss"})
    """Figures of a validation that fall as the model gets better; the others rise."""
    family: str = ""
    """The tasks of a family have models that share weights."""
    starts: frozenset[str] = frozenset()
    """Families whose weights a run can start from."""
    counted: str = "tokens"
    """What ``heedful info`` counts training in."""
    changeable_at_start: frozenset[str] = frozenset()
    """Settings of the model that may differ from those of the run that is started from."""

    # The recipe and the run's folder

    @abstractmethod
    def recipe_type(self) -> "type[Recipe]":
        """The class of its recipes."""

    def run_type(self) -> "type[Run]":
        """The class of its runs."""
        from heedful.runs.run import Run

        return Run

    def facts_type(self) -> "type[Facts]":
        """What its ``run.json`` must tell."""
        from heedful.runs.facts import Facts

        return Facts

    def check_run(self, run: "Run") -> None:  # noqa: B027 - most tasks have nothing to check
        """Raise UserError if a run's facts do not fit its recipe."""

    def without_unused(self, tables: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """The tables of a recipe that heedful wrote, without settings that have no effect in it."""
        return tables

    def setting_of_files(self, recipe: "Recipe", part: str) -> str:
        """The setting that names the files which ``run.json`` calls ``part``."""
        return f"data.{part}"

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        """Lines of ``heedful info``: what the run is, then what it knows and was trained on."""
        return [("run", f"{summary['run']} ({summary['task']})")]

    # Training

    def require_usable(self, recipe: Any) -> None:  # noqa: B027 - a task may need nothing
        """Raise UserError, before anything is read, for what cannot be had on this machine."""

    @abstractmethod
    def prepare(
        self, path: Path, recipe: Any, data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        """Make a new run.

        Args:
            path: the run's folder.
            recipe: all settings.
            data_folder: where relative data paths start; the current folder if None.
            start: what is taken from another run.
        """

    @abstractmethod
    def data_hashes(self, recipe: Any, data_folder: Path | None) -> dict[str, list[str]]:
        """Content hashes of a recipe's files, by the dotted key that names them."""

    def fresh_model(self, run: Any) -> "nn.Module":
        """The run's model with random weights, as its constructor draws them.

        :meth:`build_model` and :meth:`outline_model` call it, unless a task replaces both.

        Raises:
            ValueError: the settings do not go together.
        """
        raise NotImplementedError

    def build_model(self, run: Any) -> "nn.Module":
        """The run's model with random weights, which the recipe's seed decides."""
        from heedful.runs.building import build

        return build(run, lambda: self.fresh_model(run))

    def outline_model(self, run: Any) -> "nn.Module":
        """The same on the device ``meta``, which takes no memory."""
        from heedful.runs.building import outline

        return outline(run, lambda: self.fresh_model(run))

    @abstractmethod
    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> Any:
        """What the training loop is given: a :class:`heedful.training.protocol.Task`.

        Args:
            run: the run.
            model: its model, on ``device``.
            training: the settings of this training; those of the run may be older.
            device: where to compute.
            precision: of matrix products in training.
        """

    def load_start(self, run: Any, model: Any) -> None:
        """Load the weights that a run started from, if there are any, into its model.

        Raises:
            UserError: weights are missing, damaged or of another model.
        """
        from heedful.runs.checkpoints import load_model_tensors, open_checkpoint

        if run.facts.get("started_from") is not None:
            point = open_checkpoint(run.start_folder)
            load_model_tensors(model, point.weights(), point.path)

    @abstractmethod
    def amount(self, run: Any) -> str:
        """The size of the training data for people: "28,997 pairs"."""

    def weight_name(self, run: Any) -> str:
        """What a batch's weight counts, for people: "tokens"."""
        return "examples"

    def compile_name(self, run: Any) -> str:
        """The method of the model, with dots for submodules, that ``training.compile`` compiles."""
        return "forward"

    def falls(self, recipe: Any, figure: str) -> bool:
        """Whether a figure of a validation falls as the model gets better.

        Args:
            recipe: of the run.
            figure: its name, as in ``training.choose_by``.
        """
        return figure in self.falling

    # Runs that start from another

    def starts_from(self, other: "Kind") -> bool:
        """Whether a run of this task can start from the weights of a run of another."""
        return other.family in self.starts

    def tables_from(self, run: "Run") -> dict[str, Any]:
        """The tables ``model`` and ``tokeniser`` that a recipe of this task takes from a run."""
        tables = run.recipe.as_tables()
        return {"model": tables["model"], "tokeniser": tables["tokeniser"]}

    def adapt_chosen(self, tables: dict[str, Any], start: "Run") -> dict[str, Any]:
        """A recipe that was chosen from a corpus, for a run that starts from another."""
        return tables

    def reads_any_length(self, run: "Run") -> bool:
        """Whether no weight of a run's model belongs to a position, so that it reads any length."""
        return False
