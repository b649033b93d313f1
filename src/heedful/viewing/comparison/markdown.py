"""The report as Markdown."""

from typing import Any

from heedful.viewing.comparison.sections import about, sections_of


def to_markdown(report: dict[str, Any], pictures: dict[str, str]) -> str:
    """The report; ``pictures`` are the names of files beside it."""
    parts = [f"# Comparison of {report['recipe']}"]
    parts.append("\n".join(f"- {name}: {_escaped(text)}" for name, text in about(report)))
    for section in sections_of(report):
        parts.append(f"## {section.title}")
        if section.note:
            parts.append(_escaped(section.note))
        if section.picture in pictures:
            parts.append(f"![{section.title}]({pictures[section.picture]})")
        heads, *rows = (tuple(map(_escaped, row)) for row in (section.header, *section.rows))
        lines = [heads, ("---",) * len(heads), *rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """Text that Markdown does not interpret, on one line."""
    text = " ".join(text.split())
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text
