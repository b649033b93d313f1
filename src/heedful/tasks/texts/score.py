"""The scores of one head of a run for single texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from heedful.data.examples import Example
from heedful.evaluation.outcome import Examples, Figure, ReportTable
from heedful.tasks.spec import Opening
from heedful.tasks.texts.run import TextRun


@dataclass(frozen=True)
class TextScore:
    """The scores of one head."""

    name: str
    examples: int
    unit: str
    figures: Mapping[str, Figure]
    tables: Sequence[ReportTable]
    """Tables to print."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """All measurements, as JSON."""
    outputs: Sequence[str] | None = None
    """One output for each example, if any."""
    one_by_one: Examples | None = None
    """The examples, for comparing runs."""


class ScoredHead(NamedTuple):
    """A head of a run, and the examples to score it on."""

    run: TextRun
    name: str
    examples: Sequence[Any]
    worst: int
    """Number of worst mistakes to keep."""
    opening: Opening

    def predictor(self) -> Any:
        """The predictor of the head."""
        return self.opening.load(self.run.path, head=self.name)


class Scorer(Protocol):
    """A task that scores a head of a run."""

    def kept(self, run: TextRun, name: str, part: str) -> Sequence[Example]:
        """The examples of ``validation`` or ``test`` stored in a run for a head."""
        ...

    def score(self, head: ScoredHead) -> TextScore:
        """Score a head on examples of the type that :meth:`kept` returns."""
        ...
