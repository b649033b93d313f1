"""DOCX, PPTX and XLSX: special parts of their XML."""

import io
import zipfile
from pathlib import Path

from heedful.data.documents import Document
from markup_help import of_words
from test_documents_office import S, archive, opened

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
    document = opened("a.xlsx", archive(SHEETS | entries), tmp_path)
    assert document.segments == ["Total", "Note"]
    texts = written(document, "xl/sharedStrings.xml", "xl/comments1.xml")
    assert '<si><t xml:space="preserve"> TOTAL </t></si>' in texts
    assert '<text><t xml:space="preserve">NOTE\n</t></text>' in texts


def test_names_of_columns_with_line_breaks_stay(tmp_path: Path) -> None:
    cells = f'<sst xmlns="{S}"><si><t>Unit\nprice</t></si><si><t>Total</t></si></sst>'
    table = '<table><tableColumn id="1" name="Unit_x000a_price"/></table>'
    entries = {"xl/sharedStrings.xml": cells, "xl/tables/table1.xml": table}
    document = opened("a.xlsx", archive(SHEETS | entries), tmp_path)
    assert document.segments == ["Total"]
