"""Translated files that wait to be downloaded."""

import asyncio
import json
import re
import secrets
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from heedful.basics.files import atomic_file
from heedful.tasks.endpoints import Download, NoRoomError

_BYTES_OF_NAME = 24
_NAME = re.compile(r"[\w-]{32}\.[a-z]{1,10}", re.ASCII)


class KeptFiles(ABC):
    """Files by unguessable names, which are deleted after a while.

    Args:
        most: maximum number of bytes of all files.
        seconds: the time after which a file is deleted.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.seconds = most, seconds

    def require_room(self, size: int) -> None:
        """Check whether there is room for another file.

        Raises:
            NoRoomError: there is none until others are deleted.
        """
        if size + self._size() > self.most:
            raise NoRoomError("too many files wait to be downloaded; try again later")

    def add(self, file: Download, ending: str) -> str:
        """Keep a file; returns its name, which ends as given.

        Raises:
            NoRoomError: there is no room for it.
        """
        self.require_room(len(file.data))
        name = secrets.token_urlsafe(_BYTES_OF_NAME) + ending
        self._put(name, file)
        return name

    @abstractmethod
    def get(self, name: str) -> Download | None:
        """A file; None if there is none with this name, or if it has been deleted."""

    @abstractmethod
    def _size(self) -> int:
        """The number of bytes of all files."""

    @abstractmethod
    def _put(self, name: str, file: Download) -> None: ...


class FilesInMemory(KeptFiles):
    """Files in the memory of this process."""

    def __init__(self, most: int, seconds: float) -> None:
        super().__init__(most, seconds)
        self._files: dict[str, Download] = {}

    def get(self, name: str) -> Download | None:
        """A file; None if there is none with this name, or if it has been deleted."""
        return self._files.get(name)

    def _size(self) -> int:
        return sum(len(one.data) for one in self._files.values())

    def _put(self, name: str, file: Download) -> None:
        self._files[name] = file
        asyncio.get_running_loop().call_later(self.seconds, self._files.pop, name, None)


class FilesInFolder(KeptFiles):
    """Files in a folder that several processes share; the owner of the folder deletes old files.

    Two processes that add a file at the same time may exceed the maximum by one file.
    """

    def __init__(self, most: int, seconds: float, folder: Path) -> None:
        super().__init__(most, seconds)
        self._folder = folder

    def get(self, name: str) -> Download | None:
        """A file; None if there is none with this name, or if it is too old."""
        if not _NAME.fullmatch(name):  # it comes from a client
            return None
        path = self._folder / name
        try:
            if time.time() - path.stat().st_mtime > self.seconds:
                return None
            head, _, data = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        return Download(data=data, **json.loads(head))

    def _size(self) -> int:
        size = 0
        for path in self._folder.iterdir():
            with suppress(OSError):  # deleted meanwhile
                size += path.stat().st_size
        return size

    def _put(self, name: str, file: Download) -> None:
        head = json.dumps({"name": file.name, "media_type": file.media_type})
        try:
            with atomic_file(self._folder / name) as kept:
                kept.write(head.encode() + b"\n" + file.data)
        except OSError as error:
            raise NoRoomError("there is no room for translated files; try again later") from error


def kept_files(most: int, seconds: float, folder: Path | None) -> KeptFiles:
    """Files in memory, or in a folder if one is given."""
    if folder is None:
        return FilesInMemory(most, seconds)
    return FilesInFolder(most, seconds, folder)
