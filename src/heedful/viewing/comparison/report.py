"""Writes the report of a comparison beside its runs."""

from pathlib import Path
from typing import Any

from heedful.basics.files import write_json, write_text
from heedful.viewing.comparison.markdown import to_markdown
from heedful.viewing.comparison.results import results_of

NAME = "report"


def write_report(folder: Path) -> dict[str, Any]:
    """Write ``report.json`` and ``report.md``; returns the content of ``report.json``.

    Nothing is trained or scored.

    Raises:
        UserError: the folder is not a comparison, or cannot be written.
    """
    found = results_of(folder)
    write_json(folder / f"{NAME}.json", found)
    write_text(folder / f"{NAME}.md", to_markdown(found, {}))
    return found
