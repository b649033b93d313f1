"""Files: written whole, kept on the disk, private where their folder is; read within bounds."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.basics import files
from heedful.basics.bounded_reading import (
    MOST_BYTES,
    MOST_TOML_BYTES,
    parse_toml,
    read_bytes,
    read_json,
    read_json_lines,
)
from heedful.basics.errors import UserError
from heedful.basics.files import (
    atomic_file,
    atomic_folder,
    content_hash,
    is_device,
    open_to_append,
    write_json,
)
from heedful.basics.locking import LOCK, locked
from heedful.inference.files import check_output

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX files")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def as_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [as_pipe, as_device, as_folder])
@pytest.mark.parametrize(
    "read", [read_bytes, read_json, content_hash, lambda path: list(read_json_lines(path))]
)
def test_only_regular_files_are_read(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    make(tmp_path / "file")
    with pytest.raises(UserError, match=r"file is a (device|folder).*, not a file"):
        read(tmp_path / "file")


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # no block of it is on the disk
    with pytest.raises(UserError, match="larger than the limit of 64 MiB"):
        read_json(path)
    with pytest.raises(UserError, match="larger than the limit of 1 MiB"):
        read_bytes(path, MOST_TOML_BYTES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 2_000_000, "nested too deeply"),
        (b'{"a":' * 2_000_000, "nested too deeply"),
        (b"[" + b"0," * 9_000_000 + b"0]", "more values than the limit of 8,000,000"),
        (b"\xff\xfe{", "not valid JSON"),
        (b"1" * 5000, "not valid JSON"),
        (b"[1]", "expected a JSON object"),
    ],
)
def test_json_is_read_within_bounds(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_json(path)


@pytest.mark.parametrize("content", [b"a = " + b"[" * 100_000, b"a = \xff", b"a"])
def test_toml_is_read_within_bounds(content: bytes) -> None:
    with pytest.raises(UserError, match=r"recipe\.toml: "):
        parse_toml(content, "recipe.toml")


def test_files_are_as_private_as_their_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        for private, modes in ((False, (0o755, 0o644)), (True, (0o700, 0o600))):
            folder = tmp_path / str(private)
            with atomic_folder(folder, private=private) as made:
                (made / "inner").mkdir()
                (made / "inner" / "file").write_text("")
            write_json(folder / "later.json", {})
            write_json(folder / "new" / "below.json", {})
            with open_to_append(folder / "record"):
                pass
            with atomic_folder(folder / "another") as made:
                (made / "file").write_text("")
            found = {path: mode(path) for path in [folder, *folder.rglob("*")]}
            assert len(found) == 9
            for path, its in found.items():
                assert its == modes[path.is_file()], path
    finally:
        os.umask(before)


def test_a_rename_is_followed_by_the_folder_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of what reaches the disk: the content, the name, the folder that holds the name."""
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(file: int) -> None:
        events.append(("fsync", os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def recorded_replace(source: Path, target: Path) -> None:
        events.append(("replace", str(target)))
        replace(source, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("the system does not tell the names of open files")
    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    with atomic_file(tmp_path / "file") as file:
        file.write(b"x")
    with atomic_folder(tmp_path / "folder") as made:
        (made / "inner").mkdir()
        (made / "inner" / "file").write_text("x")
    part = f".{os.getpid()}.part"
    assert events[:3] == [
        ("fsync", str(tmp_path / f".file{part}")),
        ("replace", str(tmp_path / "file")),
        ("fsync", str(tmp_path)),
    ]
    beside = tmp_path / f".folder{part}"
    assert set(events[3:-2]) == {
        ("fsync", str(path)) for path in (beside, beside / "inner", beside / "inner" / "file")
    }
    assert events[-2:] == [("replace", str(tmp_path / "folder")), ("fsync", str(tmp_path))]


def test_devices_are_written_to_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link = tmp_path / "devices", tmp_path / "link"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    link.symlink_to(folder / "pipe")
    monkeypatch.setattr(files, "_DEVICES", frozenset({str(folder)}))
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for path in (folder / "pipe", link):
        check_output(path)
        with atomic_file(path) as file:
            file.write(b"x")
    assert os.read(reader, 9) == b"x"
    os.close(reader)
    assert [one.is_fifo() for one in folder.iterdir()] == [True]
    assert link.is_file()


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="needs /dev/fd")
def test_an_open_file_is_continued(tmp_path: Path) -> None:
    with (tmp_path / "written").open("wb", buffering=0) as opened:
        opened.write(b"one ")
        with atomic_file(Path(f"/dev/fd/{opened.fileno()}")) as file:
            file.write(b"two ")
        opened.write(b"three")
    assert (tmp_path / "written").read_bytes() == b"one two three"


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/dev/null", True), ("/dev/../dev/null", True), ("/dev/shm/x", False), ("null", False)],
)
def test_devices_are_known_by_their_place(path: str, is_one: bool) -> None:
    assert is_device(Path(path)) is is_one


def test_links_are_not_written_through(tmp_path: Path) -> None:
    """A stranger's run folder cannot make heedful overwrite or extend a file elsewhere."""
    precious, folder = tmp_path / "precious", tmp_path / "run"
    precious.write_text("mine")
    folder.mkdir()
    for name in (LOCK, "metrics.jsonl", f".recipe.toml.{os.getpid()}.part"):
        (folder / name).symlink_to(precious)
    with pytest.raises(UserError, match="cannot write"), locked(folder, doing="trained"):
        pass
    with pytest.raises(OSError, match="symbolic link"):
        open_to_append(folder / "metrics.jsonl")
    with atomic_file(folder / "recipe.toml") as file:
        file.write(b"x")
    assert precious.read_text() == "mine"
