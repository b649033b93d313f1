"""Formats of one file each: texts out, translations in, the same bytes elsewhere."""

import gzip
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from heedful.basics.errors import UserError
from heedful.data.documents import Document, open_document

HARD = "ä \"quoted\" 'x' <&> \\ ☃ 😀 שלום"
CONFORMANCE = Path(__file__).parents[1] / "../shared/data/l10n-conformance/files.tar.xz"
REFUSED = {
    "tmx-compliance/ExportTest1D.po": "declares no charset and is Latin-1",
    "tmx-compliance/ExportTest1D_fr.po": "declares no charset and is Latin-1",
    "omegat/tmx/penalty-010/segment_1.tmx": "has no English",
    "omegat/filters/xliff/filters4-xliff2/ex.9.5.xlf": "has targets, but no trgLang",
    "xliff2/modules/valid/Good-pgs_plural.xlf": "uses a prefix that it does not declare",
}
"""Valid conformance files that are refused, and why."""
FILES: dict[str, tuple[str, list[str]]] = {
    "i18n.json": (
        '{\n  "a": "One",\n  "b": {"c": "Two \\"x\\"", "d": 3, '
        '"e": ["Three", "", null]},\n "f": {}\n}\n',
        ["One", 'Two "x"', "Three"],
    ),
    "messages.json": (
        '{"hi": {"message": "Hello $name$", "description": "no", "placeholders": '
        '{"name": {"content": "$1"}}}}',
        ["Hello $name$"],
    ),
    "app.arb": (
        '{"@@locale": "en", "hi": "Hello {name}", "@hi": {"description": "no"}}',
        ["Hello {name}"],
    ),
    "strings.xml": (
        '<?xml version="1.0" encoding="utf-8"?>\n<resources>\n  <!-- c -->\n'
        '  <string name="a">It\\\'s <b>one</b>\\n</string>\n'
        '  <string name="b" translatable="false">No</string>\n'
        '  <string name="r">@string/a</string>\n'
        '  <plurals name="p"><item quantity="one">%d file</item></plurals>\n'
        '  <string-array name="l"><item>First</item></string-array>\n</resources>\n',
        ["It's <b>one</b>\n", "%d file", "First"],
    ),
    "Localizable.strings": (
        '/* c "x" = "no"; */\n"key" = "One\\n\\"two\\"";\n// "no" = "no";\nplain = "Three";\n',
        ['One\n"two"', "Three"],
    ),
    "app.properties": (
        "# a = no\n! b = no\nkey = One \\\n    more\nother:Two\\u00e4\n\nempty=\nkey\\ x  Three\n",
        ["One more", "Twoä", "Three"],
    ),
    "app.resx": (
        '<?xml version="1.0"?>\n<root>\n <resheader name="v"><value>2.0</value></resheader>\n'
        ' <data name="a" xml:space="preserve"><value>One &amp; two</value><comment>no</comment>'
        '</data>\n <data name="i" type="x"><value>no</value></data>\n</root>\n',
        ["One & two"],
    ),
    "app.ts": (
        '<?xml version="1.0"?>\n<!DOCTYPE TS>\n<TS version="2.1" language="de">\n<context>'
        "<name>no</name>\n<message><source>One</source>"
        '<translation type="unfinished"></translation></message>\n'
        "<message><source>Done</source><translation>Fertig</translation></message>\n"
        '<message numerus="yes"><source>%n files</source><translation type="unfinished">'
        "<numerusform></numerusform><numerusform/></translation></message>\n</context></TS>\n",
        ["One", "%n files", "%n files"],
    ),
    "film.srt": (
        "1\n00:00:01,000 --> 00:00:02,000\nOne\nline\n\n2\n00:00:03,000 --> 00:00:04,000\nTwo\n",
        ["One\nline", "Two"],
    ),
    "film.vtt": (
        "WEBVTT\n\nNOTE no\n\nintro\n00:01.000 --> 00:02.000 align:start\n<b>One</b>\n",
        ["<b>One</b>"],
    ),
    "job.xlf": (
        '<?xml version="1.0"?>\n<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" '
        'srcLang="en" trgLang="de">\n<file id="f"><unit id="a"><segment>\n'
        '  <source>One <pc id="1">two</pc><ph id="2"/></source>\n</segment></unit>\n'
        '<unit id="b"><segment state="initial"><source>Three</source><target/></segment></unit>\n'
        '<unit id="c" translate="no"><segment><source>no</source></segment></unit>\n'
        '<unit id="d"><segment><source>x</source><target>y</target></segment></unit>\n'
        "</file></xliff>\n",
        ['One <pc id="1">two</pc><ph id="2"/>', "Three"],
    ),
}


def opened(path: Path) -> Document:
    found = open_document(path, source="en", target="de")
    assert found is not None
    return found


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_untouched_file_is_the_same(name: str, ending: str, mark: bytes, tmp_path: Path) -> None:
    text, segments = FILES[name]
    data = mark + text.replace("\n", ending).encode()
    document = opened(written(tmp_path, name, data))
    assert [one.replace("\r\n", "\n") for one in document.segments] == segments
    document.write(tmp_path / "same")
    assert (tmp_path / "same").read_bytes() == data
    document.fill([""] * len(segments))
    document.write(tmp_path / "same")
    assert (tmp_path / "same").read_bytes() == data


@pytest.mark.parametrize("name", FILES)
def test_translations_are_read_back_and_all_else_stays(name: str, tmp_path: Path) -> None:
    text, segments = FILES[name]
    document = opened(written(tmp_path, name, text.encode()))
    marks = [f"x@{number}@" for number in range(len(segments))]
    document.fill(marks)
    document.write(tmp_path / f"out-{name}")
    filled = (tmp_path / f"out-{name}").read_text("utf-8")
    for mark in marks:
        assert filled.count(mark) == 1
    again = opened(tmp_path / f"out-{name}").segments
    assert again == ([] if name in ("app.ts", "job.xlf") else marks)
    kept = [line for line in text.splitlines() if "no" in line.split("name")[0] or "#" in line]
    assert all(line in filled for line in kept)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("app.ts", "job.xlf")])
def test_hard_characters_come_back(name: str, tmp_path: Path) -> None:
    text, segments = FILES[name]
    document = opened(written(tmp_path, name, text.encode()))
    translations = [f"{number} {HARD}" for number in range(len(segments))]
    document.fill(translations)
    document.write(tmp_path / f"out-{name}")
    assert opened(tmp_path / f"out-{name}").segments == translations


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.json", b'{"a": "x",}', "a.json:1: not JSON"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b'{"a": "\xff"}', "a.json:1: "),
        ("a.strings", b'"a" = "x"\n"b" = "y";\n', "a.strings:1: "),
        ("a.srt", b"no times here\n", "no cue"),
        ("strings.xml", b"<resources><string>x</resources>", "line 1"),
        ("strings.xml", b'<!DOCTYPE r [<!ENTITY e "x">]><resources><string>&e;</string>'
         b"</resources>",
         "entit"),
        ("a.xlf", b'<xliff version="2.0"><file/></xliff>', "srcLang"),
        ("a.xlf", b'<xliff version="2.0" srcLang="fr" trgLang="de"><file/></xliff>', "en"),
    ],
)  # fmt: skip
def test_broken_files_are_one_line(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as error:
        opened(written(tmp_path, name, data))
    assert "\n" not in str(error.value)


def test_encodings_are_kept(tmp_path: Path) -> None:
    latin = written(tmp_path, "a.properties", "key = Größe\n".encode("latin-1"))
    document = opened(latin)
    assert document.segments == ["Größe"]
    document.fill(["Maß ☃ 😀"])
    document.write(tmp_path / "out.properties")
    assert (tmp_path / "out.properties").read_bytes() == b"key = Ma\\u00DF \\u2603 \\uD83D\\uDE00\n"
    wide = written(tmp_path, "a.strings", b"\xff\xfe" + '"k" = "One";\n'.encode("utf-16-le"))
    document = opened(wide)
    document.fill(["Eins ☃"])
    document.write(tmp_path / "out.strings.gz")
    data = gzip.decompress((tmp_path / "out.strings.gz").read_bytes())
    assert data == b"\xff\xfe" + '"k" = "Eins ☃";\n'.encode("utf-16-le")
    escaped = written(tmp_path, "a.json", b'{"a": "\\u00e4"}')
    document = opened(escaped)
    document.fill(["ö"])
    document.write(tmp_path / "out.json")
    assert (tmp_path / "out.json").read_bytes() == b'{"a": "\\u00f6"}'


def test_a_format_is_imported_when_it_is_used(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", b"{}")
    code = (
        "import sys; from heedful.data.documents import open_document; "
        f"assert open_document({str(path)!r}) is not None; "
        "print(*[one for one in sys.modules if one.startswith('heedful.data.documents.')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    names = {one.rpartition(".")[2] for one in found.stdout.split()}
    assert names == {"base", "formats", "json_texts", "json_tree", "text_spans"}


def test_what_only_has_the_extension_is_text(tmp_path: Path) -> None:
    assert open_document(written(tmp_path, "a.ts", b"export const x = 1;\n")) is None


def test_matches_of_a_memory_are_marked(tmp_path: Path) -> None:
    document = opened(written(tmp_path, "a.xlf", FILES["job.xlf"][0].encode()))
    document.fill(["Eins", "Drei"], ["exact", "context"])
    document.write(tmp_path / "out.xlf")
    filled = (tmp_path / "out.xlf").read_text("utf-8")
    assert '<segment state="translated" subState="heedful:exact-match">' in filled
    assert '<segment state="translated" subState="heedful:id-match">' in filled


QT = (
    '<!DOCTYPE TS>\n<TS version="2.1">\n<context><name>no</name>\n'
    "<message><source>One</source><translation></translation></message>\n"
    '<message numerus="yes"><source>%n files</source><translation>'
    "<numerusform/><numerusform>x</numerusform></translation></message>\n"
    '<message><source>Bell <byte value="x7"/> rings</source><translation/></message>\n'
    '<message><source>Long</source><translation variants="yes">'
    "<lengthvariant>L</lengthvariant></translation></message>\n</context></TS>\n"
)


def test_qt_messages_are_marked_unfinished_and_have_their_bytes(tmp_path: Path) -> None:
    document = opened(written(tmp_path, "a.ts", QT.encode()))
    bell = 'Bell <byte value="x7"/> rings'
    assert document.segments == ["One", "%n files", bell]
    document.fill(["Eins", "%n Datei", '<byte value="x7"/> klingelt'])
    filled = document.contents().decode()
    assert '<translation type="unfinished">Eins</translation>' in filled
    assert '<translation type="unfinished"><numerusform>%n Datei</numerusform>' in filled
    assert '<translation type="unfinished"><byte value="x7"/> klingelt</translation>' in filled
    assert filled.count("unfinished") == 3
    assert not document.accepts(2, "Es klingelt")
    document.fill(["Eins", "%n Datei", ""], ["exact", "exact", None])
    assert "unfinished" not in document.contents().decode()


def test_a_match_in_a_tmx_file_needs_no_review(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv>{}</tu>'
    inside = "".join(
        unit.format(number, variant)
        for number, variant in enumerate(
            ["", '<tuv xml:lang="de"/>', '<tuv xml:lang="de">\n<seg></seg>\n</tuv>']
        )
    )
    text = f'<tmx version="1.4"><header/><body>{inside}</body></tmx>'
    document = opened(written(tmp_path, "m.tmx", text.encode()))
    every: list[list[str | None]] = [["exact"] * 3, ["exact", None, "exact"], [None] * 3]
    for kinds in every:
        document.fill(["A", "B", "C"], kinds)
        filled = document.contents().decode()
        assert filled.count("needs-review") == kinds.count(None)
        assert filled.count("<prop") == kinds.count(None)
        assert [one in filled for one in ("<seg>A<", "<seg>B<", "\n<seg>C<")] == [True] * 3


@pytest.mark.skipif(not CONFORMANCE.exists(), reason="needs ../shared/data/l10n-conformance")
def test_conformance_files_come_back_as_they_are(tmp_path: Path) -> None:
    with tarfile.open(CONFORMANCE) as archive:
        archive.extractall(tmp_path, filter="data")
    refused: dict[str, str] = {}
    same = 0
    for path in sorted(tmp_path.rglob("*")):
        name = path.relative_to(tmp_path).as_posix()
        if path.suffix not in (".xlf", ".xliff", ".tmx", ".po", ".properties"):
            continue
        languages = {"source": "en", "target": "fr"} if path.suffix == ".tmx" else {}
        try:
            document = open_document(path, **languages)  # type: ignore[arg-type]
        except UserError as error:
            refused[name] = str(error)
            continue
        assert document is not None
        document.write(tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == path.read_bytes(), name
        same += 1
    assert same > 180
    assert {name for name in refused if "invalid" not in name} <= set(REFUSED)
    assert not any("\n" in message for message in refused.values())


XLIFF_HEAD = (
    '<xliff version="1.2"><file source-language="en" target-language="fr" original="a" '
    f'datatype="plaintext"><body>\n<!--{"x" * 5_000_000}-->'
)
LONG = {
    "a.xlf": (
        XLIFF_HEAD,
        '<trans-unit id="{}">\n <source>Open</source>\n</trans-unit>\n',
        "</body></file></xliff>",
    ),
    "a.srt": ("", "{}\n00:00:01,000 --> 00:00:02,000\nOpen\n\n", ""),
}


@pytest.mark.parametrize("name", LONG)
def test_time_grows_with_the_length_of_a_document(name: str, tmp_path: Path) -> None:
    head, unit, tail = LONG[name]
    (tmp_path / name).write_text(head + "".join(map(unit.format, range(30_000))) + tail)
    began = time.process_time()
    document = open_document(tmp_path / name)
    assert document is not None
    document.fill(["Ouvrir"] * 30_000)
    document.write(tmp_path / "out")
    assert time.process_time() - began < 4  # about 1 s; in quadratic time, 10 s and more
    assert (tmp_path / "out").read_text().count("Ouvrir") == 30_000


def filled(folder: Path, name: str, text: str, *translations: str) -> tuple[list[str], str]:
    """The segments of a file, and the file with translations."""
    document = opened(written(folder, name, text.encode()))
    found = list(document.segments)
    document.fill(list(translations))
    document.write(folder / f"out-{name}")
    return found, (folder / f"out-{name}").read_text("utf-8")


def test_a_cue_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    lines = ["1", "00:00:01,000 --> 00:00:02,000", "Hello\u2028there", "2"]
    lines += ["00:00:03,000 --> 00:00:04,000", "World", "00:00:05,000 --> 00:00:06,000", "99", ""]
    found, text = filled(tmp_path, "film.srt", "\n".join(lines), "A", "B", "C")
    assert found == ["Hello\u2028there", "World", "99"]
    expected = [*lines[:2], "A", *lines[3:5], "B", lines[6], "C", ""]
    assert text == "\n".join(expected)


def test_android_quotes_keep_white_space_and_are_not_part_of_the_text(tmp_path: Path) -> None:
    text = (
        '<resources>\n<string name="a">"Don\'t  go \\"now\\""</string>\n'
        '<string name="b">Two\n     lines</string>\n'
        '<string name="c">Hi \\uD83D\\uDE00</string>\n</resources>\n'
    )
    found, out = filled(tmp_path, "strings.xml", text, "Geh  nicht", "It's", "@ Hallo 😀")
    assert found == ['Don\'t  go "now"', "Two lines", "Hi 😀"]
    assert '<string name="a">"Geh  nicht"</string>' in out
    assert '<string name="b">It\\\'s</string>' in out
    assert '<string name="c">\\@ Hallo 😀</string>' in out
    again = opened(written(tmp_path, "strings.xml", out.encode()))
    assert again.segments == ["Geh  nicht", "It's", "@ Hallo 😀"]


@pytest.mark.parametrize(
    ("raw", "text", "written_as"),
    [
        ('press "Open   now" key', "press Open   now key", r"press Open \u0020 now key"),
        (r"Name:\u0020", "Name: ", r"Name:\u0020"),
        (r"\u0020 x \n y ", "  x \n y", r"\u0020 x \n y"),
        ("a \n b\u00a0 c", "a b\u00a0 c", "a b\u00a0 c"),
        ('say " <g id="1">it</g>  " &lt;', 'say  <g id="1">it</g>   <', None),
        ('"a  <g id="1">b</g>"', 'a  <g id="1">b</g>', '"a  <g id="1">b</g>"'),
        (r"<b>it\'s</b> \"now\"", '<b>it\'s</b> "now"', r"<b>it\'s</b> \"now\""),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_android_shows_the_same_for_the_same_words(
    raw: str, text: str, written_as: str | None, newline: str, tmp_path: Path
) -> None:
    file = f'<resources>\n<string name="a">{raw}</string>\n</resources>\n'.replace("\n", newline)
    found, out = filled(tmp_path, "strings.xml", file, text)
    assert found == [text]
    again = opened(tmp_path / "out-strings.xml")
    assert again.segments == [text]
    if written_as is not None:
        assert f">{written_as}</string>" in out


def test_escaped_emoji_of_apple_strings(tmp_path: Path) -> None:
    found, out = filled(tmp_path, "a.strings", '"k" = "Hi \\UD83D\\UDE00";\n', "Hallo 😀")
    assert (found, out) == (["Hi 😀"], '"k" = "Hallo 😀";\n')


def test_properties_have_any_line_end(tmp_path: Path) -> None:
    text = "# no\ra=Hello\rb=Wor\\\r  ld\r\rc : Foo\r"
    path = written(tmp_path, "app.properties", text.encode())
    document = opened(path)
    assert document.segments == ["Hello", "World", "Foo"]
    document.fill(["A", "B", "C"])
    document.write(path)
    assert path.read_bytes() == b"# no\ra=A\rb=B\r\rc : C\r"


def test_a_memory_file_whose_last_variant_is_empty(tmp_path: Path) -> None:
    text = (
        '<tmx version="1.4"><header/><body><tu><tuv xml:lang="en"><seg>Hello</seg></tuv>'
        '<tuv xml:lang="fr"/></tu></body></tmx>'
    )
    found, out = filled(tmp_path, "m.tmx", text, "Hallo")
    assert found == ["Hello"]
    assert "<seg>Hallo</seg></tuv></tu>" in out


@pytest.mark.parametrize("name", ["a.json", "a.xcstrings"])
def test_long_numbers_are_kept(name: str, tmp_path: Path) -> None:
    digits = "1" * 5000
    texts = {
        "a.json": f'{{"n": {digits}, "x": "One"}}',
        "a.xcstrings": f'{{"sourceLanguage": "en", "n": {digits}, "strings": {{"One": {{}}}}}}',
    }
    found, out = filled(tmp_path, name, texts[name], "Eins")
    assert found == ["One"]
    assert digits in out
    assert "Eins" in out
