"""The document formats, and how to detect them. A format is imported when it is first used."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

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


def _xliff(data: bytes, name: str, own: Opening) -> Document:
    if _VERSION_2.search(data[:_HEAD].replace(b"\0", b"")) is not None:
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


def _yaml(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.yaml_texts import YamlDocument

    return YamlDocument(data, name, own.source, own.target, own.encoding)


def _xcstrings(data: bytes, name: str, own: Opening) -> Document:
    from heedful.data.documents.apple_catalog import AppleCatalogDocument

    if own.target is None:
        raise UserError(f"{name} is a string catalog: give the language to translate into")
    return AppleCatalogDocument(data, name, own.source, own.target, own.encoding)


TABLES = (".tsv", ".csv")
"""Extensions of files that are documents only if their columns are given."""


def _texts(module: str, own_class: str) -> Open:
    """Opens a document of texts, whose class is in a module of this package."""

    def opened(data: bytes, name: str, own: Opening) -> Document:
        found: Document = _imported(module, own_class)(data, name, own.encoding)
        return found

    return opened


def _archive(module: str, own_class: str) -> Open:
    """Opens an archive, whose parts declare their encodings."""

    def opened(data: bytes, name: str, own: Opening) -> Document:
        found: Document = _imported(module, own_class)(data, name)
        return found

    return opened


def _imported(module: str, own_class: str) -> Any:
    return getattr(import_module(f"heedful.data.documents.{module}"), own_class)


FORMATS = {
    one.name: one
    for one in (
        Format("tsv", _tsv, TABLES[:1]),
        Format("csv", _csv, TABLES[1:]),
        Format("po", _po),
        Format("xliff", _xliff),
        Format("tmx", _tmx),
        Format("json", _texts("json_texts", "JsonDocument"), (".json", ".arb")),
        Format("yaml", _yaml, (".yml", ".yaml")),
        Format("xcstrings", _xcstrings, (".xcstrings",)),
        Format("android", _texts("android", "AndroidDocument"), (".xml",), "resources"),
        Format("strings", _texts("apple_strings", "AppleStringsDocument"), (".strings",)),
        Format("properties", _texts("properties", "PropertiesDocument"), (".properties",)),
        Format("resx", _texts("resx", "ResxDocument"), (".resx",), "root"),
        Format("qt", _texts("qt", "QtDocument"), (".ts",), "TS"),
        Format("html", _texts("html", "HtmlDocument"), (".html", ".htm", ".xhtml")),
        Format("markdown", _texts("markdown", "MarkdownDocument"), (".md", ".markdown")),
        Format("rst", _texts("rest", "RestDocument"), (".rst", ".rest")),
        Format("subtitles", _texts("subtitles", "SubtitleDocument"), (".srt", ".vtt")),
        Format("docx", _archive("ooxml", "WordDocument"), (".docx", ".docm")),
        Format("pptx", _archive("ooxml", "SlidesDocument"), (".pptx", ".pptm")),
        Format("xlsx", _archive("ooxml", "SheetsDocument"), (".xlsx", ".xlsm")),
        Format("opendocument", _archive("opendocument", "OpenDocument"), (".odt", ".ods", ".odp")),
        Format("epub", _archive("epub", "EpubDocument"), (".epub",)),
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
