"""The document formats, and how to detect them."""

import re
from collections.abc import Callable
from typing import NamedTuple

from heedful.data.documents.android import AndroidDocument
from heedful.data.documents.apple_strings import AppleStringsDocument
from heedful.data.documents.base import Document
from heedful.data.documents.html import HtmlDocument
from heedful.data.documents.json_texts import JsonDocument
from heedful.data.documents.markdown import MarkdownDocument
from heedful.data.documents.properties import PropertiesDocument
from heedful.data.documents.qt import QtDocument
from heedful.data.documents.rest import RestDocument
from heedful.data.documents.resx import ResxDocument
from heedful.data.documents.subtitles import SubtitleDocument
from heedful.data.readers.kinds import extension

Open = Callable[[bytes, str, str | None], Document]


class Format(NamedTuple):
    """A format.

    Attributes:
        name: the common name.
        extensions: file extensions, in lower case.
        root: name of the root element; None if it is not XML.
        open: creates the document from bytes, name and encoding.
    """

    name: str
    extensions: tuple[str, ...]
    root: str | None
    open: Open


FORMATS = (
    Format("JSON", (".json", ".arb"), None, JsonDocument),
    Format("Android strings", (".xml",), "resources", AndroidDocument),
    Format("iOS strings", (".strings",), None, AppleStringsDocument),
    Format("Java properties", (".properties",), None, PropertiesDocument),
    Format(".resx", (".resx",), "root", ResxDocument),
    Format("Qt TS", (".ts",), "TS", QtDocument),
    Format("HTML", (".html", ".htm", ".xhtml"), None, HtmlDocument),
    Format("Markdown", (".md", ".markdown"), None, MarkdownDocument),
    Format("reStructuredText", (".rst", ".rest"), None, RestDocument),
    Format("subtitles", (".srt", ".vtt"), None, SubtitleDocument),
)
"""Formats that are detected by extension. PO, TMX and XLIFF are detected by content."""

_ROOT = re.compile(rb"<([A-Za-z][\w:.-]*)")


def find_format(name: str, head: bytes) -> Format | None:
    """Find the format of a file by its extension and, for XML, its root element.

    Args:
        name: of the file.
        head: its first bytes, uncompressed.
    """
    own = extension(name)
    root = _ROOT.search(head.replace(b"\0", b""))
    found = None if root is None else root[1].decode("ascii")
    for one in FORMATS:
        if own in one.extensions and one.root in (None, found):
            return one
    return None
