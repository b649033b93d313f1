"""``heedful evaluate``: score a run, or files with the outputs of any system."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_function, merge_parameters
from heedful.tasks.options import (
    Checkpoint,
    Device,
    SearchPrecision,
    Threads,
    flag,
    parameters,
    use_threads,
)
from heedful.tasks.spec import Opening, TaskSpec, spec_named, specs

if TYPE_CHECKING:
    from heedful.evaluation.outcome import Evaluation

HELP = """Score a run on its test set or on files: metrics, breakdowns and the worst errors.

Translations are scored by BLEU, chrF and TER with confidence intervals; the report lists error
rates and the worst and best sentences. Give a run, or files with the outputs of any system. A
second run or file is compared with paired significance tests. Classifiers and taggers are scored by
accuracy, macro F1 and Matthews' correlation, language models by perplexity. --benchmark scores runs
of GLUE's or SuperGLUE's tasks by their official metrics and writes submissions.

Examples:

    heedful evaluate runs/en-de

    heedful evaluate runs/en-de --against runs/old --by-length --json

    heedful evaluate runs/teams --data new.csv

    heedful evaluate --hypotheses out.de --references test.de --sources test.en

    heedful evaluate --benchmark glue runs/cola runs/rte --data glue --output submissions
"""


@dataclass(frozen=True)
class _First:
    """The parameters before the options of the tasks."""

    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="The run to score; with --benchmark, a run for each task.", metavar="RUN"
        ),
    ] = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="Test data in the format of the run's training data. For translations: a TSV, "
            "TMX, PO or XLIFF file, or two aligned text files (repeat the option). Default: the "
            "run's test set. With --benchmark: the folder with a folder of official files for "
            "each task.",
        ),
    ] = None
    benchmark: Annotated[
        str | None,
        typer.Option(
            "--benchmark",
            help="Score the tasks of glue, superglue or russian-superglue by their official "
            "metrics. --output is then the folder for submissions.",
        ),
    ] = None


@dataclass(frozen=True)
class _Last:
    """The parameters after the options of the tasks."""

    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write the run's outputs to this file, one per line."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: SearchPrecision = "float32"


def register(app: typer.Typer) -> None:
    """Add the command."""
    tasks = [parameters(spec.evaluation_options()) for spec in specs()]
    own = merge_parameters([parameters(_First), *tasks, parameters(_Last)])
    add_function(app, "evaluate", HELP, own, _evaluate)


def _evaluate(values: dict[str, Any]) -> None:
    from heedful.inference.files import check_output

    first = _First(**{one.name: values.pop(one.name) for one in fields(_First)})
    last = _Last(**{one.name: values.pop(one.name) for one in fields(_Last)})
    use_threads(last.threads)
    runs = first.runs or []
    if first.benchmark is not None:
        found = _evaluate_benchmark(first.benchmark, runs, first.data or [], values, last)
    elif len(runs) > 1:
        raise UserError(f"{len(runs)} runs: give one, or the tasks of a benchmark with --benchmark")
    else:
        check_output(last.output)
        if runs:
            found = _evaluate_run(runs[0], first.data, values, last)
        else:
            found = _evaluate_files(first.data, values, last)
    if last.as_json:
        print(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
        return
    from heedful.evaluation.tables import draw

    draw(found.shown())


def _evaluate_files(data: list[str] | None, values: dict[str, Any], last: _Last) -> "Evaluation":
    from heedful.runs.recipe import DEFAULT

    if last.output is not None:
        raise UserError("--output needs a run; the outputs are already in a file")
    if data:
        raise UserError("--data needs a run; to score files, give --hypotheses and --references")
    for name in ("checkpoint", "precision"):
        if getattr(last, name) != getattr(_Last, name):
            raise UserError(f"--{name} needs a run; files are scored as they are, so leave it out")
    spec = spec_named(DEFAULT)
    return spec.evaluate_files(_options_of(spec, values, f"files are scored as {spec.name}"))


def _evaluate_run(
    path: Path, data: list[str] | None, values: dict[str, Any], last: _Last
) -> "Evaluation":
    from heedful.interop.engines import load_predictor
    from heedful.tasks.scoring import record_evaluation
    from heedful.tasks.spec import spec_of_run

    run, spec = spec_of_run(path)
    options = _options_of(spec, values, f"{path} is a run for {spec.name}")
    if last.output is not None and not spec.has_outputs:
        raise UserError(f"--output: a run for {spec.name} has no outputs to write line by line")
    opening = Opening(last.device, last.precision, last.checkpoint, load_predictor)
    found = spec.evaluate(run, data, options, opening)
    if last.output is not None:
        _write_outputs(last.output, found)
    if data is None:
        record_evaluation(run, found, opening)
    return found


def _evaluate_benchmark(
    suite: str, runs: list[Path], data: list[str], values: dict[str, Any], last: _Last
) -> "Evaluation":
    from heedful.tasks.suites import evaluate_suite

    for spec in specs():
        for one in parameters(spec.evaluation_options()):
            if values[one.name] != one.default:
                raise UserError(f"{flag(one)} is not for --benchmark; leave it out")
    if not runs:
        raise UserError("--benchmark needs runs: give a run for each task")
    if len(data) > 1:
        raise UserError("with --benchmark, --data is one folder: that of the tasks' folders")
    folder = Path(data[0]) if data else None
    opening = Opening(last.device, last.precision, last.checkpoint)
    return evaluate_suite(suite, runs, folder, last.output, opening)


def _options_of(spec: TaskSpec, values: dict[str, Any], why: str) -> Any:
    """The options of a task.

    Raises:
        UserError: an option of another task was given.
    """
    kind = spec.evaluation_options()
    own = {one.name for one in fields(kind)}
    for other in specs():
        for one in parameters(other.evaluation_options()):
            if one.name not in own and values[one.name] != one.default:
                raise UserError(f"{flag(one)} is for {_tasks_with(one.name)}; {why}")
    return kind(**{name: values[name] for name in own})


def _tasks_with(option: str) -> str:
    """The tasks that have an option: "translation, text-to-text or alignment"."""
    *more, last = [
        spec.name
        for spec in specs()
        if any(one.name == option for one in fields(spec.evaluation_options()))
    ]
    return f"{', '.join(more)} or {last}" if more else last


def _write_outputs(path: Path, found: "Evaluation") -> None:
    from heedful.inference.files import write_lines

    if found.outputs is None:
        raise UserError("--output needs the outputs of one head: add --head")
    write_lines([found.outputs], path, "output")
