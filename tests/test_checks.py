"""``heedful check``: units of bilingual files, and what is found in them."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heedful.basics.errors import UserError
from heedful.cli import check
from heedful.cli.main import _register, app
from heedful.data.examples import Pair
from heedful.data.protected.choosing import ALWAYS
from heedful.data.protected.pairs import Rules
from heedful.data.units import Unit, read_translations, read_units
from heedful.evaluation.checks import check_units

RULES = Rules((*ALWAYS, "rest"), "en", "de")

PO = """msgid ""
msgstr "Language: de\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"

#, fuzzy, python-format
msgid "Open %s now."
msgstr "Jetzt öffnen."

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] ""

#~ msgid "old"
#~ msgstr "alt"
"""

XLIFF = """<?xml version="1.0"?>
<xliff version="1.2"><file source-language="en" target-language="de" original="a" datatype="x">
<body><trans-unit id="a"><source>Press <g id="1">OK</g>.</source>
<target><g id="1">OK</g> drücken.</target></trans-unit>
<trans-unit id="b"><source>Press <g id="1">OK</g>.</source><target>OK drücken.</target></trans-unit>
<trans-unit id="c" translate="no"><source>%s</source></trans-unit></body></file></xliff>
"""


@pytest.mark.parametrize(
    ("source", "target", "checks"),
    [
        ("Open %s now.", "Öffne jetzt %s.", []),
        ("Open %s now.", "Öffne jetzt.", ["placeholders"]),
        ("Open it.", "Öffne %s.", ["placeholders"]),
        ("<b>One</b>", "<b>Eins</b>", []),
        ("<b>One</b>", "</b>Eins<b>", ["tags"]),
        ("1,234.5 of 12", "1.234,5 von 12", []),
        ("1,000 and 0.125", "1000 und 0,125", []),
        ("1,234,567", "1 234 567", []),
        ("Chapter 5 100 pages", "Kapitel 5, 100 Seiten", []),
        ("In 2024 100 men", "100 Menschen in 2024", []),
        ("Page 1 of 23", "Seite 12 von 3", ["numbers"]),
        ("5%s100", "5100%s", ["numbers"]),
        ("in 2024", "in 2023", ["numbers"]),
        ("new in version 3.14", "neu: 3.14", []),
        ("new in version 3.14", "neu: 3.15", ["numbers"]),
        ("Save", "", ["untranslated"]),
        ("", "", []),
        ("Mozilla Browser", "Mozilla Browser", ["same"]),
        ("%s", "%s", []),
        ("the end", "das das Ende", ["doubled-words"]),
        ("that that is", "das das ist", []),
        (" Save", "Sichern", ["white-space"]),
        ("one\ntwo", "eins zwei", ["line-breaks"]),
        ("Really?", "Wirklich", ["punctuation"]),
        ("Loading…", "Lädt …", []),
        ("See :func:`len`.", "Siehe len.", ["markup"]),
        ("word " * 9, "Wort" + " Wörter" * 9, ["white-space", "length"]),
    ],
)
def test_what_is_found(source: str, target: str, checks: list[str]) -> None:
    ((_, found),) = check_units([Unit("1", source, target)], RULES, longest=60)
    assert [
        one.check for one in found if one.check != "doubled-words" or "doubled-words" in checks
    ] == checks


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_units_of_a_catalogue_are_all_there(tmp_path: Path) -> None:
    units = list(read_units(write(tmp_path, "a.po", PO)))
    assert [(unit.name, unit.source, unit.target) for unit in units] == [
        ("line 5", "Open %s now.", "Jetzt öffnen."),
        ("line 8, form 0", "%d file", "%d Datei"),
        ("line 8, form 1", "%d files", ""),
    ]
    assert units[0].formats == ("python-format",)


def test_units_of_xliff_have_ids(tmp_path: Path) -> None:
    units = list(read_units(write(tmp_path, "a.xlf", XLIFF)))
    assert [unit.name for unit in units] == ["id a", "id b"]


def checks_of(units: list[Unit], terms: Sequence[Pair] = ()) -> list[list[tuple[str, str]]]:
    return [
        [(one.check, one.detail) for one in found]
        for _, found in check_units(units, RULES, terms=terms)
    ]


def test_terms_have_one_of_their_translations() -> None:
    terms = [Pair("pull request", "Pull-Request"), Pair("branch", "Zweig"), Pair("branch", "Ast")]
    units = [
        Unit("1", "Open a Pull  Request", "Öffne eine Anfrage"),
        Unit("2", "Pull request of a branch", "Pull-Requests eines Astes"),
        Unit("3", "Branches", "Nichts"),
        Unit("4", "A branch", ""),
    ]
    found = checks_of(units, terms)
    assert found == [[("terms", "pull request: pull-request")], [], [], found[3]]
    assert [check for check, _ in found[3]] == ["untranslated"]


def test_what_repeats_is_found(tmp_path: Path) -> None:
    po = 'msgctxt "a"\nmsgid "Open"\nmsgstr "Öffnen"\n\nmsgid "Open"\nmsgstr "Offen"\n\n'
    units = list(read_units(write(tmp_path, "a.po", po + po)))
    assert checks_of(units) == [
        [],
        [],
        [("duplicate", "as in line 1")],
        [("duplicate", "as in line 5")],
    ]
    xliff = XLIFF.replace('id="b"', 'id="a" size-unit="char" maxwidth="5"')
    units = list(read_units(write(tmp_path, "b.xlf", xliff)))
    assert checks_of(units)[1] == [
        ("placeholders", 'missing <g id="1"> </g>'),
        ("length", "11 characters, more than 5"),
        ("duplicate", "as in id a"),
        ("inconsistent", 'id a has <g id="1">OK</g> drücken.'),
    ]


def run(*arguments: str) -> tuple[int, str]:
    if not app.registered_commands:
        _register()
    result = CliRunner().invoke(app, ["check", *arguments])
    return result.exit_code, result.output


def test_the_command_tells_each_finding_and_counts(tmp_path: Path) -> None:
    path = str(write(tmp_path, "a.po", PO))
    code, output = run(path)
    assert code == 0
    assert f"{path}: line 5: placeholders: missing %s\tJetzt öffnen." in output
    assert "3 segments, 2 with findings: 1 placeholders, 1 untranslated" in output
    assert run(path, "--strict")[0] == 1
    assert run(path, "--strict", "--only", "doubled-words")[0] == 0


def test_json_has_one_object_a_finding(tmp_path: Path) -> None:
    code, output = run(str(write(tmp_path, "a.xlf", XLIFF)), "--json", "--only", "placeholders")
    (found,) = map(json.loads, output.splitlines())
    assert code == 0
    assert found["unit"] == "id b"
    assert found["check"] == "placeholders"
    assert found["serious"] is True
    assert found["target"] == "OK drücken."


def test_a_folder_is_checked_file_by_file(tmp_path: Path) -> None:
    folder = tmp_path / "de"
    (folder / "more").mkdir(parents=True)
    first, second = write(folder, "a.po", PO), write(folder / "more", "b.xlf", XLIFF)
    code, output = run(str(folder), "--only", "placeholders")
    assert code == 0
    assert f"{first}: line 5: placeholders: missing %s" in output
    assert f"{second}: id b: placeholders: " in output
    assert "5 segments, 2 with findings: 2 placeholders" in output
    code, output = run(str(folder), "--json", "--only", "placeholders")
    assert [json.loads(line)["file"] for line in output.splitlines()] == [str(first), str(second)]
    code, output = run(str(folder), "--original", str(first))
    assert code != 0


def test_files_of_a_folder_that_are_not_checked_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.po", "b.ts", "c.csv", "d.txt"):
        write(tmp_path, name, PO)
    check._names(check.Check(str(tmp_path)))
    assert "2 with the ending .ts or .xcstrings or .csv" in capsys.readouterr().err


def test_the_command_reads_terms(tmp_path: Path) -> None:
    terms = write(tmp_path, "terms.tsv", "save\tspeichern\n")
    code, output = run(str(write(tmp_path, "a.tsv", "Save it\tSichern\n")), "--terms", str(terms))
    assert code == 0
    assert "segment 1: terms: save: speichern\tSichern" in output


@pytest.mark.parametrize(
    ("name", "text", "options", "found"),
    [
        ("a.csv", "en,de\nOpen %s,Jetzt\n", ["--source-column", "en", "--target-column", "de"], 1),
        ("a.tsv", "k\tOpen %s\t%s auf\n", ["--source-column", "2", "--target-column", "3"], 0),
        ("a.json", '{"a": "Jetzt", "b": 3}', ["--original", "o.json"], 1),
        (
            "a.ts",
            "<TS><context><message><source>Open %1</source><translation>%1 auf</translation>"
            "</message></context></TS>",
            [],
            0,
        ),
        (
            "a.xcstrings",
            '{"sourceLanguage": "en", "strings": {"Open %@": {"localizations": {"de": '
            '{"stringUnit": {"state": "translated", "value": "Jetzt"}}}}}}',
            ["--to", "de"],
            1,
        ),
    ],
)
def test_every_format_is_checked(
    name: str,
    text: str,
    options: list[str],
    found: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, name, text)
    write(tmp_path, "o.json", '{"a": "Open %s", "b": 3}')
    code, output = run(name, "--only", "placeholders", *options)
    assert (code, output.splitlines()[-1].split(",")[0]) == (0, "1 segments")
    assert output.count(": placeholders: missing") == found


def test_a_document_of_one_language_needs_its_original(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '{"a": "Open"}')
    with pytest.raises(UserError, match=r"has no sources; give the file .* --original"):
        list(read_translations(path))
    more = write(tmp_path, "b.json", '{"a": "Open", "b": "Save"}')
    with pytest.raises(UserError, match=r"has 1 texts, and .* has 2"):
        list(read_translations(path, original=more))
    plain = write(tmp_path, "a.csv", "en,de\n")
    with pytest.raises(UserError, match="name its columns with --source-column"):
        list(read_translations(plain))
