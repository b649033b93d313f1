"""``heedful learning-rate``: suggest a learning rate for a recipe."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.commands import (
    DataFolder,
    Overrides,
    TrainingDevice,
    TrainingPrecision,
    add_command,
    changed_recipe,
)
from heedful.tasks.options import Threads

if TYPE_CHECKING:
    from heedful.training.rate_finder import RangeTest


@dataclass(frozen=True)
class LearningRate:
    """Suggest a learning rate: train some steps while the rate grows, until the loss diverges.

    The steps are taken in a temporary run, from the initial weights of the recipe. No other run
    changes.

    Example:

        heedful learning-rate recipe.toml --data corpora --plot rates.svg
    """

    recipe: Annotated[
        str,
        typer.Argument(help="A TOML recipe, or the name of a built-in recipe."),
    ]
    data: DataFolder = None
    steps: Annotated[int, typer.Option("--steps", help="Number of steps, at least 20.")] = 100
    lowest: Annotated[float, typer.Option("--lowest", help="Learning rate of the first step.")] = (
        1e-6
    )
    highest: Annotated[float, typer.Option("--highest", help="Learning rate of the last step.")] = (
        1.0
    )
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw the losses into this file: .svg, .png or .pdf."),
    ] = None
    start_from: Annotated[
        Path | None,
        typer.Option("--start-from", help="Start from this run's weights and vocabulary."),
    ] = None
    overrides: Overrides = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    device: TrainingDevice = None
    threads: Threads = None
    precision: TrainingPrecision = None


def _run(options: LearningRate) -> None:
    """Run the command."""
    from heedful.training.rate_finder import find_learning_rate

    if options.plot is not None:
        from heedful.viewing.figures import check_format

        check_format(options.plot)  # before the test
    where, tables = changed_recipe(options)
    found = find_learning_rate(
        tables,
        where,
        data=options.data,
        start_from=options.start_from,
        lowest=options.lowest,
        highest=options.highest,
        steps=options.steps,
    )
    if options.plot is not None:
        from heedful.viewing.figures import save_figure
        from heedful.viewing.rates import rates_figure

        save_figure(
            rates_figure(found.rates, found.losses, found.smoothed, found.suggestion), options.plot
        )
    print(json.dumps(found.as_json(), indent=1) if options.as_json else _text(found))


def _text(found: "RangeTest") -> str:
    lines = []
    if found.suggestion is None:
        lines.append("no suggestion: the loss did not fall; try a lower --lowest or more --steps")
    else:
        lines.append(f"training.learning_rate = {found.suggestion:.2g}")
    best = found.lowest
    lines.append(
        f"from {found.rates[0]:.2g} to {found.rates[-1]:.2g} in {len(found.rates)} steps; lowest "
        f"smoothed loss {found.smoothed[best]:.3f} at {found.rates[best]:.2g}"
    )
    lines.append("the loss diverged" if found.diverged else "the loss did not diverge")
    return "\n".join(lines)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "learning-rate", LearningRate, _run)
