"""Names, numbers, times and modal verbs of the demo grammar."""

from typing import NamedTuple


class Both(NamedTuple):
    """The same word or phrase in both languages."""

    english: str
    german: str


class Modal(NamedTuple):
    """A modal verb: English words, and the German forms for ich and er, du, wir and sie.

    `english` names how English builds it: "can" and "should" are auxiliaries, "have to" and
    "want to" are verbs that need *do*, "be allowed to" is a form of *be*.
    """

    english: str
    singular: str
    second: str
    plural: str


MODALS = (
    Modal("can", "kann", "kannst", "können"),
    Modal("should", "sollte", "solltest", "sollten"),
    Modal("have to", "muss", "musst", "müssen"),
    Modal("want to", "will", "willst", "wollen"),
    Modal("be allowed to", "darf", "darfst", "dürfen"),
)

PEOPLE = tuple(Both(name, name) for name in ("Anna", "Maria", "Julia", "Peter", "Paul", "Max"))
CITIES = (
    Both("Berlin", "Berlin"),
    Both("Paris", "Paris"),
    Both("Rome", "Rom"),
    Both("Vienna", "Wien"),
    Both("Munich", "München"),
    Both("Prague", "Prag"),
)

NUMBERS = (
    Both("two", "zwei"),
    Both("three", "drei"),
    Both("four", "vier"),
    Both("five", "fünf"),
    Both("six", "sechs"),
    Both("ten", "zehn"),
    Both("twelve", "zwölf"),
)

FREQUENCIES = (
    Both("often", "oft"),
    Both("always", "immer"),
    Both("sometimes", "manchmal"),
    Both("never", "nie"),
    Both("rarely", "selten"),
)

PRESENT_TIMES = (
    Both("today", "heute"),
    Both("now", "jetzt"),
    Both("every day", "jeden Tag"),
    Both("every week", "jede Woche"),
    Both("in the evening", "am Abend"),
)
_WEEKDAYS = (
    Both("on Monday", "am Montag"),
    Both("on Tuesday", "am Dienstag"),
    Both("on Wednesday", "am Mittwoch"),
    Both("on Friday", "am Freitag"),
    Both("on Sunday", "am Sonntag"),
)
# A weekday never stands with the present tense, or "I read the book on Monday" had two readings.
PAST_TIMES = (
    Both("yesterday", "gestern"),
    Both("last week", "letzte Woche"),
    Both("last year", "letztes Jahr"),
    Both("this morning", "heute Morgen"),
    *_WEEKDAYS,
)
FUTURE_TIMES = (
    Both("tomorrow", "morgen"),
    Both("next week", "nächste Woche"),
    Both("next year", "nächstes Jahr"),
    Both("soon", "bald"),
    *_WEEKDAYS,
)
