"""Runs a study and writes its report: ``NAME.md``, ``NAME.json`` and pictures as SVG files."""

import math
import shlex
from typing import Any

from heedful.basics.device import choose_device
from heedful.basics.errors import UserError
from heedful.basics.files import write_json, write_text
from heedful.inference.files import check_output
from heedful.studies.study import Cell, Study, StudyOptions, StudyResult, Table
from heedful.viewing.figures import save_figure


def run_study(study: Study, options: StudyOptions) -> dict[str, Any]:
    """Run a study and write its report to ``options.out``.

    Returns:
        The content of ``NAME.json``.

    Raises:
        UserError: something that the study needs is missing or invalid, or the folder cannot be
            written.
    """
    study.require_usable(options)
    if options.out.exists() and not options.out.is_dir():
        raise UserError(f"{options.out} is a file; --out must be a folder")
    check_output(options.out / f"{study.name}.md")
    choose_device(options.device)
    result = study.run(options)
    report = as_report(study, options, result)
    for one in result.pictures:
        save_figure(one.figure, options.out / f"{study.name}-{one.name}.svg")
    write_json(options.out / f"{study.name}.json", report)
    write_text(options.out / f"{study.name}.md", to_markdown(report))
    return report


def as_report(study: Study, options: StudyOptions, result: StudyResult) -> dict[str, Any]:
    """The report as a JSON value; numbers that are not finite are null."""
    return {
        "study": study.name,
        "title": study.title,
        "question": study.question,
        "method": study.method,
        "command": command_of(study, options),
        "seeds": [] if options.runs else list(options.seeds),
        "quick": options.quick,
        "found": list(result.found),
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "columns": list(table.columns),
                "rows": [[_finite(cell) for cell in row] for row in table.rows],
            }
            for table in result.tables
        ],
        "pictures": [
            {"name": one.name, "caption": one.caption, "file": f"{study.name}-{one.name}.svg"}
            for one in result.pictures
        ],
    }


def command_of(study: Study, options: StudyOptions) -> str:
    """The command that repeats a study."""
    parts = ["heedful", "study", study.name, "--out", str(options.out)]
    parts += [] if options.data is None else ["--data", str(options.data)]
    parts += [part for run in options.runs for part in ("--run", str(run))]
    parts += ["--seeds", str(len(options.seeds))] if len(options.seeds) > 1 else []
    return shlex.join([*parts, "--quick"] if options.quick else parts)


def to_markdown(report: dict[str, Any]) -> str:
    """The report of :func:`as_report` as Markdown."""
    parts = [f"# {report['title']}", report["question"]]
    if report["quick"]:
        parts.append("**Made with `--quick`, in seconds: the figures mean nothing.**")
    parts += [f"    {report['command']}", *map(_escaped, report["found"])]
    for one in report["pictures"]:
        parts.append(
            f"![{_escaped(one['caption'])}]({one['file']})\n\n*{_escaped(one['caption'])}*"
        )
    for one in report["tables"]:
        columns, rows = tuple(one["columns"]), tuple(map(tuple, one["rows"]))
        parts += [
            f"## {_escaped(one['title'])}",
            table_lines(Table(one["name"], "", columns, rows)),
        ]
    return "\n\n".join([*parts, "## Method", report["method"]]) + "\n"


def table_lines(table: Table) -> str:
    """A table in Markdown.

    Example:
        >>> rows = (("1.1", 0.98765), ("1.2", None))
        >>> print(table_lines(Table("a", "Heads", ("head", "score"), rows)))
        | head | score |
        | --- | --- |
        | 1.1 | 0.988 |
        | 1.2 | – |
    """
    lines = [tuple(map(_escaped, table.columns)), ("---",) * len(table.columns)]
    lines += [tuple(map(shown, row)) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(cell: Cell) -> str:
    """A cell as text: three decimals, thousands with commas, a dash for nothing.

    Example:
        >>> [shown(cell) for cell in (0.5, 12000, float("nan"), "a|b")]
        ['0.500', '12,000', '–', 'a\\\\|b']
    """
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.3f}"
    return f"{cell:,}" if isinstance(cell, int) else _escaped(cell)


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _escaped(text: str) -> str:
    """Text that Markdown does not interpret, on one line."""
    text = " ".join(text.split())
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text
