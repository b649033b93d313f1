"""The scores of one head of a run for single texts."""

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


class Scorer(Protocol):
    """A task that scores a head of a run."""

    def kept(self, run: TextRun, name: str, part: str) -> Sequence[Example]:
        """The examples of ``validation`` or ``test`` stored in a run for a head."""
        ...

    def score(
        self,
        run: TextRun,
        name: str,
        examples: Sequence[Any],
        options: TextEvaluation,
        opening: Opening,
    ) -> TextScore:
        """Score a head on examples of the type that :meth:`kept` returns."""
        ...
