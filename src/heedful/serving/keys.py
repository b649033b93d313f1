"""API keys: generated, stored in a file as salted hashes, compared in constant time."""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import Scope

from heedful.basics.errors import UserError

_MAX_LENGTH = 256


class Keys:
    """The keys of a file: one line ``name:salt:hash`` per key, in hexadecimal; ``#`` is a comment.

    Keys are 256 random bits, so one round of SHA-256 keyed by the salt is enough.
    """

    def __init__(self, entries: list[tuple[bytes, bytes]]) -> None:
        self._entries = entries

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Read the keys of a file.

        Raises:
            UserError: the file cannot be read, is writable for all users, contains an invalid line,
                or contains no key.
        """
        _check_file(path)
        entries = []
        for number, line in enumerate(_text(path).splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                _, salt, digest = line.strip().split(":")
                entries.append((bytes.fromhex(salt), bytes.fromhex(digest)))
            except ValueError:
                raise UserError(
                    f"{path}, line {number}: not a key; create one with heedful serve --new-key "
                    f"{path}"
                ) from None
        if not entries:
            raise UserError(f"{path} has no key; create one with heedful serve --new-key {path}")
        return cls(entries)

    def replace(self, other: "Keys") -> None:
        """Accept the keys of another file, or of the same file after it was changed."""
        self._entries = other._entries

    def is_valid(self, key: object) -> bool:
        """Whether a key is valid. The time this takes does not depend on the key."""
        encoded = key.encode("utf-8", "replace") if isinstance(key, str) else b""
        encoded = encoded[:_MAX_LENGTH]
        found = False
        for salt, digest in self._entries:
            found |= hmac.compare_digest(_digest(salt, encoded), digest)
        return found


def new_key(path: Path, name: str = "key") -> str:
    """Create a key and add its hash to a file. A new file is readable by its owner only.

    Returns:
        The key, which is stored nowhere.

    Raises:
        UserError: the file cannot be written, or the name contains a colon or a line break.
    """
    if not name.isprintable() or ":" in name or name.startswith("#"):
        raise UserError("the name of a key must be one line without a colon")
    key = secrets.token_urlsafe(32)
    salt = secrets.token_bytes(16)
    line = f"{name}:{salt.hex()}:{_digest(salt, key.encode()).hex()}\n"
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(file, "r+b", buffering=0) as lines:
            end = lines.seek(0, os.SEEK_END)
            if end:
                lines.seek(end - 1)
                if lines.read(1) != b"\n":  # some editors write no final line break
                    line = f"\n{line}"
            lines.write(line.encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return key


def key_outside_body(scope: Scope) -> str | None:
    """The key of a request outside its body: a bearer token, or ``api_key`` in the query."""
    kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    query: bytes = scope["query_string"]
    if b"api_key=" not in query:  # most queries have none; parsing thousands of fields takes time
        return None
    fields = parse_qsl(query.decode("latin-1"))
    return next((value for name, value in fields if name == "api_key"), None)


def _check_file(path: Path) -> None:
    """Check that a path is a regular file that is not writable for all users."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is not a file; --keys needs a file created by --new-key")
    if os.name == "posix" and mode & stat.S_IWOTH:
        raise UserError(f"{path} is writable for all users; run chmod o-w {path}")


def _digest(salt: bytes, key: bytes) -> bytes:
    return hmac.new(salt, key, hashlib.sha256).digest()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a key file: it is not text") from error
