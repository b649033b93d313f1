"""PO, against polib on the catalogues that a package ships."""

import importlib.util
from collections import Counter
from pathlib import Path

import polib
import pytest

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers import read_pairs

django = importlib.util.find_spec("django")
HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
GERMAN = HEADER + '"Language: de\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n'


def read(tmp_path: Path, text: str | bytes, **options: str) -> tuple[list[Pair], Counter[str]]:
    path = tmp_path / "a.po"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    left_out: Counter[str] = Counter()
    return list(read_pairs([path], left_out=left_out, **options)), left_out


@pytest.mark.skipif(django is None, reason="Django, whose catalogues are read here, is not there")
@pytest.mark.parametrize("part", ["conf", "contrib/admin", "contrib/humanize"])
def test_every_real_catalogue_reads_as_with_polib(part: str) -> None:
    assert django is not None
    assert django.origin is not None
    paths = sorted((Path(django.origin).parent / part / "locale").glob("*/LC_MESSAGES/*.po"))
    assert len(paths) > 80
    for path in paths[:: 1 if part == "contrib/humanize" else 8]:
        left_out: Counter[str] = Counter()
        pairs = list(read_pairs([path], left_out=left_out))
        catalogue = polib.pofile(str(path))
        used = [e for e in catalogue if not e.obsolete and not e.fuzzy]
        expected = [
            (entry, text)
            for entry in used
            for text in (entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr])
        ]
        assert [pair.target for pair in pairs] == [text for _, text in expected if text]
        sources = [(entry.msgid, entry.msgid_plural) for entry, text in expected if text]
        assert all(pair.source in allowed for pair, allowed in zip(pairs, sources, strict=True))
        assert left_out["untranslated"] == sum(not text for _, text in expected)
        assert left_out["obsolete"] == len(catalogue.obsolete_entries())
        assert left_out["fuzzy"] == sum(e.fuzzy and not e.obsolete for e in catalogue)


def test_the_header_fuzzy_obsolete_and_untranslated_are_left_out(tmp_path: Path) -> None:
    text = f"""{GERMAN}
#, python-format, fuzzy
msgid "a"
msgstr "b"
msgctxt "c"
msgid "a"
msgstr "tri\\tcky \\"q\\" \\\\n \\303\\244\\n"
"more" " of it"
msgid "d"
msgstr ""
#, fuzzy
#~ msgid "e"
#~ msgstr "f"
msgid "not fuzzy"
msgstr "nicht"
"""
    pairs, left_out = read(tmp_path, text)
    assert pairs == [("a", 'tri\tcky "q" \\n ä\nmore of it'), ("not fuzzy", "nicht")]
    assert left_out == {"fuzzy": 1, "untranslated": 1, "obsolete": 1}


PLURAL = 'msgid "one"\nmsgid_plural "many"\n' + "".join(f'msgstr[{n}] "{n}"\n' for n in range(3))


@pytest.mark.parametrize(
    ("rule", "sources"),
    [
        ("nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);", ["one", "many", "many"]),
        ("nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2;", ["many", "one", "many"]),
        ("nplurals=1; plural=0;", ["many", "many", "many"]),
        ("nplurals=3; plural=__import__('os');", ["one", "many", "many"]),
    ],
)
def test_the_form_of_one_translates_the_singular(
    rule: str, sources: list[str], tmp_path: Path
) -> None:
    pairs, _ = read(tmp_path, f'{HEADER}"Plural-Forms: {rule}\\n"\n\n{PLURAL}')
    assert pairs == list(zip(sources, "012", strict=True))


def test_the_declared_charset_is_used(tmp_path: Path) -> None:
    text = GERMAN.replace("UTF-8", "ISO-8859-1") + 'msgid "a"\nmsgstr "ä"\n'
    assert read(tmp_path, text.encode("latin-1"))[0] == [("a", "ä")]
    assert read(tmp_path, text.encode(), encoding="utf-8")[0] == [("a", "ä")]
    template = text.replace("ISO-8859-1", "CHARSET")
    assert read(tmp_path, template)[0] == [("a", "ä")]


def test_languages_are_checked_and_turned(tmp_path: Path) -> None:
    text = GERMAN + 'msgid "a"\nmsgstr "b"\n'
    assert read(tmp_path, text, source="en", target="de-AT")[0] == [("a", "b")]
    assert read(tmp_path, text, source="de", target="en")[0] == [("b", "a")]
    with pytest.raises(UserError, match=r"'fr' is not in .*; its languages are: de"):
        read(tmp_path, text, source="en", target="fr")


def test_unusual_characters_do_not_end_lines(tmp_path: Path) -> None:
    text = GERMAN + 'msgid "a\u2028b\x0c"\nmsgstr "c\x85d"\n'
    assert read(tmp_path, text.replace("\n", "\r\n"))[0] == [("a\u2028b\x0c", "c\x85d")]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('msgid "a"\nmsgstr "b\n', 2, "enclosed"),
        ('msgid "a"\nmsgstr b"\n', 2, "expected"),
        ('msgid "a"\nmsgstr "a"b"\n', 2, "enclosed"),
        ('msgid "a"\nmsgstr "\\q"\n', 2, "escape"),
        ('msgid "a"\nmsgstr "\\377"\n', 2, "escape"),
        ('msgid "a"\n\nmsgid "b"\nmsgstr "c"\n', 1, "no msgstr"),
        ('msgid "a"\nmsgstr "b"\nmsgstr "c"\n', 3, "duplicate msgstr"),
        ('msgid "a"\nmsgstr[0] "b"\n', 2, "requires"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n', 3, "requires"),
        ('msgid "a"\nmsgstr "b"\nmsgid_plural "c"\n', 3, "does not belong"),
        ('msgid "a"\nmsgctxt "b"\nmsgstr "c"\n', 1, "no msgstr"),
        ('msgctxt "b"\nmsgstr "c"\n', 2, "without a msgid"),
        ('msgid "a"\nmsgstr "b"\nrubbish\n', 3, "expected"),
        ('"a"\nmsgid "a"\nmsgstr "b"\n', 1, "without msgid"),
        ('msgid "a"\nmsgstr "b"\nmsgid "c"', 3, "no msgstr"),
    ],
)
def test_broken_catalogues_name_the_line(text: str, line: int, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"a\.po:{line}: broken PO: .*{reason}"):
        read(tmp_path, text)
