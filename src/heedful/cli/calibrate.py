"""``heedful calibrate``: temperature scaling of a run's probabilities."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.commands import add_command
from heedful.tasks.line_commands import Head
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, opening_of, use_threads


@dataclass(frozen=True)
class Calibrate:
    """Calibrate the probabilities of a classifier or tagger by temperature scaling.

    One number, the temperature, is fitted on the validation examples of the run and written to
    calibration.json in the run. All probabilities of the run then use it. Weights do not change;
    labels change at most for texts that are read in several windows. Delete the file to undo this.

    Examples:

        heedful calibrate runs/teams

        heedful plot runs/teams --calibration --output reliability.png
    """

    run: Annotated[Path, typer.Argument(help="The run of a classifier or tagger.")]
    head: Head = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def _run(options: Calibrate) -> None:
    """Run the command."""
    use_threads(options.threads)
    from heedful.evaluation.calibration import calibration_table
    from heedful.evaluation.outcome import ReportTable
    from heedful.evaluation.tables import draw
    from heedful.runs.calibration import FILE
    from heedful.tasks.spec import Opening, spec_of_run

    run, spec = spec_of_run(options.run)
    found = spec.calibrate(run, options.head, Opening(**opening_of(options)))
    if options.as_json:
        print(json.dumps(found.as_json(), indent=1))
        return
    fitted = found.temperature
    rows = [
        ("temperature", f"{fitted.value:.4f}", "1"),
        ("cross-entropy (nats)", f"{fitted.after:.4f}", f"{fitted.before:.4f}"),
    ]
    errors = calibration_table(found.after, found.before)
    title = f"{found.head}: calibrated on {fitted.examples:,} validation predictions"
    draw([ReportTable(title, errors.header, [*rows, *errors.rows])])
    print(f"written to {run.path / FILE}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "calibrate", Calibrate, _run)
