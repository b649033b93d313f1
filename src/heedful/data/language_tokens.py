"""Tokens that name the language of a text, in models that translate between many languages.

The token of a language ``de`` is ``__de__`` in M2M-100; in NLLB-200 and mBART-50 it is the name
itself, such as ``deu_Latn`` and ``de_DE``.
"""

import difflib
from collections.abc import Mapping
from typing import NamedTuple

from heedful.basics.errors import UserError

_M2M100 = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi
hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns
oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh
zu
"""
M2M100 = tuple(_M2M100.split())
"""The languages of M2M-100, in the order of their rows."""
WMT21 = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")
"""The languages of the WMT21 models, in the order of their rows."""


class Languages(NamedTuple):
    """The languages of the source and the target, by their names in the model."""

    source: str
    target: str


def language_token(name: str, known: Mapping[str, int], where: str) -> int:
    """The number of the token of a language.

    Args:
        name: of the language.
        known: the tokens of all languages, by their languages.
        where: the folder, for messages.

    Raises:
        UserError: the model does not have the language; the message names the nearest.

    Example:
        >>> language_token("de", {"de": 5, "en": 4}, "here")
        5
        >>> language_token("fr_Latn", {"fra_Latn": 5}, "here")
        Traceback (most recent call last):
        heedful.basics.errors.UserError: here: no language 'fr_Latn'; did you mean 'fra_Latn'?
    """
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    near = near or [one for one in sorted(known) if one[:2] == name[:2]][:1]
    shown = ", ".join(sorted(known)[:12]) + (" and others" if len(known) > 12 else "")
    hint = f"did you mean '{near[0]}'?" if near else f"it has {shown or 'none'}"
    raise UserError(f"{where}: no language '{name}'; {hint}")
