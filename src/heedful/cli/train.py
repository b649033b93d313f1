"""``heedful train``: from a recipe, or straight from a corpus, to a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_command
from heedful.tasks.spec import specs


def _trainable() -> list[str]:
    """The tasks that can be trained without a recipe, as --task names them."""
    return [spec.train_option for spec in specs() if spec.train_option]


def _task(value: str) -> str:
    if value not in _trainable():
        raise typer.BadParameter(f"'{value}' is not one of {', '.join(_trainable())}")
    return value


RECIPE = Annotated[
    str | None,
    typer.Argument(
        help="A TOML recipe, or the name of one that comes with heedful.", metavar="RECIPE"
    ),
]
DATA = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="With a recipe: the folder its relative data paths start from. Without: the corpus "
        "(TSV, TMX, PO, XLIFF), or twice for two aligned text files; with --task classify a table "
        "(CSV, TSV, JSON lines), with tag CoNLL-U, with language-model plain text.",
    ),
]


@dataclass(frozen=True)
class Train:
    """Train a model; the same command again goes on exactly where it stopped.

    With a recipe it trains what the recipe says; with --data alone it chooses sizes, vocabulary,
    steps and held-out pairs from the corpus and writes the recipe it chose into the run.

    Examples:

        heedful train --data memory.tmx --from en --to de --out runs/en-de

        heedful train multi30k-transformer-tiny --data multi30k --out runs/multi30k

        heedful train recipe.toml --out runs/small --set training.max_steps=2000

        heedful train --task align --data corpus.tsv --from en --to es --out runs/aligner

        heedful train --task classify --data my.csv --text body --label team --out runs/teams
    """

    recipe: RECIPE = None
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder: made, or gone on with.")
    ] = None
    data: DATA = None
    source: Annotated[str | None, typer.Option("--from", help="Source language.")] = None
    target: Annotated[str | None, typer.Option("--to", help="Target language.")] = None
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting: key=value; may be repeated."),
    ] = None
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from",
            help="Begin with this run's weights and vocabulary, to adapt it to new data.",
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            parser=_task,
            metavar=f"[{'|'.join(_trainable())}]",
            help="Without a recipe: what to train for, translate unless said. align makes a folder "
            "of two runs, one a direction, for heedful align.",
        ),
    ] = None
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="classify: the column of the text; twice for pairs of texts."),
    ] = None
    label: Annotated[
        str | None, typer.Option("--label", help="classify: the column of the label.")
    ] = None
    column: Annotated[
        str | None,
        typer.Option(
            "--column", help="tag: the column of the tags (upos), or an attribute (misc.NER)."
        ),
    ] = None
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or mps.")] = None
    threads: Annotated[int | None, typer.Option("--threads", help="Processor threads.")] = None
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="auto, float32, bfloat16, or float16 (CUDA)."),
    ] = None


def _run(options: Train) -> None:
    """Run the command."""
    from heedful.tasks.commands import settings_of, task_asked_for, train_from_command, trainable

    if options.out is None:
        raise UserError("--out RUN is missing: the folder to train into")
    machine = {"device": options.device, "threads": options.threads, "precision": options.precision}
    settings = [f"training.{name}={value}" for name, value in machine.items() if value is not None]
    changes = [*(options.overrides or []), *settings]
    if (
        options.recipe is not None
        and options.task is not None
        and not trainable()[options.task].takes_recipe
    ):
        raise UserError(
            f"--task {options.task} chooses its own recipe: leave out the recipe, or set its task"
        )
    options_of_data = {
        "--from": options.source,
        "--to": options.target,
        "--text": options.text,
        "--label": options.label,
        "--column": options.column,
    }
    chosen = options.recipe is None and not (options.out / "run.json").exists()
    asked = task_asked_for(options.task, options.start_from) if chosen else options.task
    given, choose = settings_of(asked or "translate", options_of_data, changes, chosen=chosen)
    how: dict[str, Any] = {
        "given": given,
        "overrides": changes,
        "start_from": options.start_from,
        "task": options.task,
        "choose": choose,
    }
    if options.recipe is None and options.task is not None:
        spec = trainable()[options.task]
        finished = spec.train_corpus(train_from_command, options.out, options.data or [], **how)
    else:
        finished = train_from_command(options.recipe, options.out, options.data or [], **how)
    if not finished:
        raise typer.Exit(130)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "train", Train, _run)
