"""Detects the format of a file by its content; the extension is used only if that is ambiguous."""

import codecs
import re
from enum import Enum
from pathlib import PurePath

from heedful.basics.errors import UserError


class Kind(Enum):
    """Formats of corpora."""

    TEXT = "text"
    TMX = "TMX"
    XLIFF = "XLIFF"
    PO = "PO"


EXTENSIONS = {
    ".tmx": Kind.TMX,
    ".xlf": Kind.XLIFF,
    ".xliff": Kind.XLIFF,
    ".sdlxliff": Kind.XLIFF,
    ".po": Kind.PO,
    ".pot": Kind.PO,
}
# Longest first: the mark of UTF-32 begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
BEFORE_ROOT = re.compile(r"\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
ROOT = re.compile(r"<(?:[\w.-]+:)?([\w.-]+)")
PO_LINE = re.compile(r"""#|(?:msgctxt|msgid|domain)\s*"|\s*$""")
PO_ENTRY = re.compile(
    r"""^\s*(?:\#~\s*)?msgid\s*".*^\s*(?:\#~\s*)?msgstr""", re.DOTALL | re.MULTILINE
)


def find_kind(head: bytes, name: str, encoding: str | None = None) -> Kind:
    """Detect the kind of a file from its first bytes.

    Args:
        head: up to 64 KiB of the file, uncompressed.
        name: name of the file, for ambiguous content and for messages.
        encoding: encoding of the text, if given.

    Raises:
        UserError: the file is XML of an unsupported kind.
    """
    by_name = EXTENSIONS.get(extension(name))
    text = _readable(head, encoding)
    rest = text.lstrip()
    if rest.startswith("<"):
        kind = _xml_kind(rest, name, by_name)
        if kind is not None:
            return kind
    elif _is_po(text):
        return Kind.PO
    return by_name or Kind.TEXT


def extension(name: str) -> str:
    """The extension of a file in lower case, ignoring that of its compression."""
    path = PurePath(name.casefold())
    return PurePath(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix


def xml_encoding(head: bytes) -> str:
    """The encoding of an XML file: from its mark, declaration or zero bytes, else UTF-8."""
    for mark, encoding in MARKS:
        if head.startswith(mark):
            return encoding
    if head.startswith(b"<\0"):
        return "utf-16-le"
    if head.startswith(b"\0<"):
        return "utf-16-be"
    declared = re.match(rb"""<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""", head)
    return declared[1].decode("ascii") if declared else "utf-8"


def _readable(head: bytes, encoding: str | None) -> str:
    if encoding is None:
        encoding = xml_encoding(head)
        if not encoding.startswith(("utf-16", "utf-32", "utf-8-sig")):
            # Only ASCII matters here, and Latin-1 decodes it in any of the remaining encodings.
            encoding = "latin-1"
    return head.decode(encoding, errors="replace").removeprefix("\ufeff")


def _xml_kind(text: str, name: str, by_name: Kind | None) -> Kind | None:
    place = 0
    while skipped := BEFORE_ROOT.match(text, place):
        place = skipped.end()
    root = ROOT.match(text, place)
    local = root[1].casefold() if root else ""
    if local in ("tmx", "xliff"):
        return Kind.TMX if local == "tmx" else Kind.XLIFF
    if text.startswith("<?xml") and root and by_name is None:
        raise UserError(
            f"{name} is XML, but not TMX or XLIFF: its root is <{root[1]}>; convert it first"
        )
    return None


def _is_po(text: str) -> bool:
    lines = text.split("\n", 2000)
    first = next((line for line in lines if line.strip() and not line.startswith("#")), None)
    if first is not None and not PO_LINE.match(first):
        return False
    return PO_ENTRY.search(text) is not None
