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


class Tagged(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


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
