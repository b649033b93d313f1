"""The options of ``heedful train`` for a corpus of pairs."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class PairData:
    """The languages of a corpus."""

    source: Annotated[str | None, typer.Option("--from", help="Source language.")] = None
    target: Annotated[str | None, typer.Option("--to", help="Target language.")] = None
