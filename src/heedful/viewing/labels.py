"""Tokens as labels: readable in any script, with nothing in them that a plotter would interpret."""

import re
import unicodedata
from collections.abc import Sequence

SPACE_MARK = "▁"
_VISIBLE_SPACE = "␣"
_CONTINUED = "·"
_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_BYTE = re.compile(r"<0x([0-7][0-9A-F])>")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def token_labels(tokens: Sequence[str], longest: int = 24) -> list[str]:
    """One label a token.

    The space mark of subwords is taken off; where an axis has such marks, a piece that goes on a
    word begins with ``·`` (punctuation does not need to). Spaces and control characters are made
    visible, a byte like ``<0x54>`` is the character that it is (if it is one by itself); a long
    token is shortened in its middle.

    Example:
        >>> token_labels(["▁Don", "'", "t", "▁play", "ing", "</s>"])
        ['Don', "'", '·t', 'play', '·ing', '</s>']
    """
    of_pieces = any(token.startswith(SPACE_MARK) for token in tokens)
    labels = []
    for place, token in enumerate(tokens):
        goes_on = of_pieces and place > 0 and _goes_on(tokens[place - 1], token)
        text = token.removeprefix(SPACE_MARK) if len(token) > 1 else token
        if byte := _BYTE.fullmatch(text):  # of a longer character it stays as it is
            text = chr(int(byte[1], 16))
        text = "".join(map(_visible, text))
        if not text.strip():
            text = _VISIBLE_SPACE * max(len(text), 1) if token else "∅"
        labels.append(shorten((_CONTINUED if goes_on else "") + text, longest))
    return labels


def is_special(token: str) -> bool:
    """Whether a token stands for no text, like ``</s>``."""
    return len(token) > 2 and token.startswith("<") and token.endswith(">")


def _goes_on(before: str, token: str) -> bool:
    """Whether a piece goes on the word of the piece before, and a reader has to be told so."""
    if token.startswith(SPACE_MARK) or is_special(token) or is_special(before):
        return False
    if not before or before[-1].isspace() or before[-1] == SPACE_MARK:
        return False
    letters = [character for character in token if character.isalnum()]
    # Where a script has no spaces, every piece goes on the one before, and saying so says nothing.
    return bool(letters) and not unicodedata.name(letters[0], "").startswith(_WITHOUT_SPACES)


def shorten(text: str, longest: int) -> str:
    """``text``, or its beginning and end around ``…``.

    Example:
        >>> shorten("Donaudampfschifffahrt", 9)
        'Dona…ahrt'
    """
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[-end:]}"


def _visible(character: str) -> str:
    if character == SPACE_MARK:
        return _VISIBLE_SPACE
    if character in _ESCAPES:
        return _ESCAPES[character]
    kind = unicodedata.category(character)
    # Joiners (Cf) shape Arabic and Indic words and emoji, so those two stay as they are.
    if kind in ("Cc", "Cs", "Cn", "Co", "Zl", "Zp") or (
        kind == "Cf" and character not in "\u200c\u200d"
    ):
        return f"\\u{ord(character):04x}"
    return character
