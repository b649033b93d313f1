"""Options that several commands share."""

from dataclasses import MISSING, fields
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Protocol, get_args

import typer

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_THREADS

if TYPE_CHECKING:
    from heedful.data.documents import Columns

Beam = Annotated[int | None, typer.Option("--beam", help="Beam width; default: the recipe's.")]
Checkpoint = Annotated[
    str | None,
    typer.Option("--checkpoint", help="best, last, average or a step; default: the run's."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Number of CPU threads.")]
Precision = Annotated[str, typer.Option("--precision", help="float32, bfloat16, float16 or auto.")]
SearchPrecision = Annotated[
    str, typer.Option("--precision", help="float32, bfloat16, float16, int8 or auto.")
]
Engine = Annotated[str, typer.Option("--engine", help="Inference backend: torch or ctranslate2.")]
Quantization = Annotated[
    str | None,
    typer.Option(
        "--quantization",
        help="CTranslate2's data type: int8, int8_float32, int16, float16, bfloat16 or float32.",
    ),
]
SourceColumn = Annotated[
    str | None,
    typer.Option(
        "--source-column",
        help="CSV, TSV: the column of sources: its name in the first row, or its number.",
    ),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(
        "--target-column",
        help="CSV, TSV: the column of targets; default: the texts of --source-column are replaced.",
    ),
]

Sentences = Annotated[int, typer.Option(help="Number of worst and best sentences shown.")]


def columns_of(source: str | None, target: str | None) -> "Columns | None":
    """The columns of a table; None if none are given.

    Args:
        source: ``--source-column``.
        target: ``--target-column``.

    Raises:
        UserError: only the column of targets is given.
    """
    from heedful.data.documents import Columns

    if source is None and target is not None:
        raise UserError("--target-column needs --source-column")
    return None if source is None else Columns(source, target or source)


def parameters(options: type[Any]) -> list[Parameter]:
    """The fields of a dataclass as parameters of a typer command."""
    return [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if one.default is MISSING else one.default,
            annotation=one.type,
        )
        for one in fields(options)
    ]


def flag(one: Parameter) -> str:
    """The flag of an option, such as ``--from``."""
    for option in get_args(one.annotation)[1:]:
        # In an annotation, typer.Option stores its first argument, the flag, as the default.
        if str(getattr(option, "default", "")).startswith("--"):
            return str(option.default)
    return "--" + one.name.replace("_", "-")


class Opens(Protocol):
    """The options for opening a run."""

    @property
    def checkpoint(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def precision(self) -> str: ...


def opening_of(options: Opens) -> dict[str, Any]:
    """The arguments of ``TaskSpec.load`` from the options of a command."""
    return {
        "device": options.device,
        "precision": options.precision,
        "checkpoint": options.checkpoint,
    }


def load_for(task: str, options: Any) -> Any:
    """The predictor of the run that is given to the command of a task.

    Args:
        task: the name of the task.
        options: options of the command, with a ``run`` and those of :class:`Opens`.

    Raises:
        UserError: the folder is not a run, or the run has another task.
    """
    from heedful.tasks.spec import spec_of_run

    _, spec = spec_of_run(options.run)
    if spec.name != task:
        raise UserError(f"{options.run} is a run for {spec.name}; use heedful {spec.command}")
    return spec.load(options.run, **opening_of(options))


def use_threads(threads: int | None) -> None:
    """Set the number of threads of this process; None keeps PyTorch's default.

    Raises:
        UserError: the number is out of range.
    """
    if threads is None:
        return
    check_threads(threads)
    from heedful.basics.thread_contention import set_threads

    set_threads(threads)


def check_threads(threads: int) -> None:
    """Check a number of threads.

    Raises:
        UserError: the number is out of range.
    """
    if threads < 1:
        raise UserError(f"--threads {threads}: the minimum is 1")
    if threads > MOST_THREADS:
        raise UserError(f"--threads {threads}: the maximum is {MOST_THREADS:,}")
