"""DOCX, PPTX, XLSX, OpenDocument and EPUB: archives whose texts change and nothing else."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from heedful.basics.errors import UserError
from heedful.data.documents import Document, open_document
from heedful.data.documents.ooxml import WordDocument
from markup_help import of_words

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'


def archive(entries: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in entries.items():
            kind = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            info = zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10))
            target.writestr(info, data, kind)
    return out.getvalue()


def opened(name: str, data: bytes, folder: Path) -> Document:
    path = folder / name
    path.write_bytes(data)
    found = open_document(path, source="en", target="de")
    assert found is not None
    return found


def word(*paragraphs: str) -> dict[str, str | bytes]:
    body = "".join(f"<w:p>{one}</w:p>" for one in paragraphs)
    document = f'{HEAD}<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    return {
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": document,
        "x/\u00e4.bin": b"\0\1",
    }


def run(text: str, style: str = "", more: str = "") -> str:
    properties = f'<w:rPr><w:lang w:val="en"/>{style}</w:rPr>' if style else ""
    return f'<w:r>{properties}{more}<w:t xml:space="preserve">{text}</w:t></w:r>'


def field(instruction: str, result: str) -> str:
    def part(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    begin = f"{part('begin')}<w:r><w:instrText>{instruction}</w:instrText></w:r>"
    return f"{begin}{part('separate')}{run(result)}{part('end')}"


BOLD = "<w:b/>"
LINK = '<w:hyperlink r="1"><w:proofErr w:type="a"/>' + run("the page", "<w:u/>") + "</w:hyperlink>"
BOX = (
    "<w:r><w:pict><w:txbxContent><w:p>" + run("In a box") + "</w:p></w:txbxContent></w:pict></w:r>"
)
DELETED = "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
CASES = {
    "plain": ("<w:pPr><w:jc/></w:pPr>" + run("One ") + run("two"), "One two"),
    "white space": (run(" One "), "One"),
    "styles": (run("One ") + run("bold ", BOLD) + run("text"), "One <g1>bold</g1> text"),
    "all bold": (run("All ", BOLD) + run("bold", BOLD), "All bold"),
    "link": (run("See ") + LINK + run("."), "See <g1>the page</g1>."),
    "tab": (run("One", more="<w:tab/>") + run("two", more="<w:tab/>"), "One<x1/>two"),
    "box": (run("Before ") + BOX + run("after"), "Before <x1/>after"),
    "page": (run("Page ") + field(" PAGE ", "3") + run(" of 5"), "Page <x1/> of 5"),
    "field link": (run("At ") + field(" HYPERLINK x", "home") + run("!"), "At <g1>home</g1>!"),
    "deleted": (run("One ") + DELETED + run("two"), "One <x1/>two"),
    "bookmark": (
        '<w:bookmarkStart w:id="0" w:name="b"/>' + run("One ") + '<w:bookmarkEnd w:id="0"/>'
        '<w:bookmarkStart w:id="1"/>' + run("two") + '<w:bookmarkEnd w:id="1"/>' + run(" x"),
        "<g1>One </g1><g2>two</g2> x",
    ),
    "empty pairs": (
        run("a ") + '<w:bookmarkStart w:id="0"/><w:bookmarkEnd w:id="0"/>' + run("b") + LINK,
        "a <x1/>b<g1>the page</g1>",
    ),
    "crossing": (
        run("a ") + '<w:bookmarkStart w:id="0"/><w:hyperlink>' + run("b")
        + '<w:bookmarkEnd w:id="0"/>' + run(" c") + "</w:hyperlink>" + run(" d"),
        "a <x1/><g1>b<x2/> c</g1> d",
    ),
    "like a code": (run("The &lt;g1&gt; tag ") + run("x", BOLD), "The <g1> tag <g1_>x</g1_>"),
    "control": (
        run("Name: ") + '<w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent>' + run("Ann")
        + "</w:sdtContent></w:sdt>" + run(" B"),
        "Name: <g1>Ann</g1> B",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_runs_become_markup(case: str, tmp_path: Path) -> None:
    content, segment = CASES[case]
    data = archive(word(content, run("123"), "", run("Last")))
    document = opened("a.docx", data, tmp_path)
    assert document.segments[0] == segment
    assert document.segments[-1] == "Last"
    assert document.contents() == data
    document.fill(list(document.segments))
    assert document.contents() == data
    document.fill([""] * len(document.segments))
    assert document.contents() == data
    changed = of_words(document, str.upper)
    document.fill(changed)
    again = opened("b.docx", document.contents(), tmp_path)
    assert again.segments == [text.replace("_>", ">") for text in changed]
    before, after = (zipfile.ZipFile(io.BytesIO(one)) for one in (data, document.contents()))
    assert before.namelist() == after.namelist()
    assert after.getinfo("x/\u00e4.bin").date_time == (2024, 5, 6, 7, 8, 10)
    assert [name for name in before.namelist() if before.read(name) != after.read(name)] == [
        "word/document.xml"
    ]


def test_runs_are_written_with_their_style(tmp_path: Path) -> None:
    content = run("One ") + run("bold", BOLD) + run(" text") + LINK
    document = opened("a.docx", archive(word(content)), tmp_path)
    assert document.segments == ["One <g1>bold</g1> text<g2>the page</g2>"]
    document.fill(["<g2>Seite</g2> mit <g1>fett &</g1>"])
    text = zipfile.ZipFile(io.BytesIO(document.contents())).read("word/document.xml").decode()
    assert (
        '<w:body><w:p><w:hyperlink r="1"><w:r><w:rPr><w:lang w:val="en"/><w:u/></w:rPr>'
        '<w:t xml:space="preserve">Seite</w:t></w:r></w:hyperlink>'
        '<w:r><w:t xml:space="preserve"> mit </w:t></w:r><w:r><w:rPr><w:lang w:val="en"/><w:b/>'
        '</w:rPr><w:t xml:space="preserve">fett &amp;</w:t></w:r></w:p></w:body>'
    ) in text
    document.fill(["<g1>Seite ohne Ende"])
    assert document.contents() == document._original()  # other markup: left untranslated
    assert not document.accepts(0, "<g1>Seite")
    assert document.accepts(0, "<g1>a</g1><g2>b</g2>")


def test_a_text_box_is_translated_with_the_paragraph_around_it(tmp_path: Path) -> None:
    document = opened("a.docx", archive(word(*CASES["box"][:1])), tmp_path)
    assert document.segments == ["Before <x1/>after", "In a box"]
    document.fill(["Davor <x1/>danach", "Im Kasten"])
    assert opened("b.docx", document.contents(), tmp_path).segments == [
        "Davor <x1/>danach", "Im Kasten"
    ]  # fmt: skip
    document.fill(["", "Im Kasten"])
    assert opened("b.docx", document.contents(), tmp_path).segments[1] == "Im Kasten"


def test_field_codes_that_cross_paragraphs_stay(tmp_path: Path) -> None:
    begin = field("TOC", "x").partition(run("x"))[0]
    entry = begin + run("Title") + "<w:r><w:tab/></w:r>" + field("PAGEREF", "3")
    half = run("a ") + begin + run("b")
    two = half + "<w:r><w:tab/></w:r>" + run("c")
    document = opened("a.docx", archive(word(entry, half, two)), tmp_path)
    assert document.segments == ["Title<x1/>", "a <x1/>b"]


SHEET: dict[str, str | bytes] = {
    "xl/workbook.xml": "<workbook/>",
    "xl/sharedStrings.xml": f'<sst xmlns="{S}"><si><t>Price</t></si><si><t>Red &amp; x</t></si><si>'
    '<r><t xml:space="preserve">Big </t></r><r><rPr><b/></rPr><t>sale</t></r><r><t> now</t></r>'
    "<phoneticPr/></si><si><t>12</t></si></sst>",
    "xl/tables/table1.xml": '<table><tableColumn id="1" name="Price"/></table>',
    "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{S}"><c t="inlineStr"><is><t>In cell</t></is>'
    "</c></worksheet>",
    "xl/comments1.xml": f'<comments xmlns="{S}"><text><r><t>Check</t></r></text></comments>',
}
SLIDES: dict[str, str | bytes] = {
    "ppt/presentation.xml": "<p/>",
    "ppt/slides/slide1.xml": f'<p xmlns:a="{A}"><a:p><a:r><a:rPr lang="en" dirty="0"/>'
    '<a:t>One </a:t></a:r><a:r><a:rPr lang="en"/><a:t>line</a:t></a:r><a:br/><a:r><a:rPr b="1"/>'
    "<a:t>bold</a:t></a:r><a:endParaRPr/></a:p></p>",
    "ppt/slideMasters/slideMaster1.xml": f'<p xmlns:a="{A}"><a:p><a:r><a:t>no</a:t></a:r></a:p>'
    "</p>",
}
ODT: dict[str, str | bytes] = {
    "mimetype": "application/vnd.oasis.opendocument.text",
    "content.xml": f'<office:d xmlns:office="{OFFICE}" xmlns:text="{TEXT}"><text:tracked-changes>'
    "<text:p>no</text:p></text:tracked-changes><text:h>Title</text:h><text:p/><text:p>One\n  "
    '<text:span text:style-name="B">bold</text:span>.<text:s text:c="2"/>Page <text:page-number>3'
    "</text:page-number> x<text:note><text:note-body><text:p>A note</text:p></text:note-body>"
    "</text:note></text:p></office:d>",
    "styles.xml": f'<o xmlns:text="{TEXT}"><text:p>Footer</text:p></o>',
}
PAGE = (
    '<?xml version="1.0"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml"><head>'
    "<title>Page</title></head><body><p>A <b>big</b> dog&#160;&amp; x<br/></p></body></html>"
)
EPUB: dict[str, str | bytes] = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": '<container><rootfile full-path="OEBPS/book.opf"/></container>',
    "OEBPS/book.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>My '
    "book</dc:title><dc:language>en</dc:language></metadata><manifest>"
    '<item href="text/page%201.html" media-type="application/xhtml+xml"/>'
    '<item href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
    '<item href="a.css" media-type="text/css"/></manifest></package>',
    "OEBPS/text/page 1.html": PAGE,
    "OEBPS/toc.ncx": '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navLabel><text>Chapter</text>'
    "</navLabel></ncx>",
    "OEBPS/a.css": "p {}",
}
BOOKS: dict[str, tuple[dict[str, str | bytes], list[str]]] = {
    "a.xlsx": (SHEET, ["Red & x", "Big <g1>sale</g1> now", "In cell", "Check"]),
    "a.pptx": (SLIDES, ["One line<x1/><g1>bold</g1>"]),
    "a.odt": (
        ODT,
        ["Title", "One <g1>bold</g1>. Page <x1/> x", "A note", "Footer"],
    ),
    "a.epub": (EPUB, ["My book", "Page", "A <b>big</b> dog\u00a0& x", "Chapter"]),
}


@pytest.mark.parametrize("name", BOOKS)
def test_texts_of_an_archive_change_and_nothing_else(name: str, tmp_path: Path) -> None:
    entries, segments = BOOKS[name]
    data = archive(entries)
    document = opened(name, data, tmp_path)
    assert document.segments == segments
    document.fill([""] * len(segments))
    assert document.contents() == data
    changed = of_words(document, str.upper)
    document.fill(changed)
    assert opened(name, document.contents(), tmp_path).segments == changed
    filled = zipfile.ZipFile(io.BytesIO(document.contents()))
    assert filled.namelist() == list(entries)
    for entry, before in entries.items():
        after = filled.read(entry)
        assert len(after) > 0
        is_changed = after != (before.encode() if isinstance(before, str) else before)
        assert is_changed is any(
            word in str(before) for word in ("Red", "cell", "Check", "bold", "Footer", "dog")
        ) or entry.endswith((".opf", ".ncx"))


def test_the_type_of_a_book_comes_first_and_is_stored(tmp_path: Path) -> None:
    entries = {key: EPUB[key] for key in sorted(EPUB, reverse=True)}
    document = opened("a.epub", archive(entries), tmp_path)
    document.fill([f"x {text}" for text in document.segments])
    filled = zipfile.ZipFile(io.BytesIO(document.contents()))
    assert filled.infolist()[0].filename == "mimetype"
    assert filled.infolist()[0].compress_type == zipfile.ZIP_STORED
    assert document.contents()[30:38] == b"mimetype"


def bomb() -> bytes:
    return archive(word(run("x")) | {"word/big.bin": b"\0" * (120 << 20)})


def encrypted() -> bytes:
    data = bytearray(archive(word(run("x"))))
    place = data.index(b"PK\x01\x02")
    data[place + 8] |= 1
    return bytes(data)


def damaged() -> bytes:
    data = bytearray(archive(word(run("x"))))
    place = data.index(b"word/document.xml") + 25
    data[place : place + 20] = b"\xff" * 20
    return bytes(data)


def twice() -> bytes:
    out = io.BytesIO(archive(word(run("x"))))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(out, "a") as target:
        target.writestr("word/document.xml", b"<a/>")
    return out.getvalue()


def part(text: str) -> bytes:
    return archive(word() | {"word/document.xml": text})


LAUGHS = (
    '<!DOCTYPE a [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;">]>'
    f'<w:d xmlns:w="{W}"><w:p>&b;</w:p></w:d>'
)


PROTECTED = '<e><CipherReference URI="OEBPS/text/page%201.html"/></e>'


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.docx", lambda: b"plain text", "no ZIP archive"),
        ("a.docx", lambda: b"\xd0\xcf\x11\xe0" * 9, "no ZIP archive"),
        ("a.docx", lambda: archive(word(run("x")))[:-40], "no ZIP archive"),
        ("a.docx", lambda: archive(SHEET), "lacks its main part"),
        ("a.docx", bomb, "would expand to 125"),
        ("a.docx", lambda: part(" " * (17 << 20)), "document.xml would expand to"),
        ("a.docx", lambda: part("<a/>" * 1_100_000), "has 1,100,000 tags"),
        ("a.docx", encrypted, "is encrypted"),
        ("a.docx", damaged, "document.xml is broken"),
        ("a.docx", twice, "several entries of the same name"),
        ("a.docx", lambda: archive(word() | {"../evil": b""}), "unsafe name: '../evil'"),
        ("a.docx", lambda: archive(word() | {"/evil": b""}), "unsafe name"),
        ("a.docx", lambda: archive(word() | {"C:\\evil": b""}), "unsafe name"),
        ("a.docx", lambda: part("<w:d>"), r"document\.xml:1: broken XML"),
        ("a.docx", lambda: part(LAUGHS), "entities"),
        ("a.docx", lambda: part("<a>" * 300 + "</a>" * 300), "broken XML"),
        ("a.docx", lambda: part("<?xml version='1.0' encoding='x'?><a/>"), "unknown encoding"),
        ("a.odt", lambda: archive(word()), "has no content.xml"),
        (
            "a.odt",
            lambda: archive(ODT | {"META-INF/manifest.xml": "<m:encryption-data/>"}),
            "is encrypted",
        ),
        ("a.epub", lambda: archive({"mimetype": b""}), "has no META-INF/container.xml"),
        ("a.epub", lambda: archive(EPUB | {"META-INF/container.xml": "<c/>"}), "names no book"),
        (
            "a.epub",
            lambda: archive(EPUB | {"META-INF/encryption.xml": PROTECTED}),
            "protected by encryption",
        ),
    ],
)
def test_hostile_archives_are_one_line(
    name: str, make: Callable[[], bytes], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as error:
        opened(name, make(), tmp_path)
    assert "\n" not in str(error.value)


PIECES = st.sampled_from([one for one, _ in CASES.values()])
WORDS = st.text(st.sampled_from("ab <>&g1/x\"'\n\u00e4\x00\u2028"), max_size=8)


@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=4), st.data())
def test_any_translation_keeps_the_structure(contents: list[str], data: st.DataObject) -> None:
    source = archive(word("".join(one for one in contents if "pPr" not in one)))
    document = WordDocument(source, "a.docx")
    texts = [data.draw(WORDS) for _ in document.segments]
    codes = of_words(document, lambda words: data.draw(WORDS))
    document.fill([data.draw(st.sampled_from(pair)) for pair in zip(texts, codes, strict=True)])

    def structure(archived: bytes) -> list[str]:
        root = etree.fromstring(zipfile.ZipFile(io.BytesIO(archived)).read("word/document.xml"))
        kept = ("hyperlink", "fldChar", "instrText", "tab", "delText", "bookmarkStart", "p")
        return sorted(
            str(one.tag) for one in root.iter("*") if str(one.tag).rpartition("}")[2] in kept
        )

    assert structure(document.contents()) == structure(source)
    WordDocument(document.contents(), "b.docx")


def test_parts_are_counted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bold = run("One ") + run("two", BOLD)
    entries = word(bold)
    for number in range(3):
        header = f'{HEAD}<w:hdr xmlns:w="{W}"><w:p>{bold}</w:p></w:hdr>'
        entries[f"word/header{number}.xml"] = header
    document = opened("a.docx", archive(entries), tmp_path)
    assert len(document.segments) == 4
    document.fill(["without markup"] * 4)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"heedful: {tmp_path / 'a.docx'}: 4 translations have other markup")
