"""Convert tokens to readable labels that a plotting library does not interpret."""

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
    """One label per token.

    The space mark of subwords is removed. If any token has one, a piece that continues a word
    begins with ``·`` (punctuation does not). Spaces and control characters become visible, a byte
    such as ``<0x54>`` becomes its character if it is ASCII, and long tokens are shortened in the
    middle.

    Example:
        >>> token_labels(["▁Don", "'", "t", "▁play", "ing", "</s>"])
        ['Don', "'", '·t', 'play', '·ing', '</s>']
    """
    of_pieces = any(token.startswith(SPACE_MARK) for token in tokens)
    labels = []
    for place, token in enumerate(tokens):
        continues = of_pieces and place > 0 and _continues_word(tokens[place - 1], token)
        text = token.removeprefix(SPACE_MARK) if len(token) > 1 else token
        if byte := _BYTE.fullmatch(text):  # bytes of longer characters are left unchanged
            text = chr(int(byte[1], 16))
        text = "".join(map(_visible, text))
        if not text.strip():
            text = _VISIBLE_SPACE * max(len(text), 1) if token else "∅"
        labels.append(shorten((_CONTINUED if continues else "") + text, longest))
    return labels


def is_special(token: str) -> bool:
    """Whether a token represents no text, such as ``</s>``."""
    return len(token) > 2 and token.startswith("<") and token.endswith(">")


def _continues_word(before: str, token: str) -> bool:
    """Whether a piece continues the word of the previous piece and the label should show this."""
    if token.startswith(SPACE_MARK) or is_special(token) or is_special(before):
        return False
    if not before or before[-1].isspace() or before[-1] == SPACE_MARK:
        return False
    letters = [character for character in token if character.isalnum()]
    # In scripts without spaces, every piece continues the previous one, so a mark is useless.
    return bool(letters) and not unicodedata.name(letters[0], "").startswith(_WITHOUT_SPACES)


def shorten(text: str, longest: int) -> str:
    """``text``, with ``…`` in place of its middle if it is too long.

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
    # Keep the two joiners (category Cf), which Arabic and Indic scripts and emoji need.
    if kind in ("Cc", "Cs", "Cn", "Co", "Zl", "Zp") or (
        kind == "Cf" and character not in "\u200c\u200d"
    ):
        return f"\\u{ord(character):04x}"
    return character
