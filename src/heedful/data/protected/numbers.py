"""Localise numbers: decimal and grouping separators from the Unicode CLDR."""

import re
from functools import cache

from babel import Locale, UnknownLocaleError

_SPACES = "\u00a0\u202f"
_GROUPED = re.compile(
    rf"(?<!\d)\d{{1,3}}([.,'’ {_SPACES}])\d{{3}}(?:\1\d{{3}})*(?!\d)|\d+",
)


def locale_of(language: str) -> Locale | None:
    """What the CLDR has about a language; None if it does not have it."""
    try:
        return Locale.parse(re.sub("[-@].*$", "", language.replace("-", "_")))
    except (UnknownLocaleError, ValueError, TypeError):
        return None


@cache
def separators(language: str) -> tuple[str, str] | None:
    """The decimal and grouping separators of a language; None if the CLDR does not have it."""
    locale = locale_of(language)
    if locale is None:
        return None
    symbols = locale.number_symbols.get("latn", {})
    decimal, group = symbols.get("decimal"), symbols.get("group")
    return (str(decimal), str(group)) if decimal and group else None


def find_grouped(text: str) -> list[tuple[str, int, int]]:
    """The digits of each number in a text, without what separates their groups; its start and end.

    The parts before and after a decimal separator are two numbers, if these are not three digits.

    Example:
        >>> find_grouped("1,234.5 of 12")
        [('1234', 0, 5), ('5', 6, 7), ('12', 11, 13)]
    """
    return [(re.sub(r"\D", "", one[0]), *one.span()) for one in _GROUPED.finditer(text)]


def localise(number: str, source: str | None, target: str | None) -> str:
    """Convert a number from one language to another.

    Texts that are not decimal numbers of the source language (versions, times, dates, years) are
    not changed, and neither are numbers of unknown languages.

    Args:
        number: the number in the source.
        source: code of the source language.
        target: code of the target language.

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
