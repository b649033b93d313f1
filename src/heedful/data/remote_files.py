"""Files at URLs, through fsspec: corpora are streamed, stores are fetched into a local cache.

fsspec is an optional dependency, and so is the package of each kind of object store (s3fs, gcsfs,
adlfs). Credentials are found by these packages, as their own documentation describes.
"""

import contextlib
import hashlib
import importlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.urls import url_of
from heedful.basics.user_cache import cache_folder

CACHE_SIZE = "HEEDFUL_STORE_CACHE"
"""The environment variable for the maximum size of the cache in GiB."""
_DEFAULT_GIB = 20.0
_BLOCK = 1 << 22


def open_remote(url: str) -> IO[bytes]:
    """Open a file at a URL as a stream of bytes.

    Raises:
        UserError: fsspec or the package for the URL is missing, or the file cannot be read.
    """
    with _reading(url):
        system, path = _resolve(url)
        return cast(IO[bytes], system.open(path, "rb", block_size=_BLOCK))


def read_stream(stream: IO[bytes], url: str) -> io.BufferedReader:
    """A buffered reader of a stream whose errors are `OSError` with the URL."""
    return io.BufferedReader(_Raw(stream, url), _BLOCK)


def size_of(url: str) -> int:
    """The number of bytes of a file at a URL.

    Raises:
        UserError: see `open_remote`; or the server does not tell the size.
    """
    with _reading(url):
        system, path = _resolve(url)
        size = system.size(path)
    if size is None:
        raise UserError(f"{url}: the server does not tell the size of the file; download it first")
    return int(size)


def list_remote(pattern: str) -> list[str]:
    """The URLs that match a pattern with ``*``, or the files in a folder and the folders in it.

    Raises:
        UserError: see `open_remote`.
    """
    with _reading(pattern):
        system, path = _resolve(pattern)
        found = system.glob(path) if "*" in path else system.find(path)
        urls = [str(system.unstrip_protocol(one)) for one in found if not system.isdir(one)]
    return sorted(url_of(one) or one for one in urls)


def is_remote_file(url: str) -> bool:
    """Whether there is a file at a URL.

    Raises:
        UserError: fsspec or the package for the URL is missing, or the server cannot be reached.
    """
    return _type_of(url) == "file"


def require_remote(url: str) -> None:
    """Raise UserError unless there is a file or a folder at a URL.

    URLs of web servers, which have no folders, are accepted.
    """
    if not url.startswith(("http://", "https://")) and _type_of(url) is None:
        raise UserError(f"{url} does not exist; correct the URL")


def _type_of(url: str) -> str | None:
    """``file`` or ``directory``; None if there is nothing at a URL.

    `isfile` of fsspec returns False for errors of any kind, also if no server answers.
    """
    with _reading(url):
        system, path = _resolve(url)
        try:
            return str(system.info(path)["type"])
        except FileNotFoundError:
            return None


class RemoteFiles:
    """The files of a store at a URL. Each is fetched into the cache when it is opened.

    The cache has one file per content hash. The files that were opened least recently are deleted
    when it grows beyond ``HEEDFUL_STORE_CACHE`` GiB (20 by default).

    Args:
        url: the folder of the store.
        cache: the folder of the cache.
    """

    verifies = True

    def __init__(self, url: str, cache: Path) -> None:
        self.url, self._cache = url.rstrip("/"), cache
        self._index: Path | None = None

    @classmethod
    def of(cls, url: str) -> "RemoteFiles":
        """The files of a store at a URL, with the user's cache."""
        try:
            return cls(url, cache_folder() / "stores")
        except OSError as error:
            raise UserError(f"no cache for {url}: {error}") from error

    def path(self, name: str, sha256: str | None = None) -> Path:
        """The local path of a file; it is fetched unless the cache has it.

        Args:
            name: its name in the store.
            sha256: the hash of its content; None for the index, which is fetched once.

        Raises:
            UserError: it cannot be fetched, or its content has another hash.
        """
        if sha256 is None:
            if self._index is None:
                own = hashlib.sha256(self.url.encode()).hexdigest()
                self._index = self._fetched(name, self._cache / f"index-{own}", None)
            return self._index
        path = self._cache / sha256
        if path.exists():
            with contextlib.suppress(OSError):
                os.utime(path)
            return path
        found = self._fetched(name, path, sha256)
        self._limit(found)
        return found

    def _fetched(self, name: str, path: Path, sha256: str | None) -> Path:
        """Fetch a file into the cache; it appears there only when it is whole."""
        url, digest = f"{self.url}/{name}", hashlib.sha256()
        with open_remote(url) as stream, atomic_file(path) as file:
            while block := _block(stream, url):
                digest.update(block)
                file.write(block)
            if sha256 is not None and digest.hexdigest() != sha256:
                raise UserError(
                    f"{url}: the file is damaged: its SHA-256 differs from that in the index; "
                    "upload the encoded corpus again"
                )
        return path

    def _limit(self, newest: Path) -> None:
        """Delete the files that were used least recently, until the rest fits the limit."""
        files = []
        for path in self._cache.iterdir():
            with contextlib.suppress(OSError):  # another process may have deleted it
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= cache_bytes():
                return
            if path != newest and not path.name.startswith((".", "index-")):
                path.unlink(missing_ok=True)
                total -= size


def cache_bytes() -> int:
    """The maximum size of the cache.

    Raises:
        UserError: ``HEEDFUL_STORE_CACHE`` is not a positive number.
    """
    given = os.environ.get(CACHE_SIZE, str(_DEFAULT_GIB))
    try:
        size = float(given)
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise UserError(f"{CACHE_SIZE}={given}: give the size of the cache in GiB, such as 50")
    return int(size * (1 << 30))


class _Raw(io.RawIOBase):
    """A stream whose errors are `OSError`."""

    def __init__(self, stream: IO[bytes], url: str) -> None:
        self._stream, self._url = stream, url

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = _block(self._stream, self._url, len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _block(stream: IO[bytes], url: str, size: int = _BLOCK) -> bytes:
    with _reading(url):
        return stream.read(size)


def _resolve(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it."""
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise UserError(
            f"{url}: reading URLs needs fsspec; install it: pip install 'heedful[remote]'"
        ) from error
    try:
        system, path = core.url_to_fs(url)
    except ImportError as error:  # the message names the package
        raise UserError(f"{url} needs another package: {error}") from error
    return system, str(path)


@contextlib.contextmanager
def _reading(url: str) -> Iterator[None]:
    """Errors of the block become errors that name the URL."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{url} does not exist; correct the URL") from error
    except Exception as error:  # of several kinds, by the package of the object store
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"cannot read {url}: {said}; check the URL, the network and the credentials"
        ) from error
