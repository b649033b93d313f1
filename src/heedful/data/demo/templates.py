"""Sentences of the demo grammar that hold a date, a time or an amount of money from the CLDR."""

from random import Random

from babel import Locale

from heedful.data.demo import english, german
from heedful.data.demo.cldr import (
    date_text,
    draw_date,
    draw_money,
    draw_time,
    money_text,
    time_text,
)
from heedful.data.demo.nouns import NOUNS
from heedful.data.demo.syntax import NounPhrase
from heedful.data.demo.words import CITIES, Both
from heedful.data.examples import Pair

_EVENTS = (
    Both("concert", "das Konzert"),
    Both("exam", "die Prüfung"),
    Both("meeting", "die Besprechung"),
    Both("wedding", "die Hochzeit"),
)
_GOODS = [noun for noun in NOUNS if noun.kinds & {"thing", "text"}]


def _event(random: Random, english_locale: Locale, german_locale: Locale) -> Pair:
    day, event = draw_date(random), random.choice(_EVENTS)
    on = date_text(day, "long", english_locale)
    am = date_text(day, "long", german_locale)
    if random.random() < 0.5:
        return Pair(
            f"the {event.english} takes place on {on}.", f"{event.german} findet am {am} statt."
        )
    return Pair(
        f"the {event.english} took place on {on}.", f"{event.german} hat am {am} stattgefunden."
    )


def _train(random: Random, english_locale: Locale, german_locale: Locale) -> Pair:
    moment, city = draw_time(random), random.choice(CITIES)
    at = time_text(moment, "short", english_locale)
    um = time_text(moment, "short", german_locale)
    if random.random() < 0.5:
        return Pair(
            f"the train to {city.english} leaves at {at}.",
            f"der Zug nach {city.german} fährt um {um} Uhr ab.",
        )
    return Pair(
        f"the train from {city.english} arrives at {at}.",
        f"der Zug aus {city.german} kommt um {um} Uhr an.",
    )


def _price(random: Random, english_locale: Locale, german_locale: Locale) -> Pair:
    phrase = NounPhrase(random.choice(_GOODS), "the", random.random() < 0.3)
    amount = draw_money(random)
    verbs = Both("cost", "kosten") if phrase.plural else Both("costs", "kostet")
    english_price, german_price = (
        money_text(amount, "EUR", "standard", locale) or money_text(amount, "EUR", "name", locale)
        for locale in (english_locale, german_locale)
    )
    return Pair(
        f"{english.nominal(phrase)} {verbs.english} {english_price}.",
        f"{german.nominal(phrase, 'nominative')} {verbs.german} {german_price}.",
    )


def filled_template(random: Random, english_locale: Locale, german_locale: Locale) -> Pair:
    """Draw a sentence with a value in it, English first."""
    pair = random.choice((_event, _train, _price))(random, english_locale, german_locale)
    return Pair(*(text[0].upper() + text[1:] for text in pair))
