"""Bulk jobs: text files cut into shards of lines, which worker processes answer; resumable.

The output folder has a folder ``.heedful-bulk`` with the manifest and the shards that are done. The
manifest records the settings and the content hashes of the inputs, so that a job is resumed only
with the same ones. At the end, the shards of each input are joined to a file of the same name.
"""

import contextlib
import gzip
import lzma
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import IO, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import (
    atomic_file,
    cannot_write,
    content_hash,
    remove_leftovers,
    write_json,
)
from heedful.basics.json_models import read_object
from heedful.basics.locking import locked
from heedful.basics.notices import notice
from heedful.basics.progress import progress
from heedful.data.readers import read_line_blocks
from heedful.inference.bulk_workers import Opens, RunsShards, Shard, read_shard, run_shards
from heedful.inference.files import check_output, line_windows

STATE = ".heedful-bulk"
"""The folder in the output folder for the manifest and the shards."""
MANIFEST = "manifest.json"


class InputRecord(BaseModel):
    """An input file at the start of a job."""

    model_config = ConfigDict(extra="forbid", strict=True)
    sha256: str
    lines: NonNegativeInt


class Manifest(BaseModel):
    """What a job was started with, and the files that are done."""

    model_config = ConfigDict(extra="forbid", strict=True)
    version: Literal[1] = 1
    settings: dict[str, Any]
    inputs: dict[str, InputRecord]
    done: dict[str, str] = {}
    """Name of a file → content hash of its output."""


@dataclass(frozen=True)
class BulkInput:
    """A file of a job."""

    path: Path
    """Text, plain, gzip or xz."""
    tsv: bool = False
    """Whether only the first column is used."""


@dataclass(frozen=True)
class BulkSummary:
    """What a job has done."""

    files: int
    """Number of output files."""
    lines: int
    """Number of their lines."""
    new_lines: int
    """Number of lines that this process and its workers have done."""
    seconds: float
    counts: Counter[str]
    """What must be reported, over the files that this process has joined."""


class _ChangedInputError(UserError):
    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(
            f"{path} changed while it was read; its shards were deleted: rerun the same command "
            "with the file as it was, or give another output folder"
        )
        self.folder = folder


class BulkJob:
    """The files of a job and their output folder.

    Args:
        inputs: the files by their names in the output folder, with ``/`` between folders.
        output: the output folder; created if it does not exist.
        settings: everything that affects the output, as JSON values; the number of processes does
            not.
        shard_lines: number of lines in a shard.
        encoding: of the files; UTF-8 by default.

    Raises:
        UserError: an output would replace its input.
    """

    def __init__(
        self,
        inputs: Mapping[str, BulkInput],
        output: Path,
        settings: Mapping[str, Any],
        *,
        shard_lines: int,
        encoding: str | None = None,
    ) -> None:
        self.inputs, self.output = dict(sorted(inputs.items())), output
        self.settings = {**settings, "shard_lines": shard_lines, "encoding": encoding}
        self.shard_lines, self.encoding = shard_lines, encoding
        self.state = output / STATE
        own = {one.path.resolve() for one in self.inputs.values()}
        for name in self.inputs:
            if (output / name).resolve() in own:
                raise UserError(f"{output / name} is an input; give another output folder")

    def run(
        self, opens: Opens, workers: int, doing: str, *, runs: RunsShards = run_shards
    ) -> BulkSummary:
        """Do what is left of the job; interrupted, it is resumed by the same call.

        Args:
            opens: see :func:`heedful.inference.bulk_workers.run_shards`.
            workers: number of processes.
            doing: label of the progress bar, which is shown on a terminal.
            runs: answers shards, here or on a cluster; see
                :class:`heedful.inference.bulk_ray.RayShards`.

        Raises:
            UserError: another process works on the folder; the job was started with other settings
                or inputs; an input cannot be read; the output cannot be written; or a worker raised
                it.
        """
        began = time.monotonic()
        check_output(self.output / STATE / MANIFEST)
        try:
            self.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.state, error) from error
        with locked(self.output, "written"):
            self._remove_leftovers()
            manifest = self._manifest()
            try:
                new = self._do(manifest, opens, workers, doing, runs)
                counts: Counter[str] = Counter()
                for name in self._left(manifest):
                    counts += self._join(manifest, name)
            except _ChangedInputError as error:
                shutil.rmtree(error.folder, ignore_errors=True)
                raise
            except KeyboardInterrupt:
                notice(f"{self.output}: stopped; rerun the same command to resume")
                raise
            finally:
                self._remove_leftovers()
        lines = sum(one.lines for one in manifest.inputs.values())
        return BulkSummary(len(self.inputs), lines, new, time.monotonic() - began, counts)

    def _manifest(self) -> Manifest:
        """The job's manifest, which is written if the job is new."""
        path = self.state / MANIFEST
        if not path.exists():
            for name in self.inputs:
                if (self.output / name).exists():
                    raise UserError(f"{self.output / name} exists; give another output folder")
            inputs = {name: self._record(one) for name, one in self.inputs.items()}
            manifest = Manifest(settings=self.settings, inputs=inputs)
            write_json(path, manifest.model_dump())
            return manifest
        try:
            manifest = read_object(Manifest, read_json(path), str(path))
        except UserError as error:
            raise UserError(
                f"{error}; to start the job again, delete {self.state} and the files beside it"
            ) from error
        self._require_same(manifest)
        for name in [*manifest.done]:
            place = self.output / name
            if not place.is_file() or content_hash(place) != manifest.done[name]:
                notice(f"{place} is missing or was changed; it is made again")
                del manifest.done[name]
        return manifest

    def _record(self, one: BulkInput) -> InputRecord:
        found = _hash(one.path)
        lines = sum(len(block) for block in read_line_blocks(one.path, self.encoding))
        return InputRecord(sha256=found, lines=lines)

    def _require_same(self, manifest: Manifest) -> None:
        """Raise UserError unless settings and inputs are those of the manifest."""
        for name in dict.fromkeys([*self.settings, *manifest.settings]):
            old, new = manifest.settings.get(name), self.settings.get(name)
            if old != new:
                raise UserError(
                    f"{self.output} was started with {name} = {_short(old)}, but is now given "
                    f"{_short(new)}; use the same settings, or another output folder"
                )
        for name in sorted(manifest.inputs.keys() ^ self.inputs.keys()):
            what = "is missing now" if name in manifest.inputs else "was not there at the start"
            raise UserError(
                f"{self.output} was started with other inputs: {name} {what}; give the same files, "
                "or another output folder"
            )
        for name, one in self.inputs.items():
            if _hash(one.path) != manifest.inputs[name].sha256:
                raise UserError(
                    f"{one.path} has changed since {self.output} was started; restore it, or give "
                    "another output folder"
                )

    def _left(self, manifest: Manifest) -> list[str]:
        return [name for name in self.inputs if name not in manifest.done]

    def _folder(self, name: str) -> Path:
        """The folder for the shards of a file."""
        return self.state / f"{[*self.inputs].index(name):06}"

    def _shard_paths(self, manifest: Manifest, name: str) -> list[Path]:
        count = -(-manifest.inputs[name].lines // self.shard_lines)
        return [self._folder(name) / f"{number:08}" for number in range(count)]

    def _do(
        self, manifest: Manifest, opens: Opens, workers: int, doing: str, runs: RunsShards
    ) -> int:
        """Answer all shards that are not done; returns their number of lines."""
        names = self._left(manifest)
        paths = [path for name in names for path in self._shard_paths(manifest, name)]
        before = sum(path.exists() for path in paths)
        if before:
            notice(f"{self.output}: resumed; {before:,} of {len(paths):,} shards were done")
        lines = 0

        def finished(shard: Shard) -> None:
            nonlocal lines
            lines += len(shard.lines)

        total = sum(self._missing_lines(manifest, name) for name in names)
        with progress(doing, total, "lines") as advance:
            shards = self._shards(manifest, names)
            runs(shards, opens, workers, advance=advance, finished=finished)
        return lines

    def _missing_lines(self, manifest: Manifest, name: str) -> int:
        """Number of lines of a file that are in no shard that is done."""
        lines, paths = manifest.inputs[name].lines, self._shard_paths(manifest, name)
        firsts = range(0, lines, self.shard_lines)
        return sum(
            min(self.shard_lines, lines - first)
            for first, path in zip(firsts, paths, strict=True)
            if not path.exists()
        )

    def _shards(self, manifest: Manifest, names: list[str]) -> Iterator[Shard]:
        """The shards that are not done, file by file."""
        for name in names:
            one, first = self.inputs[name], 0
            read = line_windows(
                str(one.path), encoding=self.encoding, tsv=one.tsv, size=self.shard_lines
            )
            for number, lines in enumerate(read):
                path = self._folder(name) / f"{number:08}"
                where = f"{one.path}, lines {first + 1:,} to {first + len(lines):,}"
                if not path.exists():
                    yield Shard(path, where, first, lines)
                first += len(lines)
            if _hash(one.path) != manifest.inputs[name].sha256:
                raise _ChangedInputError(one.path, self._folder(name))

    def _join(self, manifest: Manifest, name: str) -> Counter[str]:
        """Join the shards of a file, and delete them; returns their counts."""
        place = self.output / name
        counts: Counter[str] = Counter()
        with atomic_file(place) as file, _packed(file, name) as packed:
            for path in self._shard_paths(manifest, name):
                own, lines = read_shard(path)
                counts += own
                packed.writelines(lines)
        manifest.done[name] = content_hash(place)
        write_json(self.state / MANIFEST, manifest.model_dump())
        shutil.rmtree(self._folder(name), ignore_errors=True)
        return counts

    def _remove_leftovers(self) -> None:
        """Delete the temporary files of processes that were killed."""
        for folder in (self.state, *self.state.glob("[0-9]*")):
            remove_leftovers(folder)
        for name in self.inputs:
            place = self.output / name
            for path in place.parent.glob(f".{escape(place.name)}.*.part"):
                path.unlink(missing_ok=True)


def _hash(path: Path) -> str:
    try:
        return content_hash(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 20 else f"{text[:12]}…"


@contextlib.contextmanager
def _packed(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """A file to write to, compressed if its name ends in ``.gz`` or ``.xz``."""
    kind = name.casefold()
    if kind.endswith(".gz"):
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
            yield cast(IO[bytes], packed)
    elif kind.endswith(".xz"):
        with lzma.LZMAFile(file, "wb") as packed_xz:
            yield cast(IO[bytes], packed_xz)
    else:
        yield file
