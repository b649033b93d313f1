"""PO, the catalogues of gettext: fuzzy and obsolete entries are left out, plurals understood.

An entry with a plural gives one pair a form: the form that the header's ``Plural-Forms`` gives to
the number one translates ``msgid``; the others translate ``msgid_plural``. A language with a single
form for every number gives one pair, with ``msgid_plural``.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterator

from heedful.data.examples import Pair
from heedful.data.readers.catalogue import Entry, Header, Obsolete, parse_catalogue, parse_header
from heedful.data.readers.languages import not_in_file, related
from heedful.data.readers.opening import Input
from heedful.data.readers.text import lines_of

CHARSET = re.compile(rb"charset=([A-Za-z0-9._:-]+)")


def declared_charset(head: bytes) -> str | None:
    """The charset that a catalogue's header declares, or None (templates say ``CHARSET``)."""
    found = CHARSET.search(head)
    if found is None:
        return None
    try:
        return codecs.lookup(found[1].decode("ascii")).name
    except LookupError:
        return None


def read_po(
    file: Input,
    source: str | None,
    target: str | None,
    encoding: str | None,
    left_out: Counter[str],
) -> Iterator[Pair]:
    """Pairs from the translated entries; a catalogue for the other direction is turned round.

    The text is of the charset that the header declares, unless ``encoding`` is given.

    Raises:
        UserError: a broken catalogue, or a header with another language.
    """
    encoding = encoding or declared_charset(file.head())
    header, turned = Header(), False
    for entry in parse_catalogue(lines_of(file, encoding), file.name):
        if isinstance(entry, Obsolete):
            left_out["obsolete"] += 1
        elif entry.is_header:
            header = parse_header(entry)
            turned = is_turned(file.name, header, source, target)
        else:
            for pair in _pairs(entry, header, left_out):
                yield Pair(pair.target, pair.source) if turned else pair


def is_turned(name: str, header: Header, source: str | None, target: str | None) -> bool:
    """Whether the catalogue translates into the wanted source language.

    Raises:
        UserError: its language is neither the wanted source nor the wanted target.
    """
    if not header.language or target is None or related(target, header.language):
        return False
    if source is not None and related(source, header.language):
        return True
    raise not_in_file(target, name, [header.language])


def _pairs(entry: Entry, header: Header, left_out: Counter[str]) -> Iterator[Pair]:
    if "fuzzy" in entry.flags:
        left_out["fuzzy"] += 1
        return
    for form, text in entry.strings.items():
        if text:
            yield Pair(header.source_of(entry, form), text)
        else:
            left_out["untranslated"] += 1
