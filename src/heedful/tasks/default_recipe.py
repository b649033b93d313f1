"""Shared by all default recipes: word counts for any script, vocabulary sizes, data tables."""

import re
from typing import Any

from heedful.basics.errors import UserError

WORD_TYPES = 50_000
"""Maximum number of distinct words that are counted, and maximum size of a chosen vocabulary."""
TOKENS_PER_WORD = 1.5
"""Approximate subwords per word, END included, for a vocabulary of some thousands."""

_UNPARTED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SOUTH_EAST = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_WORD = re.compile(f"[{_UNPARTED}]|[{_SOUTH_EAST}]{{1,4}}|[^\\s{_UNPARTED}{_SOUTH_EAST}]+")


def words_in(text: str) -> list[str]:
    """The words of a text, for choosing a recipe.

    Words are separated by white space. In scripts without spaces, a word is one character (Chinese,
    Japanese) or up to four characters (Thai, Lao, Burmese, Khmer).

    Example:
        >>> words_in("heedful 是一个库")
        ['heedful', '是', '一', '个', '库']
    """
    return _WORD.findall(text)


def refuse_pipe(paths: list[str], message: str) -> None:
    """Raise UserError with a message if a path is standard input."""
    if "-" in paths:
        raise UserError(message)


def data_table(paths: list[str], **settings: Any) -> dict[str, Any]:
    """The table ``[data]``: the training files, and the settings that have a value."""
    return {"train": paths, **{name: value for name, value in settings.items() if value}}


def vocabulary(word_types: int, most: int) -> int:
    """The size of a vocabulary: at least 400, at most ``most`` and the number of word types."""
    return max(400, min(most, word_types))
