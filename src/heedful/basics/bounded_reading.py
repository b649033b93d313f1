"""Reading untrusted files: regular files only, of bounded size.

Reading a device or a pipe might never end; a large or deeply nested JSON or TOML file might fill
the memory.
"""

import io
import json
import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError

MOST_BYTES = 64 << 20
"""Maximum size of a file that is read whole; enough for a vocabulary of a million entries."""
MOST_TOML_BYTES = 1 << 20
_MOST_VALUES = 8_000_000
"""Maximum number of JSON values; a million entries with as many merges have about four million."""


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: it is missing or cannot be read.
        UserError: it is a folder, a device, a pipe or a socket.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise _not_regular(path)
    return io.BufferedReader(io.FileIO(opened))


def require_regular(path: Path) -> None:
    """Raise UserError if the path exists and is not a regular file.

    For libraries that open a file by its name.
    """
    if path.exists() and not path.is_file():
        raise _not_regular(path)


def _not_regular(path: Path) -> UserError:
    what = "a folder" if path.is_dir() else "a device, a pipe or a socket"
    return UserError(f"{path} is {what}, not a file; replace it by the file that belongs there")


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """A file's bytes.

    Args:
        path: the file.
        most: the largest size.

    Raises:
        UserError: the file is missing, cannot be read, is not a regular file, or is too large.
    """
    try:
        with open_regular(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > most:
        raise UserError(f"{path}: larger than the limit of {most >> 20} MiB")
    return content


def parse_json(content: bytes, where: str, most: int = _MOST_VALUES) -> Any:
    """The value of a JSON text.

    Args:
        content: the text.
        where: its description in messages.
        most: the largest number of values, estimated by counting separators.

    Raises:
        UserError: it is not valid, is nested too deeply, or has too many values.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > most:
        raise UserError(f"{where}: more values than the limit of {most:,}")
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno:,}, column {error.colno:,}"
        raise UserError(
            f"{where}: not valid JSON ({at}: {error.msg}); the file is damaged: correct it, or "
            "copy it again"
        ) from error
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON; the file is damaged") from error
    except RecursionError as error:
        raise UserError(f"{where}: nested too deeply; the file is damaged") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        UserError: the file is missing, damaged, too large, or does not contain an object.
    """
    values = parse_json(read_bytes(path), str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object; the file is damaged")
    return values


def read_json_lines(path: Path, *, growing: bool = False) -> Iterator[Any]:
    """The values of a JSON lines file, read as a stream; none if the file does not exist.

    Args:
        path: the file.
        growing: the file may still be written, or its writer was killed: a last line without a
            line break is ignored.

    Raises:
        UserError: the file cannot be read, or a line is damaged or too long.
    """
    if not path.exists():
        return
    try:
        with open_regular(path) as file:
            number = 0
            while line := file.readline(MOST_BYTES + 1):
                number += 1
                if len(line) > MOST_BYTES:
                    raise UserError(
                        f"{path}, line {number}: larger than the limit of {MOST_BYTES >> 20} MiB"
                    )
                if growing and not line.endswith(b"\n"):
                    return
                yield parse_json(line, f"{path}, line {number}")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def parse_toml(content: bytes, where: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        UserError: it is not valid (with the line), or is nested too deeply.
    """
    try:
        return tomllib.loads(content.decode("utf-8"))
    except ValueError as error:
        raise UserError(f"{where}: not a TOML file: {error}") from error
    except RecursionError as error:
        raise UserError(f"{where}: nested too deeply; not a recipe") from error
