"""Translate documents in place.

In bilingual formats, empty targets are filled; in files of one language, each text is replaced.

Only the bytes of targets are edited; the file is not serialised again.
"""

import re
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.data.documents.base import Document
from heedful.data.documents.formats import find_format
from heedful.data.documents.po import PoDocument
from heedful.data.documents.tmx import TmxDocument
from heedful.data.documents.xliff import XliffDocument
from heedful.data.documents.xliff2 import Xliff2Document
from heedful.data.readers.kinds import Kind, find_kind
from heedful.data.readers.opening import STANDARD_INPUT, open_input
from heedful.data.readers.text import codec_name

__all__ = ["Document", "open_document"]

_HEAD = 4096
_VERSION_2 = re.compile(rb"""<(?:[\w.-]+:)?xliff\b[^>]*\sversion\s*=\s*["']2\.""")


def open_document(
    path: str | Path,
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
    kind: Kind | None = None,
) -> Document | None:
    """Open the document at ``path``; None for plain text.

    Args:
        path: the file, plain or gzip. Standard input (``-``) is plain text unless ``kind`` is
            given, because a pipe cannot be inspected without reading it.
        source: the source language, which the file must have (``en`` matches ``en-US``).
        target: the target language; TMX needs both.
        encoding: encoding of the text, if the file does not declare it.
        kind: kind of the file; detected by content if None.

    Raises:
        UserError: the file is missing, invalid, or has other languages.
    """
    if kind is None and str(path) == STANDARD_INPUT:
        return None
    if encoding is not None:
        codec_name(encoding)
    with open_input(path) as file:
        name = file.name
        own = find_format(name, file.head()) if kind is None else None
        if own is not None:
            return own.open(b"".join(file.chunks()), name, encoding)
        kind = kind or find_kind(file.head(), name, encoding)
        if kind is Kind.TEXT:
            return None
        data = b"".join(file.chunks())
    if kind is Kind.PO:
        return PoDocument(data, name, source, target, encoding)
    if kind is Kind.XLIFF:
        is_second = _VERSION_2.search(data[:_HEAD].replace(b"\0", b"")) is not None
        return (Xliff2Document if is_second else XliffDocument)(
            data, name, source, target, encoding
        )
    if source is None or target is None:
        raise UserError(f"{name} is TMX: give the languages to translate from and into")
    return TmxDocument(data, name, source, target, encoding)
