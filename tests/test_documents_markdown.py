"""Markdown: texts with markup out, translations in, the same bytes elsewhere."""

import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from heedful.data.documents import markdown_inline
from heedful.data.documents.markdown import MarkdownDocument
from heedful.data.documents.marked_items import Mark
from heedful.data.protected.spans import find_spans
from heedful.inference.span_placement import PLACED, place_spans, remove_spans
from markup_help import ROOT, fill, of_words, opened, real_files

TEXT = """---
title: no
---
# A *title* here ##

Some **bold text** and `no`,
a [link](http://no.org "no") and [ref] or [full one][ref]. Snake\\_case &amp; 2 * 3.

> A quote
> goes on  
> hard ![pic](no.png)
lazy

1. First
2. - [ ] task ~~gone~~
   more text[^1]

| Name | Value |
|------|-------|
| `no` x | one \\| two |

```
no
```

    no

Setext
title
======

[ref]: http://no.org

<p align="center">Hello <b>you</b>
<img alt="a pic"></p>

:::no
Inside text
:::

[^1]: Foot note {{ no }}.
"""  # noqa: W291
SEGMENTS = [
    "A *title* here",
    'Some **bold text** and `no`, a [link](http://no.org "no") and [ref][ref] or [full one][ref]. '
    "Snake_case & 2 * 3.",
    "A quote goes on<br>hard ![pic](no.png) lazy",
    "First",
    "task ~~gone~~ more text",
    "Name",
    "Value",
    "`no` x",
    "one | two",
    "Setext title",
    "Hello <b>you</b>",
    "a pic",
    "Inside text",
    "Foot note {{ no }}.",
]


def document(text: str) -> MarkdownDocument:
    return MarkdownDocument(text.encode(), "a.md")


def test_the_segments() -> None:
    found = document(TEXT)
    assert found.segments == SEGMENTS
    text = SEGMENTS[1]
    chains = [[text[slice(*place)] for place in chain] for chain in found.spans[text]]
    assert chains == [
        ["**", "**"], ["`no`"], ["[", '](http://no.org "no")'], ["[", "][ref]"], ["[", "][ref]"],
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_untouched_file_is_the_same(ending: str, mark: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(mark + TEXT.replace("\n", ending).encode())
    found = opened(path)
    for translations in (found.segments, [""] * len(found.segments)):
        assert fill(found, translations) == path.read_bytes()


def test_elements_of_html_whose_words_stay_are_one_code() -> None:
    text = "Run <code>the *no* thing</code> in <b>this</b> <code>way"
    found = document(text)
    assert found.segments == [text]
    chains = [[text[slice(*place)] for place in chain] for chain in found.spans[text]]
    assert chains == [["<code>the *no* thing</code>"], ["<b>", "</b>"], ["<code>"]]


def test_only_texts_change() -> None:
    filled = fill(document(TEXT), of_words(document(TEXT), str.upper)).decode()
    expected = TEXT
    for old, new in [
        ("A *title* here", "A *TITLE* HERE"), ("Some **bold text** and", "SOME **BOLD TEXT** AND"),
        ("`no`,\na [link]", "`no`, A [LINK]"),
        ("and [ref] or [full one]", "AND [REF][ref] OR [FULL ONE]"),
        ("Snake\\_case &amp; 2", "SNAKE\\_CASE & 2"), ("A quote\n> goes on", "A QUOTE GOES ON"),
        ("hard ![pic](no.png)\nlazy", "HARD ![PIC](no.png) LAZY"), ("First", "FIRST"),
        ("task ~~gone~~\n   more text", "TASK ~~GONE~~ MORE TEXT"), ("Name", "NAME"),
        ("Value", "VALUE"), ("x | one \\| two", "X | ONE \\| TWO"),
        ("Setext\ntitle", "SETEXT TITLE"),
        ("Hello <b>you", "HELLO <b>YOU"), ("a pic", "A PIC"), ("Inside text", "INSIDE TEXT"),
        ("Foot note", "FOOT NOTE"),
    ]:  # fmt: skip
        assert old in expected
        expected = expected.replace(old, new)
    assert filled == expected


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Say *one* now", "Jetzt *eins* sagen", "Jetzt *eins* sagen"),
        ("Say *one* now", "Sag jetzt eins", None),
        ("Say *one* now", "Sag *jetzt* *eins*", None),
        ("One", "2 * 3 is *six*", "2 \\* 3 is \\*six\\*"),
        ("One", "1986. Ein Jahr", "1986\\. Ein Jahr"),
        ("One", "- eins", "\\- eins"),
        ("One", "# eins", "\\# eins"),
        ("One", "> eins\n\n    zwei", "\\> eins zwei"),
        ("One", "snake_case_name", "snake_case_name"),
        ("One", "<b>eins</b> &amp;", "\\<b\\>eins\\</b\\> \\&amp;"),
        ("One", "[eins]: /x", "\\[eins]: /x"),
        ("# One", "# eins #", "# \\# eins \\#"),
        ("One\n===", "eins\n---", "eins ---\n==="),
        ("See **one** now", "Jetzt ****eins sehen", "Jetzt **eins** sehen"),
        ("See [one](/x) now", "Jetzt eins sehen [](/x)", "Jetzt eins [sehen](/x)"),
        ("**`a`**, with `b`", "**`a`**mit`b`", "**`a`** mit `b`"),
        ("one **`a`**, with", "eins**`a`**mit", "eins **`a`** mit"),
        ("`a` and `b`", "`a``b` und", "`a` `b` und"),
        ("One", "ei\x00ns\x1b", "eins"),
        ("Two \\* *three*", "*Drei* \\* zwei", "*Drei* \\* zwei"),
        ("See [One].\n\n[One]: /x", "Siehe [Eins][One].", "Siehe [Eins][One].\n\n[One]: /x"),
        ("See [One].\n\n[One]: /x", "Siehe [One].", None),
        ("|One|\n|---|", "eins | zwei", "|eins \\| zwei|\n|---|"),
    ],
)  # fmt: skip
def test_translations_stay_what_they_are(
    source: str, translation: str, expected: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(source)
    filled = fill(found, [translation]).decode()
    if expected is None:
        assert filled == source
        assert "a.md: 1 translations have other markup" in capsys.readouterr().err
    else:
        assert filled == expected
        again = document(filled)
        assert len(again.segments) == 1
        assert fill(again, ["kept"] if not again.spans else again.segments)


def test_a_translation_of_control_characters_leaves_the_text() -> None:
    assert fill(document("The *cat*.\n\nOne\n"), ["\x01", "\x02"]) == b"The *cat*.\n\nOne\n"


def shape(text: str) -> list[object]:
    """The blocks of a text with what stays in them, and how often each has which markup."""
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    found: list[object] = []
    for token in parsed:
        kept = token.content if token.type in ("fence", "code_block") else ""
        found.append((token.type, token.tag, token.level, token.info, kept))
        children = Counter(
            (child.type, child.attrGet("href"), child.attrGet("src"))
            for child in token.children or ()
            if child.type not in ("text", "softbreak")
        )
        found.append(sorted(children.items(), key=str))
    return found


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_real_files_keep_their_structure(part: int) -> None:
    for path in list(real_files(".md", most=15))[part::2]:
        found = opened(path)
        data = path.read_bytes()
        assert fill(found, list(found.segments)) == data
        filled = fill(found, of_words(found, lambda words: words.swapcase())).decode()
        assert shape(filled) == shape(data.decode()), path
        assert not found.segments or filled != data.decode()


def test_what_alignments_do_to_real_texts_is_hardly_ever_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(1)
    texts = refused = 0
    for path in (ROOT / "README.md", ROOT / "docs/translating.md", ROOT / "docs/data.md"):
        found = opened(path)
        translations = []
        for text in found.segments:
            bare = remove_spans(text, find_spans(text, PLACED, found.spans.get(text, ())))
            words = bare.text.split()
            order = sorted(range(len(words)), key=lambda place: place + chance.uniform(0, 4))
            links = [(own, place) for place, own in enumerate(order) if chance.random() < 0.9]
            translations.append(
                place_spans(bare, " ".join(words[own] for own in order), dict.fromkeys(links, 1.0))
            )
        filled = fill(found, translations)
        assert shape(filled.decode()) == shape(path.read_text("utf-8"))
        said = re.search(r"(\d+) translations have other markup", capsys.readouterr().err)
        refused += int(said[1]) if said else 0
        texts += len(found.spans)
    assert texts > 100
    assert refused <= 0.02 * texts


SIGNS = st.text(st.sampled_from("ab*_`[]()!<>#-+1.|~&;:\\\n\n\"' "), max_size=50)


@given(SIGNS)
@settings(max_examples=200, deadline=None)
@example("a\n***b*\n- c")
def test_any_text_is_given_back(text: str) -> None:
    found = document(text)
    assert fill(found, list(found.segments)).decode() == text
    filled = fill(found, of_words(found, str.swapcase)).decode()
    assert shape(filled) == shape(text)


@given(SIGNS, SIGNS)
@settings(max_examples=200, deadline=None)
def test_any_translation_keeps_the_structure(text: str, words: str) -> None:
    source = f"a **b** c\n\n- d\n\n> `x` e {text.strip()}"
    found = document(source)
    filled = fill(found, of_words(found, lambda own: own + words)).decode()
    assert shape(filled) == shape(source)


@pytest.mark.parametrize("unit", ["*a ", "[", "`", "<a ", "> ", "&amp;", "![", "a\n", "|a", "{{ "])
def test_long_files_take_little_time(unit: str) -> None:
    began = time.process_time()
    found = document("One " + unit * 3000)
    fill(found, list(found.segments))
    assert time.process_time() - began < 4


def test_extensions_do_not_read_all_marks_each(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = 0

    class Watched(list[Mark]):
        def __iter__(self) -> Iterator[Mark]:
            nonlocal readings
            readings += 1
            return super().__iter__()

    monkeypatch.setattr(markdown_inline, "_with_whole_elements", Watched)
    text = "[^1] *a* [b [^2] c](d) " * 50
    found = markdown_inline.find_marks(markdown_inline.parser(), text, {})
    assert sum(mark.kind == "alone" for mark in found) == 100
    assert readings < 10


def test_long_white_space_is_read_once() -> None:
    found = document("a" + " \t" * 50_000 + "b {.c}")
    assert len(found.segments) == 1  # where each of its characters is a start: half a minute


BLOCKS = {
    "A word\n$$\nno = no\n+ no\n$$\na word\n": ["A word", "a word"],
    "> $$\r\n> no no\r\n> $$\r\n>\r\n> A word\r\n": ["A word"],
    "$$\nA word\n\na word\n$$\n": ["A word", "a word"],  # no formula has an empty line
    "A word\n:   Its word\n    of words.\n:   More words.\n": [
        "A word", "Its word of words.", "More words."
    ],
    "- word\n\n  <div>words</div>\n\n- <details>\n  <b>A</b> word\n  </details>\n": [
        "word", "words", "<b>A</b> word"
    ],
    "> <p>A word</p>\n": ["A word"],
    "> <p>no\n> no</p>\n": [],
    "<div\n> A word\n</div>\n": ["A word"],
}  # fmt: skip


@pytest.mark.parametrize("text", BLOCKS)
def test_formulas_definitions_and_blocks_of_html(text: str) -> None:
    found = document(text)
    assert found.segments == BLOCKS[text]
    changed = fill(found, [segment.replace("word", "term") for segment in found.segments])
    lines, expected = changed.decode().split(), text.replace("word", "term").split()
    assert lines == expected
