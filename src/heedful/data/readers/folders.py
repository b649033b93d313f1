"""A folder of bilingual files stands for all of them, such as the catalogues of a project, and so
does a pattern such as ``corpus/*.tsv.gz``. Both may be at a URL.
"""

from glob import glob
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.urls import url_of
from heedful.data.remote_files import is_remote_file, list_remote, size_of

ENDINGS = (".po", ".tmx", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".tsv")
"""The endings of the files that are read; ``.gz`` or ``.xz`` may follow."""


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
    url = url_of(folder)
    if url is not None:
        found = [Path(one) for one in list_remote(url) if is_pattern(url) or _is_bilingual(one)]
    elif is_pattern(folder):
        found = sorted(
            path for one in glob(str(folder), recursive=True) if (path := Path(one)).is_file()
        )
    else:
        files = Path(folder).rglob("*")
        found = sorted(path for path in files if _is_bilingual(path.name) and path.is_file())
    if found:
        return found
    if is_pattern(folder):
        raise UserError(f"no file matches {url or folder}; correct the pattern")
    if url is not None:
        raise UserError(
            f"{url} does not exist, or has no file with a known ending; correct the URL"
        )
    raise UserError(f"{folder} has no file with one of the endings {', '.join(ENDINGS)}")


def _is_bilingual(name: str) -> bool:
    return name.lower().removesuffix(".gz").removesuffix(".xz").endswith(ENDINGS)


def require_files(path: str | Path) -> None:
    """Raise UserError if a pattern or a URL stands for no file, or cannot be read."""
    if is_folder(path):
        bilingual_files(path)


def sizes_of(path: str | Path) -> list[tuple[str, int]]:
    """The path or URL, and the number of bytes, of each file that a path stands for.

    Raises:
        UserError: there is none, or one cannot be read.
    """
    files = bilingual_files(path) if is_folder(path) else [path]
    found = []
    for file in files:
        url = url_of(file)
        if url is not None:
            found.append((url, size_of(url)))
        else:
            found.append((str(file), Path(file).stat().st_size))
    return found
