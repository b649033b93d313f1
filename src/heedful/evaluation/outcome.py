"""The result of an evaluation of any task: figures, tables, and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """A measured number."""

    value: float
    unit: str = ""
    """The unit: ``%``, ``nats a token``; empty for a score without a unit."""
    rises: bool = True
    """Whether a higher value is better."""
    low: float | None = None
    """Lower bound of the 95 % interval, if there is one."""
    high: float | None = None
    signature: str | None = None
    """How it was computed, for example sacrebleu's signature."""

    def recorded(self) -> dict[str, Any]:
        """The figure as recorded in ``scores.jsonl``."""
        kept: dict[str, Any] = {"value": self.value, "low": self.low}
        if self.low is not None or self.signature is not None:
            kept["high"] = self.high
        return kept if self.signature is None else kept | {"signature": self.signature}

    def to_json(self) -> dict[str, Any]:
        """The figure as a value that :mod:`json` can write: bounds and signature if there are."""
        made: dict[str, Any] = {
            "value": self.value, "unit": self.unit, "more_is_better": self.rises,
        }  # fmt: skip
        more = {"low": self.low, "high": self.high, "signature": self.signature}
        return made | {key: value for key, value in more.items() if value is not None}


@dataclass(frozen=True)
class ReportTable:
    """A title, column names and cells, all text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def plain(self) -> str:
        """The table as TAB-separated lines below its title, for pipes and files."""
        lines = [f"# {self.title}", "\t".join(self.header)]
        lines += ["\t".join(_one_line(cell) for cell in row) for row in self.rows]
        return "\n".join(lines)


@dataclass(frozen=True)
class Examples:
    """The test examples with their outputs, for comparing runs example by example.

    Attributes:
        inputs: the inputs as text.
        references: the reference outputs.
        outputs: the outputs.
        measures: figure → how it is computed from examples
            (:func:`heedful.evaluation.statistics.measure`), as JSON.
    """

    inputs: Sequence[str]
    references: Sequence[str]
    outputs: Sequence[str]
    measures: Mapping[str, Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """The examples as a value that :mod:`json` can write."""
        return {
            "inputs": list(self.inputs),
            "references": list(self.references),
            "outputs": list(self.outputs),
            "measures": dict(self.measures),
        }


@dataclass(frozen=True)
class Evaluation:
    """The results of evaluating a run, or outputs in files.

    Attributes:
        title: the name of what was evaluated.
        figures: the figures by name.
        outputs: one output per example, in order; None if the task has none.
        tables: the tables to show; if empty, a table of the figures.
        details: all results as a JSON object; the figures if None.
        settings: how they were computed, e.g. checkpoint and precision; recorded with the figures.
        examples: the examples one by one; None if runs cannot be compared in this way.
        attention: statistics of each attention head, if they were measured.
    """

    title: str
    figures: Mapping[str, Figure]
    outputs: Sequence[str] | None = None
    tables: Sequence[ReportTable] = ()
    details: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    examples: Examples | None = None
    attention: Sequence[Mapping[str, Any]] = ()

    def shown(self) -> list[ReportTable]:
        """The tables to show."""
        return list(self.tables) or [figure_table(self.title, self.figures)]

    def to_json(self) -> dict[str, Any]:
        """All results as a value that :mod:`json` can write."""
        if self.details is not None:
            return dict(self.details)
        figures = {name: one.to_json() for name, one in self.figures.items()}
        return {"evaluated": self.title, **self.settings, "figures": figures}


def figure_table(title: str, figures: Mapping[str, Figure]) -> ReportTable:
    """A table of figures with their units, intervals if there are any, and whether higher is
    better.

    Example:
        >>> figure_table("runs/x", {"BLEU-1": Figure(45.04, low=44.3, high=45.9)}).rows
        [('BLEU-1', '45.04', '44.3 to 45.9', 'more')]
    """
    header, rows = ["figure", "value", "95 % interval", "better"], []
    for name, one in figures.items():
        interval = "" if one.low is None else f"{one.low:.4g} to {one.high:.4g}"
        value = f"{one.value:.4g} {one.unit}".strip()
        rows.append([name, value, interval, "more" if one.rises else "less"])
    if not any(row[2] for row in rows):
        for row in [header, *rows]:
            del row[2]
    return ReportTable(title, tuple(header), [tuple(row) for row in rows])


def _one_line(cell: str) -> str:
    return cell.replace("\t", " ").replace("\r", " ").replace("\n", " ")
