"""HTML: texts with inline tags and attributes out, translations in, the same bytes elsewhere."""

import codecs
import time
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html as trees

from heedful.basics.errors import UserError
from heedful.data.documents import Document
from heedful.data.documents.html import ATTRIBUTES, HtmlDocument
from heedful.data.documents.html_tokens import tokens
from markup_help import fill, of_words, opened, real_files

PAGE = """<!DOCTYPE html>
<html lang=en><head><meta charset="utf-8">
<meta name=description content="A page &amp; more"><meta name="viewport" content="no">
<title>Hello &lt;b&gt; there</title><style>p { color: no }</style></head>
<body><!-- no -->
<p class='x'   id=y>Press <b>OK</b> now,
   or <a href="u" title='See "me"'>click <i>here</i></a>&nbsp;&mdash; fine &amp; dandy.<br>
<p><img src=no alt=Picture> Text with <code>no <b>x</b></code> and <i translate=no>Acme</i>!</p>
<pre>no no</pre><script>var a = "<p>no</p>";</script>
<ul><li><a href="#">Only link</a><li>{{ no }} Use &lt;b&gt; for <b>bold</b> {% no %}</ul>
<div translate="no"><p title="no">no</p><p translate=yes>Yes</p></div><td>12.5</td>
<textarea placeholder="Write">Two
lines</textarea><input type=submit value=Go><input value=no>
"""
SEGMENTS = [
    "A page & more",
    "Hello <b> there",
    'Press <b>OK</b> now, or <a href="u" title=\'See "me"\'>click <i>here</i></a>\xa0— fine & '
    "dandy.",
    'See "me"',
    "Picture",
    "Text with <code>no <b>x</b></code> and <i translate=no>Acme</i>!",
    "Only link",
    "{{ no }} Use &lt;b&gt; for <b>bold</b> {% no %}",
    "Yes",
    "Write",
    "Two\nlines",
    "Go",
]


def page(text: str | bytes) -> HtmlDocument:
    return HtmlDocument(text.encode() if isinstance(text, str) else text, "a.html")


def test_the_segments_of_a_page() -> None:
    document = page(PAGE)
    assert document.segments == SEGMENTS
    text = document.segments[2]
    places = [[text[slice(*place)] for place in chain] for chain in document.spans[text]]
    assert places == [["<b>", "</b>"], ['<a href="u" title=\'See "me"\'>', "</a>"], ["<i>", "</i>"]]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_untouched_page_is_the_same(ending: str, mark: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(mark + PAGE.replace("\n", ending).encode())
    document = opened(path)
    for translations in (document.segments, [""] * len(document.segments)):
        assert fill(document, translations) == path.read_bytes()


def test_only_texts_change() -> None:
    filled = fill(page(PAGE), of_words(page(PAGE), str.upper)).decode()
    expected = PAGE
    for old, new in [
        ("A page", "A PAGE"), ("&amp; more", "&amp; MORE"), ("Hello", "HELLO"),
        ("&lt;b&gt; there", "&lt;B&gt; THERE"), ("Press", "PRESS"),
        ("now,\n   or", "NOW, OR"), ("See \"me\"", "SEE \"ME\""), ("click", "CLICK"),
        ("here", "HERE"), ("fine &amp; dandy", "FINE &amp; DANDY"),
        ("alt=Picture", 'alt="PICTURE"'),
        ("Text with", "TEXT WITH"), ("</code> and", "</code> AND"), ("Only link", "ONLY LINK"),
        ("Use &lt;b&gt; for", "USE &LT;B&GT; FOR"), ("bold", "BOLD"), ("Yes", "YES"),
        ("Write", "WRITE"), ("Two\nlines", "TWO\nLINES"), ("=Go>", '="GO">'), ("tHERE", "THERE"),

    ]:  # fmt: skip
        expected = expected.replace(old, new)
    assert filled == expected


def test_inline_tags_may_move_and_their_attributes_are_translated() -> None:
    document = page('<p>The <b title="red">big</b> dog <a href=x>barks</a><br>\n now.')
    text, title = document.segments
    assert title == "red"
    moved = 'Es <a href=x>bellt</a> der <b title="red">große</b> Hund<br>'
    assert text.count("<br>") == 1
    found = fill(document, [moved, "rot"]).decode()
    assert found == '<p>Es <a href=x>bellt</a> der <b title="rot">große</b> Hund<br>'


@pytest.mark.parametrize(
    "translation",
    ["one two", "<b>one two", "</b>one<b> two", "<b>one</b> <i>two</i>", "<b><b>one</b></b>"],
)
def test_other_tags_leave_the_text_and_are_said(
    translation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = "<p><b>eins</b> zwei</p><p>drei</p>"
    expected = data.replace("drei", "&lt;i&gt;three")
    if translation == "<b>one</b> <i>two</i>":  # a tag that is none of ours is text
        expected = expected.replace("<b>eins</b> zwei", "<b>one</b> &lt;i&gt;two&lt;/i&gt;")
    assert fill(page(data), [translation, "<i>three"]).decode() == expected
    assert ("left untranslated" in capsys.readouterr().err) == ("eins" in expected)


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ('<meta charset="iso-8859-1">', "cp1252", "It’s caf\xe9"),
        ("<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>", "koi8-r", "Да"),
        ("", "cp1252", "caf\xe9 “x”"),
        ('<meta charset="utf-16">', "utf-8", "café"),
        ('<?xml version="1.0" encoding="latin-1"?>', "latin-1", "café"),
    ],
)
def test_encodings(declared: str, encoding: str, text: str) -> None:
    data = f"{declared}<p>{text}</p>".encode(encoding)
    document = page(data)
    assert document.segments == [text]
    filled = fill(document, ["☃ " + text])
    snowman = "☃" if encoding == "utf-8" else "&#9731;"
    assert filled == f"{declared}<p>{snowman} {text}</p>".encode(encoding)


def test_utf_16_with_a_mark() -> None:
    data = codecs.BOM_UTF16_LE + "<p>One</p>".encode("utf-16-le")
    assert fill(page(data), ["Eins ☃"]) == data.replace(
        "One".encode("utf-16-le"), "Eins ☃".encode("utf-16-le")
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'<meta charset="nonsense"><p>x</p>', "a.html: unknown encoding"),
        (b'<meta charset="utf-8"><p>\x81</p>', "a.html:1: byte 0x81"),
        (b"\xff\xfe<\xd8", "a.html:1: "),
    ],
)
def test_a_broken_page_is_one_line(data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        page(data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        "<p>unclosed <b title='x", "<p>One</p><script>var a", "<p>a < b & c</p><!-- One", "<",
        "<p>One<b><i>two</b> three</i></p>", "<p>x</p><![CDATA[ y ]]><?php echo 1 ?> z <? w",
        "<p>One<p translate=no>no<p>Two", "</p></b>One</i> <br/>", "</",
        "<p =x ==y a=>One<a b=c/>two</a>",
    ],
)  # fmt: skip
def test_broken_markup_is_given_back(data: str) -> None:
    document = page(data)
    assert fill(document, list(document.segments)).decode() == data
    filled = fill(document, of_words(document, str.swapcase)).decode()
    assert unescape(filled).casefold() == data.casefold()


def markup(text: str) -> list[tuple[str, str]]:
    return [(one.kind, one.name) for one in tokens(text) if one.kind != "text"]


@given(st.text(st.sampled_from("<>/!-abp\"'=&;{}% \n") | st.characters(), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_given_back(text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    document = page(data)
    assert fill(document, list(document.segments)) == data
    for one in (lambda words: f"«{words}»", str.upper):
        filled = page(fill(document, of_words(document, one))).text
        assert markup(filled) == markup(document.text)


@pytest.mark.parametrize("unit", ["<b>", "<p title='", "<!--", "<? ", "{% ", "<a", "&amp;", "</b>"])
def test_long_lines_take_linear_time(unit: str) -> None:
    began = time.process_time()
    document = page("<p>One " + unit * 20_000)
    fill(document, list(document.segments))
    assert time.process_time() - began < 4


def shape(data: bytes) -> list[object]:
    """All tags of a page with their attributes, without those that are translated."""
    root = trees.fromstring(data, parser=trees.HTMLParser(encoding="utf-8"))
    return [
        (
            one.tag,
            [(k, v) for k, v in one.attrib.items() if k not in (*ATTRIBUTES, "content", "value")],
        )
        for one in root.iter()
        if isinstance(one.tag, str)
    ]


def test_real_pages_keep_their_structure(tmp_path: Path) -> None:
    documents: list[tuple[Document, bytes]] = []
    for path in real_files(".html", ".htm"):
        data = path.read_bytes()
        if len(data) < 200_000:
            documents.append((opened(path), data))
    for document, data in documents:
        assert fill(document, list(document.segments)) == data
        if data.strip() and document.segments:
            filled = fill(document, of_words(document, lambda words: words.swapcase()))
            assert shape(filled) == shape(data), document.name


def test_an_image_of_a_page_of_xml_is_one_code() -> None:
    page = '<?xml version="1.0"?>\n<html><p>Our <img src="a" alt="dog">\n</img> runs</p></html>'
    document = HtmlDocument(page.encode(), "page.html")
    assert document.segments == ['Our <img src="a" alt="dog"> </img> runs', "dog"]
    assert not document.accepts(0, 'Runs </img> our <img src="a" alt="dog">')
    document.fill(['Runs <img src="a" alt="dog"> </img> our', "Hund"])
    expected = page.replace('Our <img src="a" alt="dog">\n</img> runs', "Runs {} our")
    assert document.contents().decode() == expected.format('<img src="a" alt="Hund">\n</img>')


def test_a_page_of_xml_stays_one() -> None:
    page = '<?xml version="1.0"?>\n<html>A <em>very <b>big</b> dog<p>End</p></em></html>'
    document = HtmlDocument(page.encode(), "page.html")
    assert document.segments == ["A <em>very <b>big</b> dog", "End"]
    with pytest.raises(UserError, match=r"page\.html: the translated page would be no XML: mism"):
        document.fill(["Ein <b><em>sehr großer</b> Hund", "Ende"])
    html = HtmlDocument(page.partition("\n")[2].encode(), "page.html")
    html.fill(["Ein <b><em>sehr großer</b> Hund", "Ende"])
    assert "<b><em>sehr großer</b>" in html.contents().decode()
