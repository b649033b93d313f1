"""What a server has beside translators: classifiers, taggers, what fills in, and what writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

from heedful.basics.errors import UserError
from heedful.inference import Trace
from heedful.inference.classifier import Classifier
from heedful.inference.filler import Filler
from heedful.inference.generator import Generator
from heedful.inference.tagger import Tagger
from heedful.serving.saying import RefusedError, said
from heedful.tasks.spec import TaskSpec, spec_named

R = TypeVar("R", Classifier, Tagger, Filler, Generator)


class Tracing(Protocol):
    """What makes the trace of a text, or of two."""

    def __call__(self, source: str, target: str | None, /, *, relevance: bool) -> Trace:
        """The trace."""
        ...


@dataclass(frozen=True)
class ServedReader:
    """One model for single texts, or for pairs with a label."""

    name: str
    reader: Any
    """The predictor of a run, with the name of its task."""

    @property
    def spec(self) -> TaskSpec:
        """Its task."""
        return spec_named(self.reader.task)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What ``/api/models`` tells of it."""
        return {"name": self.name, "task": self.spec.name, **self.spec.facts(self.reader)}

    def trace(
        self,
        source: str,
        target: str | None = None,
        /,
        *,
        relevance: bool = True,
        **options: bool,
    ) -> Trace:
        """What is attended to.

        Args:
            source: the text; of a tagger its words, parted by spaces.
            target: a pair's second text, or what follows a prompt.
            relevance: whether to add what is made from the weights.
            options: of the task; those that are false are left out.

        Raises:
            UserError: the texts cannot be traced, or the task has no such option.
        """
        asked = {name: True for name, value in options.items() if value}
        for name in asked:
            if name not in self.spec.trace_options:
                raise UserError(
                    f"{self.name} {self.spec.does} and has no option {name}; leave {name} out"
                )
        return self.spec.trace(self.reader, source, target, relevance=relevance, **asked)


class ServedReaders:
    """All readers of a server.

    Args:
        readers: by names that are all different.
        others: names that are taken.

    Raises:
        UserError: two have the same name.
    """

    def __init__(self, readers: Sequence[ServedReader], others: Sequence[str] = ()) -> None:
        self.readers = list(readers)
        self._by_name = {one.name: one for one in readers}
        if len({*self._by_name, *others}) < len(readers) + len(others):
            raise UserError("two models have the same name")

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> ServedReader:
        return self._by_name[name]

    def choose(self, kind: type[R], name: str | None) -> tuple[str, R]:
        """The name and the reader of a kind: the one of that name, or the only one.

        Raises:
            RefusedError: 400 or 404, none is meant, or more than one.
        """
        fitting = {one.name: one.reader for one in self.readers if isinstance(one.reader, kind)}
        names = ", ".join(fitting) or "none"
        if name is not None:
            found = fitting.get(name)
            if found is None:
                raise RefusedError(
                    404, f"no model {said(name)} {spec_named(kind.task).does}; models: {names}"
                )
            return name, found
        if not fitting:
            raise RefusedError(404, f"no model of this server {spec_named(kind.task).does}")
        if len(fitting) > 1:
            raise RefusedError(400, f"say which model: {names}")
        return next(iter(fitting.items()))
