"""What the processes of a training know of each other: machine, process, versions."""

import os
import socket
from collections.abc import Mapping, Sequence

from heedful.basics.errors import UserError
from heedful.runs.start import versions_and_machine


class Member:
    """What a process tells the others about itself."""

    def __init__(self, host: str, process: int, versions: Mapping[str, str]) -> None:
        self.host, self.process, self.versions = host, process, versions

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @classmethod
    def own(cls) -> "Member":
        """This process."""
        known = versions_and_machine()
        versions = {name: known[name] for name in ("heedful", "torch", "python")}
        return cls(socket.gethostname(), os.getpid(), versions)

    @property
    def has_ended(self) -> bool:
        """Whether it was a process of this machine and has ended."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return _is_zombie(self.process)


def _is_zombie(process: int) -> bool:
    """Whether a process has ended and its parent has not noticed yet (Linux)."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return False


def require_same_versions(members: Sequence[Member]) -> None:
    """Raise UserError if a process has other versions than rank 0."""
    for index, member in enumerate(members):
        for name, version in members[0].versions.items():
            other = member.versions.get(name)
            if other != version:
                raise UserError(
                    f"rank {index} ({member}) has {name} {other}, rank 0 has {version}; install "
                    "the same versions on all machines"
                )
