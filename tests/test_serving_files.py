"""``/translate_file`` and ``/download_file``: the documents that ``heedful translate`` knows."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from heedful.data.documents.formats import FILE_EXTENSIONS, TABLES
from heedful.data.memory import Entry, Memory
from heedful.data.protected.pairs import Rules
from heedful.inference.document_files import translate_document
from heedful.serving import Limits, Served
from heedful.serving.keys import Keys, new_key
from markup_help import opened
from serving_help import serving, translator

PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "the cat sat on the mat."
msgstr ""

#, c-format
msgid "a small %s."
msgstr ""

msgctxt "verb"
msgid "dog"
msgstr ""

msgid "tree"
msgstr "Baum"
"""
XLIFF = """<?xml version="1.0"?><xliff version="1.2"><file source-language="en" target-language="de"
 datatype="plaintext" original="a"><body><trans-unit id="1"><source>a <g id="1">small</g> dog.
</source></trans-unit></body></file></xliff>"""
FILES = {
    "a.po": PO,
    "a.xlf": XLIFF,
    "a.html": "<p>the <b>red</b> cat.<p>a dog.",
    "a.md": "# the cat\n\nthe *small* dog sat.\n",
    "a.rst": "the cat\n=======\n\nthe *small* dog sat.\n",
    "a.json": '{"one": "the cat sat."}',
    "a.properties": "one=the cat sat\n",
    "a.srt": "1\n00:00:01,000 --> 00:00:02,000\nthe cat sat.\n",
    "A.Strings": '"one" = "the cat";\n',
}
TRANSLATOR = translator(protect=Rules(("tags", "printf", "number"), "en", "de"))
TRANSLATOR.memory = Memory([Entry("dog", "Hund"), Entry("dog", "verfolgen", "verb")])
FIELDS = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    limits = Limits(characters=2_000, files=10_000)
    with serving(Served("one", TRANSLATOR, "en", "de"), limits=limits) as client:
        yield client


def sent(client: httpx.Client, name: str, data: str | bytes, **fields: str) -> httpx.Response:
    return client.post("/translate_file", files={"file": (name, data)}, data={**FIELDS, **fields})


def translated(client: httpx.Client, name: str, data: str | bytes, **fields: str) -> httpx.Response:
    answer = sent(client, name, data, **fields)
    assert answer.status_code == 200, answer.text
    address = answer.json()["translatedFileUrl"]
    assert address.startswith(f"{client.base_url}download_file/") or str(client.base_url) in address
    return client.get(address)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_heedful_translate_writes(
    client: httpx.Client, name: str, tmp_path: Path
) -> None:
    found = translated(client, name, FILES[name])
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    document = opened(path)
    translate_document(
        TRANSLATOR, document, tmp_path / "out", options=TRANSLATOR.options, memory=TRANSLATOR.memory
    )
    assert found.content == (tmp_path / "out").read_bytes()
    assert found.text != FILES[name]


def test_matches_of_the_memory_and_placeholders(client: httpx.Client) -> None:
    found = translated(client, "a.po", PO).text
    assert 'msgid "dog"\nmsgstr "verfolgen"' in found  # by its context
    assert 'msgid "tree"\nmsgstr "Baum"' in found
    assert found.partition('msgid "a small %s."\n')[2].partition("\n")[0].count("%s") == 1


def test_plain_text(client: httpx.Client) -> None:
    found = translated(client, "notes.txt", "the cat.\r\n\r\n a dog.  the tree.\nx").text
    lines = [
        client.post("/translate", json={"q": line, **FIELDS}).json()["translatedText"]
        for line in ("the cat.", " a dog.  the tree.", "x")
    ]
    assert found == f"{lines[0]}\r\n\r\n{lines[1]}\n{lines[2]}"


def test_tables_need_columns(client: httpx.Client) -> None:
    table = "key,English,German\n1,the cat,\n2,a dog,Hund\n"
    assert "source_column" in sent(client, "a.csv", table).json()["error"]
    columns = {"source_column": "English", "target_column": "German"}
    found = translated(client, "a.csv", table, **columns).text
    lines = found.split("\n")
    assert lines[0::2] == table.split("\n")[0::2]
    assert lines[1].startswith("1,the cat,")
    assert len(lines[1]) > len("1,the cat,")
    replaced = translated(client, "a.tsv", "the cat\t5\n", source_column="1").text
    assert replaced.endswith("\t5\n")
    assert not replaced.startswith("the cat")


def test_the_head_of_a_download(client: httpx.Client) -> None:
    """Browsers save it: a page of a client must not run as one of this server's."""
    found = translated(client, '../../etc/a;b"c.html', "<script>alert(1)</script><p>the cat")
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    named = "attachment; filename*=utf-8''translation.de.html"
    assert found.headers["content-disposition"] == named
    assert found.headers["content-security-policy"].startswith("sandbox")
    assert found.headers["x-content-type-options"] == "nosniff"


def test_the_language_is_detected(client: httpx.Client) -> None:
    text = "<p>The cat and the dog were in the house."
    answer = sent(client, "a.html", text, source="auto").json()
    assert answer["detectedLanguage"]["language"] == "en"
    german = "<p>Der Hund und die Katze waren im Haus."
    assert translated(client, "a.html", german, source="auto").text == german


def test_formats_are_announced(client: httpx.Client) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"] is True
    assert set(settings["supportedFilesFormat"]) == {".txt", *FILE_EXTENSIONS, *TABLES}


def test_names_cannot_be_guessed_and_files_are_deleted() -> None:
    limits = Limits(file_time=0.4)
    with serving(Served("one", TRANSLATOR, "en", "de"), limits=limits) as client:
        addresses = [sent(client, "a.txt", "x").json()["translatedFileUrl"] for _ in range(2)]
        assert len(set(addresses)) == 2
        assert all(len(one.rpartition("/")[2]) > 32 for one in addresses)
        assert client.get(addresses[0]).status_code == 200
        time.sleep(0.5)
        assert [client.get(one).status_code for one in addresses] == [404, 404]


def test_too_many_files() -> None:
    limits = Limits(files=250, file_time=0.5)
    with serving(Served("one", TRANSLATOR, "en", "de"), limits=limits) as client:
        assert sent(client, "a.html", "<br>" * 40).status_code == 200
        refused = sent(client, "a.html", "<br>" * 40)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        time.sleep(0.6)
        assert sent(client, "a.html", "<br>" * 40).status_code == 200


def test_a_key_is_required_to_translate(tmp_path: Path) -> None:
    key = new_key(tmp_path / "keys")
    keys = Keys.read(tmp_path / "keys")
    with serving(Served("one", TRANSLATOR, "en", "de"), keys=keys) as client:
        assert sent(client, "a.txt", "x").status_code == 403
        found: Any = sent(client, "a.txt", "x", api_key=key)
        assert client.get(found.json()["translatedFileUrl"]).status_code == 200
