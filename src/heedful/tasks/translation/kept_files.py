"""Translated files that wait in memory to be downloaded."""

import asyncio
import secrets

from heedful.tasks.endpoints import Download, NoRoomError

_BYTES_OF_NAME = 24


class KeptFiles:
    """Files by unguessable names, which are deleted after a while.

    Args:
        most: maximum number of bytes of all files.
        seconds: the time after which a file is deleted.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.seconds = most, seconds
        self._files: dict[str, Download] = {}

    def require_room(self, size: int) -> None:
        """Check whether there is room for another file.

        Raises:
            NoRoomError: there is none until others are deleted.
        """
        if size + sum(len(one.data) for one in self._files.values()) > self.most:
            raise NoRoomError("too many files wait to be downloaded; try again later")

    def add(self, file: Download, ending: str) -> str:
        """Keep a file; returns its name, which ends as given.

        Raises:
            NoRoomError: there is no room for it.
        """
        self.require_room(len(file.data))
        name = secrets.token_urlsafe(_BYTES_OF_NAME) + ending
        self._files[name] = file
        asyncio.get_running_loop().call_later(self.seconds, self._files.pop, name, None)
        return name

    def get(self, name: str) -> Download | None:
        """A file; None if there is none with this name, or if it has been deleted."""
        return self._files.get(name)
