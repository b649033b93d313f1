"""What recipes for people without one have in common: words of any script, settings as given."""

import re
from typing import Any

from heedful.basics.errors import UserError

WORD_TYPES = 50_000
"""Different words that are counted; no vocabulary that is chosen has more symbols."""
TOKENS_PER_WORD = 1.5
"""Subwords a word, END included, in a vocabulary of some thousands: a rough mean."""

_UNPARTED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SOUTH_EAST = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_WORD = re.compile(f"[{_UNPARTED}]|[{_SOUTH_EAST}]{{1,4}}|[^\\s{_UNPARTED}{_SOUTH_EAST}]+")


def words_in(text: str) -> list[str]:
    """What counts as words when a recipe is chosen: what spaces part; where a script parts none,
    each character of Chinese or Japanese, and four at a time of Thai, Lao, Burmese or Khmer.

    Example:
        >>> words_in("heedful 是一个库")
        ['heedful', '是', '一', '个', '库']
    """
    return _WORD.findall(text)


def refuse_pipe(paths: list[str], told: str) -> None:
    """Raise UserError, which starts with ``told``, if a path is standard input."""
    if "-" in paths:
        raise UserError(told)


def data_table(paths: list[str], **settings: Any) -> dict[str, Any]:
    """The table ``[data]``: the training files, and the settings that have a value."""
    return {"train": paths, **{name: value for name, value in settings.items() if value}}


def vocabulary(word_types: int, most: int) -> int:
    """The size of a vocabulary: no larger than the different words of the corpus, 400 at least."""
    return max(400, min(most, word_types))
