"""Draws docs/images/architecture.svg: the rooms of the code, their size and their imports.

python docs/scripts/architecture_picture.py

The rooms and their order are import-linter's layers in pyproject.toml, what a room holds is the
first part of its row in docs/architecture.md, all numbers are counted in src. Needs import-linter,
as ``make lint`` does.
"""

import math
import re
import sys
import tomllib
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heedful"
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "images" / "architecture.svg"
CODE = (".py", ".c", ".h", ".js", ".css", ".html")

WIDTH, MARGIN, TOP, ROW, CELL = 800, 14, 84, 24, 20
"""Pixels: of the picture, around it, above the rows; height of a row, width of a column."""
HOLDS, MODULES, LINES = 92, 394, 448
"""Left edge of what a room holds; right edges of the numbers."""
LARGEST = 8.5
"""Radius of the largest dot."""

STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", "Noto Sans", Arial, sans-serif; }
  .paper { fill: #ffffff; } .band { fill: #f3f5f8; } .up { fill: #e7ebf0; }
  text { fill: #1f2328; } .quiet { fill: #59636e; font-size: 11.5px; }
  .room { font-weight: 600; } .own { fill: #8c959f; } .dot { fill: #0b6bcb; }
  .number { text-anchor: end; font-variant-numeric: tabular-nums; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; } .band { fill: #161b22; } .up { fill: #21262d; }
    text { fill: #e6edf3; } .quiet { fill: #9198a1; }
    .own { fill: #6e7681; } .dot { fill: #58a6ff; }
  }
"""


@dataclass(frozen=True)
class Room:
    """A package directly below ``heedful``."""

    name: str
    holds: str
    modules: int
    lines: int


def rooms() -> list[Room]:
    """The rooms from top to bottom."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = tables["tool"]["importlinter"]["contracts"]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    holds = {name: text.partition(";")[0] for name, text in rows}
    found = []
    for name in contract["layers"]:
        if name not in holds:
            sys.exit(f"{PAGE.name}: the table of rooms has no row for `{name}`")
        files = [path for path in (SOURCE / name).rglob("*") if path.suffix in CODE]
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        modules = sum(path.suffix == ".py" for path in files)
        found.append(Room(name, holds[name], modules, lines))
    return found


def importing(found: list[Room]) -> dict[tuple[str, str], int]:
    """(room, another room) → how many modules of the first import any of the second."""
    names = {room.name for room in found}
    pairs = set()
    graph = grimp.build_graph(SOURCE.name, cache_dir=None)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            here, there = module.split(".")[1:2], imported.split(".")[1:2]
            if here != there and {*here, *there} <= names and here and there:
                pairs.add((here[0], there[0], module))
    counts: dict[tuple[str, str], int] = {}
    for here_room, there_room, _ in pairs:
        counts[here_room, there_room] = counts.get((here_room, there_room), 0) + 1
    return counts


def text(x: float, y: float, content: str, kind: str = "", more: str = "") -> str:
    """A line of text with its baseline at ``y``."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{more}>{escape(content)}</text>'


def left_part(found: list[Room]) -> list[str]:
    """The bands, names, contents and numbers of the rooms, with their headings."""
    parts = []
    for row, room in enumerate(found):
        top = TOP + row * ROW
        if row % 2 == 0:
            width = WIDTH - 2 * MARGIN + 8
            parts.append(
                f'<rect class="band" x="{MARGIN - 4}" y="{top}" width="{width}" height="{ROW}"/>'
            )
        base = top + ROW / 2 + 4
        parts.append(text(MARGIN, base, room.name, "room"))
        parts.append(text(HOLDS, base, room.holds, "quiet"))
        parts.append(text(MODULES, base, f"{room.modules}", "number"))
        parts.append(text(LINES, base, f"{room.lines:,}", "number"))
    head = TOP - 8
    parts += [text(MARGIN, head, "room", "quiet"), text(HOLDS, head, "holds", "quiet")]
    parts += [text(MODULES, head, "modules", "quiet number")]
    parts += [text(LINES, head, "lines", "quiet number")]
    return parts


def matrix(found: list[Room]) -> list[str]:
    """Dots: rows import columns. What lies left of the diagonal would point upwards."""
    left = WIDTH - MARGIN - CELL * len(found)
    counts = importing(found)
    most = max(counts.values())
    parts = []
    for row, room in enumerate(found):
        x, y = left + row * CELL, TOP + row * ROW
        if row:
            parts.append(
                f'<rect class="up" x="{left}" y="{y}" width="{row * CELL}" height="{ROW}"/>'
            )
        parts.append(
            f'<rect class="own" x="{x + CELL / 2 - 3:g}" y="{y + ROW / 2 - 3:g}" '
            'width="6" height="6"/>'
        )
        turned = f' transform="rotate(-90 {x + CELL / 2 + 4:g} {TOP - 8})"'
        parts.append(text(x + CELL / 2 + 4, TOP - 8, room.name, "", turned))
    places = {room.name: place for place, room in enumerate(found)}
    for (here, there), count in sorted(counts.items()):
        x = left + (places[there] + 0.5) * CELL
        y = TOP + (places[here] + 0.5) * ROW
        radius = max(1.5, LARGEST * math.sqrt(count / most))
        told = f"{here}: {count} modules import {there}"
        parts.append(
            f'<circle class="dot" cx="{x:g}" cy="{y:g}" r="{radius:.1f}">'
            f"<title>{told}</title></circle>"
        )
    middle = TOP + ROW * len(found) * 0.72
    parts.append(text(left + 14, middle, "upward imports:", "quiet"))
    parts.append(text(left + 14, middle + 15, "none", "quiet"))
    return parts


def draw(found: list[Room]) -> str:
    """The picture as SVG."""
    height = TOP + ROW * len(found) + 34
    told = "The rooms of heedful from top to bottom: " + ", ".join(room.name for room in found)
    below = (
        "A dot: modules of the row's room import the column's room; the larger, the more modules. "
        "Lines count Python, C, JavaScript, CSS, HTML."
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{told}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
        *left_part(found),
        *matrix(found),
        text(MARGIN, height - 12, below, "quiet"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(rooms()), encoding="utf-8")
