"""Hostile uploads: a file or a 4xx with ``error``, never a 5xx; no other file is touched."""

import gzip
import io
import random
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from heedful.data.documents.formats import FILE_EXTENSIONS, TABLES
from heedful.data.protected.pairs import Rules
from heedful.serving import Limits, Served, make_application
from serving_help import running, translator
from test_serving_files import FIELDS, FILES
from test_serving_hostile import check

FORM = "multipart/form-data; boundary=x"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    limits = Limits(characters=5_000, body=300_000)
    one = translator(max_length=24, protect=Rules(("tags",)))
    with running(make_application([Served("one", one, "en", "de")], limits=limits)) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client
        assert sent(client, "a.txt", b"the cat.").status_code == 200


def sent(client: httpx.Client, name: str, data: bytes, **fields: str) -> httpx.Response:
    return client.post("/translate_file", files={"file": (name, data)}, data={**FIELDS, **fields})


def refused(answer: httpx.Response, status: int, words: str) -> None:
    check(answer, words)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]


def part(head: str, content: bytes) -> bytes:
    return (
        b"--x\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + content + b"\r\n"
    )


WHOLE = (
    part('name="source"', b"en")
    + part('name="target"', b"de")
    + part('name="file"; filename="a.txt"', b"the cat.")
    + b"--x--\r\n"
)


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("multipart/form-data", WHOLE, "invalid"),  # no boundary
        ("multipart/form-data; boundary=y", WHOLE, "invalid"),
        ("multipart/form-data; boundary=" + "x" * 5_000, WHOLE, "invalid"),
        ("multipart/form-data; boundary=\u00e9", WHOLE, "invalid"),
        (FORM, b"--x", "missing"),
        (FORM, b"--x\r\n" * 20_000, "invalid"),
        (FORM, WHOLE[:60], "missing"),
        (FORM, b"a" + WHOLE, "invalid"),
        (FORM, part('name="a"', b"b") * 2_000 + b"--x--\r\n", "invalid"),
        (FORM, part('name="file"; filename="a.txt"', b"b") * 20 + b"--x--\r\n", "invalid"),
        (FORM, part('name="source"', b"en") * 2 + b"--x--\r\n", "twice"),
        (FORM, part('name="file"', b"the cat.") + WHOLE, "twice"),
        (FORM, WHOLE.replace(b"filename", b"filenam"), "file: input should be"),
        (FORM, WHOLE.replace(b'"file"', b'"data"'), "file is missing"),
        (FORM, WHOLE.replace(b'"source"', b'"\xff\xfe"'), "source is missing"),
        (FORM, WHOLE.replace(b"\r\n\r\n", b"\r\nA: " + b"a" * 90_000 + b"\r\n\r\n", 1), ""),
        (FORM, b"", "missing"),
        ("application/json", b'{"file": "a.txt", "source": "en", "target": "de"}', "file: input"),
        ("application/json", b'{"file": {"name": "a.txt"}, "source": "en"}', "file"),
        ("application/x-www-form-urlencoded", b"file=/etc/passwd&source=en&target=de", "file"),
    ],
)  # fmt: skip
def test_forms_that_are_none(client: httpx.Client, kind: str, body: bytes, words: str) -> None:
    answer = client.post(
        "/translate_file", content=body, headers={"Content-Type": kind.encode("utf-8")}
    )
    if words:
        refused(answer, 400, words)
    else:
        check(answer, kind)


def test_random_forms(client: httpx.Client) -> None:
    chance = random.Random(4)
    for _ in range(150):
        at = chance.randrange(len(WHOLE))
        body = (
            WHOLE[:at] + chance.randbytes(chance.randrange(4)) + WHOLE[at + chance.randrange(9) :]
        )
        check(client.post("/translate_file", content=body, headers={"Content-Type": FORM}), body)


def test_too_large(client: httpx.Client) -> None:
    refused(sent(client, "a.txt", b"a" * 400_000), 413, "too long")
    refused(sent(client, "a.txt", (b"a" * 60 + b"\n") * 1_000), 400, "characters; the maximum")
    assert sent(client, "a.html", b"<br>" * 5_000).status_code == 200  # nothing to translate


def archive() -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("word/document.xml", "content.xml", "../evil", "xl/sharedStrings.xml"):
            packed.writestr(name, b"<a>" + b" " * 30_000_000 + b"</a>")
        packed.writestr("mimetype", "application/epub+zip")
    return found.getvalue()


def document(paragraphs: int, padding: int = 0) -> bytes:
    """A DOCX file."""
    kinds = "http://schemas.openxmlformats.org/"
    office = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{kinds}package/2006/content-types">'
            f'<Override PartName="/word/document.xml" ContentType="{office}"/></Types>',
        )
        packed.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{kinds}package/2006/relationships"><Relationship Id="r" Type='
            f'"{kinds}officeDocument/2006/relationships/officeDocument" '
            'Target="word/document.xml"/></Relationships>',
        )
        packed.writestr(
            "word/document.xml",
            f'<w:document xmlns:w="{kinds}wordprocessingml/2006/main"><w:body>'
            + "<w:p><w:r><w:t>a</w:t></w:r></w:p>" * paragraphs
            + "</w:body></w:document>",
        )
        packed.writestr("media/a.png", random.Random(1).randbytes(padding))
    return found.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.docx", document(160_000), "bytes when it is expanded"),
        ("a.docx", document(8_000, 200_000), "tags"),
        ("a.docx", archive(), "bytes when it is expanded"),
        ("a.html", document(20_000), "tags"),
        ("a.html", b"<b>" * 50_000, "tags"),
        ("a.csv", b"a\r" * 50_000, "lines"),
        ("a.md", b"*a " * 50_000, "characters; the maximum is 10,000"),
    ],
)
def test_what_takes_long_to_parse_is_refused_at_once(
    client: httpx.Client, name: str, data: bytes, words: str
) -> None:
    began = time.process_time()
    refused(sent(client, name, data, source_column="1"), 400, words)
    assert time.process_time() - began < 2


def test_an_archive_is_translated(client: httpx.Client) -> None:
    answer = sent(client, "a.docx", document(20, 100_000))
    assert answer.status_code == 200, answer.text
    found = client.get(answer.json()["translatedFileUrl"])
    with zipfile.ZipFile(io.BytesIO(found.content)) as packed:
        assert packed.read("word/document.xml").count(b"<w:p>") == 20


ENTITIES = (
    '<?xml version="1.0"?><!DOCTYPE xliff [<!ENTITY a "lol"><!ENTITY p SYSTEM "file:///etc/passwd">'
    + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + '<!ENTITY % r SYSTEM "http://127.0.0.1:9/x"> %r;]>'
)


@pytest.fixture(scope="module")
def wrong_contents() -> list[bytes]:
    """What is in none of the formats."""
    return [
        b"",
        b"\0" * 1_000,
        b"\xff\xfe\x00\xd8",
        b"the cat \xff\xfe.",
        gzip.compress(b"a" * 50_000_000),
        archive(),
        b"<" * 20_000,
        b"{" * 20_000,
        b'{"a":' * 20_000,
        b"<a>" * 20_000,
        ENTITIES.encode() + b"<xliff>&i;&p;</xliff>",
    ]


NAMES = [f"a{one}" for one in sorted({".txt", *FILE_EXTENSIONS, *TABLES})]


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_wrong_contents_of_all_formats(
    client: httpx.Client, wrong_contents: list[bytes], name: str, part: int
) -> None:
    """Each format is given every other file of another format; slow tests give it the rest."""
    others = [data.encode(code) for code in ("utf-8", "utf-16") for data in FILES.values()]
    contents = others[(NAMES.index(name) + part) % 2 :: 2]
    if part == 0:
        contents += [random.Random(name).randbytes(3_000), *wrong_contents]
    for content in contents:
        began = time.process_time()
        answer = sent(client, name, content, source_column="1")
        check(answer, (name, content[:50]))
        assert b"root:" not in answer.content
        if answer.status_code == 200:
            found = client.get(answer.json()["translatedFileUrl"])
            assert found.status_code == 200
            assert b"root:" not in found.content
        assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "name",
    ["", "a", ".", "..", "a.exe", "a.po.gz", "a.html\0.exe", "/etc/passwd", "a." + "x" * 900],
)  # fmt: skip
def test_names_of_other_formats(client: httpx.Client, name: str) -> None:
    answer = sent(client, name, b"the cat.")
    check(answer, name)
    assert answer.status_code == 400


def test_names_are_no_paths(client: httpx.Client) -> None:
    """Of a name, nothing but its extension is used: neither for the file nor in the answer."""
    for name in ("../../a.txt", "/etc/a.txt", "C:\\a\\b.TXT", "a\r\nX-Evil: 1.txt", "é\u202e.txt"):
        answer = sent(client, name, b"the cat.")
        assert answer.status_code == 200, answer.text
        place = httpx.URL(answer.json()["translatedFileUrl"]).path
        token, _, ending = place.removeprefix("/download_file/").rpartition(".")
        assert token.replace("-", "").replace("_", "").isalnum()
        assert ending == "txt"
        found = client.get(place)
        assert "x-evil" not in {*answer.headers, *found.headers}
        assert found.headers["content-disposition"].endswith("translation.de.txt")


@pytest.mark.parametrize(
    "place",
    [
        "", "x", "../../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..%5cetc", "%ff",
        "/etc/passwd", "%00", "a" * 5_000, ".txt", "...", "\u202e", "[", "*",
    ],
)  # fmt: skip
def test_downloads_of_nothing(client: httpx.Client, place: str) -> None:
    answer = client.get(f"/download_file/{place}")
    check(answer, place)
    assert answer.status_code == 404
    assert client.post("/download_file/x").status_code == 405


def test_languages_that_are_not_served(client: httpx.Client) -> None:
    for fields in ({"source": "xx"}, {"target": "xx"}, {"target": "\0"}, {"source": "de"}):
        check(sent(client, "a.po", FILES["a.po"].encode(), **fields), fields)
    refused(sent(client, "a.po", FILES["a.po"].encode(), target="xx"), 400, "xx")
    french = FILES["a.xlf"].replace('"en"', '"fr"').encode()
    refused(sent(client, "a.xlf", french), 400, "fr")


@pytest.mark.parametrize(
    "column", ["", "0", "-1", "9" * 150, "9" * 5_000, "\0", "²", "٣", "x" * 199]
)
def test_columns_that_are_not_there(client: httpx.Client, column: str) -> None:
    table = b'a\x01,"b\nc"\nthe cat,x\n'
    for name in ("a.csv", "a.tsv"):
        refused(sent(client, name, table, source_column=column), 400, "column")


def test_nothing_is_written(client: httpx.Client, tmp_path: Path) -> None:
    """Files stay in memory."""
    there = set(Path(tempfile.gettempdir()).glob("tmp*"))
    script = b"<script>" + b"a" * 250_000 + b"</script>"
    answer = sent(client, "a.html", script)
    assert client.get(answer.json()["translatedFileUrl"]).content == script
    assert set(Path(tempfile.gettempdir()).glob("tmp*")) <= there
