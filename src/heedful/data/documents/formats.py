"""The document formats, and how to detect them. A format is imported when it is first used."""

import re
from collections.abc import Callable
from typing import NamedTuple

from heedful.basics.errors import UserError
from heedful.data.documents.base import Document
from heedful.data.readers.kinds import EXTENSIONS, Kind, extension, find_kind

_VERSION_2 = re.compile(rb"""<(?:[\w.-]+:)?xliff\b[^>]*\sversion\s*=\s*["']2\.""")
_HEAD = 4096


class Columns(NamedTuple):
    """The columns of a table, each by its name in the first row or by its number from 1.

    If one of them is a name, the first row has no texts.
    """

    source: str
    target: str


class Opening(NamedTuple):
    """What a caller knows about a file.

    Attributes:
        encoding: of the text, if the file does not declare it.
        source: the source language.
        target: the target language.
        columns: the columns of a table.
    """

    encoding: str | None = None
    source: str | None = None
    target: str | None = None
    columns: Columns | None = None


Open = Callable[[bytes, str, Opening], Document]


class Format(NamedTuple):
    """A format.

    Attributes:
        name: the name on the command line.
        open: creates the document from bytes and the name in messages.
        extensions: file extensions, in lower case.
        root: name of the root element; None if it is not XML.
    """

    name: str
    open: Open
    extensions: tuple[str, ...] = ()
    root: str | None = None


def _po(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.po import PoDocument

    return PoDocument(data, name, own.source, own.target, own.encoding)


def is_xliff_2(data: bytes) -> bool:
    """Whether an XLIFF document is of version 2, by its first bytes."""
    return _VERSION_2.search(data[:_HEAD].replace(b"\0", b"")) is not None


def _xliff(data: bytes, name: str, own: Opening) -> Document:
    if is_xliff_2(data):
        from heedful.data.documents.xliff2 import Xliff2Document

        return Xliff2Document(data, name, own.source, own.target, own.encoding)
    from heedful.data.documents.xliff import XliffDocument

    return XliffDocument(data, name, own.source, own.target, own.encoding)


def _tmx(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.tmx import TmxDocument

    if own.source is None or own.target is None:
        raise UserError(f"{name} is TMX: give the languages to translate from and into")
    return TmxDocument(data, name, own.source, own.target, own.encoding)


def _csv(data: bytes, name: str, own: Opening) -> Document:
    return _table(data, name, own, None)


def _tsv(data: bytes, name: str, own: Opening) -> Document:
    return _table(data, name, own, "\t")


def _table(data: bytes, name: str, own: Opening, delimiter: str | None) -> Document:
    from heedful.data.documents.table import TableDocument

    if own.columns is None:
        raise UserError(f"{name} is a table; name its columns with --source-column")
    return TableDocument(data, name, *own.columns, delimiter, own.encoding)


def _json(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.json_texts import JsonDocument

    return JsonDocument(data, name, own.encoding)


def _yaml(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.yaml_texts import YamlDocument

    return YamlDocument(data, name, own.source, own.target, own.encoding)


def _xcstrings(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.apple_catalog import AppleCatalogDocument

    if own.target is None:
        raise UserError(f"{name} is a string catalog: give the language to translate into")
    return AppleCatalogDocument(data, name, own.source, own.target, own.encoding)


def _android(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.android import AndroidDocument

    return AndroidDocument(data, name, own.encoding)


def _apple_strings(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.apple_strings import AppleStringsDocument

    return AppleStringsDocument(data, name, own.encoding)


def _properties(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.properties import PropertiesDocument

    return PropertiesDocument(data, name, own.encoding)


def _resx(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.resx import ResxDocument

    return ResxDocument(data, name, own.encoding)


def _qt(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.qt import QtDocument

    return QtDocument(data, name, own.encoding)


def _html(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.html import HtmlDocument

    return HtmlDocument(data, name, own.encoding)


def _markdown(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.markdown import MarkdownDocument

    return MarkdownDocument(data, name, own.encoding)


def _rest(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.rest import RestDocument

    return RestDocument(data, name, own.encoding)


def _subtitles(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.subtitles import SubtitleDocument

    return SubtitleDocument(data, name, own.encoding)


TABLES = (".tsv", ".csv")
"""Extensions of files that are documents only if their columns are given."""


def _docx(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.ooxml import WordDocument

    return WordDocument(data, name)


def _pptx(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.ooxml import SlidesDocument

    return SlidesDocument(data, name)


def _xlsx(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.ooxml import SheetsDocument

    return SheetsDocument(data, name)


def _opendocument(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.opendocument import OpenDocument

    return OpenDocument(data, name)


def _epub(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.epub import EpubDocument

    return EpubDocument(data, name)


FORMATS = {
    one.name: one
    for one in (
        Format("tsv", _tsv, TABLES[:1]),
        Format("csv", _csv, TABLES[1:]),
        Format("po", _po),
        Format("xliff", _xliff),
        Format("tmx", _tmx),
        Format("json", _json, (".json", ".arb")),
        Format("yaml", _yaml, (".yml", ".yaml")),
        Format("xcstrings", _xcstrings, (".xcstrings",)),
        Format("android", _android, (".xml",), "resources"),
        Format("strings", _apple_strings, (".strings",)),
        Format("properties", _properties, (".properties",)),
        Format("resx", _resx, (".resx",), "root"),
        Format("qt", _qt, (".ts",), "TS"),
        Format("html", _html, (".html", ".htm", ".xhtml")),
        Format("markdown", _markdown, (".md", ".markdown")),
        Format("rst", _rest, (".rst", ".rest")),
        Format("subtitles", _subtitles, (".srt", ".vtt")),
        Format("docx", _docx, (".docx", ".docm")),
        Format("pptx", _pptx, (".pptx", ".pptm")),
        Format("xlsx", _xlsx, (".xlsx", ".xlsm")),
        Format("opendocument", _opendocument, (".odt", ".ods", ".odp")),
        Format("epub", _epub, (".epub",)),
    )
}
"""The formats by name. Those without an extension are detected by content."""
OF_KINDS = {Kind.PO: FORMATS["po"], Kind.XLIFF: FORMATS["xliff"], Kind.TMX: FORMATS["tmx"]}
"""The formats that are also corpora."""
FILE_EXTENSIONS = frozenset(
    {*EXTENSIONS, *(end for one in FORMATS.values() for end in one.extensions)}
).difference(TABLES)
"""The extensions of all documents that need no further options."""

_ROOT = re.compile(rb"<([A-Za-z][\w:.-]*)")


def detect_format(
    name: str, head: bytes, encoding: str | None = None, columns: Columns | None = None
) -> Format | None:
    """Detect the format of a file by its extension and its content; None for plain text.

    Args:
        name: of the file.
        head: its first bytes, uncompressed.
        encoding: of the text, if it is known.
        columns: the columns, if it is a table.

    Raises:
        UserError: the file is XML of an unsupported kind.
    """
    if columns is None and extension(name) in TABLES:
        return None
    found = find_format(name, head)
    return OF_KINDS.get(find_kind(head, name, encoding)) if found is None else found


def find_format(name: str, head: bytes) -> Format | None:
    """Find the format of a file by its extension and, for XML, its root element.

    Args:
        name: of the file.
        head: its first bytes, uncompressed.
    """
    own = extension(name)
    root = _ROOT.search(head.replace(b"\0", b""))
    found = None if root is None else root[1].decode("ascii")
    for one in FORMATS.values():
        if own in one.extensions and one.root in (None, found):
            return one
    return None
