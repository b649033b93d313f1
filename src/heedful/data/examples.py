"""Examples: one item of a corpus."""

from typing import NamedTuple

from heedful.basics.errors import UserError


class Pair(NamedTuple):
    """A text and its translation, without their line ends."""

    source: str
    target: str


class Labelled(NamedTuple):
    """A text, or two that are judged together, and what it was labelled as."""

    texts: tuple[str, ...]
    label: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The label."""
        return (self.label,)

    @property
    def known_by(self) -> str:
        """Examples with the same first text are held out together."""
        return self.texts[0]

    @property
    def text(self) -> str:
        """All that is read."""
        return "\t".join(self.texts)


class Tagged(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentence."""
        return (self.text,)

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags."""
        return self.tags

    @property
    def known_by(self) -> str:
        """Equal sentences are held out together."""
        return self.text

    @property
    def text(self) -> str:
        """All that is read: the words with spaces."""
        return " ".join(self.words)


class Document(str):
    """A document of plain text; it has no label."""

    labels: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The document."""
        return (self,)

    @property
    def known_by(self) -> str:
        """Equal documents are held out together."""
        return self

    @property
    def text(self) -> str:
        """All that is read."""
        return self


Example = Labelled | Tagged | Document
"""What a task of single texts learns from."""


def require_list(texts: object, caller: str, example: str = "[text]") -> None:
    """Refuse a single string where several texts are expected: iterating gives its characters.

    Args:
        texts: the argument that was given.
        caller: the function's name, for the message.
        example: how one text is given, for the message.

    Raises:
        UserError: ``texts`` is a string.
    """
    if isinstance(texts, str):
        raise UserError(f"{caller} takes texts; give a list, {example} if it is one")
