"""Large documents are translated in sections: the same bytes, in bounded memory."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.documents import Columns, open_document
from heedful.data.documents.cutting import UncuttableError, cut_po, cut_table, cut_xml
from heedful.data.documents.formats import FORMATS, Opening
from heedful.data.documents.sections import find_sections
from heedful.data.documents.table import TableDocument
from heedful.decoding import SearchOptions
from heedful.inference.document_files import translate_document, translate_sections
from serving_help import translator
from test_documents_refused import Changing


def po(count: int) -> str:
    head = 'msgid ""\nmsgstr ""\n"Language: pl\\n"\n"Plural-Forms: nplurals=3; plural=n>1;\\n"\n'
    return head + "".join(
        f'\n# note\n#, c-format\nmsgctxt "c{n}"\nmsgid ""\n"text {n}"\nmsgstr ""\n'
        f'\n#: a.c:{n}\nmsgid "one {n}"\nmsgid_plural "many {n}"\n\nmsgstr[0] ""\nmsgstr[1] ""\n'
        f'msgstr[2] ""\nmsgid "done {n}"\nmsgstr "x"\n\n#~ msgid "old {n}"\n#~ msgstr "y"\n'
        for n in range(count)
    )


def tsv(count: int) -> str:
    rows = (f'"cell {n}\n\twith ""lines"""\t\nplain "{n}\t\n"open {n}\t\n' for n in range(count))
    return "English\tGerman\r\n" + "".join(rows)


def xliff(count: int) -> str:
    units = "".join(
        f'<group id="g{n}"><trans-unit id="{n}">\n <source>a &amp; <g id="1">b {n}</g></source>'
        f'</trans-unit><trans-unit id="d{n}"><source>x</source><target>y</target></trans-unit>'
        "</group><!-- no -->\n"
        for n in range(count)
    )
    file = '<file original="a&quot;" source-language="en" target-language="pl" datatype="x">'
    return (
        '<?xml version="1.0"?>\n<x:xliff version="1.2" xmlns:x="urn:oasis:names:tc:xliff:document'
        f':1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{file}<body>{units}</body></file>'
        f"{file}<body>{units}</body></file></x:xliff>\n"
    )


def tmx(count: int) -> str:
    units = "".join(
        f'<tu tuid="{n}">\n  <tuv xml:lang="en"><seg>text {n}</seg></tuv>'
        f'<tuv xml:lang="{"pl-PL" if n else "pl"}"><seg>{"y" * (n % 2)}</seg></tuv></tu>\n'
        f'<tu><tuv xml:lang="en"><seg>more {n}</seg></tuv></tu>'
        for n in range(count)
    )
    return f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'


MADE: dict[str, Callable[[int], str]] = {
    "po": po,
    "tsv": tsv,
    "csv": tsv,
    "xliff": xliff,
    "tmx": tmx,
}
EXTENSIONS = {"xliff": "xlf"}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_sections_give_the_bytes_of_the_whole(
    name: str, packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"a.{EXTENSIONS.get(name, name)}{'.gz' * packed}"
    text = MADE[name](400)
    text = text.replace('plain "', "plain ").replace('"open', "open") if name == "csv" else text
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    columns = Columns("English", "German") if name in ("tsv", "csv") else None
    own = Opening(None, "en", "pl", columns)
    whole = open_document(path, source="en", target="pl", columns=columns)
    sections = find_sections(path, FORMATS[name], own, size=3000)
    assert whole is not None
    assert sections is not None
    assert len(list(sections)) > 3
    assert b"".join(one.trimmed(one.document.contents()) for one in sections) == text.encode()
    assert sections.count == len(whole.segments) > 400
    model, search = translator(Changing), SearchOptions()
    outs = [path.with_name(f"{number}{'.gz' * packed}") for number in range(2)]
    translate_document(model, whole, outs[0], options=search)
    translate_sections(model, sections, outs[1], options=search)
    first, second = (
        gzip.decompress(out.read_bytes()) if packed else out.read_bytes() for out in outs
    )
    assert first == second != text.encode()


def test_notices_of_sections_are_added_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Empty(Changing):
        change = staticmethod(lambda text: "")

    path = tmp_path / "a.po"
    path.write_text(po(200), "utf-8")
    sections = find_sections(path, FORMATS["po"], Opening(None, "en", "pl"), size=3000)
    assert sections is not None
    translate_sections(translator(Empty), sections, tmp_path / "b.po", options=SearchOptions())
    assert capsys.readouterr().err.count("600 empty translations left their targets empty") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("po", po(300) + '\nmsgid "no string"\n'),
        (
            "po",
            po(300).replace('\\n"\n', '\\n"\n"Content-Type: text/plain; charset=UTF-16\\n"\n', 1),
        ),
        ("xliff", xliff(300)[:-30]),
        ("xliff", '<!DOCTYPE xliff [<!ENTITY a "b">]>' + xliff(300)[22:]),
        ("tsv", tsv(300).replace("English", "Englisch")),
    ],
)
def test_files_that_cannot_be_cut_are_read_as_a_whole(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{EXTENSIONS.get(name, name)}"
    path.write_text(text, "utf-8")
    own = Opening(None, "en", "pl", Columns("English", "German"))
    assert find_sections(path, FORMATS[name], own, size=3000) is None


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet='ab"\t\n\r,', max_size=200),
    st.integers(1, 30),
    st.integers(1, 20),
    st.sampled_from("\t,"),
)
def test_tables_are_cut_between_rows(text: str, size: int, chunk: int, delimiter: str) -> None:
    data = text.encode()
    chunks = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    parts = [part.data for part in cut_table(chunks, delimiter, size)]
    assert b"".join(parts) == data

    def rows(part: bytes) -> list[str]:
        return TableDocument(part, "a", "1", "1", "\t").segments

    if delimiter == "\t":
        assert [row for part in parts for row in rows(part)] == rows(data)


def test_a_quote_that_never_closes_does_not_take_quadratic_time() -> None:
    chunks = [b'"open\ta\n' + b"x\ty\n" * 4000] * 30
    assert b"".join(part.data for part in cut_table(chunks, "\t", 1000)) == b"".join(chunks)


def test_catalogues_are_cut_between_entries() -> None:
    data = po(50).encode()
    parts = [part.data for part in cut_po([data], 1)]
    assert b"".join(parts) == data
    assert len(parts) > 50
    assert not any(part.startswith((b"msgstr", b"msgid_plural", b'"')) for part in parts)


def test_xml_with_a_document_type_is_not_cut() -> None:
    with pytest.raises(UncuttableError):
        list(cut_xml([b"<!DOCTYPE a><a><b/></a>"], "b"))


MEMORY = """
import resource, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from test_documents_refused import Changing
from serving_help import translator
from heedful.data.documents import open_sections
from heedful.decoding import SearchOptions
from heedful.inference.document_files import translate_sections
model = translator(Changing)
path = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sections = open_sections(path, source="en", target="pl")
translate_sections(model, sections, path.with_name("out"), options=SearchOptions())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    words = "many words of a long text " * 40
    entries = (f'msgid "{words} {number}"\nmsgstr ""\n\n' for number in range(8000))
    path.write_text('msgid ""\nmsgstr ""\n\n' + "".join(entries), "utf-8")
    found = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), *sys.path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert path.stat().st_size > 8e6
    assert int(found.stdout) < 40  # MB; as a whole, it needs 84
