"""Write a value in two languages, according to the Unicode CLDR (through Babel).

A *topic* (dates, quantities, …) draws a value; a *form* of the topic (a width, a unit, a currency)
writes it in a locale. If two forms of a value are equal in the source but differ in the target
("May 5, 2018" is both the long and the medium date in English), the first form is used, so that a
source has exactly one target.

No-break spaces are written as plain spaces, as people type them.
"""

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any, Literal

from babel import Locale
from babel import dates as babel_dates
from babel import lists as babel_lists
from babel import numbers as babel_numbers
from babel import units as babel_units

from heedful.data.examples import Pair

Width = Literal["full", "long", "medium"]
TimeWidth = Literal["medium", "short"]
Length = Literal["long", "short"]
Span = Literal["minute", "hour", "day", "week", "month", "year"]
MoneyStyle = Literal["name", "standard"]
ListStyle = Literal["standard", "or"]

# Fewer than a hundred years, so that a locale that writes two digits still says which year.
FIRST_DAY = datetime.date(1990, 1, 1).toordinal()
LAST_DAY = datetime.date(2035, 12, 31).toordinal()

_WIDTHS: tuple[Width, ...] = ("full", "long", "medium")
_LENGTHS: tuple[Length, ...] = ("long", "short")
_MONEY_STYLES: tuple[MoneyStyle, ...] = ("name", "standard")
_LIST_STYLES: tuple[ListStyle, ...] = ("standard", "or")
_UNITS = (
    "length-kilometer",
    "length-meter",
    "length-centimeter",
    "mass-kilogram",
    "mass-gram",
    "volume-liter",
    "duration-second",
    "duration-minute",
    "duration-hour",
    "duration-day",
    "temperature-celsius",
    "speed-kilometer-per-hour",
    "area-square-meter",
    "digital-gigabyte",
)
_CURRENCIES = ("EUR", "USD", "GBP", "JPY", "CHF", "PLN", "SEK", "INR")
_SPANS: tuple[Span, ...] = ("minute", "hour", "day", "week", "month", "year")
_SPAN_SECONDS = dict(babel_dates.TIMEDELTA_UNITS)
_TERRITORIES = (
    *("AT", "AU", "BE", "BR", "CA", "CN", "CZ", "DE", "DK", "EG", "ES", "FI", "FR", "GB", "GR"),
    *("IE", "IN", "IT", "JP", "KE", "MX", "NL", "NO", "NZ", "PL", "PT", "SE", "TR", "UA", "US"),
)
_LANGUAGES = (
    *("ar", "cs", "da", "de", "el", "en", "es", "fi", "fr", "hi", "it", "ja"),
    *("ko", "nl", "pl", "pt", "ru", "sv", "tr", "uk", "zh"),
)
_PLAIN_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " "})

_GLUED = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")

Form = Callable[[Any, Locale], str]
"""Writes a value in a locale; the empty string if the CLDR has no data for it."""


def date_text(value: datetime.date, width: Width, locale: Locale) -> str:
    """A date, "full", "long" or "medium"."""
    return str(babel_dates.format_date(value, width, locale=locale)).translate(_PLAIN_SPACES)


def time_text(value: datetime.time, width: TimeWidth, locale: Locale) -> str:
    """A time of day, "medium" (with seconds) or "short"."""
    text = babel_dates.format_time(value, width, locale=locale)
    return str(text).translate(_PLAIN_SPACES)


def money_text(value: Decimal, currency: str, style: MoneyStyle, locale: Locale) -> str:
    """An amount of money, with a symbol ("standard") or in words ("name").

    The empty string if the CLDR has no data for it.
    """
    text = str(
        babel_numbers.format_currency(value, currency, locale=locale, format_type=style)
    ).translate(_PLAIN_SPACES)
    if style == "name":
        return "" if currency in text else text
    # The CLDR parts a symbol of letters from the number (CHF 5); Babel does not yet.
    return "" if _GLUED.search(text) else text


def _date_time(width: Width) -> Form:
    def form(value: datetime.datetime, locale: Locale) -> str:
        pattern = str(babel_dates.get_datetime_format(width, locale=locale)).replace("'", "")
        time = time_text(value.time(), "short", locale)
        return pattern.replace("{0}", time).replace("{1}", date_text(value, width, locale))

    return form


def _date(width: Width) -> Form:
    return lambda value, locale: date_text(value, width, locale)


def _time(width: TimeWidth) -> Form:
    return lambda value, locale: time_text(value, width, locale)


def _quantity(unit: str, length: Length) -> Form:
    def form(value: Decimal, locale: Locale) -> str:
        text = str(babel_units.format_unit(value, unit, length, locale=locale))
        # Babel writes the unit's own name where the locale has no word for it.
        return "" if unit in text else text.translate(_PLAIN_SPACES)

    return form


def _money(currency: str, style: MoneyStyle) -> Form:
    return lambda value, locale: money_text(value, currency, style, locale)


def _span(unit: Span, sign: int) -> Form:
    def form(value: int, locale: Locale) -> str:
        text = babel_dates.format_timedelta(
            datetime.timedelta(seconds=sign * value * _SPAN_SECONDS[unit]),
            granularity=unit,
            threshold=1000.0,
            add_direction=True,
            locale=locale,
        )
        return str(text).translate(_PLAIN_SPACES)

    return form


def _percent(value: Decimal, locale: Locale) -> str:
    text = babel_numbers.format_percent(value, locale=locale, decimal_quantization=False)
    return str(text).translate(_PLAIN_SPACES)


def _number(value: Decimal, locale: Locale) -> str:
    return str(babel_numbers.format_decimal(value, locale=locale)).translate(_PLAIN_SPACES)


def _listing(names: str, style: ListStyle) -> Form:
    def form(value: Sequence[str], locale: Locale) -> str:
        table = getattr(locale, names)
        words = [table[code] for code in value]
        return str(babel_lists.format_list(words, style=style, locale=locale)).translate(
            _PLAIN_SPACES
        )

    return form


def draw_date(random: Random) -> datetime.date:
    """Draw a date."""
    return datetime.date.fromordinal(random.randint(FIRST_DAY, LAST_DAY))


def draw_time(random: Random) -> datetime.time:
    """Draw a time of day, to the second."""
    return datetime.time(random.randrange(24), random.randrange(60), random.randrange(60))


def _draw_date_time(random: Random) -> datetime.datetime:
    return datetime.datetime.combine(draw_date(random), draw_time(random))


def _draw_quantity(random: Random) -> Decimal:
    chance = random.random()
    if chance < 0.5:
        return Decimal(random.randint(1, 99))
    if chance < 0.7:
        return Decimal(random.randint(100, 999))
    return Decimal(random.randint(1, 999)) / 10


def draw_money(random: Random) -> Decimal:
    """Draw an amount of money: cents are a multiple of five, and few amounts exceed a thousand."""
    if random.random() < 0.2:
        return Decimal(random.randint(20, 199) * 50)
    return Decimal(random.randint(20, 9999) * 5) / 100


def _draw_percent(random: Random) -> Decimal:
    return Decimal(random.randint(1, 1000)) / 1000


def _draw_number(random: Random) -> Decimal:
    number = Decimal(random.randint(1000, 9999))
    return number if random.random() < 0.5 else number + Decimal(random.randint(1, 9)) / 10


def _draw_span(random: Random) -> int:
    return random.randint(1, 30)


@dataclass(frozen=True)
class Topic:
    """A type of values: how to draw one, its forms, and values to test."""

    name: str
    weight: int
    draw: Callable[[Random], Any]
    forms: Sequence[Form]
    probes: Sequence[Any]


_DAYS = [datetime.date(2018, month, day) for month in range(1, 13) for day in (5, 25)]
_NOON = datetime.time(15, 5, 7)
_AMOUNTS = [Decimal(text) for text in ("1", "2", "5", "21", "1.5", "100", "1234.5")]

_TOPICS = (
    Topic("dates", 28, draw_date, [_date(width) for width in _WIDTHS], _DAYS),
    Topic("times", 8, draw_time, [_time("short"), _time("medium")], [_NOON]),
    Topic(
        "dates with times",
        12,
        _draw_date_time,
        [_date_time("long"), _date_time("medium")],
        [datetime.datetime.combine(day, _NOON) for day in _DAYS],
    ),
    Topic(
        "quantities",
        16,
        _draw_quantity,
        [_quantity(unit, length) for length, unit in product(_LENGTHS, _UNITS)],
        _AMOUNTS,
    ),
    Topic(
        "currencies",
        14,
        draw_money,
        [_money(currency, style) for style, currency in product(_MONEY_STYLES, _CURRENCIES)],
        _AMOUNTS,
    ),
    Topic("percentages", 3, _draw_percent, [_percent], [Decimal("0.125")]),
    Topic("numbers", 4, _draw_number, [_number], _AMOUNTS),
    Topic(
        "spans of time",
        5,
        _draw_span,
        [_span(unit, sign) for unit, sign in product(_SPANS, (1, -1))],
        [1, 2, 5, 21],
    ),
)


def _names(table: str, codes: Sequence[str], source: Locale, target: Locale) -> list[str]:
    """Codes with a name in both locales, without those that share a name in the source."""
    kept: dict[str, str] = {}
    for code in codes:
        name = getattr(source, table).get(code)
        if name and name not in kept and getattr(target, table).get(code):
            kept[name] = code
    return list(kept.values())


def _list_topic(
    name: str, weight: int, codes: Sequence[str], source: Locale, target: Locale
) -> Topic:
    known = _names(name, codes, source, target)
    probes = [known[:2], known[:3]] if len(known) >= 3 else []

    def draw(random: Random) -> list[str]:
        return random.sample(known, random.choice((2, 3)))

    forms = [_listing(name, style) for style in _LIST_STYLES]
    return Topic(name, weight, draw, forms, probes)


@dataclass(frozen=True)
class _Usable:
    """A topic for a pair of locales."""

    topic: Topic
    forms: Sequence[Form]
    rivals: Sequence[Sequence[Form]]
    """For each form, earlier forms that may be equal to it in the source."""


class CldrPairs:
    """Draws pairs for two locales, from the topics for which both have data."""

    def __init__(self, source: Locale, target: Locale) -> None:
        """Find the topics and forms of the two locales."""
        self._source, self._target = source, target
        topics = [
            *_TOPICS,
            _list_topic("territories", 6, _TERRITORIES, source, target),
            _list_topic("languages", 4, _LANGUAGES, source, target),
        ]
        taken: dict[str, str] = {}
        usable = [self._usable(topic, taken) for topic in topics]
        self._topics = [item for item in usable if item.forms]
        self._weights = [item.topic.weight for item in self._topics]

    @property
    def topics(self) -> list[str]:
        """Names of the topics of the pair of locales."""
        return [item.topic.name for item in self._topics]

    def _usable(self, topic: Topic, taken: dict[str, str]) -> _Usable:
        """Remove forms without data, and those that mean something else in another topic.

        `taken` has the texts of the previous topics; this topic's texts are added.
        """
        written: list[tuple[Form, list[Pair]]] = []
        for form in topic.forms:
            pairs = [
                Pair(form(probe, self._source), form(probe, self._target)) for probe in topic.probes
            ]
            complete = all(pair.source and pair.target for pair in pairs)
            if pairs and complete and all(taken.get(a, b) == b for a, b in pairs):
                written.append((form, pairs))
        for _, pairs in written:
            for pair in pairs:
                taken.setdefault(pair.source, pair.target)
        rivals: list[list[Form]] = []
        for index, (_, pairs) in enumerate(written):
            rivals.append(
                [
                    earlier
                    for earlier, others in written[:index]
                    if any(
                        pair.source == other.source and pair.target != other.target
                        for pair, other in zip(pairs, others, strict=True)
                    )
                ]
            )
        return _Usable(topic, [form for form, _ in written], rivals)

    def draw(self, random: Random) -> Pair:
        """Draw a value and write it in both locales."""
        item = random.choices(self._topics, self._weights)[0]
        value = item.topic.draw(random)
        index = random.randrange(len(item.forms))
        form = item.forms[index]
        source = form(value, self._source)
        for rival in item.rivals[index]:
            if rival(value, self._source) == source:
                form = rival
                break
        return Pair(source, form(value, self._target))
