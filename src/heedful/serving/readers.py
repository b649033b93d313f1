"""What a server has beside translators: classifiers, taggers, what fills in, and what writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

from heedful.basics.errors import UserError
from heedful.inference import Trace
from heedful.inference.classifier import Classifier
from heedful.inference.filler import MASK, Filler
from heedful.inference.generator import Generator
from heedful.inference.reading_trace import trace_classification, trace_filling, trace_tagging
from heedful.inference.tagger import Tagger
from heedful.inference.writing_trace import trace_writing
from heedful.serving.saying import RefusedError, said

Reader = Classifier | Tagger | Filler | Generator
R = TypeVar("R", Classifier, Tagger, Filler, Generator)

_TASKS: dict[type, str] = {
    Classifier: "classification",
    Tagger: "tagging",
    Filler: "masked",
    Generator: "language-model",
}
_DOES = {
    Classifier: "classifies",
    Tagger: "tags",
    Filler: "fills hidden words in",
    Generator: "writes on",
}


class Tracing(Protocol):
    """What makes the trace of a text, or of two."""

    def __call__(self, source: str, target: str | None, /, *, relevance: bool) -> Trace:
        """The trace."""
        ...


@dataclass(frozen=True)
class ServedReader:
    """One model for single texts, or for pairs with a label."""

    name: str
    reader: Reader

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What ``/api/models`` tells of it."""
        reader = self.reader
        model = reader.model
        facts: dict[str, Any] = {
            "name": self.name,
            "task": _TASKS[type(reader)],
            "architecture": type(getattr(model, "encoder", model)).__name__,
            "parameters": (
                reader.parameters  # an int8 copy has others
                if isinstance(reader, Generator)
                else sum(one.numel() for one in model.parameters())
            ),
            "device": reader.device.type,
            "precision": reader.precision,
            "vocabulary": reader.vocabulary.size,
            "max_tokens": reader.max_length,
            "maps": [
                {"name": name, "query_axis": query, "key_axis": key}
                for name, (query, key) in model.attention_axes().items()
            ],
        }
        if isinstance(reader, Classifier):
            facts |= {"labels": list(reader.labels), "pairs": reader.pairs}
        if isinstance(reader, Tagger):
            facts["labels"] = list(reader.tags)
        if isinstance(reader, Filler):
            facts["masks"] = list(dict.fromkeys([MASK, *reader.vocabulary.pieces([reader.mask])]))
        return facts

    def trace(
        self,
        source: str,
        target: str | None = None,
        /,
        *,
        relevance: bool = True,
        begins: bool = False,
        latest: bool = False,
    ) -> Trace:
        """What is attended to.

        Args:
            source: the text; of a tagger its words, parted by spaces.
            target: a pair's second text, or what follows a prompt.
            relevance: whether to add what is made from the weights.
            begins: whether a prompt is the beginning of a document.
            latest: whether to look at the last tokens that fit where a prompt and what follows it
                are longer than the model reads.

        Raises:
            UserError: the texts cannot be traced.
        """
        reader = self.reader
        if (begins or latest) and not isinstance(reader, Generator):
            name = "begins" if begins else "latest"
            raise UserError(f"{self.name} does not write; leave {name} out")
        if isinstance(reader, Classifier):
            text = source if target is None else (source, target)
            return trace_classification(reader, text, relevance=relevance)
        if isinstance(reader, Generator):
            if latest and target is not None:
                source, target, begins = _latest(reader, source, target, begins)
            return trace_writing(reader, source, target, begins=begins, relevance=relevance)
        if target is not None:
            raise UserError(f"{self.name} reads one text; leave the second one out")
        if isinstance(reader, Tagger):
            return trace_tagging(reader, source.split(), relevance=relevance)
        return trace_filling(reader, source, relevance=relevance)


def _latest(generator: Generator, prompt: str, written: str, begins: bool) -> tuple[str, str, bool]:
    """As much of the end of both as fits into the model; all, unless it is too long."""
    vocabulary, most = generator.vocabulary, generator.max_length
    tokens = vocabulary.encode(prompt + written)
    boundary = begins or not vocabulary.encode(prompt)
    if len(tokens) + boundary <= most:
        return prompt, written, begins
    # Its end as text may be of more tokens than its last ones, if these began inside a word.
    kept = most
    while len(vocabulary.encode(vocabulary.decode(tokens[-kept:]))) > most:
        kept -= 1
    text = vocabulary.decode(tokens[-kept:])
    # Something has to stand before, or a document would seem to begin here.
    before = max(1, len(text) - len(written))
    return text[:before], text[before:], False


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
                raise RefusedError(404, f"no model {said(name)} {_DOES[kind]}; models: {names}")
            return name, found
        if not fitting:
            raise RefusedError(404, f"no model of this server {_DOES[kind]}")
        if len(fitting) > 1:
            raise RefusedError(400, f"say which model: {names}")
        return next(iter(fitting.items()))
