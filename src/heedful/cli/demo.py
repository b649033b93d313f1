"""``heedful demo``: train and inspect a small translator within minutes, on generated data."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.basics.errors import UserError

TRANSLATE = "translate"


def demo(
    task: Annotated[
        str, typer.Option(help="translate, or another task with a demo, such as caption.")
    ] = TRANSLATE,
    source: Annotated[str, typer.Option("--from", help="Source language.")] = "en",
    target: Annotated[str, typer.Option("--to", help="Target language.")] = "de",
    out: Annotated[Path, typer.Option("--out", help="Folder for corpus, run and pictures.")] = Path(
        "demo-run"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the corpus and the training.")] = 1,
    threads: Annotated[int | None, typer.Option("--threads", help="Number of CPU threads.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Train a small model on data of our own, try it on unseen inputs, score and plot.

    Without --task, the data are a generated corpus, and the model is a translator. The corpus
    contains dates, amounts and names from Unicode CLDR in any two languages. For English and
    German, it also contains sentences of a small grammar with known correct translations.

    Examples:

        heedful demo

        heedful demo --from fr --to ja --out demo-fr-ja

        heedful demo --task caption --out demo-captions
    """
    if task != TRANSLATE:
        if (source, target) != ("en", "de"):
            raise UserError("--from and --to are for the demo of translation, without --task")
        from heedful.cli.task_demonstration import demonstrate_task

        demonstrate_task(task, out, seed=seed, threads=threads, device=device)
        return
    from heedful.cli.demonstration import demonstrate

    demonstrate(source, target, out, seed=seed, threads=threads, device=device)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)
