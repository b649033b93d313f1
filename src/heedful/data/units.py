"""Units of bilingual files with their names, translated or not, for checks.

Readers of corpora skip units that are not training data (fuzzy, untranslated). This reader skips
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.data.documents import Columns, Document, open_document
from heedful.data.documents.formats import TABLES, find_format, is_xliff_2
from heedful.data.readers import read_pairs
from heedful.data.readers.catalogue import Header, Obsolete, parse_catalogue, parse_header
from heedful.data.readers.folders import bilingual_files, is_folder
from heedful.data.readers.kinds import Kind, extension, find_kind
from heedful.data.readers.markup import read_segment
from heedful.data.readers.opening import Input, open_input
from heedful.data.readers.po import declared_charset
from heedful.data.readers.text import lines_of
from heedful.data.readers.xliff import (
    NOT_YET,
    REVIEW_STATE,
    empty_segments,
    is_filled,
    is_header,
    is_translatable,
)
from heedful.data.readers.xliff2 import is_done as is_segment_done
from heedful.data.readers.xml import stream_elements

if TYPE_CHECKING:
    from lxml import etree


@dataclass(frozen=True)
class Unit:
    """A source and its translation.

    Attributes:
        name: identifies the unit for readers: a line of the file, an id, a number.
        source: the text to translate.
        target: its translation; empty if there is none.
        formats: formats of the text in the file, such as ``python-format``.
        context: distinguishes units with the same source: the context of a message or an id.
        is_done: whether there is a translation that needs no review.
        longest: the maximum number of characters of the translation; None for no limit.
        identity: what no other unit with the same context and form has; None if units may repeat.
        form: number of the plural form.
    """

    name: str
    source: str
    target: str
    formats: tuple[str, ...] = ()
    context: str | None = None
    is_done: bool = True
    longest: int | None = None
    identity: str | None = None
    form: int = 0


def read_units(
    path: str | Path,
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
) -> Iterator[Unit]:
    """Read the units of a PO, XLIFF, TMX or TSV file, or of a folder of such files, in order.

    Raises:
        UserError: the file is missing, invalid, or lacks the languages.
    """
    if is_folder(path):
        for each in bilingual_files(path):
            yield from read_units(each, source=source, target=target, encoding=encoding)
        return
    with open_input(path) as file:
        kind = find_kind(file.head(), file.name, encoding)
        if kind is Kind.PO:
            yield from _of_catalogue(file, encoding)
            return
        if kind is Kind.XLIFF:
            yield from _of_xliff(_xliff_elements(file, encoding))
            return
    pairs = read_pairs([path], source=source, target=target, encoding=encoding)
    for number, pair in enumerate(pairs, start=1):
        yield Unit(f"segment {number}", pair.source, pair.target)


def read_translations(
    path: str | Path,
    *,
    original: str | Path | None = None,
    columns: Columns | None = None,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
) -> Iterator[Unit]:
    """Read the units of a translated file of any format, in order.

    Args:
        path: a file of `read_units`, or a document of another format.
        original: the file that ``path`` was translated from, if ``path`` has only the translations.
        columns: the columns of a CSV or TSV file; TSV has the source in the first one by default.
        source: the source language.
        target: the target language.
        encoding: of files that do not declare it.

    Raises:
        UserError: a file is missing, invalid or lacks the languages, or the files have a different
            number of texts.
    """
    name = str(path)
    with open_input(path) as file:
        is_document = find_format(name, file.head()) is not None
    if original is None and columns is None and extension(name) == TABLES[0]:
        is_document = False
    if original is None and not is_document:
        yield from read_units(path, source=source, target=target, encoding=encoding)
        return

    def opened(one: str | Path) -> Document:
        found = open_document(one, source=source, target=target, encoding=encoding, columns=columns)
        if found is None:
            why = "; name its columns with --source-column" if extension(str(one)) in TABLES else ""
            raise UserError(f"{one} is no document{why}")
        return found

    document = opened(path)
    if original is None and not document.bilingual:
        raise UserError(f"{path} has no sources; give the file it was translated from: --original")
    if original is None:
        yield from (Unit(*entry) for entry in document.entries)
        return
    sources = opened(original).segments
    if len(sources) != len(document.segments):
        raise UserError(
            f"{path} has {len(document.segments):,} texts, and {original} has {len(sources):,}; "
            "give the file that was translated"
        )
    for number, pair in enumerate(zip(sources, document.segments, strict=True), start=1):
        yield Unit(f"text {number}", *pair)


def _of_catalogue(file: Input, encoding: str | None) -> Iterator[Unit]:
    header = Header()
    lines = lines_of(file, encoding or declared_charset(file.head()))
    for entry in parse_catalogue(lines, file.name):
        if isinstance(entry, Obsolete):
            continue
        if entry.is_header:
            header = parse_header(entry)
            continue
        formats = tuple(flag for flag in entry.flags if flag.endswith("-format"))
        for form, text in entry.strings.items():
            name = f"line {entry.line}" + (f", form {form}" if entry.plural is not None else "")
            is_done = bool(text) and "fuzzy" not in entry.flags
            source = header.source_of(entry, form)
            identity = entry.message
            yield Unit(name, source, text, formats, entry.context, is_done, None, identity, form)


def _xliff_elements(file: Input, encoding: str | None) -> Iterator["etree._Element"]:
    """The units or segments; XLIFF 2 is read as a whole, because references must be valid."""
    if is_xliff_2(file.head()):
        from heedful.data.documents.xliff2 import Xliff2Document

        document = Xliff2Document(b"".join(file.chunks()), file.name, None, None, encoding)
        yield from document.root.iter("{*}segment")
        return
    for _, element in stream_elements(file, encoding, "XLIFF", (), ("trans-unit", "segment")):
        yield element


def _of_xliff(elements: Iterator["etree._Element"]) -> Iterator[Unit]:
    for number, element in enumerate(elements, start=1):
        source = next(element.iterchildren("{*}source"), None)
        if source is None or is_header(element) or not is_translatable(element):
            continue
        target = next(element.iterchildren("{*}target"), None)
        text = "" if target is None or not is_filled(target) else read_segment(target).text
        own = _id_of(element)
        state = "" if target is None else target.get("state", "")
        is_done = bool(text) and state not in NOT_YET | {REVIEW_STATE} and is_segment_done(element)
        is_done = is_done and not empty_segments(element)
        name = f"unit {number}" if own is None else f"id {own}"
        longest, identity = _longest(element), _identity(element)
        content = read_segment(source).text
        yield Unit(name, content, text, (), own, is_done, longest, identity)


def _identity(element: "etree._Element") -> str | None:
    """The id of a unit or segment with its file's name, in which it must be unique."""
    if element.get("id") is None:
        return None
    file = next(element.iterancestors("{*}file"), None)
    named = "" if file is None else file.get("original") or file.get("id") or ""
    return f"{named}: {_id_of(element)}"


def _longest(unit: "etree._Element") -> int | None:
    """The limit in characters of a unit of XLIFF 1.2; the usual limits are in pixels."""
    limit = unit.get("maxwidth", "")
    return int(limit) if unit.get("size-unit") == "char" and limit.isdecimal() else None


def _id_of(element: "etree._Element") -> str | None:
    own = element.get("id")
    parent = element.getparent()
    unit = None if parent is None else parent.get("id")
    if str(element.tag).endswith("segment") and unit is not None:
        return unit + (f" {own}" if own else "")
    return own
