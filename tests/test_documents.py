"""Documents come back with their empty targets filled and not a byte changed elsewhere."""

import difflib
import gzip
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from heedful.basics.errors import UserError
from heedful.data.documents import Document, open_document
from heedful.data.readers import read_pairs
from heedful.data.readers.markup import write_segment

django = importlib.util.find_spec("django")
needs_django = pytest.mark.skipif(django is None, reason="Django, whose catalogues are read here")


def opened(path: Path, source: str | None = "en", target: str | None = "de") -> Document:
    document = open_document(path, source=source, target=target)
    assert document is not None
    return document


def fill(path: Path, translations: list[str] | None = None) -> str:
    document = opened(path)
    document.fill(translations or [f"«{text}»" for text in document.segments])
    document.write(path.with_name("filled"))
    return path.with_name("filled").read_bytes().decode("utf-8")


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    lines = list(difflib.ndiff(before.split("\n"), after.split("\n")))
    gone = [line[2:] for line in lines if line.startswith("- ")]
    new = [line[2:] for line in lines if line.startswith("+ ")]
    return gone, new


PO = """# A comment with trailing space \r
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: de\\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);\\n"

#: a.py:1
#, python-format
#| msgid "old"
msgid "%d \\"file\\"\\n"
msgstr ""

#| msgid "old"
msgctxt "menu"
msgid "Open"
msgstr ""
""
msgid "Done" \t
msgstr "Fertig"
# one thing
msgid "thing"
msgid_plural "things"
msgstr[0] "Ding"
msgstr[1] ""
msgstr[2] ""

#~ msgid "gone"
#~ msgstr ""
"""


def test_po_changes_nothing_but_the_empty_strings(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_bytes(PO.encode())
    document = opened(path)
    assert document.segments == ['%d "file"\n', "Open", "things"]
    filled = fill(path, ['%d "Datei"', "Öff\nnen", "Dinge"])
    expected = PO
    for old, new in (
        ("#, python-format", "#, fuzzy, python-format"),
        ('file\\"\\n"\nmsgstr ""', 'file\\"\\n"\nmsgstr "%d \\"Datei\\"\\n"'),
        ('#| msgid "old"\nmsgctxt', '#, fuzzy\n#| msgid "old"\nmsgctxt'),
        ('"Open"\nmsgstr ""\n""', '"Open"\nmsgstr ""\n"Öff\\n"\n"nen"'),
        ('# one thing\nmsgid "thing"', '# one thing\n#, fuzzy\nmsgid "thing"'),
        ('msgstr[1] ""', 'msgstr[1] "Dinge"'),
        ('msgstr[2] ""', 'msgstr[2] "Dinge"'),
    ):
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert filled == expected
    catalogue = polib.pofile(filled)
    assert [entry.msgid for entry in catalogue.fuzzy_entries()] == ['%d "file"\n', "Open", "thing"]
    opens = [entry.msgstr for entry in catalogue if entry.msgctxt == "menu"]
    assert opens == ["Öff\nnen"]


@pytest.mark.parametrize(
    ("entry", "kind", "expected"),
    [
        (
            'msgid "a\\n\\n"\nmsgstr ""',
            None,
            '#, fuzzy\nmsgid "a\\n\\n"\nmsgstr ""\n"A\\n"\n"\\n"',
        ),
        (
            'msgid "\\n\\na"\nmsgstr ""',
            None,
            '#, fuzzy\nmsgid "\\n\\na"\nmsgstr ""\n"\\n"\n"\\n"\n"A"',
        ),
        (
            '  #, c-format\nmsgid "a"\nmsgstr ""',
            None,
            '  #, fuzzy, c-format\nmsgid "a"\nmsgstr "A"',
        ),
        ('#,\nmsgid "a"\nmsgstr ""', None, '#, fuzzy\nmsgid "a"\nmsgstr "A"'),
        (
            '  #| msgid "b"\nmsgid "a"\nmsgstr ""',
            None,
            '#, fuzzy\n  #| msgid "b"\nmsgid "a"\nmsgstr "A"',
        ),
        (
            '#~ msgid "b"\n#~ msgstr "B"\n # own\nmsgid "a"\nmsgstr ""',
            "exact",
            '#~ msgid "b"\n#~ msgstr "B"\n# exact match in the memory\n # own\n'
            'msgid "a"\nmsgstr "A"',
        ),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_po_entries_are_filled_as_they_are_written(
    entry: str, kind: str | None, expected: str, newline: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.po"
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    path.write_bytes(f"{head}{entry}\n".replace("\n", newline).encode())
    document = opened(path)
    document.fill(["A"], [kind])
    assert document.contents().decode() == f"{head}{expected}\n".replace("\n", newline)


def test_a_document_not_filled_is_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_bytes(b"\xef\xbb\xbf" + PO.replace("\n", "\r\n").encode())
    opened(path).write(tmp_path / "b.po")
    assert (tmp_path / "b.po").read_bytes() == path.read_bytes()
    assert b"\n" not in fill(path).encode().replace(b"\r\n", b"")


def test_the_number_of_translations_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO)
    with pytest.raises(ValueError, match="2 translations for 3 segments"):
        opened(path).fill(["a", "b"])


def test_an_empty_translation_leaves_the_target_and_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO)
    assert fill(path, ["", " ", "\n"]) == PO
    assert "3 empty translations" in capsys.readouterr().err


def test_po_charset_without_a_character(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_bytes(PO.replace("UTF-8", "ISO-8859-1").encode("latin-1"))
    document = opened(path)
    document.fill(["ä"] * 3)
    with pytest.raises(UserError, match=r"has no '中'.*convert the catalogue to UTF-8"):
        document.fill(["中"] * 3)


@needs_django
@pytest.mark.parametrize("language", ["de", "ar", "ja", "pl", "sr_Latn"])
def test_real_catalogues_emptied_and_filled_again(language: str, tmp_path: Path) -> None:
    assert django is not None
    assert django.origin is not None
    original = Path(django.origin).parent / f"conf/locale/{language}/LC_MESSAGES/django.po"
    emptied = polib.pofile(str(original))
    for entry in emptied:
        entry.msgstr = ""
        entry.msgstr_plural = dict.fromkeys(entry.msgstr_plural, "")
    path = tmp_path / "a.po"
    emptied.save(str(path))
    document = opened(path, target=language.partition("_")[0])
    document.fill([f"«{text}»" for text in document.segments])
    document.write(tmp_path / "filled.po")
    filled = polib.pofile(str(tmp_path / "filled.po"))
    assert all(entry.fuzzy for entry in filled if not entry.obsolete)
    assert not filled.untranslated_entries()
    gone, new = changed(path.read_text(), (tmp_path / "filled.po").read_text())
    assert all(line.startswith(("msgstr", "#,", '""')) for line in gone)
    assert all(line.startswith(("msgstr", "#, fuzzy", '"')) for line in new)
    # Machine output is not learnt from before somebody has looked at it.
    left_out: Counter[str] = Counter()
    assert list(read_pairs([tmp_path / "filled.po"], left_out=left_out)) == []
    assert left_out["fuzzy"] > 0


XLIFF = """<?xml version='1.0' encoding="UTF-8" standalone='yes'?>
<!-- a comment --><?program  it's one?>
<xliff  version="1.2" xmlns='urn:oasis:names:tc:xliff:document:1.2'  xmlns:m="urn:m">
 <file source-language="en-US" target-language='de' original="a&amp;b" datatype="x" m:k = "1">
  <body><group translate="no"><trans-unit id="0"><source>Not this</source></trans-unit></group>
   <trans-unit id="1" m:note="a > b">
     <source>Tom &amp; <g id="1">Jerry</g><x id="2"/></source>
   </trans-unit>
   <trans-unit id="2"><source>Two</source><target state-qualifier='x' state = 'new'  /></trans-unit>
   <trans-unit id="3"><source>Three</source><target  xml:lang="de">
     </target><alt-trans><target>Drei?</target></alt-trans></trans-unit>
   <trans-unit id="4"><source>Four</source><target>Vier<!-- 4 --></target></trans-unit>
   <trans-unit id="5"><source><![CDATA[<b>]]> &#228;</source><seg-source>x</seg-source>
     <note>n</note></trans-unit>
  </body>
 </file>
</xliff>
<!-- the end -->"""


def test_xliff_changes_nothing_but_the_targets(tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    path.write_text(XLIFF)
    assert opened(path).segments == [
        'Tom & <g id="1">Jerry</g><x id="2"/>',
        "Two",
        "Three",
        "<b> ä",
    ]
    filled = fill(path, ['<x id="2"/><g id="1">Jerry</g> & Tom', "Zwei", "Drei < 4", "<b> ü"])
    state = 'state="needs-review-translation"'
    expected = XLIFF.replace(
        '<x id="2"/></source>',
        '<x id="2"/></source>\n     '
        f'<target {state}><x id="2"/><g id="1">Jerry</g> &amp; Tom</target>',
    )
    expected = expected.replace(
        "state = 'new'  />", 'state = "needs-review-translation">Zwei</target>'
    )
    expected = expected.replace(
        'xml:lang="de">\n     </target>', f'xml:lang="de" {state}>Drei &lt; 4</target>'
    )
    expected = expected.replace(
        "</seg-source>", f"</seg-source><target {state}>&lt;b&gt; ü</target>"
    )
    assert filled == expected


def test_inline_codes_that_do_not_match_become_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.xlf"
    path.write_text(XLIFF)
    filled = fill(path, ['Tom <g id="1">', "<x/>", "\x0b3", "4"])
    assert '>Tom &lt;g id="1"&gt;</target>' in filled
    assert ">&lt;x/&gt;</target>" in filled
    said = capsys.readouterr().err
    assert "1 translations have other inline codes" in said
    assert "1 characters that XML cannot hold" in said


@pytest.mark.parametrize(
    ("translation", "xml", "matched"),
    [
        ("<g>a</g><x/><x/>", "&lt;g&gt;a&lt;/g&gt;&lt;x/&gt;&lt;x/&gt;", False),
        ("none", "none", False),
        ("<g>a</g> <x/>", "<g>a</g> <x/>", True),
        ("</g><x/><g>", "&lt;/g&gt;&lt;x/&gt;&lt;g&gt;", False),
    ],
)
def test_codes_must_come_as_often_and_nested(translation: str, xml: str, matched: bool) -> None:
    assert write_segment(translation, ["<g>", "</g>", "<x/>"]) == (xml, matched)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "iso-8859-1", "gb18030", "utf-8-sig"])
def test_xml_stays_in_its_encoding(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    declared = "utf-16" if "16" in encoding else encoding.removesuffix("-sig")
    path.write_bytes(XLIFF.replace('"UTF-8"', f'"{declared}"').encode(encoding))
    document = opened(path)
    document.fill([f"„{text}“" for text in document.segments])
    document.write(tmp_path / "filled")
    filled = (tmp_path / "filled").read_bytes()
    assert filled.decode(encoding).startswith("<?xml version='1.0'")
    targets = etree.fromstring(filled).iter("{*}target")
    assert sum(1 for target in targets if "„" in (target.text or "")) == 4


TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en" segtype="sentence"/>
 <body>
  <tu tuid="1">
    <note>n</note>
    <tuv xml:lang="en-GB" creationid='me'>
      <seg>A <bpt i="1">&lt;b></bpt>bold<ept i="1">&lt;/b></ept> word</seg>
    </tuv>
  </tu>
  <tu><tuv xml:lang="EN"><seg>Two</seg></tuv><tuv xml:lang="de-DE"><seg/></tuv></tu>
  <tu><tuv xml:lang="EN"><seg>Three</seg></tuv><tuv xml:lang="de-DE"><seg>Drei</seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>Quatre</seg></tuv></tu>
 </body>
</tmx>
"""


def test_tmx_gets_new_variants_and_fills_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(TMX)
    bold = 'A <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> word'
    assert opened(path).segments == [bold, "Two"]
    filled = fill(path, [bold.replace("A", "Ein"), "Zwei"])
    prop = '<prop type="x-review">needs-review</prop>'
    seg = bold.replace("A", "Ein")
    expected = TMX.replace(
        "word</seg>\n    </tuv>",
        "word</seg>\n    </tuv>\n    "
        f'<tuv xml:lang="de-DE">\n      {prop}\n      <seg>{seg}</seg>\n    </tuv>',
    ).replace("<seg/>", f"{prop}<seg>Zwei</seg>")
    assert filled == expected
    left_out: Counter[str] = Counter()
    pairs = list(
        read_pairs([path.with_name("filled")], source="en", target="de", left_out=left_out)
    )
    assert pairs == [("Three", "Drei")]
    assert left_out == {"marked for review": 2, "units without both languages": 1}


def test_elements_of_a_tmx_keep_their_prefix(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    text = re.sub(r"<(/?)(?=[a-z])", r"<\1t:", TMX).replace("<t:tmx", '<t:tmx xmlns:t="urn:t"')
    path.write_text(text)
    filled = fill(path, [opened(path).segments[0], "Zwei"])
    tags = [str(one.tag) for one in etree.fromstring(filled.encode()).iter("*")]
    assert len(tags) == len(list(etree.fromstring(text.encode()).iter("*"))) + 6
    assert all(tag.startswith("{urn:t}") for tag in tags)


ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.lists(ANY, min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_text_comes_back_from_a_filled_xliff(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("x") / "a.xlf"
    path.write_text(XLIFF)
    root = etree.fromstring(fill(path, texts).encode())
    targets = [root.find(f".//{{*}}trans-unit[@id='{n}']/{{*}}target") for n in (1, 2, 3, 5)]
    for target, text in zip(targets, texts, strict=True):
        allowed = "".join(c for c in text if c in "\t\n\r" or " " <= c not in "\ufffe\uffff")
        assert allowed.strip() in ("", (target.text or "").strip() if target is not None else "")


@given(st.lists(ANY.filter(lambda text: text.replace("\x04", "").strip()), min_size=3, max_size=3))
@settings(max_examples=40, deadline=None)
def test_any_text_comes_back_from_a_filled_catalogue(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("x") / "a.po"
    path.write_text(PO)
    filled = fill(path, texts).replace("#, fuzzy", "#, reviewed")
    path.write_bytes(filled.encode())
    filled_texts = [pair.target for pair in read_pairs([path])]
    # msgfmt uses the character 4 itself and refuses it in texts.
    first, second, third = (text.replace("\x04", "").strip("\n") for text in texts)
    assert filled_texts == [f"{first}\n", second, "Fertig", "Ding", third, third]


def test_gzip_in_gzip_out(tmp_path: Path) -> None:
    path = tmp_path / "a.po.gz"
    path.write_bytes(gzip.compress(PO.encode()))
    document = opened(path)
    document.fill(["1", "2", "3"])
    document.write(tmp_path / "b.po.gz")
    assert b'msgstr "2"' in gzip.decompress((tmp_path / "b.po.gz").read_bytes())


def test_plain_text_and_standard_input_are_no_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Hello\n# msgid\n")
    assert open_document(path) is None
    assert open_document("-") is None


@pytest.mark.parametrize(
    ("name", "text", "source", "target", "message"),
    [
        ("a.xlf", XLIFF, "fr", "de", "'fr' is not in .*a.xlf; its languages are: de, en-US"),
        (
            "a.tmx",
            TMX,
            "it",
            "de",
            "'it' is not in .*a.tmx; its languages are: EN, de-DE, en",
        ),
        ("a.tmx", TMX, None, "de", "give the languages"),
        ("a.po", PO, "en", "fr", "'fr' is not in .*a.po; its languages are: de"),
        ("a.po", PO, "de", "en", "'en' is not in .*a.po"),
        ("a.xlf", XLIFF.replace("</body>", ""), "en", "de", r"a.xlf:\d+: broken XLIFF"),
        ("a.po", PO.replace('msgid "Open"', 'msgid "Open'), "en", "de", r"a.po:16: broken PO"),
    ],
)
def test_wrong_documents_are_one_line(
    name: str, text: str, source: str | None, target: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        open_document(path, source=source, target=target)


@needs_django
def test_xliff_of_another_tool_is_filled(tmp_path: Path) -> None:
    assert django is not None
    assert django.origin is not None
    po = Path(django.origin).parent / "conf/locale/en/LC_MESSAGES/django.po"
    path = tmp_path / "a.xlf"
    converter = Path(sys.executable).with_name("po2xliff")
    subprocess.run([converter, "--progress=none", po, path], check=True, capture_output=True)
    document = opened(path, target=None)
    assert len(document.segments) > 300
    document.fill([f"«{text}»" for text in document.segments])
    document.write(tmp_path / "b.xlf")
    assert open_document(tmp_path / "b.xlf").segments == []  # type: ignore[union-attr]
    before, after = etree.parse(path), etree.parse(tmp_path / "b.xlf")
    for tree in (before, after):
        for target in list(tree.iter("{*}target")):
            target.getparent().remove(target)  # type: ignore[union-attr]
    squeeze = [
        " ".join(etree.tostring(tree, encoding="unicode").split()) for tree in (before, after)
    ]
    assert squeeze[0].replace(" ", "") == squeeze[1].replace(" ", "")
