"""Segments whose translation loses markup are translated in pieces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful.data.documents.branches import with_branches
from heedful.data.protected.pairs import Rules
from heedful.decoding import SearchOptions
from heedful.inference import Translator
from heedful.inference.document_files import translate_document
from heedful.inference.translation import Translation
from markup_help import opened
from serving_help import translator


class Changing(Translator):
    """A translator that changes texts by a function."""

    change: Callable[[str], str] = staticmethod(str.upper)

    def translate_windows(
        self, blocks: Iterable[Sequence[str]], **given: Any
    ) -> Iterator[list[Translation]]:
        for block in blocks:
            yield [Translation(text, type(self).change(text)) for text in block]


class Careless(Changing):
    """A translator that loses markup and arguments, and writes white space around words."""

    change = staticmethod(lambda text: f" {text.translate(dict.fromkeys(b'<>/*{}#')).upper()} ")


RULES = Rules(("icu", "brace"), "en", "pl")


def translated(path: Path, kind: type[Translator] = Careless) -> str:
    model = translator(kind, protect=RULES)
    document = with_branches(opened(path), RULES, None)
    translate_document(model, document, path, options=SearchOptions())
    return path.read_text("utf-8")


XLIFF = """<xliff version="1.2"><file original="a" source-language="en" target-language="de"
 datatype="x"><body><trans-unit id="1"><source>{}</source></trans-unit></body></file></xliff>
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.html", "<p>A <b>big</b> dog 7 <i>9</i>.</p>", "<p>A <b>BIG</b> DOG 7 <i>9</i>.</p>"),
        ("a.md", "A *big* dog.\n", "A *BIG* DOG.\n"),
        ("a.rst", "A *big* dog.\n", "A *BIG* DOG.\n"),
        (
            "a.xlf",
            XLIFF.format('A <g id="1">big</g> dog<x id="2"/>.'),
            '>A <g id="1">BIG</g> DOG<x id="2"/>.</target>',
        ),
        (
            "a.json",
            '{"a": "{n, plural, one {# dog} other {# dogs}} and {x}"}',
            '"{n, plural, one {# DOG} few {# DOGS} many {# DOGS} other {# DOGS}} AND {x}"',
        ),
    ],
)
def test_words_between_markup_are_translated(
    tmp_path: Path, name: str, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    assert expected in translated(path)
    said = capsys.readouterr().err
    assert "translated in pieces to keep the markup" in said
    assert "untranslated" not in said


def test_kept_markup_is_translated_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.md"
    path.write_text("A *big* dog.\n", "utf-8")
    assert translated(path, Changing) == "A *BIG* DOG.\n"
    assert not capsys.readouterr().err


def test_branches_that_cannot_be_translated_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": "{n, plural, one {# dog} other {# dogs}}"}', "utf-8")
    document = with_branches(opened(path), RULES, None)
    document.fill(["PIES", "# PSY"])
    assert document.contents().decode() == (
        '{"a": "{n, plural, one {# dog} few {# PSY} many {# PSY} other {# PSY}}"}'
    )
    assert "1 messages whose branches lack arguments" in capsys.readouterr().err
