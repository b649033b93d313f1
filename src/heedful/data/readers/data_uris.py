"""Files in data URIs, and folders that the paths of a table are relative to."""

import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path

from heedful.basics.errors import UserError

_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/]*)=*")


def uri_of(kind: str, data: bytes) -> str:
    """A data URI.

    Example:
        >>> uri_of("audio/wav", b"RIFF")
        'data:audio/wav;base64,UklGRg=='
    """
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def without_data(text: str) -> str:
    """A text with a number of bytes in place of the data of each data URI, to be read by people.

    Example:
        >>> without_data('{"image":"data:image/png;base64,UklGRg=="}')
        '{"image":"data:image/png, 4 bytes"}'
    """
    return _URI.sub(lambda one: f"data:{one[1]}, {len(one[2]) * 3 // 4:,} bytes", text)


def data_of(uri: str, kinds: tuple[str, ...], where: str) -> bytes:
    """The bytes in a data URI.

    Args:
        uri: the URI.
        kinds: what its type may begin with: ``image/``.
        where: the file, for messages.

    Raises:
        UserError: it is not a data URI of these kinds in base64.
    """
    head, comma, body = uri.partition(",")
    named = head.removeprefix("data:")
    if not comma or named == head or not named.startswith(kinds) or not head.endswith(";base64"):
        raise UserError(f"{where}: not a data URI, such as data:{kinds[0]}…;base64,…")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"{where}: the base64 of the data URI is damaged") from error


def folder_beside(table: str, folder: str) -> Path:
    """The folder that the paths of a table are relative to.

    Args:
        table: the table's path; ``-`` for standard input.
        folder: relative to the table's folder, or to the current one; empty for the table's.

    Raises:
        UserError: it does not exist.
    """
    base = (Path() if table == "-" else Path(table).parent) / folder
    base = base if base.is_dir() else Path(folder)
    if not base.is_dir():
        raise UserError(f"{folder}: no such folder beside {table} or in the current folder")
    return base


def of_table(table: str, read: Callable[[Path], str], path: Path) -> str:
    """What ``read`` returns for a file that a table names.

    Raises:
        UserError: the file cannot be read; the message has the table and the file.
    """
    try:
        return read(path)
    except UserError as error:
        raise UserError(f"{table}: {error}") from error


def bytes_in(path: str | Path, what: str) -> bytes:
    """The bytes of a file.

    Args:
        path: the file.
        what: what it contains, for messages: "the image".

    Raises:
        UserError: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {what} {path}: {error.strerror or error}") from error
