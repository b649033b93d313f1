"""Requests in the form of real clients, and their programs as judges of translated files."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from heedful.data.protected.pairs import Rules
from heedful.inference.document_files import translate_document
from heedful.serving import Served
from markup_help import opened
from serving_help import serving, translator

MODEL = translator(protect=Rules(("tags", "printf", "brace", "number"), "en", "de"))
POFILTER = shutil.which("pofilter", path=str(Path(sys.executable).parent)) or shutil.which(
    "pofilter"
)
OMEGAT = Path(os.environ.get("OMEGAT_JAR", "/usr/share/omegat/OmegaT.jar"))


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(Served("one", MODEL, "en", "de")) as client:
        yield client


def test_weblate(client: httpx.Client) -> None:
    """It sends lists of at most 20 texts, whose placeholders it has replaced by ``[X5X]``."""
    headers = {"Referer": "https://weblate.example/", "Accept": "application/json; charset=utf-8"}
    known = client.get("/languages", headers=headers).json()
    assert {"en", "de"} <= {one["code"] for one in known}
    texts = ["Open [X5X] now", "[X0X] of [X7X]\n[X12X]", "test", ""]
    given = {"api_key": "", "q": texts, "source": "en", "target": "de"}
    answer = client.post("/translate", json=given, headers=headers)
    found = answer.json()["translatedText"]
    for text, one in zip(texts, found, strict=True):
        assert Counter(re.findall(r"\[X\d+X\]", one)) == Counter(re.findall(r"\[X\d+X\]", text))
        assert one.count("\n") == text.count("\n")


def test_wagtail_localize(client: httpx.Client) -> None:
    """All texts of a page in one list of HTML; links are numbered ``a`` elements."""
    texts = [
        "The small dog.",
        'the <b>red</b> house with <a id="a1">a small tree</a>.',
        "cats &amp; dogs",
        "one<br/>two",
    ]
    given = {"q": texts, "source": "en", "target": "de", "api_key": "", "format": "html"}
    answer = client.post("/translate", json=given, timeout=10)
    found = answer.raise_for_status().json()["translatedText"]
    for text, one in zip(texts, found, strict=True):
        assert Counter(re.findall("<[^>]*>", one)) == Counter(re.findall("<[^>]*>", text))
    empty = client.post("/translate", json={**given, "q": []})
    assert empty.json() == {"translatedText": []}


def test_the_plugin_of_omegat(client: httpx.Client) -> None:
    """JSON with one text, in which inline tags are numbered."""
    given = {"q": "The <b0>small</b0> dog.<br1/>", "source": "en", "target": "de", "format": "text"}
    found = client.post("/translate", json=given).json()["translatedText"]
    assert sorted(re.findall("<[^>]*>", found)) == ["</b0>", "<b0>", "<br1/>"]


PO = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Language: de\\n"
"MIME-Version: 1.0\\n"
"PO-Revision-Date: 2026-01-01 00:00+0000\\n"
"Last-Translator: A <a@example.org>\\n"
"Language-Team: A <a@example.org>\\n"
"Project-Id-Version: 1\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#, c-format
msgid "the cat %s sat on %d trees."
msgstr ""

#, c-format
msgid "a dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""

#, python-format
msgid "  a %(small)s house\\n"
msgstr ""

#, python-brace-format
msgid "a {small} tree with {0:>10}"
msgstr ""

#, c-format
msgid "%% of the <b>mat</b>\\nthe %1$s and %2$s\\n"
msgstr ""
"""


@pytest.fixture(params=["heedful translate", "server"])
def filled(request: pytest.FixtureRequest, client: httpx.Client, tmp_path: Path) -> Path:
    """A catalogue with translations."""
    path, output = tmp_path / "in" / "a.po", tmp_path / "out" / "a.po"
    path.parent.mkdir()
    output.parent.mkdir()
    path.write_text(PO, encoding="utf-8")
    if request.param == "server":
        fields = {"source": "en", "target": "de", "api_key": ""}
        answer = client.post("/translate_file", files={"file": ("a.po", PO)}, data=fields)
        output.write_bytes(client.get(answer.json()["translatedFileUrl"]).content)
    else:
        translate_document(MODEL, opened(path), output, options=MODEL.options)
    assert not re.search(r'msgstr(\[.\])? ""\n(?!")', output.read_text(encoding="utf-8"))
    return output


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs msgfmt of GNU gettext")
def test_msgfmt_accepts_a_catalogue(filled: Path) -> None:
    command = ["msgfmt", "--check", "--use-fuzzy", "-o", os.devnull, str(filled)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(POFILTER is None, reason="needs pofilter of translate-toolkit")
def test_pofilter_finds_nothing_lost(filled: Path, tmp_path: Path) -> None:
    """Of its tests, those for what a translation must keep."""
    kept = [
        "printf", "pythonbraceformat", "variables", "xmltags", "newlines", "startwhitespace",
        "endwhitespace", "escapes", "numbers", "untranslated", "blank", "nplurals", "tabs", "urls",
        "emails",
    ]  # fmt: skip
    tests = [f"--test={name}" for name in kept]
    command = [
        str(POFILTER),
        "--progress=none",
        *tests,
        str(filled.parent),
        str(tmp_path / "found"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    found = [one.read_text(encoding="utf-8") for one in (tmp_path / "found").rglob("*.po")]
    assert found == []


PROJECT = """<?xml version="1.0" encoding="UTF-8"?>
<omegat><project version="1.0"><source_dir>__DEFAULT__</source_dir>
<target_dir>__DEFAULT__</target_dir><tm_dir>__DEFAULT__</tm_dir>
<glossary_dir>__DEFAULT__</glossary_dir><glossary_file>__DEFAULT__</glossary_file>
<dictionary_dir>__DEFAULT__</dictionary_dir><source_lang>EN</source_lang>
<target_lang>DE</target_lang><sentence_seg>true</sentence_seg>
<support_default_translations>true</support_default_translations><remove_tags>false</remove_tags>
</project></omegat>
"""
UNIT = '<tu><tuv lang="EN"><seg>{}</seg></tuv><tuv lang="DE"><seg></seg></tuv></tu>\n'
TMX = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx11.dtd">\n'
    '<tmx version="1.1"><header creationtool="OmegaT" creationtoolversion="3.6" segtype="sentence"'
    ' o-tmf="OmegaT TMX" adminlang="EN-US" srclang="EN" datatype="plaintext"></header><body>\n'
    + UNIT.format("The &lt;b0&gt;small&lt;/b0&gt; dog sat.")
    + UNIT.format("The cat saw 3 trees.")
    + "</body></tmx>\n"
)
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a"
 source-language="en" target-language="de" datatype="plaintext"><body><trans-unit id="1">
<source>The <g id="1">red</g> house.</source><target></target></trans-unit></body></file></xliff>
"""


def words(text: str) -> list[str]:
    """What remains of markup and texts without white space and declarations."""
    return re.sub(r"<(?:html|/?head|/?body|meta)[^>]*>|\s|(?<=<g)(?= )", "", text).split()


@pytest.mark.skipif(shutil.which("java") is None or not OMEGAT.exists(), reason="needs OmegaT")
def test_omegat_reads_what_heedful_translates(tmp_path: Path) -> None:
    """Its TMX with empty targets, translated, becomes a memory that it fills a project from."""
    project = tmp_path / "project"
    for name in ("source", "target", "omegat", "glossary", "dictionary", "tm/auto"):
        (project / name).mkdir(parents=True)
    (project / "omegat.project").write_text(PROJECT, encoding="utf-8")
    page = "<html><body><p>The <b>small</b> dog sat. The cat saw 3 trees.</p></body></html>"
    (project / "source" / "a.html").write_text(page, encoding="utf-8")
    for name, text, output in (
        ("all.tmx", TMX, project / "tm" / "auto" / "heedful.tmx"),
        ("a.xlf", XLIFF, project / "source" / "a.xlf"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        document = opened(tmp_path / name)
        found = translate_document(MODEL, document, output, options=MODEL.options)
        if name == "all.tmx":
            first, second = (one.text for one in found)
    options = ["-Djava.awt.headless=true", f"-Duser.home={tmp_path}", "-jar", str(OMEGAT)]
    command = ["java", *options, "--mode=console-translate", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-2_000:]
    made = (project / "target" / "a.html").read_text(encoding="utf-8")
    expected = f"<p>{first.replace('b0>', 'b>')} {second}</p></html>"
    assert words(made) == words(expected)
    assert made.count("3") == 1
    xliff = (project / "target" / "a.xlf").read_text(encoding="utf-8")
    assert 'state="needs-review-translation"' in xliff
    assert xliff.count('<g id="1"') == 2
