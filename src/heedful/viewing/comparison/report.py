"""Writes the report of a comparison beside its runs."""

from pathlib import Path
from typing import Any

from heedful.basics.files import write_json, write_text
from heedful.tasks.scoring import OtherTest
from heedful.viewing.comparison.html import to_html
from heedful.viewing.comparison.latex import to_latex
from heedful.viewing.comparison.markdown import to_markdown
from heedful.viewing.comparison.pictures import pictures_of
from heedful.viewing.comparison.results import results_of
from heedful.viewing.figures import save_figure

NAME = "report"


def write_report(folder: Path, other: OtherTest | None = None) -> dict[str, Any]:
    """Write ``report.json``, ``.md``, ``.html`` and ``.tex``, and the pictures as SVG files.

    Nothing is trained or scored.

    Args:
        folder: the comparison's folder.
        other: test data that the runs were scored on beside their own; the report is written to its
            folder.

    Returns:
        The content of ``report.json``.

    Raises:
        UserError: the folder is not a comparison, or cannot be written.
    """
    found = results_of(folder, other)
    folder = folder if other is None else other.folder
    pictures = {}
    for name, figure in pictures_of(found).items():
        pictures[name] = folder / f"{name}.svg"
        save_figure(figure, pictures[name])
    drawn = {name: path.read_bytes() for name, path in pictures.items()}
    write_json(folder / f"{NAME}.json", found)
    names = {name: path.name for name, path in pictures.items()}
    write_text(folder / f"{NAME}.md", to_markdown(found, names))
    write_text(folder / f"{NAME}.html", to_html(found, drawn))
    write_text(folder / f"{NAME}.tex", to_latex(found))
    return found
