"""reStructuredText: texts with markup out, translations in, the same bytes elsewhere."""

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.documents.rest import RestDocument
from heedful.data.documents.rest_blocks import find_blocks
from heedful.data.documents.rest_inline import find_marks
from markup_help import fill, of_words, opened, real_files

TEXT = """.. comment no

:Author: no

=======
 Title
=======

Sub *title* here
----------------

Some **bold** text with ``no``
and :ref:`label <no>` or :func:`no` plus `link <http://no>`_
and `Some ref`_ and no_::

    no

* One
  more

  - Nested item

1. First
2. Second

term : no
    Definition text

.. note:: Note text
   goes on

   Next text

.. warning::
   :class: no

   Warn text

.. admonition:: Of its own

   Own text

.. versionadded:: 3.2
   Added this.

.. deprecated:: 1.0 Use that.

.. code-block:: no

   no

.. _no: http://no

.. [1] Footnote text.

.. figure:: no.png
   :alt: no

   A caption here

+----+
| no |
+----+

== ==
no no
== ==

| line one
| line two

>>> no

:param no: The meaning
    of it.
:type no: no

.. py:function:: no(no)

   Does it.

  Quoted text
"""
SEGMENTS = [
    "Title",
    "Sub *title* here",
    "Some **bold** text with ``no`` and :ref:`label <no>` or :func:`no` plus `link <http://no>`_ "
    "and `Some ref <Some ref_>`_ and no_",
    "One more",
    "Nested item",
    "First",
    "Second",
    "term",
    "Definition text",
    "Note text goes on",
    "Next text",
    "Warn text",
    "Of its own",
    "Own text",
    "Added this.",
    "Use that.",
    "Footnote text.",
    "A caption here",
    "line one",
    "line two",
    "The meaning of it.",
    "Does it.",
    "Quoted text",
]


def document(text: str) -> RestDocument:
    return RestDocument(text.encode(), "a.rst")


def test_the_segments() -> None:
    found = document(TEXT)
    assert found.segments == SEGMENTS
    text = SEGMENTS[2]
    chains = [[text[slice(*place)] for place in chain] for chain in found.spans[text]]
    assert chains == [
        ["**", "**"], ["``no``"], [":ref:`", " <no>`"], [":func:`no`"], ["`", " <http://no>`_"],
        ["`", " <Some ref_>`_"], ["no_"],
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_untouched_file_is_the_same(ending: str, mark: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.rst"
    path.write_bytes(mark + TEXT.replace("\n", ending).encode())
    found = opened(path)
    assert found.segments == SEGMENTS
    for translations in (found.segments, [""] * len(found.segments)):
        assert fill(found, translations) == path.read_bytes()


def test_only_texts_change() -> None:
    filled = fill(document(TEXT), of_words(document(TEXT), str.upper)).decode()
    expected = TEXT
    for old, new in [
        ("Title", "TITLE"), ("Sub *title* here", "SUB *TITLE* HERE"),
        ("Some **bold** text with ``no``\nand", "SOME **BOLD** TEXT WITH ``no`` AND"),
        (":ref:`label", ":ref:`LABEL"), ("or :func:`no` plus", "OR :func:`no` PLUS"),
        ("`link", "`LINK"),
        ("`_\nand `Some ref`_ and no_", "`_ AND `SOME REF <Some ref_>`_ AND no_"),
        ("One\n  more", "ONE MORE"), ("Nested item", "NESTED ITEM"), ("First", "FIRST"),
        ("Second", "SECOND"), ("term", "TERM"), ("Definition text", "DEFINITION TEXT"),
        ("Note text\n   goes on", "NOTE TEXT GOES ON"), ("Next text", "NEXT TEXT"),
        ("Warn text", "WARN TEXT"), ("Of its own", "OF ITS OWN"), ("Own text", "OWN TEXT"),
        ("Added this", "ADDED THIS"), ("Use that", "USE THAT"), ("Footnote text", "FOOTNOTE TEXT"),
        ("A caption here", "A CAPTION HERE"), ("line one", "LINE ONE"), ("line two", "LINE TWO"),
        ("The meaning\n    of it", "THE MEANING OF IT"), ("Does it", "DOES IT"),
        ("Quoted text", "QUOTED TEXT"),
    ]:  # fmt: skip
        assert old in expected
        expected = expected.replace(old, new)
    assert filled == expected


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Say *one* now", "Jetzt *eins* sagen", "Jetzt *eins* sagen"),
        ("Say *one* now", "Sag jetzt eins", None),
        ("Say *one* now", "Das ist *ein*s", "Das ist *ein*\\ s"),
        ("The ``x`` here", "Die``x``e", "Die\\ ``x``\\ e"),
        ("One", "Ein *Stern*", "Ein \\*Stern\\*"),
        ("One", "2 * 3", "2 * 3"),
        ("One", "1. Ein Jahr", "\\1. Ein Jahr"),
        ("One", "- eins", "\\- eins"),
        ("One", ".. eins:: zwei", "\\.. eins:: zwei"),
        ("One", "eins\n====", "eins ===="),
        ("One", "wort_ und `so`", "wort\\_ und \\`so\\`"),
        ("One::\n\n  no", "Eins", "Eins::\n\n  no"),
        ("One\n===", "Eine Überschrift", "Eine Überschrift\n================"),
        ("=====\n One\n=====", "Eine", "======\n Eine\n======"),
        ("One\n==========", "Eins", "Eins\n=========="),
        ("One\n===", "標題", "標題\n===="),
        ("|  One", "Eins", "|  Eins"),
        ("See `One`_.", "Siehe `Eins <One_>`_.", "Siehe `Eins <One_>`_."),
        ("One\ntwo\n  three", "Eins zwei", "Eins zwei\n\n  three"),
        ("See *one* now", "Jetzt **eins sehen", "Jetzt *eins* sehen"),
        ("``a`` and ``b``", "``a````b`` und", "``a`` ``b`` und"),
        ("one ``a`` and ``b`` two", "eins ``a````b``zwei", "eins ``a`` ``b``\\ zwei"),
        ("`one <x_>`_ here", "hier ` <x_>`_", "`hier <x_>`_"),
        ("a\\*b one", "eins a\\*b", "eins a\\*b"),
    ],
)
def test_translations_stay_what_they_are(
    source: str, translation: str, expected: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(source)
    filled = fill(found, [translation, *found.segments[1:]]).decode()
    said = capsys.readouterr().err
    assert filled == (source if expected is None else expected)
    assert ("a.rst: 1 translations have other markup" in said) == (expected is None)


def test_a_title_that_is_referred_to_keeps_its_name() -> None:
    text = "One\n===\n\nSee `one`_.\n\nTwo\n===\n"
    filled = fill(document(text), ["Eins", "Siehe `eins <one_>`_.", "Zwei"]).decode()
    assert filled == (".. _`One`:\n\nEins\n====\n\nSiehe `eins <one_>`_.\n\nZwei\n====\n")


def test_lists_that_are_nested_too_deeply_are_one_line() -> None:
    with pytest.raises(UserError, match=r"a\.rst: lists or quotes that are nested too deeply"):
        document("- " * 100_000 + "one")


def shape(text: str) -> list[object]:
    """The blocks of a text that are translated, by kind, and all lines that are in none."""
    blocks = find_blocks(text)
    parts: list[object] = [block.kind.replace("unended", "paragraph") for block in blocks]
    place = 0
    for block in blocks:
        if block.start >= place:
            parts += text[place : block.start].split()
            place = block.end
    return [*parts, *text[place:].split()]


def test_real_files_keep_their_structure() -> None:
    for path in real_files(".rst", most=40):
        found = opened(path)
        data = path.read_bytes()
        assert fill(found, list(found.segments)) == data
        filled = fill(found, of_words(found, lambda words: words.swapcase())).decode()
        assert shape(filled) == shape(data.decode()), path
        assert not found.segments or filled != data.decode()


SIGNS = st.text(st.sampled_from("ab*_`:|.-=+[]()<>1\\\n\n\n  \"'"), max_size=50)


@given(SIGNS)
@settings(max_examples=200, deadline=None)
def test_any_text_is_given_back(text: str) -> None:
    found = document(text)
    assert fill(found, list(found.segments)).decode() == text
    filled = fill(found, of_words(found, str.swapcase)).decode()
    assert shape(filled) == shape(text)


@given(SIGNS, SIGNS)
@example("::", ":1")  # with the colons of the literal block, the words would be a field
@settings(max_examples=200, deadline=None)
def test_any_translation_keeps_the_structure(text: str, words: str) -> None:
    source = f"a **b** c\n\n- d\n\n  ``x`` e {' '.join(text.split())}\n\n* e"
    found = document(source)
    filled = fill(found, of_words(found, lambda own: own + words)).decode()
    assert shape(filled) == shape(source)


@pytest.mark.parametrize("unit", ["*a ", "``a ", "`a ", "|a ", "a_ ", "\\", "a\n", ":a: ", "|a\n"])
def test_long_files_take_little_time(unit: str) -> None:
    began = time.process_time()
    found = document("One " + unit * 3000)
    fill(found, of_words(found, str.swapcase))
    assert time.process_time() - began < 4


def test_a_sentence_that_begins_with_options_takes_little_time() -> None:
    names = ", ".join(f"--option-{number}" for number in range(40))
    (block,) = find_blocks(f"{names} are accepted.\n")
    assert block.kind == "paragraph"


@pytest.mark.parametrize("unit", ["a.", ":a", "-:a"])
def test_a_very_long_word_takes_little_time(unit: str) -> None:
    assert find_marks(f"One {unit * 60_000} two") == []  # minutes, if each part were tried


def test_a_translation_of_control_characters_leaves_the_text() -> None:
    assert fill(document("The *cat*.\n\nOne\n"), ["\x01", "\x02"]) == b"The *cat*.\n\nOne\n"
