"""What the workers of a server share: a private folder in memory.

It contains the translated files that wait to be downloaded, the metrics of all workers, weights in
the layout of compiled code, and a table of the workers with their numbers of connections. The
supervisor makes the folder and deletes it.
"""

import contextlib
import mmap
import os
import shutil
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

from heedful.basics.locking import waiting

_ROW = struct.Struct("ii")
"""A row of the table: process (0: none), connections."""


class Shared:
    """The folder that the workers of a server share.

    Args:
        folder: the folder, from `make_shared`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files, self.metrics = folder / "files", folder / "metrics"
        """Folders of translated files and of metrics."""
        self.weights = folder / "weights"
        """The folder of weights in the layout of compiled code."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Exclude other processes while the block runs."""
        return waiting(self.folder)

    def table(self) -> "WorkerTable":
        """The table of workers."""
        return WorkerTable(self.folder / "workers")

    def processes(self) -> list[int]:
        """The processes of all workers that accept connections or finish requests."""
        with contextlib.closing(self.table()) as table:
            return [process for process, _ in table.rows() if process]

    def delete_old_files(self, seconds: float) -> None:
        """Delete translated files that are older."""
        _delete_before(self.files, time.time() - seconds)

    def delete_old_weights(self, when: float) -> None:
        """Delete the weights that no worker has loaded since a time."""
        _delete_before(self.weights, when)

    def keep_metrics_of(self, process: int) -> None:
        """Add the metrics of a process that has ended to those of all others that have ended.

        Without this, there would be more files after each restart of a worker.
        """
        from prometheus_client import mmap_dict

        values: Any = mmap_dict.MmapedDict  # untyped
        with self.locked():
            for kind in ("counter", "histogram"):
                path = self.metrics / f"{kind}_{process}.db"
                if not path.exists():
                    continue
                total = values(str(self.metrics / f"{kind}_0.db"))
                for key, value, when, _ in values.read_all_values_from_file(str(path)):
                    total.write_value(key, total.read_value(key)[0] + value, when)
                total.close()
                path.unlink()
            for path in self.metrics.glob(f"gauge_*_{process}.db"):
                path.unlink()

    def delete(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class WorkerTable:
    """A memory-mapped table with one row for each worker."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def rows(self) -> list[tuple[int, int]]:
        """Process and connections of each row; process 0 for none."""
        return [(process, count) for process, count in _ROW.iter_unpack(self._map[:])]

    def set(self, row: int, process: int, connections: int) -> None:
        """Write a row."""
        _ROW.pack_into(self._map, row * _ROW.size, process, connections)

    def least(self) -> int:
        """The smallest number of connections of a worker that accepts; 0 if there is none."""
        return min((count for process, count in self.rows() if process and count >= 0), default=0)

    def close(self) -> None:
        """Close the table."""
        self._map.close()


def _delete_before(folder: Path, when: float) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < when:
                path.unlink()


def make_shared(rows: int) -> Shared:
    """Make a private folder with a table of so many rows.

    The folder is in ``$TMPDIR`` if it is set. Otherwise it is in the memory of the machine
    (``/dev/shm``), if there is such a folder.
    """
    memory = "/dev/shm" if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK) else None
    shared = Shared(Path(tempfile.mkdtemp(prefix="heedful-", dir=memory)))
    shared.files.mkdir()
    shared.metrics.mkdir()
    shared.weights.mkdir()
    (shared.folder / "workers").write_bytes(bytes(rows * _ROW.size))
    return shared
