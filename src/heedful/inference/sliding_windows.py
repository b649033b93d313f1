"""Windows over texts that are longer than a model's maximum."""

import math

from heedful.basics.errors import UserError


def spans(length: int, limit: int, overlap: int = 0) -> list[tuple[int, int]]:
    """The smallest number of evenly spaced windows that cover ``length`` tokens.

    Args:
        length: tokens of the text.
        limit: tokens of a window.
        overlap: minimum overlap of two neighbours; below ``limit``.

    Returns:
        Start and end of each window.

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
    """The number of tokens of ``texts`` texts that fit, without BEGIN and an END for each.

    Raises:
        UserError: there is no room for tokens.
    """
    room = max_length - 1 - texts
    if room < texts:
        raise UserError(
            f"the model's max_length of {max_length} tokens is too short for "
            f"{'a text' if texts == 1 else 'two texts'}"
        )
    return room


def count_phrase(count: int, noun: str) -> str:
    """``1 text was``, ``2 texts were``."""
    return f"{count:,} {noun}{'s were' if count > 1 else ' was'}"
