"""Options that several commands have, and what they mean."""

from dataclasses import MISSING, fields
from inspect import Parameter
from typing import Annotated, Any, Protocol, get_args

import typer

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_THREADS

Beam = Annotated[int | None, typer.Option("--beam", help="Beam width; default: the recipe's.")]
Checkpoint = Annotated[
    str | None,
    typer.Option("--checkpoint", help="best, last, average or a step; default: the run's choice."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Processor threads.")]
Precision = Annotated[str, typer.Option("--precision", help="float32, bfloat16, float16 or auto.")]
SearchPrecision = Annotated[
    str, typer.Option("--precision", help="float32, bfloat16, float16, int8 or auto.")
]
Engine = Annotated[str, typer.Option("--engine", help="Who translates: torch or ctranslate2.")]
Quantization = Annotated[
    str | None,
    typer.Option(
        "--quantization",
        help="What CTranslate2 computes in: int8, int8_float32, int16, float16, bfloat16, float32.",
    ),
]

Sentences = Annotated[int, typer.Option(help="How many worst and best sentences.")]


def parameters(options: type[Any]) -> list[Parameter]:
    """The parameters of a typer command that has the fields of a dataclass."""
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
    """An option as people write it: ``--from``."""
    for told in get_args(one.annotation)[1:]:
        # In an annotation, the first argument of typer.Option is a flag, which it keeps as default.
        if str(getattr(told, "default", "")).startswith("--"):
            return str(told.default)
    return "--" + one.name.replace("_", "-")


class Opens(Protocol):
    """Options that say how a run is opened."""

    @property
    def checkpoint(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def precision(self) -> str: ...


def opening_of(options: Opens) -> dict[str, Any]:
    """The arguments of ``TaskSpec.load`` that a command was given."""
    return {
        "device": options.device,
        "precision": options.precision,
        "checkpoint": options.checkpoint,
    }


def use_threads(threads: int | None) -> None:
    """Compute on so many threads, to the end of the process; on PyTorch's choice if None.

    Raises:
        UserError: there are to be none.
    """
    if threads is None:
        return
    if threads < 1:
        raise UserError(f"--threads {threads}: at least 1 is needed")
    if threads > MOST_THREADS:
        raise UserError(f"--threads {threads}: at most {MOST_THREADS:,} are possible")
    from heedful.basics.thread_contention import set_threads

    set_threads(threads)
