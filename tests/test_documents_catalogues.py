"""XLIFF 1.2, string catalogs of Apple and Android's resources: special forms of their texts."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from heedful.data.documents import Document, open_document
from heedful.data.readers import read_pairs
from heedful.data.units import read_units

XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
    '<trans-unit id="1"><source>Hello. World.</source><seg-source><mrk mtype="seg" mid="1">Hello.'
    '</mrk> <g id="9"><mrk mtype="seg" mid="2">World.</mrk></g></seg-source>{}</trans-unit></body>'
    "</file></xliff>"
)
REVIEW = 'state="needs-review-translation"'


def opened(name: str, text: str, folder: Path) -> Document:
    (folder / name).write_text(text, encoding="utf-8")
    found = open_document(folder / name, source="en", target="de")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("target", "segments", "filled"),
    [
        (
            '<target state="new"><mrk mtype="seg" mid="1"/> <g id="9"><mrk mtype="seg" mid="2">'
            "</mrk></g></target>",
            ["Hello.", "World."],
            f'<target {REVIEW}><mrk mtype="seg" mid="1">HELLO.</mrk> <g id="9"><mrk mtype="seg" '
            'mid="2">WORLD.</mrk></g></target>',
        ),
        (
            '<target><mrk mtype="seg" mid="1">Hi</mrk> <mrk mtype="seg" mid="2"/></target>',
            ["World."],
            f'<target {REVIEW}><mrk mtype="seg" mid="1">Hi</mrk> <mrk mtype="seg" mid="2">WORLD.'
            "</mrk></target>",
        ),
        (
            '<target> <mrk mtype="seg" mid="7"/></target>',
            ["Hello. World."],
            f"<target {REVIEW}>HELLO. WORLD.</target>",
        ),
    ],
    ids=["all", "one", "other"],
)
def test_empty_segments_of_a_target_are_filled(
    target: str, segments: list[str], filled: str, tmp_path: Path
) -> None:
    text = XLIFF.format(target)
    document = opened("a.xlf", text, tmp_path)
    assert document.segments == segments
    assert list(read_pairs([tmp_path / "a.xlf"], source="en", target="de")) == []
    assert [one.is_done for one in read_units(tmp_path / "a.xlf")] == [False]
    for _ in range(2):
        document.fill([segment.upper() for segment in segments])
        assert document.contents().decode() == text.replace(target, filled)
    document.fill([segment.upper() for segment in segments], ["exact"] * len(segments))
    mark = 'state="translated" state-qualifier="exact-match"'
    expected = filled.replace(REVIEW, mark)
    assert document.contents().decode() == text.replace(target, expected)
    document.fill([""] * len(segments))
    assert document.contents().decode() == text


def unit(value: str, state: str = "translated") -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": value}}


def plural(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"variations": {"plural": {"one": one, "other": other}}}


FILES = plural(unit("%arg file"), unit("%arg files"))
FOUND = unit("%#@n@ found") | {"substitutions": {"n": FILES | {"argNum": 1}}}
NEW = unit("", "new")


def devices(mac: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"variations": {"device": {"mac": mac, "other": other}}}


def reviewed(localisation: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = json.loads(json.dumps(localisation).replace("translated", "needs_review"))
    return own


@pytest.mark.parametrize(
    ("source", "target", "filled"),
    [
        (FOUND, NEW, reviewed(FOUND)),
        (FOUND, unit(" ") | {"substitutions": {}}, reviewed(FOUND)),
        (FILES, NEW, reviewed(FILES)),
        (FILES, unit("old", "new"), reviewed(FILES)),
        (unit("Hello"), plural(NEW, NEW), reviewed(unit("Hello"))),
        (devices(FILES, unit("a")), devices(NEW, unit("b")), devices(reviewed(FILES), unit("b"))),
        (unit("Hello"), plural(NEW, unit("b")), plural(NEW, unit("b"))),
        (FILES, unit("b"), unit("b")),
    ],
)
def test_new_localisations_count_as_absent(
    source: dict[str, Any], target: dict[str, Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    def catalog(own: dict[str, Any]) -> str:
        strings = {"key": {"localizations": {"de": own, "en": source}}}
        return json.dumps({"sourceLanguage": "en", "strings": strings}, indent=2, sort_keys=True)

    document = opened("a.xcstrings", catalog(target), tmp_path)
    document.fill(document.segments)
    assert document.contents().decode() == catalog(filled)


def test_half_of_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    text = json.dumps({"sourceLanguage": "en", "strings": {"a \ud83d\ude00 b \ud800 c": {}}})
    document = opened("a.xcstrings", text, tmp_path)
    assert document.segments == ["a \U0001f600 b \ufffd c"]
    document.fill(document.segments)
    assert "a \U0001f600 b \ufffd c" in document.contents().decode("utf-8")


def test_words_that_android_marks_are_not_translated(tmp_path: Path) -> None:
    text = (
        '<resources xmlns:x="urn:oasis:names:tc:xliff:document:1.2"><string name="a">Welcome to '
        '<x:g id="app">Ann\\\'s <b>Notes</b> &amp; co</x:g> now</string></resources>'
    )
    document = opened("strings.xml", text, tmp_path)
    kept = '<x:g id="app">Ann\\\'s <b>Notes</b> &amp; co</x:g>'
    assert document.segments == [f"Welcome to {kept} now"]
    assert document.pieces(0)[1] == kept
    document.fill([f"Jetzt zu {kept} los"])
    expected = text.replace("Welcome to", "Jetzt zu").replace("now", "los")
    assert document.contents().decode() == expected


def test_words_in_styles_of_android_are_translated(tmp_path: Path) -> None:
    inner = "It\\'s <b>very <i>new</i></b> &lt;now&gt;"
    text = f'<resources><string name="a">{inner}</string></resources>'
    document = opened("strings.xml", text, tmp_path)
    assert document.segments == ["It's <b>very <i>new</i></b> <now>"]
    assert document.pieces(0)[1::2] == ["<b>", "<i>", "</i>", "</b>"]
    document.fill(["<b>Ganz <i>neu</i></b>: it's"])
    expected = text.replace(inner, "<b>Ganz <i>neu</i></b>: it\\'s")
    assert document.contents().decode() == expected


def test_an_archive_that_is_filled_again_has_the_last_translations(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    namespace = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<w/>")
        archive.writestr(
            "xl/sharedStrings.xml", f'<sst xmlns="{namespace}"><si><t>one</t></si></sst>'
        )
    document = open_document(path)
    assert document is not None
    for _ in range(2):
        document.fill(["eins"])
        with zipfile.ZipFile(io.BytesIO(document.contents())) as archive:
            assert b"eins" in archive.read("xl/sharedStrings.xml")
