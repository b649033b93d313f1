"""TMX and XLIFF: as other tools write them, languages, inline codes, and everything malicious."""

import gzip
import importlib.util
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from lxml import etree

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers import read_pairs
from heedful.data.readers.markup import read_segment

django = importlib.util.find_spec("django")
TU = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>\n'
HEAD = '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/><body>\n'
TAIL = "</body></tmx>"
UNIT = '<trans-unit id="1"{}><source>{}</source>{}</trans-unit>\n'
FILE = '<file original="f" source-language="en-US" target-language="de">\n<body>{}</body></file>'
XLIFF = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{}</xliff>'


def read(
    tmp_path: Path, data: str | bytes, source: str | None = None, target: str | None = None
) -> tuple[list[Pair], Counter[str]]:
    path = tmp_path / "corpus"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    left_out: Counter[str] = Counter()
    pairs = list(read_pairs([path], source=source, target=target, left_out=left_out))
    return pairs, left_out


def xliff(*units: str) -> str:
    return XLIFF.format(FILE.format("".join(units)))


@pytest.mark.skipif(django is None, reason="Django, whose catalogues are converted, is not there")
@pytest.mark.parametrize(
    ("converter", "options"), [("po2tmx", ["-l", "de"]), ("po2xliff", [])], ids=["tmx", "xliff"]
)
def test_what_converters_write_reads_as_the_catalogue(
    converter: str, options: list[str], tmp_path: Path
) -> None:
    assert django is not None
    assert django.origin is not None
    po = Path(django.origin).parent / "conf/locale/de/LC_MESSAGES/django.po"
    out = tmp_path / "out"
    program = Path(sys.executable).with_name(converter)
    command = [str(program), "--progress=none", *options, str(po), str(out)]
    subprocess.run(command, check=True, capture_output=True)
    catalogue = set(read_pairs([po], left_out=Counter()))
    pairs = set(read_pairs([out], source="en", target="de", left_out=Counter()))
    assert len(pairs) > 300
    # The converters join plural forms in ways of their own; all else is the same.
    plural = {pair for pair in catalogue if "%(" in pair.source or "%d" in pair.source}
    assert catalogue - pairs <= plural
    assert {pair for pair in pairs if pair not in catalogue and "%" not in pair.source} == set()


def test_languages_match_by_prefix_and_exactly_first(tmp_path: Path) -> None:
    text = (
        HEAD
        + TU.format("en_US", "a", "DE", "b")
        + TU.format("enm", "old", "de", "alt")
        + '<tu><tuv lang="en-GB"><seg>c</seg></tuv><tuv lang="en"><seg>d</seg></tuv>'
        '<tuv lang="de-AT"><seg>e</seg></tuv></tu>' + TAIL
    )
    pairs, left_out = read(tmp_path, text, "en", "de")
    assert pairs == [("a", "b"), ("d", "e")]
    assert left_out == {"units without both languages": 1}
    assert read(tmp_path, text, "de", "EN-us")[0] == [("b", "a")]


def test_languages_that_are_not_there(tmp_path: Path) -> None:
    text = HEAD + TU.format("en-US", "a", "de", "b") + TAIL
    for source, target in (("fr", "de"), ("en", "fr"), ("fr", None), (None, "fr")):
        with pytest.raises(UserError, match=r"'fr' is not in .*corpus.*de, en-US"):
            read(tmp_path, text, source, target)
    with pytest.raises(UserError, match="'en-GB' is not in"):
        read(tmp_path, text, "en-GB", "de")
    with pytest.raises(UserError, match=r"'fr' is not in .*: de, en-US"):
        read(tmp_path, xliff(UNIT.format("", "a", "<target>b</target>")), "fr", "de")


def test_two_languages_need_not_be_said(tmp_path: Path) -> None:
    text = HEAD + TU.format("en", "a", "de", "b") + TU.format("de", "c", "en", "d") + TAIL
    assert read(tmp_path, text)[0] == [("a", "b"), ("d", "c")]
    several = text.replace("</tu>", '<tuv xml:lang="fr"><seg>f</seg></tuv></tu>')
    with pytest.raises(UserError, match=r"corpus:3: the languages are ambiguous.*de, en, fr"):
        read(tmp_path, several)
    assert read(tmp_path, several, target="fr")[0] == [("a", "f"), ("d", "f")]


def test_inline_codes_stay_as_raw_markup(tmp_path: Path) -> None:
    inline = (
        'Tom &amp; <hi type="b">Jerry &lt;3</hi><!-- no -->, <bpt i="1">&lt;b&gt;</bpt>bold'
        '<ept i="1"/> <ph x="&quot;1&quot;">a<sub>see</sub></ph><![CDATA[<i>]]>&#228;\nnext'
    )
    expected = (
        'Tom & <hi type="b">Jerry <3</hi>, <bpt i="1">&lt;b&gt;</bpt>bold'
        '<ept i="1"/> <ph x="&quot;1&quot;">a<sub>see</sub></ph><i>ä\nnext'
    )
    assert read(tmp_path, HEAD + TU.format("en", inline, "de", "x") + TAIL)[0] == [(expected, "x")]
    inline = (
        '<g id="1" m:k="v" xmlns:m="urn:m">a<x id="2"/><g id="3">b</g></g><mrk mtype="x">c</mrk>'
    )
    plain = inline.replace(' xmlns:m="urn:m"', "")
    assert read(tmp_path, xliff(UNIT.format("", inline, f"<target>{inline}</target>")))[0] == [
        (plain, plain)
    ]


def test_protected_words_of_version_1_are_a_code() -> None:
    source = etree.fromstring(
        '<source>a <mrk mtype="protected">b</mrk> <mrk mtype="x">c</mrk></source>'
    )
    codes = ('<mrk mtype="protected">b</mrk>', '<mrk mtype="x">', "</mrk>")
    assert read_segment(source).codes == codes


def test_untranslated_units_are_left_out(tmp_path: Path) -> None:
    text = xliff(
        UNIT.format("", "kept", '<target state="translated">behalten</target>'),
        UNIT.format("", "no target", ""),
        UNIT.format("", "empty", "<target> \n</target>"),
        UNIT.format(' translate="no"', "name", "<target>Name</target>"),
        UNIT.format("", "todo", '<target state="needs-translation">todo</target>'),
        UNIT.format("", "machine", '<target state="needs-review-translation">M</target>'),
        UNIT.format("", "alt", "<alt-trans><target>other</target></alt-trans>"),
        '<group translate="no">',
        UNIT.format("", "in group", "<target>x</target>"),
        UNIT.format(' translate="yes"', "but", "<target>aber</target>"),
        "</group>",
    )
    pairs, left_out = read(tmp_path, text, "en", "de")
    assert pairs == [("kept", "behalten"), ("but", "aber")]
    assert left_out == {"untranslated": 4, "not to be translated": 2, "marked for review": 1}
    assert read(tmp_path, text, "de", "en")[0] == [("behalten", "kept"), ("aber", "but")]


def test_files_in_other_languages_are_counted(tmp_path: Path) -> None:
    unit = UNIT.format("", "a", "<target>b</target>")
    german = FILE.format(unit)
    french = german.replace('"de"', '"fr"').replace(">b<", ">c<")
    pairs, left_out = read(tmp_path, XLIFF.format(german + french), "en", "fr")
    assert pairs == [("a", "c")]
    assert left_out == {"in other languages": 1}


def test_no_namespace_a_prefix_and_other_versions(tmp_path: Path) -> None:
    text = xliff(UNIT.format("", "a", "<target>b</target>"))
    assert read(tmp_path, text.replace(' xmlns="urn:oasis:names:tc:xliff:document:1.2"', ""))[0]
    prefixed = text.replace("xmlns=", "xmlns:x=").replace("</", "</x:").replace("<", "<x:")
    assert read(tmp_path, prefixed.replace("<x:/x:", "</x:"))[0] == [("a", "b")]
    with pytest.raises(UserError, match=r"is XLIFF 3\.0, which is not supported"):
        read(tmp_path, text.replace('version="1.2"', 'version="3.0"'))


XLIFF_2 = """<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
<file id="f"><group id="g" translate="no"><unit id="n"><segment><source>Name</source>
<target>Name</target></segment></unit></group>
<unit id="u"><originalData><data id="d">x</data></originalData>
<segment id="s1" state="translated"><source>Press <pc id="1">OK</pc>.</source>
<target><pc id="1">OK</pc> drücken.</target></segment>
<ignorable><source> </source></ignorable>
<segment id="s2"><source>Save</source><target>Sichern</target></segment>
<segment id="s3" state="initial"><source>Open</source><target>Open</target></segment>
<segment id="s4" state="initial" subState="heedful:needs-review"><source>Close</source>
<target>Zu</target></segment>
<segment id="s5"><source>Quit</source></segment></unit></file></xliff>
"""


def test_segments_of_version_2(tmp_path: Path) -> None:
    pairs, left_out = read(tmp_path, XLIFF_2, "en", "de")
    first = ('Press <pc id="1">OK</pc>.', '<pc id="1">OK</pc> drücken.')
    assert pairs == [first, ("Save", "Sichern")]
    assert left_out == {"not to be translated": 1, "untranslated": 2, "marked for review": 1}
    assert read(tmp_path, XLIFF_2, "de", "en")[0] == [first[::-1], ("Sichern", "Save")]
    with pytest.raises(UserError, match="fr"):
        read(tmp_path, XLIFF_2, "en", "fr")
    with pytest.raises(UserError, match="without srcLang"):
        read(tmp_path, XLIFF_2.replace(' srcLang="en"', ""), "en", "de")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1", "gb18030"])
def test_xml_is_read_as_it_declares(encoding: str, tmp_path: Path) -> None:
    head = HEAD.replace("?>", f' encoding="{encoding.removesuffix("-sig")}"?>', 1)
    data = (head + TU.format("en", "a", "de", "ü") + TAIL).encode(encoding)
    assert read(tmp_path, data)[0] == [("a", "ü")]
    assert read(tmp_path, gzip.compress(data))[0] == [("a", "ü")]


LAUGHS = (
    "<!DOCTYPE tmx [<!ENTITY a0 'ha'>"
    + "".join(f"<!ENTITY a{n + 1} '{f'&a{n};' * 10}'>" for n in range(12))
    + "]>"
)


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace("<tmx", LAUGHS + "<tmx") + TU.format("en", "&a12;", "de", "b") + TAIL,
        HEAD.replace("<tmx", LAUGHS + "<tmx a='&a12;'") + TU.format("en", "a", "de", "b") + TAIL,
        LAUGHS + xliff(UNIT.format("", "&a12;", "<target>b</target>")),
        "<!DOCTYPE x [<!ENTITY f SYSTEM 'file:///etc/passwd'>]>"
        + xliff(UNIT.format("", "&f;", "<target>b</target>")),
        "<!DOCTYPE x [<!ENTITY % p SYSTEM 'http://127.0.0.1:9/x.dtd'>%p;]>"
        + xliff(UNIT.format("", "a", "<target>b</target>")),
        HEAD.replace("<tmx", "<!DOCTYPE tmx SYSTEM 'http://127.0.0.1:9/x.dtd'><tmx")
        + TU.format("en", "a&nbsp;b", "de", "b")
        + TAIL,
    ],
    ids=["text", "attribute", "xliff", "file", "parameter", "undeclared"],
)
def test_entities_are_never_expanded(text: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    with pytest.raises(UserError, match=r"entit|broken (TMX|XLIFF)") as caught:
        read(tmp_path, text, "en", "de")
    assert "\n" not in str(caught.value)
    assert time.process_time() - started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_doctype_without_entities_is_harmless(tmp_path: Path) -> None:
    head = HEAD.replace("<tmx", '<!DOCTYPE tmx SYSTEM "http://127.0.0.1:9/tmx14.dtd">\n<tmx')
    assert read(tmp_path, head + TU.format("en", "a", "de", "b") + TAIL)[0] == [("a", "b")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HEAD + TU.format("en", "a <b", "de", "c") + TAIL, r"corpus:3: broken TMX"),
        (HEAD + TU.format("en", "a", "de", "c"), r"corpus:4: broken TMX"),
        (HEAD.encode() + TU.format("en", "a", "de", "\xe4").encode("latin-1"), r"corpus:3: broken"),
        (xliff("<trans-unit>").replace("</file>", ""), r"corpus:2: broken XLIFF"),
        (xliff(UNIT.format("", "\x01", "")), r"corpus:2: broken XLIFF"),
        (gzip.compress((HEAD + TU.format("en", "a", "de", "b") * 9 + TAIL).encode())[:-20], "gzip"),
    ],
    ids=["tag", "cut", "byte", "nesting", "control", "gzip"],
)
def test_broken_xml_names_the_line(data: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, data, "en", "de")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_stays_flat_for_a_large_tmx(tmp_path: Path) -> None:
    path = tmp_path / "large.tmx.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(HEAD)
        for number in range(25_000):
            file.write(TU.format("en", f"source {number} " + "x" * 150, "de", "target " * 20))
        file.write(TAIL)
    program = (
        "import sys\n"
        "from heedful.data.readers import read_pairs\n"
        # getrusage would give what the parent had before it became this program.
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
        "pairs = read_pairs([sys.argv[1]], source='en', target='de')\n"
        "for _ in range(2000): next(pairs)\n"
        "before = peak()\n"
        "print(2000 + sum(1 for _ in pairs), peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, check=True, text=True
    )
    count, grown = map(int, done.stdout.split())
    assert count == 25_000
    assert grown < 1_500  # KiB, where the file is 11 MB
