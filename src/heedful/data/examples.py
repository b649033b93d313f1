"""Examples: the items of a corpus."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from heedful.basics.errors import UserError

T = TypeVar("T")


class Pair(NamedTuple):
    """A text and its translation, without line ends."""

    source: str
    target: str


class Labelled(NamedTuple):
    """A text or a pair of texts, and its label."""

    texts: tuple[str, ...]
    label: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The label."""
        return (self.label,)

    @property
    def identity(self) -> str:
        """The key for splitting: examples with the same first text are in the same part."""
        return self.texts[0]

    @property
    def text(self) -> str:
        """The whole text."""
        return "\t".join(self.texts)


class Rated(NamedTuple):
    """A text or a pair of texts, and a number."""

    texts: tuple[str, ...]
    value: float

    @property
    def labels(self) -> tuple[str, ...]:
        """Empty: a number is not a class."""
        return ()

    @property
    def identity(self) -> str:
        """The key for splitting: examples with the same first text are in the same part."""
        return self.texts[0]

    @property
    def text(self) -> str:
        """The whole text."""
        return "\t".join(self.texts)


class MultiLabelled(NamedTuple):
    """A text or a pair of texts, and any number of labels."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def identity(self) -> str:
        """The key for splitting: examples with the same first text are in the same part."""
        return self.texts[0]

    @property
    def text(self) -> str:
        """The whole text."""
        return "\t".join(self.texts)


class Similar(NamedTuple):
    """Texts of which vectors are learned.

    One text; or two similar texts, and possibly a third that is not similar to the first; or two
    texts with a rating of their similarity.
    """

    texts: tuple[str, ...]
    rating: float | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Empty: a rating is not a class."""
        return ()

    @property
    def identity(self) -> str:
        """The key for splitting: examples with the same first text are in the same part."""
        return self.texts[0]

    @property
    def text(self) -> str:
        """The whole text."""
        return "\t".join(self.texts)


class Tagged(NamedTuple):
    """The words of a sentence and a tag for each; the tag is empty for a word without one."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentence."""
        return (self.text,)

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags of the words that have one."""
        return tuple(tag for tag in self.tags if tag)

    @property
    def identity(self) -> str:
        """The key for splitting: equal sentences are in the same part."""
        return self.text

    @property
    def text(self) -> str:
        """The whole text: the words, joined by spaces."""
        return " ".join(self.words)


def tagged_only(example: Tagged, items: Sequence[T]) -> list[T]:
    """Those of ``items``, one for each word, whose word has a tag."""
    return [item for item, tag in zip(items, example.tags, strict=True) if tag]


class SpanQuestion(NamedTuple):
    """A question about a text, and its answers, which are parts of the text."""

    question: str
    context: str
    """The text."""
    answers: tuple[tuple[str, int], ...]
    """Each right answer and the index of its first character; empty if the text has none."""
    name: str
    """The question's identifier in prediction files."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The question and the text."""
        return (self.question, self.context)

    @property
    def labels(self) -> tuple[str, ...]:
        """Empty: an answer is not a class."""
        return ()

    @property
    def identity(self) -> str:
        """The key for splitting: all questions about a text are in the same part."""
        return self.context

    @property
    def text(self) -> str:
        """The whole text."""
        return f"{self.question}\t{self.context}"


def outside_if_untagged(example: Tagged, tags: Sequence[str]) -> list[str]:
    """Tags of the words, ``O`` where the example has none."""
    return [tag if gold else "O" for tag, gold in zip(tags, example.tags, strict=True)]


class Document(str):
    """A document of plain text; it has no label."""

    labels: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The document."""
        return (self,)

    @property
    def identity(self) -> str:
        """The key for splitting: equal documents are in the same part."""
        return self

    @property
    def text(self) -> str:
        """The whole text."""
        return self


Example = Labelled | Rated | MultiLabelled | Similar | Tagged | SpanQuestion | Document
"""An example of a task for single texts."""


def require_list(texts: object, caller: str, example: str = "[text]") -> None:
    """Raise an error for a string in place of several texts; iterating would give characters.

    Args:
        texts: the argument.
        caller: name of the function, for the message.
        example: how to pass one text, for the message.

    Raises:
        UserError: ``texts`` is a string.
    """
    if isinstance(texts, str):
        raise UserError(f"{caller} takes texts; give a list, {example} if it is one")
