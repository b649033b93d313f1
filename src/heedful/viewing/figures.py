"""Save figures as PNG, SVG or PDF files; equal figures give equal bytes."""

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

# By default, matplotlib adds dates and random ids, so that no two files would be equal.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": "heedful"},
    "svg": {"Creator": "heedful", "Date": None},
    "pdf": {"Creator": "heedful", "CreationDate": None},
}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches; it uses no global state of matplotlib."""
    figure = Figure(figsize=(width, height), dpi=100)
    FigureCanvasAgg(figure)
    return figure


def set_missing_characters(figure: Figure, characters: str) -> None:
    """Store the characters that no font has in the figure, for a notice when it is saved."""
    setattr(figure, _MISSING, characters)


def missing_characters(figure: Figure) -> str:
    """The characters in the figure that no installed font has."""
    return str(getattr(figure, _MISSING, ""))


def check_format(path: Path) -> str:
    """The format of a file, from the extension of its name.

    Raises:
        UserError: the extension is not .png, .svg or .pdf.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UserError(f"cannot draw {path}: the file name must end in .png, .svg or .pdf")
    return kind


def save_figure(figure: Figure, path: Path, resolution: int = 200) -> None:
    """Write a figure atomically, in the format of the file's extension.

    SVG files contain text as text: it can be searched and edited, and the viewer chooses the font.

    Args:
        figure: the figure.
        path: a name that ends in .png, .svg or .pdf.
        resolution: resolution of a PNG in dots per inch.

    Raises:
        UserError: the extension is not supported, or the file cannot be written.
    """
    kind = check_format(path)
    data = io.BytesIO()
    settings = matplotlib.rc_context(
        {"svg.hashsalt": "heedful", "svg.fonttype": "none", "pdf.fonttype": 42}
    )
    with settings, warnings.catch_warnings():
        # matplotlib warns about every glyph; the notice below lists all of them once.
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
