"""The report as one HTML file with its pictures, which loads nothing from elsewhere."""

import base64
import html
from collections.abc import Mapping
from typing import Any

from heedful.viewing.comparison.sections import Section, about, sections_of

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
p.note { color: color-mix(in srgb, currentColor 75%, transparent); margin: .2rem 0 .8rem;
  max-width: 60rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { color: color-mix(in srgb, currentColor 70%, transparent); } dd { margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; vertical-align: top; }
th { border-bottom: 1px solid; font-weight: 600; }
th:first-child, td:first-child, .text td, .text th { text-align: left; }
.numbers td { white-space: nowrap; }
.text td { white-space: pre-wrap; overflow-wrap: anywhere; }
.text td:first-child { min-width: 12rem; }
tr.gap td { height: .6rem; }
tbody tr:not(.gap):hover { background: color-mix(in srgb, currentColor 8%, transparent); }
img { background: #fff; border-radius: 4px; max-width: 100%; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def to_html(report: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    """The report; ``pictures`` are SVG files by name."""
    title = html.escape(f"Comparison of {report['recipe']}")
    facts = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in about(report)
    )
    body = "\n".join(_section(section, pictures) for section in sections_of(report))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<dl>{facts}</dl>\n{body}\n</body>\n</html>\n"
    )


def _section(section: Section, pictures: Mapping[str, bytes]) -> str:
    parts = [f"<section>\n<h2>{html.escape(section.title)}</h2>"]
    if section.note:
        parts.append(f'<p class="note">{html.escape(section.note)}</p>')
    picture = pictures.get(section.picture or "")
    if picture is not None:
        data = base64.b64encode(picture).decode("ascii")
        name = html.escape(f"{section.title}: the figures of the table as curves")
        parts.append(f'<p><img alt="{name}" src="data:image/svg+xml;base64,{data}"></p>')
    header = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in section.header)
    kind = "text" if section.is_text else "numbers"
    parts.append(f'<div class="wide"><table class="{kind}"><thead><tr>{header}</tr></thead><tbody>')
    for row in section.rows:
        cells = "".join(f'<td dir="auto">{html.escape(cell)}</td>' for cell in row)
        gap = "" if any(row) else ' class="gap"'
        parts.append(f"<tr{gap}>{cells}</tr>")
    parts.append("</tbody></table></div>\n</section>")
    return "\n".join(parts)
