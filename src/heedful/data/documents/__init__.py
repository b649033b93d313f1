"""Translate documents in place.

In bilingual formats, empty targets are filled; in files of one language, each text is replaced.

Only the bytes of targets are edited; the file is not serialised again.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from heedful.data.documents.base import Document
from heedful.data.documents.formats import FORMATS, Columns, Opening, detect_format
from heedful.data.readers.opening import STANDARD_INPUT, open_input
from heedful.data.readers.text import codec_name

if TYPE_CHECKING:
    from heedful.data.documents.sections import Sections

__all__ = ["Columns", "Document", "open_document", "open_sections"]

_SMALLEST = 4 << 20
"""Files of fewer bytes are read as a whole."""


def open_document(
    path: str | Path,
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
    form: str | None = None,
    columns: Columns | None = None,
) -> Document | None:
    """Open the document at ``path``; None for plain text.

    Args:
        path: the file, plain or gzip. Standard input (``-``) is plain text unless ``form`` is
            given, because a pipe cannot be inspected without reading it.
        source: the source language, which the file must have (``en`` matches ``en-US``).
        target: the target language; TMX needs both.
        encoding: encoding of the text, if the file does not declare it.
        form: the format, one of `heedful.data.documents.formats.FORMATS`; detected by extension and
            content if None.
        columns: the columns of a CSV or TSV file, which is plain text without them.

    Raises:
        UserError: the file is missing, invalid, or has other languages.
    """
    if form is None and str(path) == STANDARD_INPUT:
        return None
    if encoding is not None:
        codec_name(encoding)
    with open_input(path) as file:
        name = file.name
        known = None if form is None else FORMATS[form]
        found = known or detect_format(name, file.head(), encoding, columns)
        if found is None:
            return None
        return found.open(b"".join(file.chunks()), name, Opening(encoding, source, target, columns))


def open_sections(
    path: str | Path,
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
    form: str | None = None,
    columns: Columns | None = None,
    smallest: int = _SMALLEST,
) -> "Sections | None":
    """A large document in sections, for bounded memory; None if it has to be read as a whole.

    PO, CSV, TSV, XLIFF 1 and TMX files can be read in sections. The file is read twice: errors are
    found before the first section is translated.

    Args:
        path: the file; for the other arguments see `open_document`.
        source: the source language.
        target: the target language.
        encoding: encoding of the text.
        form: the format.
        columns: the columns of a table.
        smallest: smallest size of the file in bytes.

    Raises:
        UserError: the format cannot be detected.
    """
    if str(path) == STANDARD_INPUT or not Path(path).is_file():
        return None
    if Path(path).stat().st_size < smallest:
        return None
    with open_input(path) as file:
        known = None if form is None else FORMATS[form]
        found = known or detect_format(file.name, file.head(), encoding, columns)
    if found is None:
        return None
    from heedful.data.documents.sections import find_sections

    return find_sections(Path(path), found, Opening(encoding, source, target, columns))
