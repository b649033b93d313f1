"""A folder of files stands for all of them, such as the catalogues of a project, and so does a
pattern such as ``corpus/*.tsv.gz``. Both may be at a URL.
"""

from collections.abc import Callable, Iterable, Iterator
from glob import glob
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.urls import url_of
from heedful.data.remote_files import is_remote_file, list_remote, size_of

ENDINGS = (".po", ".tmx", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".tsv")
"""The endings of bilingual files; ``.gz`` or ``.xz`` may follow."""

FilesOf = Callable[[str], list[Path]]
"""Returns the files that a folder, a pattern or a URL stands for."""


def is_folder(path: str | Path) -> bool:
    """Whether a path stands for several files: a folder or a pattern, and not standard input."""
    if str(path) == "-":
        return False
    url = url_of(path)
    if url is not None:
        return is_pattern(url) or url.endswith("/") or not is_remote_file(url)
    return Path(path).is_dir() or is_pattern(path)


def is_pattern(path: str | Path) -> bool:
    """Whether a path has wildcards and is not the name of a file or a folder."""
    found = any(character in str(path) for character in "*?[")
    if url_of(path) is not None:
        return "*" in str(path)
    return found and not Path(path).exists()


def bilingual_files(folder: str | Path) -> list[Path]:
    """The files of a pattern, or the bilingual files in a folder and the folders in it, in order.

    Returns:
        Paths, or URLs as paths.

    Raises:
        UserError: there is none, or a URL cannot be read.
    """
    return _files(folder, _is_bilingual, f"file with one of the endings {', '.join(ENDINGS)}")


def text_files(folder: str | Path) -> list[Path]:
    """The files of a pattern, or all files in a folder and the folders in it, in order.

    Files and folders whose names begin with a full stop are not among those of a folder.

    Returns:
        Paths, or URLs as paths.

    Raises:
        UserError: there is none, or a URL cannot be read.
    """
    return _files(folder, lambda name: not any(one.startswith(".") for one in name.split("/")))


def _files(folder: str | Path, is_wanted: Callable[[str], bool], what: str = "file") -> list[Path]:
    """The files of a pattern, or those in a folder whose names in the folder are wanted."""
    url = url_of(folder)
    if url is not None:
        whole, base = is_pattern(url), url.rstrip("/") + "/"
        urls = list_remote(url)
        found = [Path(one) for one in urls if whole or is_wanted(one.removeprefix(base))]
    elif is_pattern(folder):
        found = sorted(
            path for one in glob(str(folder), recursive=True) if (path := Path(one)).is_file()
        )
    else:
        inside = Path(folder)
        found = sorted(
            path
            for path in inside.rglob("*")
            if is_wanted(path.relative_to(inside).as_posix()) and path.is_file()
        )
    if found:
        return found
    if is_pattern(folder):
        raise UserError(f"no file matches {url or folder}; correct the pattern")
    if url is not None:
        raise UserError(f"{url} does not exist, or has no {what}; correct the URL")
    raise UserError(f"{folder} has no {what}")


def files_in(paths: Iterable[str | Path], files_of: FilesOf) -> Iterator[str | Path]:
    """The files that paths stand for, in order."""
    for path in paths:
        yield from files_of(str(path)) if is_folder(path) else [path]


def _is_bilingual(name: str) -> bool:
    return name.lower().removesuffix(".gz").removesuffix(".xz").endswith(ENDINGS)


def require_files(path: str | Path, files_of: FilesOf) -> None:
    """Raise UserError if a pattern or a URL stands for no file, or cannot be read."""
    if is_folder(path):
        files_of(str(path))


def sizes_of(path: str | Path, files_of: FilesOf) -> list[tuple[str, int]]:
    """The path or URL, and the number of bytes, of each file that a path stands for.

    Raises:
        UserError: there is none, or one cannot be read.
    """
    found = []
    for file in files_in([path], files_of):
        url = url_of(file)
        if url is not None:
            found.append((url, size_of(url)))
        else:
            found.append((str(file), Path(file).stat().st_size))
    return found
