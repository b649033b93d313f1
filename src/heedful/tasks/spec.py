"""The contract of a task: what the command line, the server and the Python API use."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pydantic import BaseModel

from heedful.basics.errors import UserError
from heedful.basics.json_models import read_object
from heedful.runs.kind import Kind
from heedful.runs.registry import kind_named, kind_of, kinds, register
from heedful.tasks.server_spec import Pair, Panel, ServerSpec, maps_of
from heedful.tasks.view_spec import ViewSpec

if TYPE_CHECKING:
    from heedful.evaluation.calibration import Calibration
    from heedful.evaluation.outcome import Evaluation
    from heedful.runs.run import Run
    from heedful.tasks.calibrating import Calibrated
    from heedful.tasks.sketch import PaperSize, Sketch

__all__ = [
    "Command",
    "NoOptions",
    "Opening",
    "Pair",
    "Panel",
    "Predictor",
    "TaskSpec",
    "load_run",
    "maps_of",
    "register",
    "spec_named",
    "spec_of_run",
    "specs",
]


class Prediction(Protocol):
    """One result of a predictor."""

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        ...


class Predictor(Protocol):
    """A loaded run."""

    def predict(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """One result for each input, in the same order."""
        ...


def load_run(path: str | Path, **how: Any) -> Any:
    """The predictor of a run; the arguments are those of :meth:`TaskSpec.load`."""
    return spec_of_run(path)[1].load(path, **how)


class Opening(NamedTuple):
    """Arguments for loading runs."""

    device: str = "auto"
    precision: str = "float32"
    checkpoint: str | int | None = None
    loads: Callable[..., Any] = load_run
    """Returns the predictor of a run. The command line uses one that supports other engines."""

    def load(self, path: str | Path, *more: str | Path, **how: Any) -> Any:
        """The predictor of a run; ``how`` are further arguments."""
        own = {"device": self.device, "precision": self.precision, "checkpoint": self.checkpoint}
        return self.loads(path, *more, **own, **how)


class Command(NamedTuple):
    """A command of a task: ``heedful NAME``."""

    name: str
    options: type[Any]
    """A dataclass whose fields are annotated as parameters of a typer command; its docstring is
    the help."""
    run: Callable[[Any], None]
    """Called with an instance of ``options``."""


@dataclass(frozen=True)
class NoOptions:
    """No options."""


class Demo(NamedTuple):
    """A demo of a task, for ``heedful demo --task``."""

    about: str
    """The data, in a line."""
    recipe: dict[str, Any]
    """The recipe's tables; its data are relative to the folder."""
    names: Sequence[str]
    """Test inputs, as the task's command takes them."""
    inputs: Sequence[Any]
    """The same test inputs, as predictors take them."""
    expected: Sequence[str]
    """The right outputs."""


class TaskSpec(Kind, ServerSpec, ViewSpec):
    """A task: how its runs are prepared and trained (:class:`~heedful.runs.kind.Kind`) and used.

    Methods import PyTorch only when they are called, so that the command line starts quickly.
    """

    command: str = "predict"
    """The command that uses its runs: ``heedful COMMAND RUN``."""
    train_option: str = ""
    """Its value of ``heedful train --task``; empty if it always needs a recipe."""
    takes_recipe: bool = True
    """Whether ``--task`` can be combined with a recipe in ``heedful train``."""
    train_about: str = ""
    """Further text about the task in the help of ``heedful train --task``."""
    corpus: str = ""
    """The kind of files for ``heedful train --data`` without a recipe, for ``--help``."""
    reading_settings: tuple[str, ...] = ()
    """Settings of ``[data]`` that are needed to read the data when a recipe is chosen, such as
    ``encoding``."""

    does: str = ""
    """What its runs do, for messages: "classifies"."""
    gives_sets: bool = False
    """Whether its runs give any number of labels, where other runs of its command give one."""

    def make_demo(self, folder: Path) -> Demo | None:
        """Write the data of a small demo to a folder; None if the task has no demo of its own."""
        return None

    # Default recipes

    def data_options(self) -> type[Any]:
        """The options of ``heedful train`` that describe the data.

        A dataclass. Its fields have the names of settings of ``[data]``, and are annotated like the
        parameters of a typer command.
        """
        return NoOptions

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        """Choose a recipe for a corpus; returns its tables.

        Args:
            files: the corpus.
            settings: settings of ``[data]`` from :meth:`data_options` and :attr:`reading_settings`.

        Raises:
            UserError: the task needs a recipe, or the corpus cannot be used.
        """
        raise UserError(f"task '{self.name}' needs a recipe: heedful train RECIPE.toml")

    def train_corpus(
        self, train: Callable[..., bool], out: Path, files: list[str], **how: Any
    ) -> bool:
        """Train from a corpus alone, as ``heedful train --task`` does.

        Args:
            train: :func:`heedful.tasks.commands.train_from_command`.
            out: the run's folder.
            files: the corpus.
            how: further arguments of ``train``.

        Returns:
            True when training has ended, False when it was interrupted.
        """
        return train(None, out, files, **how)

    # Prediction

    def heads(self, recipe: Any) -> dict[str, str]:
        """Head → the name of its task; a run of a single task has one head, named like the task."""
        return {self.name: self.name}

    def inner_heads(self, recipe: Any) -> dict[str, str]:
        """Parts of heads that another command can use, by name → the task of that command."""
        return {}

    def head_type(self) -> type[Any] | None:
        """The settings of its head in a recipe with several heads; None if it cannot be one."""
        return None

    @abstractmethod
    def load(
        self,
        run: str | Path,
        *,
        head: str | None = None,
        device: str = "auto",
        precision: str = "float32",
        checkpoint: str | int | None = None,
    ) -> Any:
        """The predictor of a run.

        Args:
            run: the run's folder.
            head: the head of a multi-task run.
            device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
            precision: the precision of matrix products; ``auto`` chooses the fastest.
            checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

        Raises:
            UserError: the run cannot be loaded with these arguments.
        """

    def load_to_serve(
        self,
        run: Path,
        head: str | None,
        with_engine: Callable[..., Any],
        *,
        examples: bool = False,
        **how: Any,
    ) -> Any:
        """The predictor of a run, ready for a first request.

        Args:
            run: the run's folder.
            head: the head of a multi-task run.
            with_engine: :func:`heedful.interop.engines.load_with_engine` with the engine that the
                server is started with, for tasks that have other inference engines.
            examples: whether the page may show texts of the run's data, which may be private.
            how: ``device``, ``precision`` and ``checkpoint``.

        Raises:
            UserError: the run cannot be loaded with these arguments.
        """
        return self.load(run, head=head, **how)

    def task_of_head(self, run: str | Path, head: str | None) -> "TaskSpec":
        """The task whose predictor :meth:`load` returns for a head."""
        return self

    def refuse_head(self, run: str | Path, head: str | None) -> None:
        """Raise UserError for a head, because runs of this task have none."""
        if head is not None:
            raise UserError(f"{run} is a run for {self.name} and has no heads; leave out --head")

    def read_input(self, line: str) -> Any:
        """Read a predictor's input from a line of text.

        By default, the input is the line, or a JSON object if :meth:`input_type` is a pydantic
        model.

        Raises:
            UserError: the line is not a valid input.
        """
        kind = self.input_type()
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        return read_object(kind, line, "the input") if is_model else line

    def read_argument(self, text: str) -> str:
        """What a user of the command line gave as an input, as a text for :meth:`read_input`.

        By default, the text itself. Tasks whose inputs are files read them here and not in
        :meth:`read_input`, which a server calls as well.

        Raises:
            UserError: a file cannot be read.
        """
        return text

    def predict_next(
        self, predictor: Any, inputs: Sequence[Any], first: int, lines: Sequence[int]
    ) -> Sequence[Any]:
        """The predictor's results for further inputs of a file; ``first`` is the index of the first
        one, from which tasks that sample derive their random numbers, and ``lines`` has the line of
        each, from 1, for messages."""
        found: Sequence[Any] = predictor.predict(inputs)
        return found

    def write_result(self, result: Any) -> str:
        """A predictor's result as one line of text."""
        return str(result)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        """The task's own commands, in addition to ``heedful predict``.

        Args:
            loads: :func:`heedful.interop.engines.load_with_engine`, for commands that offer other
                inference engines.
        """
        return ()

    # Other libraries

    exporters: Mapping[str, Mapping[str, str]] = {}
    """Format (``huggingface`` or ``ctranslate2``) → ``model.kind`` → layout in
    :mod:`heedful.interop`."""

    # Sizes on paper

    paper_sizes: "Mapping[str, PaperSize]" = MappingProxyType({})
    """Name → a size of the literature, for ``heedful info --size``."""

    def sketch(self, recipe: Any) -> "Sketch":
        """The recipe's model and a training step on the device ``meta``.

        Raises:
            ValueError: the settings do not fit.
            UserError: the task has none, or the settings do not fit.
        """
        raise UserError(f"a recipe for {self.name} has no size on paper")

    # Evaluation

    has_outputs: bool = True
    """Whether an evaluation has an output for each example: ``heedful evaluate --output``."""

    def evaluation_options(self) -> type[Any]:
        """The options of ``heedful evaluate`` for this task.

        A dataclass whose fields are annotated like the parameters of a typer command.
        """
        return NoOptions

    def comparison_options(self) -> Any:
        """What ``heedful compare`` measures: an instance of :meth:`evaluation_options`."""
        return self.evaluation_options()()

    def evaluate(
        self, run: Any, data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        """Evaluate a run.

        Args:
            run: the run.
            data: files; the test set stored in the run if None.
            options: an instance of :meth:`evaluation_options`.
            opening: loads the run, and others that it is compared with.

        Raises:
            UserError: there are no test data, or they cannot be used.
        """
        raise UserError(f"{run.path} is a run for {self.name}, which has no evaluation")

    def calibrate(self, run: Any, head: str | None, opening: Opening) -> "Calibrated":
        """Fit the temperature of the run's probabilities on its validation examples, and keep it.

        Raises:
            UserError: there are no validation examples, or no probabilities of labels.
        """
        raise self._no_labels(run)

    def calibration(self, run: Any, head: str | None, opening: Opening) -> "Calibration":
        """How well the run's probabilities are calibrated on its test or validation examples.

        Raises:
            UserError: there are no such examples, or no probabilities of labels.
        """
        raise self._no_labels(run)

    def _no_labels(self, run: Any) -> UserError:
        return UserError(
            f"{run.path} is a run for {self.name}; only the probabilities of labels and tags can "
            "be calibrated"
        )

    def evaluate_files(self, options: Any) -> "Evaluation":
        """Evaluate outputs in files that ``options`` names.

        Raises:
            UserError: no files are named, or they cannot be used.
        """
        raise UserError(f"{self.name} has no evaluation of files; give a run")


def specs() -> list[TaskSpec]:
    """All tasks."""
    return cast(list[TaskSpec], kinds())


def spec_named(task: str, where: str = "heedful") -> TaskSpec:
    """The task with a name.

    Raises:
        UserError: the task is unknown; the message starts with ``where``.
    """
    return cast(TaskSpec, kind_named(task, where))


def spec_of_run(path: str | Path) -> "tuple[Run, TaskSpec]":
    """A run and its task.

    Raises:
        UserError: the folder is not a run.
    """
    from heedful.runs.opening import open_run

    run = open_run(path)
    return run, cast(TaskSpec, kind_of(run.recipe))
