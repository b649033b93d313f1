"""Texts that are longer than a model reads, as windows of as many tokens as it takes."""

import math

from heedful.basics.errors import UserError


def spans(length: int, limit: int, overlap: int = 0) -> list[tuple[int, int]]:
    """As few windows as cover ``length`` tokens, evenly spread, all of ``limit`` if that is less.

    Args:
        length: of the text.
        limit: of a window.
        overlap: the least that two neighbours have in common; below ``limit``.

    Returns:
        Begin and end of each.

    Example:
        >>> spans(5, 8), spans(10, 8), spans(20, 8, 4)
        ([(0, 5)], [(0, 8), (2, 10)], [(0, 8), (4, 12), (8, 16), (12, 20)])
    """
    if length <= limit:
        return [(0, length)]
    last = math.ceil((length - limit) / (limit - overlap))
    return [
        (start, start + limit)
        for start in (place * (length - limit) // last for place in range(last + 1))
    ]


def room_for_text(max_length: int, texts: int = 1) -> int:
    """How many tokens of ``texts`` texts fit beside BEGIN and an END for each.

    Raises:
        UserError: none do.
    """
    room = max_length - 1 - texts
    if room < texts:
        raise UserError(
            f"the model's max_length of {max_length} tokens is too short for "
            f"{'a text' if texts == 1 else 'two texts'}"
        )
    return room


def were(count: int, noun: str) -> str:
    """``1 text was``, ``2 texts were``."""
    return f"{count:,} {noun}{'s were' if count > 1 else ' was'}"
