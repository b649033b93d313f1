"""The fonts of the machine that together draw some labels."""

import functools
from collections.abc import Iterable

from matplotlib import font_manager

_BASE_FONT = "DejaVu Sans"


@functools.cache
def _glyphs(path: str) -> frozenset[int]:
    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        # A broken font file on the machine is no reason not to draw with the others.
        return frozenset()


def font_families(labels: Iterable[str]) -> tuple[list[str], str]:
    """The fonts that together draw the labels, and the characters that none has.

    DejaVu Sans comes with matplotlib (Latin, Greek, Cyrillic, Arabic); what it lacks is looked for
    in the fonts of the machine.
    """
    # An emoji's variation selector and the joiners change glyphs and have none of their own.
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
            # That font has a box for every character there is.
            and "Last Resort" not in entry.name
        ]
        # Families made for many scripts first, so that one font draws a whole label.
        for entry in sorted(plain, key=lambda entry: ("CJK" not in entry.name, entry.name)):
            found = missing & _glyphs(entry.fname)
            if found and entry.name not in families:
                families.append(entry.name)
                missing -= found
            if not missing:
                break
    return families, "".join(map(chr, sorted(missing)))
