"""Figures as files: PNG, SVG or PDF, the same bytes for the same picture."""

import io
import warnings
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice

FORMATS = ("png", "svg", "pdf")
_MISSING = "heedful_characters_without_glyph"

# Dates and random ids would make every file differ from the one before.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": "heedful"},
    "svg": {"Creator": "heedful", "Date": None},
    "pdf": {"Creator": "heedful", "CreationDate": None},
}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches, with a canvas of its own and no global state."""
    figure = Figure(figsize=(width, height), dpi=100)
    FigureCanvasAgg(figure)
    return figure


def remember_missing(figure: Figure, characters: str) -> None:
    """Keep with the figure which characters no font has, to be said when it is saved."""
    setattr(figure, _MISSING, characters)


def missing_characters(figure: Figure) -> str:
    """The characters of the figure that no installed font has."""
    return str(getattr(figure, _MISSING, ""))


def check_format(path: Path) -> str:
    """The picture format that a file's name asks for.

    Raises:
        UserError: the ending is none of .png, .svg and .pdf.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UserError(f"cannot draw {path}: give a file that ends in .png, .svg or .pdf")
    return kind


def save_figure(figure: Figure, path: Path, resolution: int = 200) -> None:
    """Write a figure in the format of its name, whole or not at all.

    In SVG text stays text, so the viewer's own fonts draw it and it can be searched and edited.

    Args:
        figure: what to write.
        path: ends in .png, .svg or .pdf.
        resolution: dots per inch of a PNG.

    Raises:
        UserError: the ending is another one, or the file cannot be written.
    """
    kind = check_format(path)
    data = io.BytesIO()
    settings = matplotlib.rc_context(
        {"svg.hashsalt": "heedful", "svg.fonttype": "none", "pdf.fonttype": 42}
    )
    with settings, warnings.catch_warnings():
        # matplotlib warns once a glyph; they are said once together, below.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        figure.savefig(data, format=kind, dpi=resolution, metadata=_METADATA[kind])
    with atomic_file(path) as file:
        file.write(data.getvalue())
    missing = missing_characters(figure)
    if missing and kind != "svg":
        some = missing[:10] + ("…" if len(missing) > 10 else "")
        notice(
            f"{len(missing)} characters have no glyph in the fonts of this machine and are drawn "
            f"as boxes ({some}); install a font for them (such as Noto Sans CJK) or write an .svg"
        )
