"""A folder of bilingual files stands for all of them, such as the catalogues of a project."""

from pathlib import Path

from heedful.basics.errors import UserError

ENDINGS = (".po", ".tmx", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".tsv")
"""The endings of the files that are read; ``.gz`` or ``.xz`` may follow."""


def is_folder(path: str | Path) -> bool:
    """Whether a path is a folder and not a file or standard input."""
    return str(path) != "-" and Path(path).is_dir()


def bilingual_files(folder: str | Path) -> list[Path]:
    """The bilingual files in a folder and the folders in it, in order of their paths.

    Raises:
        UserError: there is none.
    """
    found = sorted(
        path
        for path in Path(folder).rglob("*")
        if path.name.lower().removesuffix(".gz").removesuffix(".xz").endswith(ENDINGS)
        and path.is_file()
    )
    if not found:
        raise UserError(f"{folder} has no file with one of the endings {', '.join(ENDINGS)}")
    return found
