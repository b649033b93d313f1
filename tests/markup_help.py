"""Shared code of the tests of documents with markup: substitutes for translations, real files."""

import random
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from heedful.data.documents import Document, open_document

ROOT = Path(__file__).parents[1]


def opened(path: Path) -> Document:
    """Open a file that must be recognised as a document."""
    found = open_document(path, source="en", target="de")
    assert found is not None
    return found


def of_words(document: Document, change: Callable[[str], str]) -> list[str]:
    """The segments with different words and the same markup in the same order."""
    return [_changed(text, document, change) for text in document.segments]


def _changed(text: str, document: Document, change: Callable[[str], str]) -> str:
    spans = sorted(piece for chain in document.spans.get(text, ()) for piece in chain)
    parts = []
    place = 0
    for start, end in spans:
        parts += [change(text[place:start]), text[start:end]]
        place = end
    return "".join([*parts, change(text[place:])])


def fill(document: Document, translations: list[str]) -> bytes:
    """The bytes of the document with these translations."""
    document.fill(translations)
    return document.contents()


def real_files(*extensions: str, most: int = 60) -> Iterator[Path]:
    """All files of this repository, and a sample of the files of installed packages."""
    for extension in extensions:
        yield from sorted(ROOT.glob(f"*{extension}"))
        yield from sorted(ROOT.glob(f"docs/*{extension}"))
    installed = Path(sysconfig.get_paths()["purelib"])
    found = sorted(path for one in extensions for path in installed.rglob(f"*{one}"))
    yield from random.Random(1).sample(found, min(most, len(found)))
