"""DOCX, PPTX and XLSX: special parts of their XML."""

import io
import zipfile
from pathlib import Path

from heedful.data.documents import Document
from markup_help import of_words
from test_documents_office import ODT, OFFICE, TEXT, A, S, W, archive, opened, run, word

C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
COMMENTS = "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"
SHEETS: dict[str, str | bytes] = {"xl/workbook.xml": "<workbook/>"}


def written(document: Document, *parts: str) -> str:
    """Parts of a document whose words are in capitals."""
    document.fill(of_words(document, str.upper))
    archived = zipfile.ZipFile(io.BytesIO(document.contents()))
    return "".join(archived.read(part).decode() for part in parts)


def test_a_cell_with_spaces_at_its_ends_has_one_text(tmp_path: Path) -> None:
    cells = f'<sst xmlns="{S}"><si><t xml:space="preserve"> Total </t></si><si><t/></si></sst>'
    note = f'<comments xmlns="{S}"><text><t xml:space="preserve">Note\n</t></text></comments>'
    entries = {"xl/sharedStrings.xml": cells, "xl/comments1.xml": note}
    document = opened("a.xlsx", archive({**SHEETS, **entries}), tmp_path)
    assert document.segments == ["Total", "Note"]
    texts = written(document, "xl/sharedStrings.xml", "xl/comments1.xml")
    assert '<si><t xml:space="preserve"> TOTAL </t></si>' in texts
    assert '<text><t xml:space="preserve">NOTE\n</t></text>' in texts


def test_names_of_columns_with_line_breaks_stay(tmp_path: Path) -> None:
    cells = f'<sst xmlns="{S}"><si><t>Unit\nprice</t></si><si><t>Total</t></si></sst>'
    table = '<table><tableColumn id="1" name="Unit_x000a_price"/></table>'
    entries = {"xl/sharedStrings.xml": cells, "xl/tables/table1.xml": table}
    document = opened("a.xlsx", archive({**SHEETS, **entries}), tmp_path)
    assert document.segments == ["Total"]


def test_words_keep_the_namespaces_of_their_style(tmp_path: Path) -> None:
    glow = '<w:rPr><n:glow/></w:rPr><w:t xml:space="preserve">'
    bright = f'<w:r xmlns:n="urn:n&amp;">{glow}bright </w:t><w:tab/></w:r>'
    plain = f"<w:r>{glow.replace('n:', 'w:')}dog</w:t></w:r>"
    alone = f'<w:p xmlns:n="urn:n&amp;"><w:r>{glow}Sun</w:t></w:r></w:p>'
    entries = word(run("One ") + bright + plain)
    entries["word/header1.xml"] = f'<w:hdr xmlns:w="{W}">{alone}<w:p>{bright}</w:p></w:hdr>'
    document = opened("a.docx", archive(entries), tmp_path)
    text = written(document, "word/document.xml", "word/header1.xml")
    assert f'<w:r xmlns:n="urn:n&amp;">{glow}BRIGHT' in text
    assert '<w:r xmlns:n="urn:n&amp;"><w:rPr><n:glow/></w:rPr><w:tab/></w:r>' in text
    assert f"<w:r>{glow}SUN</w:t></w:r>" in text


def test_words_with_readings_lose_them_when_they_change(tmp_path: Path) -> None:
    ruby = (
        f"<w:r><w:ruby><w:rubyPr/><w:rt>{run('reading')}</w:rt><w:rubyBase>{run('base')}"
        "</w:rubyBase></w:ruby></w:r>"
    )
    document = opened("a.docx", archive(word(run("One ") + ruby + run(" end"))), tmp_path)
    assert document.segments == ["One base end"]
    assert "<w:p>" + run("ONE BASE END") + "</w:p>" in written(document, "word/document.xml")

    ruby = (
        "<text:ruby><text:ruby-base>base</text:ruby-base><text:ruby-text>reading</text:ruby-text>"
        "</text:ruby>"
    )
    content = f'<o:d xmlns:o="{OFFICE}" xmlns:text="{TEXT}"><text:p>One {ruby} end</text:p></o:d>'
    document = opened("a.odt", archive(ODT | {"content.xml": content}), tmp_path)
    assert document.segments[0] == "One base end"
    assert "<text:p>ONE BASE END</text:p>" in written(document, "content.xml")

    cell = '<si><t>One</t><rPh sb="0" eb="2"><t>reading</t></rPh><phoneticPr fontId="1"/></si>'
    cells = {"xl/sharedStrings.xml": f'<sst xmlns="{S}">{cell}</sst>'}
    document = opened("a.xlsx", archive({**SHEETS, **cells}), tmp_path)
    text = written(document, "xl/sharedStrings.xml")
    assert '<si><t xml:space="preserve">ONE</t></si>' in text


def test_names_in_charts_and_their_boxes_are_texts(tmp_path: Path) -> None:
    def points(kind: str, *values: str) -> str:
        points = "".join(f"<c:pt><c:v>{value}</c:v></c:pt>" for value in values)
        return f"<c:{kind}>{points}</c:{kind}>"

    chart = (
        f'<c:chart xmlns:c="{C}"><c:ser><c:tx><c:strRef><c:f>Sheet1!$A$1</c:f>'
        f"{points('strCache', 'Price', 'Red &amp; x', '12')}</c:strRef></c:tx>"
        f"{points('strLit', 'North')}{points('numCache', '#N/A')}{points('numLit', 'x')}"
        "<c:tx><c:v>South</c:v></c:tx></c:ser></c:chart>"
    )
    box = f'<c:u xmlns:c="{C}" xmlns:a="{A}"><a:p><a:r><a:t>In a box</a:t></a:r></a:p></c:u>'
    table = '<table><tableColumn id="1" name="Price"/></table>'
    for kind, folder, more, own in (
        ("docx", "word", word(), ["Price"]),
        ("pptx", "ppt", {"ppt/presentation.xml": "<p/>"}, ["Price"]),
        ("xlsx", "xl", SHEETS | {"xl/tables/table1.xml": table}, []),
    ):
        parts = {f"{folder}/charts/chart1.xml": chart, f"{folder}/drawings/drawing1.xml": box}
        document = opened(f"a.{kind}", archive({**more, **parts}), tmp_path)
        assert document.segments == [*own, "Red & x", "North", "South", "In a box"]
        text = written(document, f"{folder}/charts/chart1.xml")
        expected = chart.replace("Red &amp; x", "RED &amp; X").replace("North", "NORTH")
        expected = expected.replace("South", "SOUTH")
        assert text == (expected.replace("Price", "PRICE") if own else expected)


def test_comments_of_newer_excel_are_texts(tmp_path: Path) -> None:
    comments = (
        f'<ThreadedComments xmlns="{COMMENTS}"><threadedComment><text>Check &lt;it&gt;</text>'
        "</threadedComment><threadedComment><text>@Ann no</text><mentions><mention "
        'startIndex="0" length="4"/></mentions></threadedComment></ThreadedComments>'
    )
    name = "xl/threadedComments/threadedComment1.xml"
    document = opened("a.xlsx", archive(SHEETS | {name: comments}), tmp_path)
    assert document.segments == ["Check <it>"]
    assert written(document, name) == comments.replace("Check &lt;it", "CHECK &lt;IT")
