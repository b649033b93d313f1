"""Choose installed fonts for labels in any script."""

import functools
from collections.abc import Iterable

from matplotlib import font_manager

_BASE_FONT = "DejaVu Sans"


@functools.cache
def _glyphs(path: str) -> frozenset[int]:
    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        # Ignore damaged font files; other fonts may have the glyphs.
        return frozenset()


def font_families(labels: Iterable[str]) -> tuple[list[str], str]:
    """Font families that cover the labels, and the characters that no font has.

    DejaVu Sans comes with matplotlib (Latin, Greek, Cyrillic, Arabic). Installed fonts are searched
    for other characters.
    """
    # Variation selectors and joiners change other glyphs and have no glyph of their own.
    needed = {ord(character) for label in labels for character in label if character.isprintable()}
    needed -= {0xFE0E, 0xFE0F}
    missing = needed - _glyphs(font_manager.findfont(_BASE_FONT))
    families = [_BASE_FONT]
    if missing:
        plain = [
            entry
            for entry in font_manager.fontManager.ttflist
            if entry.style == "normal"
            and entry.weight in (400, "normal", "regular")
            # This font draws every character as a box.
            and "Last Resort" not in entry.name
        ]
        # Fonts for many scripts first, so that one font covers a whole label.
        for entry in sorted(plain, key=lambda entry: ("CJK" not in entry.name, entry.name)):
            found = missing & _glyphs(entry.fname)
            if found and entry.name not in families:
                families.append(entry.name)
                missing -= found
            if not missing:
                break
    return families, "".join(map(chr, sorted(missing)))
