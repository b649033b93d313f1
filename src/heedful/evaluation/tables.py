"""Tables for a terminal, or as plain text for pipes and files."""

import sys
from collections.abc import Sequence

from heedful.evaluation.outcome import ReportTable


def draw(tables: Sequence[ReportTable]) -> None:
    """Write tables to standard output: formatted on a terminal, TAB-separated otherwise."""
    if not sys.stdout.isatty():
        print("\n\n".join(table.plain() for table in tables))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for table in tables:
        drawn = Table(title=Text(table.title), box=SIMPLE_HEAD, title_justify="left")
        for name in table.header:
            drawn.add_column(Text(name), overflow="fold")
        for row in table.rows:
            # Text instead of str, so that the content is not interpreted as markup.
            drawn.add_row(*(Text(cell) for cell in row))
        console.print(drawn)
