"""CSV and TSV with columns, and Apple's string catalogs."""

import csv
import difflib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.documents import Columns, Document, open_document
from heedful.data.documents.apple_catalog import AppleCatalogDocument
from heedful.data.documents.table import TableDocument

LANGUAGES = Columns("English", "German")
TABLE = 'key;English;German\r\na;"One; two";\r\nb;Three;Drei\r\n\r\nc;"x ""y""\r\nz";""\r\nd;Four'
CELLS = st.text(st.sampled_from("ab,;\t|\"'\n \u00e4="), max_size=6)
UNIT = {"state": "translated", "value": "x"}


def table(data: bytes, *columns: str, delimiter: str | None = None) -> TableDocument:
    return TableDocument(data, "a.csv", columns[0], columns[-1], delimiter)


def catalog(strings: dict[str, Any], target: str = "de") -> AppleCatalogDocument:
    whole = {"sourceLanguage": "en", "strings": strings, "version": "1.0"}
    data = json.dumps(whole, indent=2, separators=(",", " : ")).encode()
    return AppleCatalogDocument(data, "a.xcstrings", "en", target)


def filled(document: Document, translations: list[str] | None = None) -> str:
    document.fill(translations or [f"«{text}»" for text in document.segments])
    return document.contents().decode("utf-8")


def test_empty_cells_of_the_target_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + TABLE.encode())
    document = open_document(path, columns=LANGUAGES)
    assert document is not None
    assert document.segments == ["One; two", 'x "y"\nz', "Four"]
    assert [one.name for one in document.entries] == ["line 2", "line 3", "line 5", "line 7"]
    assert document.contents() == path.read_bytes()
    assert filled(document, ["Eins", "u\nv", "4; 5"]) == (
        "\ufeffkey;English;German\r\n"
        'a;"One; two";Eins\r\n'
        "b;Three;Drei\r\n"
        "\r\n"
        'c;"x ""y""\r\nz";"u\r\nv"\r\n'
        'd;Four;"4; 5"'
    )
    assert filled(document, ["", "", " "]).encode() == path.read_bytes()
    assert open_document(path) is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_detected(delimiter: str) -> None:
    row = delimiter.join(
        ["id", "English", "notes, and; more | x".replace(delimiter, " "), "German"]
    )
    data = f"{row}\n1{delimiter}One{delimiter}a, b; c{delimiter}\n".replace("a, b; c", "n").encode()
    assert table(data, "English", "German").segments == ["One"]
    rows = "".join(f"k{number}{delimiter}one{delimiter}\n" for number in range(3))
    assert table(rows.encode(), "2", "3").segments == ["one"] * 3
    said = f"sep={delimiter}\n{rows}".encode()
    assert table(said, "2", "3").segments == ["one"] * 3


def test_numbers_have_no_header_and_one_column_is_replaced() -> None:
    document = table(b"One,x\nTwo,\n", "1")
    assert document.segments == ["One", "Two"]
    assert not document.entries
    assert filled(document, ["Eins, zwei", 'sag "zwei"']) == '"Eins, zwei",x\n"sag ""zwei""",\n'


def test_quotes_of_tsv_are_text_unless_they_end_a_cell() -> None:
    data = b'"a" he said\t\n"b ""c"""\t\n5" nail\tx\n"open\t\n'
    document = table(data, "1", "2", delimiter="\t")
    assert document.segments == ['"a" he said', 'b "c"', '"open']
    assert filled(document, ["A", '"B', 'C"']) == (
        '"a" he said\tA\n"b ""c"""\t"""B"\n5" nail\tx\n"open\tC"\n'
    )


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,b\n", ("c", "b"), "no column 'c'; its columns are: a, b"),
        ("a,a\n", ("a",), "several columns are named 'a'"),
        ("a,b\n", ("3",), "no column 3; it has 2"),
        ("a,b\n", ("0",), "no column 0"),
        ('a,b\n"x,\n', ("a", "b"), "a.csv:2: a quote opens a cell"),
        ('a,b\n"x"y,\n', ("a", "b"), "a.csv:2: a quote opens a cell"),
        ("", ("a",), "no column 'a'"),
    ],
)
def test_tables_that_do_not_fit_are_one_line(
    text: str, columns: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        table(text.encode(), *columns)
    assert "\n" not in str(error.value)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5), st.data())
def test_any_translation_is_read_back_by_other_readers(
    rows: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    """What Python's csv writes, it reads back with the translations and nothing else changed."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("key", "English", "German"), *rows])
    document = table(out.getvalue().encode(), *LANGUAGES)
    empty = [source for _, source, target in rows if source.strip() and not target.strip()]
    assert document.segments == empty
    words = [data.draw(CELLS) for _ in empty]
    found = list(csv.reader(io.StringIO(filled(document, [*words]), newline="")))
    left = iter(words)
    expected = [["key", *LANGUAGES]]
    for key, source, target in rows:
        is_empty = source.strip() and not target.strip()
        word = next(left) if is_empty else ""
        expected.append([key, source, word if word.strip() else target])
    assert found == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.sampled_from('ab\t"\n'), max_size=5), min_size=1, max_size=4))
def test_any_translation_in_tsv_is_read_back(words: list[str]) -> None:
    document = table(b"key\tx\n" * len(words), "2", delimiter="\t")
    out = filled(document, words).encode()
    expected = [word if word.strip() else "x" for word in words]
    assert table(out, "2", delimiter="\t").segments == expected


def changed(before: str, after: str) -> list[str]:
    return [
        line for line in difflib.ndiff(before.split("\n"), after.split("\n")) if line[0] in "-+"
    ]


def test_catalogs_get_localisations_in_the_order_of_their_keys() -> None:
    french = {"localizations": {"en": {"stringUnit": UNIT | {"value": "One"}}, "fr": {}}}
    document = catalog({"a": french, "b": {}, "done": {"localizations": {"de": {}}}})
    assert document.segments == ["One", "b", "done"]
    assert document.entries[0] == ("a", "One", "")
    before = document.contents().decode()
    after = filled(document, ["Eins", "", "fertig"])
    assert not [line for line in changed(before, after) if line[0] == "-" and "{}" not in line]
    strings = json.loads(after)["strings"]
    assert list(strings["a"]["localizations"]) == ["de", "en", "fr"]
    unit = {"state": "needs_review", "value": "Eins"}
    assert strings["a"]["localizations"]["de"] == {"stringUnit": unit}
    assert strings["b"] == {}
    assert strings["done"]["localizations"]["de"]["stringUnit"]["value"] == "fertig"
    assert AppleCatalogDocument(after.encode(), "a", "en", "de").segments == ["b"]
    document.fill(["Eins", "b", "c"], ["exact", None, None])
    assert '"state" : "translated",\n            "value" : "Eins"' in document.contents().decode()


@pytest.mark.parametrize(
    ("target", "forms"),
    [("de", ["one", "other"]), ("ja", ["other"]), ("pl", ["one", "few", "many"])],
)
def test_catalogs_get_the_plural_forms_of_the_language(target: str, forms: list[str]) -> None:
    plural = {
        "one": {"stringUnit": UNIT | {"value": "%lld file"}},
        "other": {"stringUnit": UNIT | {"value": "%lld files"}},
    }
    english = {
        "stringUnit": UNIT | {"value": "%#@n@ here"},
        "substitutions": {
            "n": {"argNum": 1, "formatSpecifier": "lld", "variations": {"plural": plural}}
        },
    }
    given_forms = {"de": {"variations": {"plural": {"other": {"stringUnit": UNIT}}}}}
    document = catalog(
        {
            "a": {"localizations": {"en": {"variations": {"plural": plural}}}},
            "b": {"localizations": {"en": english}},
            "c": {"localizations": {"en": {"variations": {"plural": plural}}, **given_forms}},
            "d": {"shouldTranslate": False},
        },
        target,
    )
    strings = json.loads(filled(document))["strings"]
    own = strings["a"]["localizations"][target]["variations"]["plural"]
    assert set(forms) <= set(own)
    assert ("one" in own) is ("one" in forms)
    assert own[forms[-1]]["stringUnit"]["value"] == "«%lld files»"
    other = strings["b"]["localizations"][target]
    assert other["stringUnit"]["value"] == "«%#@n@ here»"
    assert other["substitutions"]["n"]["argNum"] == 1
    assert set(other["substitutions"]["n"]["variations"]["plural"]) == set(own)
    kept = strings["c"]["localizations"]["de"]["variations"]["plural"]
    assert kept["other"]["stringUnit"] == UNIT
    assert ("one" in kept) is (target == "de")
    assert strings["d"] == {"shouldTranslate": False}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=8), min_size=3, max_size=3))
def test_any_translation_keeps_a_catalog(words: list[str]) -> None:
    words = [word.encode("utf-8", "replace").decode() for word in words]
    document = catalog({"a": {}, "b": {"comment": "x"}, "c": {"localizations": {"fr": {}}}})
    before = json.loads(document.contents())
    after = json.loads(filled(document, words))
    for key, word in zip("abc", words, strict=True):
        own = after["strings"][key].get("localizations", {}).pop("de", None)
        assert (own is None) == (not word.strip())
        assert own is None or own["stringUnit"]["value"] == word
        if after["strings"][key].get("localizations") == {}:
            del after["strings"][key]["localizations"]
    assert after == before


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"strings": {}}', "sourceLanguage"),
        (b'{"sourceLanguage": "en"}', "no string catalog"),
        (b'{"sourceLanguage": "fr", "strings": {}}', "language 'en' is not in a"),
        (b'{"sourceLanguage": "en", "strings": {"a": {}, "a": {}}}', "'a' stands twice"),
        (b'{"sourceLanguage": "en", "strings": {', "a:1: not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "no string catalog"),
        (b"3", "no string catalog"),
        (b'{"sourceLanguage": "en", "strings": {"a": 3, "b": {"localizations": null}}}', None),
    ],
)
def test_catalogs_that_are_none_are_one_line(data: bytes, message: str | None) -> None:
    if message is None:
        document = AppleCatalogDocument(data, "a", "en", "de")
        assert json.loads(filled(document))["strings"]["b"]["localizations"]["de"]
        return
    with pytest.raises(UserError, match=message):
        AppleCatalogDocument(data, "a", "en", "de")
