"""The options of ``heedful train`` for tables of similar texts."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class SimilarColumns:
    """The columns of a table of texts, of similar texts, or of rated pairs."""

    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--texts",
            help="embedding: column of the text; give it twice for a similar text as well, and a "
            "third time for a text that is not similar.",
        ),
    ] = None
    rating: Annotated[
        str | None,
        typer.Option("--rating", help="embedding: column of the rating of two texts."),
    ] = None
