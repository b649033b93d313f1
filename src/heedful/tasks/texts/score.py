"""What was measured of one thing that a run for single texts has learnt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from heedful.data.examples import Example
from heedful.evaluation.outcome import Figure, ReportTable
from heedful.tasks.spec import Opening
from heedful.tasks.texts.evaluation_options import TextEvaluation
from heedful.tasks.texts.run import TextRun


@dataclass(frozen=True)
class TextScore:
    """What one thing that was learnt has scored."""

    name: str
    examples: int
    unit: str
    figures: Mapping[str, Figure]
    tables: Sequence[ReportTable]
    """For people."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """All that was measured, as JSON."""
    outputs: Sequence[str] | None = None
    """One for each example."""


class Scorer(Protocol):
    """A task that scores one thing that a run has learnt."""

    def kept(self, run: TextRun, name: str, part: str) -> Sequence[Example]:
        """The examples of ``validation`` or ``test`` that a run keeps of what it learnt."""
        ...

    def score(
        self,
        run: TextRun,
        name: str,
        examples: Sequence[Any],
        options: TextEvaluation,
        opening: Opening,
    ) -> TextScore:
        """The figures of one thing that a run has learnt, on examples of :meth:`kept`."""
        ...
