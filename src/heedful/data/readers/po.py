"""PO catalogues of gettext: fuzzy and obsolete entries are skipped; plurals are supported.

An entry with a plural gives one pair per form. The form for the number one, according to
``Plural-Forms`` in the header, translates ``msgid``; others translate ``msgid_plural``. For a
language with a single form, there is one pair, with ``msgid_plural``.
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
    """The charset in the header of a catalogue; None for the ``CHARSET`` of templates."""
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
    """Read pairs of translated entries; a catalogue of the other direction is reversed.

    The encoding is that of the header, unless ``encoding`` is given.

    Raises:
        UserError: the catalogue is invalid or has another language.
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
