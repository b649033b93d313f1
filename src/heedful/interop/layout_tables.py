"""The tables of the layouts that can be imported and exported, as the layouts describe themselves.

``python docs/scripts/layouts_page.py`` writes them into docs/interop.md.
"""

from collections.abc import Sequence

from heedful.interop.layouts import (
    albert,
    bart,
    bert,
    distilbert,
    electra,
    gpt,
    llama,
    m2m100,
    marian,
    pegasus,
    roberta,
    t5,
    xlnet,
)
from heedful.interop.layouts.rows import ExportRow, ImportRow

_DESCRIBED = (
    bert,
    roberta,
    distilbert,
    albert,
    electra,
    xlnet,
    gpt,
    llama,
    marian,
    t5,
    bart,
    pegasus,
    m2m100,
)
"""The layouts, in the order of the tables."""
_END = "<!-- end -->"


def import_rows() -> list[ImportRow]:
    """What can be imported, of all layouts."""
    return [row for layout in _DESCRIBED for row in layout.IMPORTED]


def export_rows() -> list[ExportRow]:
    """What can be exported, of all layouts."""
    return [row for layout in _DESCRIBED for row in layout.EXPORTED]


def import_table() -> str:
    """The imports as a Markdown table."""
    rows = [
        (_code(one.model_types), _code(one.classes), one.task, one.used_with)
        for one in import_rows()
    ]
    return _table(("`model_type`", "model", "task of the run", "used with"), rows)


def export_table() -> str:
    """The exports as a Markdown table."""
    rows = [(one.run, one.classes, one.conditions) for one in export_rows()]
    return _table(("run", "exported as", "conditions"), rows)


def with_tables(text: str) -> str:
    """The text of the page, with the current tables between its marks."""
    for name, table in {"imports": import_table(), "exports": export_table()}.items():
        start, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(_END)
        if not (mark and end):
            raise ValueError(f"the page has no marks <!-- {name} --> and {_END}")
        text = f"{start}{mark}{table}\n{end}{after}"
    return text


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
