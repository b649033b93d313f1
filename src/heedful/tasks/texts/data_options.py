"""The options of ``heedful train`` for tables and tagged words."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class LabelledColumns:
    """The columns of a table of labelled texts."""

    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text", help="classify: column of the text; give it twice for pairs of texts."
        ),
    ] = None
    label: Annotated[str | None, typer.Option("--label", help="classify: column of the label.")] = (
        None
    )


@dataclass(frozen=True)
class TaggedColumn:
    """The column of the tags."""

    column: Annotated[
        str | None,
        typer.Option(
            "--column", help="tag: column of the tags (upos), or an attribute (misc.NER)."
        ),
    ] = None
