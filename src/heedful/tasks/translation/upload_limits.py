"""Limits of uploaded files, which keep a server responsive: parsing cannot be interrupted.

All of them grow with the maximum number of characters in the texts of a request, which is checked
after parsing. Files with so many characters are far from these limits.
"""

import io
import zipfile

from heedful.basics.errors import UserError
from heedful.data.documents.archive import BROKEN

_PER_CHARACTER = 1
"""Maximum tags, and maximum lines."""
_TAGS_OF_ARCHIVES = 4
"""Maximum tags in an archive, in which few words have tags of their own."""
_MARKED = (".md", ".markdown", ".rst", ".rest")
"""Formats whose markup takes longest to parse."""
_MARKED_CHARACTERS = 2
"""Maximum characters of their files."""
_EXPANDED = 160
"""Maximum bytes that an archive expands to."""
_BLOCK = 1 << 20


def check_upload(data: bytes, ending: str, characters: int) -> None:
    """Check how long it may take to parse a file.

    Args:
        data: the file.
        ending: its extension.
        characters: the maximum number of characters in the texts of a request.

    Raises:
        UserError: it has too many tags or lines, or it is an archive that expands to too much.
    """
    by_chance = len(data) // 64  # in compressed data
    most = _PER_CHARACTER * characters + by_chance
    _check("tags", data.count(b"<"), most)
    _check("lines", max(data.count(b"\n"), data.count(b"\r")), most)
    if ending in _MARKED:
        size = len(data.decode("utf-8", "ignore"))
        _check("characters", size, _MARKED_CHARACTERS * characters)
    if zipfile.is_zipfile(io.BytesIO(data)):
        try:
            _check_archive(data, characters, by_chance)
        except BROKEN:
            return  # the reader of the format refuses it


def _check_archive(data: bytes, characters: int, by_chance: int) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        expanded = sum(info.file_size for info in infos)
        _check("bytes when it is expanded", expanded, max(_EXPANDED * characters, 2 * len(data)))
        tags = 0
        for info in infos:
            with archive.open(info) as file:
                while block := file.read(_BLOCK):
                    tags += block.count(b"<")
    _check("tags", tags, _TAGS_OF_ARCHIVES * characters + by_chance)


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise UserError(f"the file has {count:,} {what}; the maximum is {most:,}")
