"""``heedful demo``: watch a translator learn, in a few minutes, without any data of one's own."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    source: Annotated[str, typer.Option("--from", help="Source language.")] = "en",
    target: Annotated[str, typer.Option("--to", help="Target language.")] = "de",
    out: Annotated[Path, typer.Option("--out", help="Where corpus, run and pictures go.")] = Path(
        "demo-run"
    ),
    seed: Annotated[int, typer.Option(help="Of the corpus and the training.")] = 1,
    threads: Annotated[int | None, typer.Option("--threads", help="Processor threads.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Make a corpus, train a small translator on it, translate unseen text, score it, draw it.

    English and German have a small grammar whose right translations are known, besides dates,
    amounts and names from Unicode CLDR; any other pair of languages has the latter.

    Examples:

        heedful demo

        heedful demo --from fr --to ja --out demo-fr-ja
    """
    from heedful.cli.demonstration import demonstrate

    demonstrate(source, target, out, seed=seed, threads=threads, device=device)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)
