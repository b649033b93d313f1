"""The part of a task's contract that views of attention use."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from heedful.inference.trace import Trace


class ViewSpec:
    """The part of a task's contract that views of attention use."""

    name: str
    trace_options: frozenset[str] = frozenset()
    """Options of :meth:`trace` in addition to ``relevance``."""

    def read_input(self, line: str) -> Any:
        """Read a predictor's input from a line of text."""
        raise NotImplementedError

    def trace(
        self,
        predictor: Any,
        source: str,
        target: str | None = None,
        *,
        relevance: bool = True,
        **options: bool,
    ) -> "Trace":
        """Trace the attention of a predictor.

        Args:
            predictor: the predictor from :meth:`load`.
            source: the text.
            target: the second text, if any.
            relevance: whether to add relevance maps, such as attention rollout.
            options: options in :attr:`trace_options`.

        Raises:
            UserError: the texts cannot be traced.
        """
        found: Trace = predictor.trace(*self.traced(source, target), relevance=relevance, **options)
        return found

    def search_options(self, run: Path, beam: int | None, where: str) -> Any:
        """The search options of a run, with another beam if one is given.

        Returns:
            :class:`heedful.decoding.SearchOptions`; None if its runs do not search.

        Raises:
            UserError: a beam is given and its runs do not search, or the beam is out of range;
                the message names ``where``.
        """
        if beam is not None:
            raise UserError(f"{where}: a run for {self.name} does not search; leave out --beam")
        return None

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        """The arguments of the predictor's ``trace`` for a text and a second text.

        ``source`` may also be a result of :meth:`read_request`.

        Raises:
            UserError: two texts are given but the task reads one, or the text is not a valid input.
        """
        if target is not None:
            raise UserError(f"a run for {self.name} reads one text; leave out the second")
        return (self.read_input(source) if isinstance(source, str) else source,)

    def faithfulness(
        self, predictor: Any, source: str, target: str | None
    ) -> "dict[str, Any] | None":
        """How much the probability of an output falls without the words with most attention.

        Args:
            predictor: the predictor from :meth:`load`.
            source: the text.
            target: the output; the predictor's own if None.

        Returns:
            The figures as JSON; None if there are none for this task or text.
        """
        return None
