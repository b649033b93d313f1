"""Numbers as a language writes them: decimal and grouping separators of the Unicode CLDR."""

import re
from functools import cache

from babel import Locale, UnknownLocaleError

_SPACES = "\u00a0\u202f"


@cache
def separators(language: str) -> tuple[str, str] | None:
    """The decimal and the grouping separator of a language; None if the CLDR does not have it."""
    try:
        locale = Locale.parse(re.sub("[-@].*$", "", language.replace("-", "_")))
    except (UnknownLocaleError, ValueError, TypeError):
        return None
    symbols = locale.number_symbols.get("latn", {})
    decimal, group = symbols.get("decimal"), symbols.get("group")
    return (str(decimal), str(group)) if decimal and group else None


def localise(number: str, source: str | None, target: str | None) -> str:
    """A number of one language as another writes it.

    What is no decimal number of the source language (a version, a time, a date, a year) stays as
    it is, and so does everything where a language is unknown.

    Args:
        number: as it stands in the source.
        source: the source's language code.
        target: the target's language code.

    Example:
        >>> localise("1,234.5", "en", "de"), localise("3.11.2", "en", "de")
        ('1.234,5', '3.11.2')
    """
    theirs = separators(source) if source else None
    ours = separators(target) if target else None
    if theirs is None or ours is None or theirs == ours:
        return number
    decimal, group = theirs
    groups = f"[{_SPACES} ]" if group in _SPACES else re.escape(group)
    whole = rf"(?P<sign>[+\-−]?)(?P<whole>\d{{1,3}}(?:{groups}\d{{3}})+|\d+)"
    found = re.fullmatch(whole + rf"(?:{re.escape(decimal)}(?P<rest>\d+))?", number)
    if found is None:
        return number
    integer = re.sub(groups, ours[1], found["whole"])
    rest = "" if found["rest"] is None else ours[0] + found["rest"]
    return found["sign"] + integer + rest
