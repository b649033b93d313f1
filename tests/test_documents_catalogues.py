"""XLIFF 1.2, string catalogs of Apple and Android's resources: special forms of their texts."""

from pathlib import Path

import pytest

from heedful.data.documents import Document, open_document
from heedful.data.readers import read_pairs

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
    for _ in range(2):
        document.fill([segment.upper() for segment in segments])
        assert document.contents().decode() == text.replace(target, filled)
    document.fill([segment.upper() for segment in segments], ["exact"] * len(segments))
    mark = 'state="translated" state-qualifier="exact-match"'
    expected = filled.replace(REVIEW, mark)
    assert document.contents().decode() == text.replace(target, expected)
    document.fill([""] * len(segments))
    assert document.contents().decode() == text
