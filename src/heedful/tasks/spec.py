"""The contract of a task: what the command line, the server and the Python API ask of it."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pydantic import BaseModel

from heedful.basics.errors import UserError
from heedful.basics.json_models import read_object
from heedful.runs.kind import Kind
from heedful.runs.registry import kind_named, kind_of, kinds, register
from heedful.tasks.server_spec import Pair, Panel, ServerSpec

if TYPE_CHECKING:
    from heedful.evaluation.outcome import Evaluation
    from heedful.inference.trace import Trace
    from heedful.runs.run import Run

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
        """The result as what :mod:`json` can write."""
        ...


class Predictor(Protocol):
    """A run that was opened for use."""

    def predict(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """One result for each input, in their order."""
        ...


def load_run(path: str | Path, **how: Any) -> Any:
    """The predictor of a run; the arguments are those of :meth:`TaskSpec.load`."""
    return spec_of_run(path)[1].load(path, **how)


class Opening(NamedTuple):
    """How runs are opened."""

    device: str = "auto"
    precision: str = "float32"
    checkpoint: str | int | None = None
    loads: Callable[..., Any] = load_run
    """Returns a run's predictor. That of the command line also has other engines."""

    def load(self, path: str | Path, *more: str | Path, **how: Any) -> Any:
        """The predictor of a run; ``how`` are arguments beside those kept here."""
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
    """A task without options of its own."""


class TaskSpec(Kind, ServerSpec):
    """A task: how its runs are made and trained (:class:`~heedful.runs.kind.Kind`) and used.

    The methods import what they need when they are called, so that the command line can list the
    tasks without PyTorch.
    """

    command: str = "predict"
    """The command that uses its runs: ``heedful COMMAND RUN``."""
    train_option: str = ""
    """Its value of ``heedful train --task``; empty if it always needs a recipe."""
    takes_recipe: bool = True
    """Whether ``heedful train RECIPE --task`` is possible: it chooses no recipe of its own."""
    train_about: str = ""
    """What ``heedful train --help`` tells of ``--task`` beside the value."""
    corpus: str = ""
    """What ``heedful train --data`` is without a recipe, for ``--help``."""
    reading_settings: tuple[str, ...] = ()
    """Settings of ``[data]`` that a recipe's choice needs to read the data: ``encoding``."""

    does: str = ""
    """What its runs do: "classifies"."""
    trace_options: frozenset[str] = frozenset()
    """Options that :meth:`trace` has beside ``relevance``."""

    # A recipe for people without one

    def data_options(self) -> type[Any]:
        """The options of ``heedful train`` that say what the data are.

        A dataclass whose fields are annotated as the parameters of a typer command are, and named
        as settings of ``[data]``.
        """
        return NoOptions

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        """The tables of a recipe for a corpus.

        Args:
            files: the corpus.
            settings: of ``[data]``, by :meth:`data_options` and :attr:`reading_settings`.

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

    # Use

    def heads(self, recipe: Any) -> dict[str, str]:
        """What a run decides → the task that decides it; most runs decide one thing."""
        return {self.name: self.name}

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
            head: what is decided, of a run that learnt several things.
            device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
            precision: ``float32`` unless another is asked for; ``auto`` takes the fastest.
            checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

        Raises:
            UserError: the run cannot be used so.
        """

    def load_to_serve(
        self, run: Path, head: str | None, with_engine: Callable[..., Any], **how: Any
    ) -> Any:
        """The predictor of a run, ready for a first request.

        Args:
            run: the run's folder.
            head: what is decided, of a run that learnt several things.
            with_engine: :func:`heedful.interop.engines.load_with_engine` with the engine that the
                server is started with, for tasks that have other inference engines.
            how: ``device``, ``precision`` and ``checkpoint``.

        Raises:
            UserError: the run cannot be used so.
        """
        return self.load(run, head=head, **how)

    def deciding(self, run: str | Path, head: str | None) -> "TaskSpec":
        """The task whose predictor :meth:`load` returns for a head."""
        return self

    def refuse_head(self, run: str | Path, head: str | None) -> None:
        """Raise UserError for a head of a run that decides one thing."""
        if head is not None:
            raise UserError(f"{run} is a run for {self.name} and has no heads; leave --head out")

    def read_input(self, line: str) -> Any:
        """A predictor's input from a line of text.

        The line itself, or a JSON object where :meth:`input_type` is a model of pydantic.

        Raises:
            UserError: the line is no such object.
        """
        kind = self.input_type()
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        return read_object(kind, line, "the input") if is_model else line

    def write_result(self, result: Any) -> str:
        """A predictor's result as one line of text."""
        return str(result)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        """The commands of its own beside ``heedful predict``.

        Args:
            loads: :func:`heedful.interop.engines.load_with_engine`, for commands that offer other
                inference engines.
        """
        return ()

    # Other libraries

    exporters: Mapping[str, Mapping[str, str]] = {}
    """``huggingface`` or ``ctranslate2`` → kinds of models (``model.kind``) that can be exported
    so → their layouts in :mod:`heedful.interop`."""

    # Evaluation

    has_outputs: bool = True
    """Whether an evaluation has an output for each example: ``heedful evaluate --output``."""

    def evaluation_options(self) -> type[Any]:
        """The options of ``heedful evaluate`` for this task.

        A dataclass whose fields are annotated as the parameters of a typer command are.
        """
        return NoOptions

    def evaluate(
        self, run: Any, data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        """How good a run is.

        Args:
            run: the run.
            data: files; the test examples that the run keeps if None.
            options: of :meth:`evaluation_options`.
            opening: how the run, and others that it is compared with, are opened.

        Raises:
            UserError: there is nothing to evaluate on, or it cannot be used.
        """
        raise UserError(f"{run.path} is a run for {self.name}, which has no evaluation")

    def evaluate_files(self, options: Any) -> "Evaluation":
        """How good outputs are that stand in files which ``options`` name.

        Raises:
            UserError: no files are named, or they cannot be used.
        """
        raise UserError(f"{self.name} has no evaluation of files; give a run")

    # Views

    def trace(
        self,
        predictor: Any,
        source: str,
        target: str | None = None,
        *,
        relevance: bool = True,
        **options: bool,
    ) -> "Trace":
        """What a predictor attends to.

        Args:
            predictor: of :meth:`load`.
            source: the text.
            target: the second text, where there is one.
            relevance: whether to add what is computed from the weights.
            options: those of :attr:`trace_options`.

        Raises:
            UserError: the texts cannot be traced.
        """
        found: Trace = predictor.trace(*self.traced(source, target), relevance=relevance, **options)
        return found

    def search_options(self, run: Path, beam: int | None, where: str) -> Any:
        """How a run searches for its outputs, with another beam where one is given.

        Returns:
            :class:`heedful.decoding.SearchOptions`; None if its runs do not search.

        Raises:
            UserError: a beam is given and its runs do not search, or the beam is out of range;
                the message names ``where``.
        """
        if beam is not None:
            raise UserError(f"{where}: a run for {self.name} does not search; leave --beam out")
        return None

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        """What the predictor's ``trace`` takes of a text and a second one.

        ``source`` may also be what :meth:`read_request` returned.

        Raises:
            UserError: the task reads one text, and two are given; or the text is no input.
        """
        if target is not None:
            raise UserError(f"a run for {self.name} reads one text; leave the second one out")
        return (self.read_input(source) if isinstance(source, str) else source,)

    def faithfulness(
        self, predictor: Any, source: str, target: str | None
    ) -> "dict[str, Any] | None":
        """How much less probable an output is without the words that it attends to most, as JSON.

        Args:
            predictor: of :meth:`load`.
            source: the text.
            target: the output; the predictor's own if None.

        Returns:
            None if the task has no such figure, or none for this text.
        """
        return None


def specs() -> list[TaskSpec]:
    """All tasks."""
    return cast(list[TaskSpec], kinds())


def spec_named(task: str, where: str = "heedful") -> TaskSpec:
    """The task of a name.

    Raises:
        UserError: there is none; the message starts with ``where``.
    """
    return cast(TaskSpec, kind_named(task, where))


def spec_of_run(path: str | Path) -> "tuple[Run, TaskSpec]":
    """A run and its task.

    Raises:
        UserError: the folder is no run.
    """
    from heedful.runs.opening import open_run

    run = open_run(path)
    return run, cast(TaskSpec, kind_of(run.recipe))


def maps_of(model: Any) -> list[dict[str, str]]:
    """The attention maps of a model and their axes, as ``/api/models`` tells them."""
    return [
        dict(zip(("name", "query_axis", "key_axis", "step_axis"), (name, *axes), strict=False))
        for name, axes in model.attention_axes().items()
    ]
