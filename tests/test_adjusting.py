"""Accelerators, capital letters and final punctuation of translations follow their sources."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.basics.symbols import END
from heedful.data.examples import Pair
from heedful.data.protected.adjusting import (
    ADJUSTMENTS,
    accelerators,
    final_mark,
    is_all_capitals,
    with_accelerator,
    without_accelerator,
)
from heedful.data.protected.choosing import usual_rules
from heedful.data.protected.pairs import Rules, protect_training_pair
from heedful.data.protected.rules import check_rules
from heedful.data.units import Unit
from heedful.evaluation.checks import check_units
from heedful.inference.protection import word_indices
from heedful.runs.recipe import check_recipe

SPANS = ("tags", "entity", "printf", "identifier", "url")


def adjusted(source: str, output: str, *rules: str, target: str | None = "de") -> str:
    """What becomes of a model's output, which has placeholders."""
    return Rules((*SPANS, *rules), "en", target).protect(source).restore(output)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("&File", "File"),
        ("Save &As…", "Save As…"),
        ("E&xit", "Exit"),
        ("Save && &Quit", "Save && Quit"),
        ("開く(&O)…", "開く…"),
        ("R&D", None),
        ("A & B", None),
        ("A &amp; B", None),
        ("&#160;x", None),
        ("&File &Edit", None),
        ("File", None),
    ],
)
def test_ampersands(text: str, plain: str | None) -> None:
    found = without_accelerator(text, "&")
    assert (None if found is None else found[0]) == plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("_File", "File"),
        ("E_xit", "Exit"),
        ("Save _As", "Save As"),
        ("some_name", None),
        ("Some_Name", None),
        ("__init__", None),
        ("a _ b", None),
    ],
)
def test_underscores(text: str, plain: str | None) -> None:
    found = without_accelerator(text, "_")
    assert (None if found is None else found[0]) == plain


@pytest.mark.parametrize(
    ("source", "output", "expected"),
    [
        ("&Open", "Öffnen mit Optionen", "Öffnen mit &Optionen"),
        ("&Open", "Programm", "Pr&ogramm"),
        ("&Open", "Datei", "&Datei"),
        ("&Open", "&Da&tei", "&Datei"),
        ("&Open", "開く", "開く(&O)"),
        ("&Open…", "開く…", "開く(&O)…"),
        ("&Open %s", "⟦0⟧ ansehen", "%s &ansehen"),
        ("Open", "Datei", "Datei"),
        ("R&D", "F&E", "F&E"),
        ("<a href='x?a&b'>&Open</a>", "⟦32⟧Da⟦33⟧", "<a href='x?a&b'>&Da</a>"),
    ],
)
def test_a_translation_has_the_accelerator_once(source: str, output: str, expected: str) -> None:
    assert adjusted(source, output, "accelerator") == expected
    assert adjusted(source, output) == output.replace("⟦0⟧", "%s").replace(
        "⟦32⟧", "<a href='x?a&b'>"
    ).replace("⟦33⟧", "</a>")


def test_an_underscore_is_no_identifier() -> None:
    rules = Rules((*SPANS, "accelerator-underscore"), "en", "de")
    assert rules.protect("_Open").text == "Open"
    assert adjusted("_Open", "Datei", "accelerator-underscore") == "_Datei"
    assert rules.protect("some_name").text == "⟦0⟧"
    assert Rules(SPANS).protect("_Open").text == "⟦0⟧"


@given(st.text(), st.text(min_size=1), st.sampled_from("aB1"))
def test_the_marker_is_exactly_one(before: str, after: str, letter: str) -> None:
    text = with_accelerator(before + "Datei" + after, "&", letter)
    assert len(accelerators(text, "&")) == 1


@pytest.mark.parametrize(
    ("source", "output", "target", "expected"),
    [
        ("Name:", "nom", "fr", "nom\u00a0:"),
        ("Name:", "Name.", "de", "Name:"),
        ("Name:", "名称", "zh-CN", "名称："),
        ("Loading…", "Lädt", "de", "Lädt…"),
        ("Loading...", "Lädt.", "de", "Lädt..."),
        ("Done.", "完成", "ja", "完成。"),
        ("Done.", "เสร็จ", "th", "เสร็จ"),
        ("Done.", "Fertig", None, "Fertig."),
        ("Done. ", "Fertig ", "de", "Fertig. "),
        ("the end", "das Ende.", "de", "das Ende"),
        ("and others", "usw.", "de", "usw."),
        ("and others", "z. B.", "de", "z. B."),
        ("Done.", "Fertig!", "de", "Fertig!"),
        ("Really?", "Wirklich.", "de", "Wirklich."),
        ("Done.", "(Fertig.)", "de", "(Fertig.)"),
        ("Open %s:", "⟦0⟧ öffnen", "de", "%s öffnen:"),
        ("Open %s", "öffne ⟦0⟧", "de", "öffne %s"),
        ("Done.", " ", "de", " "),
    ],
)
def test_the_end_follows_the_source(
    source: str, output: str, target: str | None, expected: str
) -> None:
    assert adjusted(source, output, "punctuation", target=target) == expected


@pytest.mark.parametrize(
    ("source", "output", "expected"),
    [
        ("Open it", "öffne es", "Öffne es"),
        ("open it", "Öffne es", "Öffne es"),  # German nouns
        ("Open it", "iPhone öffnen", "iPhone öffnen"),
        ("%s files", "dateien ⟦0⟧", "dateien %s"),
        ("OPEN %s NOW", "öffne ⟦0⟧ jetzt", "ÖFFNE %s JETZT"),
        ("NASA", "nasa", "Nasa"),
        ("打开", "öffnen", "öffnen"),
    ],
)
def test_capital_letters_follow_the_source(source: str, output: str, expected: str) -> None:
    assert adjusted(source, output, "case") == expected


def test_a_source_in_capitals_is_translated_in_lower_case() -> None:
    rules = Rules(("printf", "case"), "en", "de")
    assert rules.protect("OPEN %s NOW").text == "Open ⟦0⟧ now"
    assert not is_all_capitals("NASA")
    assert not is_all_capitals("OPEN it NOW")


def test_training_pairs_have_no_accelerators() -> None:
    pair = protect_training_pair(Pair("&Open %s", "%s ö&ffnen"), Rules(("printf", "accelerator")))
    assert pair == Pair("Open ⟦0⟧", "⟦0⟧ öffnen")


def test_rules_are_chosen_from_the_corpus() -> None:
    labels = [("&Open it", "Ö&ffne es"), ("_Save", "_Sichern"), ("the &File", "die &Datei")] * 5
    assert [rule for rule in usual_rules(labels) if rule in ADJUSTMENTS] == ["accelerator"]
    ends = [("Name:", "Nom :"), ("Done.", "Fait."), ("the end", "la fin")] * 100
    assert [rule for rule in usual_rules(ends) if rule in ADJUSTMENTS] == ["case", "punctuation"]
    other = [("Name:", "nom"), ("Done.", "Fait"), ("the end", "la fin")] * 100
    assert not [rule for rule in usual_rules(other) if rule in ADJUSTMENTS]
    check_rules(ADJUSTMENTS)


def test_the_check_finds_accelerators() -> None:
    rules = Rules((*SPANS, "accelerator"))
    units = [
        Unit("1", "&File", "&Datei"),
        Unit("2", "&File", "Datei"),
        Unit("3", "&File", "&Da&tei"),
        Unit("4", "File", "&Datei"),
        Unit("5", "&File", "ファイル(&F)"),
    ]
    found = {
        unit.name: [one.check for one in own if one.check not in ("inconsistent", "duplicate")]
        for unit, own in check_units(units, rules)
    }
    wrong = ["accelerators"]
    assert found == {"1": [], "2": wrong, "3": wrong, "4": wrong, "5": []}
    plain = check_units(units, Rules(SPANS))
    assert not any(one.check == "accelerators" for _, own in plain for one in own)


def test_marks() -> None:
    found = [final_mark(text) for text in ("a।", "a។", "a...", "a?»", "a")]
    assert found == [".", ".", "…", "?", ""]


def test_a_run_adjusts_its_translations(tmp_path: Path) -> None:
    words = ["open", "save", "close", "print"]
    lines = [f"&{one.title()} {other} %s…\t%s {other} {one}" for one in words for other in words]
    (tmp_path / "train.tsv").write_text("".join(f"{line}\n" for line in lines * 3), "utf-8")
    rules = ["printf", "accelerator", "case", "punctuation"]
    tables = {
        "data": {
            "train": [str(tmp_path / "train.tsv")],
            "source": "en",
            "target": "de",
            "protect": rules,
        },
        "tokeniser": {"vocabulary_size": 350},
        "model": {"hidden_size": 16, "heads": 2, "ffn_size": 16, "layers": 1},
        "training": {"max_steps": 4, "batch_tokens": 256},
    }
    heedful.train(check_recipe(tables, "the test"), tmp_path / "run")
    translator = heedful.load_translator(tmp_path / "run")
    texts = ["&Open save %s…", "SAVE AND CLOSE:", "print"]
    first, second, third = (one.text for one in translator.translate(texts))
    assert first.count("%s") == len(accelerators(first, "&")) == 1
    assert first.endswith("…")
    assert second.endswith(":")
    assert second == second.upper()
    assert "&" not in second + third
    begun = translator.continue_from("SAVE AND CLOSE:", "save")
    assert begun.text.startswith("save")


@pytest.mark.parametrize("names", [("rest",), ("rest", "case", "punctuation")])
def test_what_announces_a_literal_block_stays_last(names: tuple[str, ...]) -> None:
    protected = Rules(names, "en", "fr").protect("Examples of ``x``::")
    assert protected.text == "Examples of ⟦0⟧⟦1⟧"
    assert protected.restore("Exemples ⟦1⟧ de ⟦0⟧") == "Exemples de ``x``::"
    assert protected.restore("Exemples de ⟦0⟧ ⟦1⟧") == "Exemples de ``x`` ::"


class Letters:
    """A tokeniser whose tokens are words, which stands in for one with a vocabulary."""

    def __init__(self, text: str) -> None:
        self.words = text.split()

    def word_indices(self, tokens: list[int]) -> list[int]:
        return list(tokens)

    def decode(self, tokens: list[int]) -> str:
        return " ".join(self.words[token] for token in tokens)


def test_words_of_an_alignment_are_those_of_the_adjusted_text() -> None:
    protected = Rules(("rest", "case", "punctuation"), "en", "fr").protect(
        "Names of ``x`` and ``y``:"
    )
    text = "Un de ⟦0⟧ et ⟦1⟧"
    assert protected.restore(text) == "Un de ``x`` et ``y``\u00a0:"
    assert word_indices(Letters(text), list(range(5)), protected) == list(range(5))  # type: ignore[arg-type]
    protected = Rules(("rest",), "en", "fr").protect("Examples of ``x``::")
    text = "Exemples ⟦1⟧ de ⟦0⟧"
    assert protected.restore(text) == "Exemples de ``x``::"
    assert word_indices(Letters(text), list(range(4)), protected) == [0, 1, 1, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "output", "expected"),
    [
        ("A <b>b</b> c", "X⟦32⟧ y ⟦33⟧z", "X <b>y</b> z"),
        ("A <b>b</b>.", "X ⟦32⟧y ⟦33⟧.", "X <b>y</b>."),
        ("(<b>b</b>)", "(⟦32⟧ y⟦33⟧ )", "(<b>y</b> )"),
        ("A <b><i>b</i></b> c", "⟦32⟧⟦34⟧ y ⟦35⟧⟦33⟧z", "<b><i>y</i></b> z"),
        ("A<b> b </b>c", "X ⟦32⟧y⟦33⟧ z", "X<b> y </b>z"),
        ("<b>b</b> %s", "⟦0⟧ ⟦32⟧ ⟦33⟧", "%s <b></b>"),
    ],
)
def test_pairs_have_white_space_inside_where_the_source_has(
    source: str, output: str, expected: str
) -> None:
    assert adjusted(source, output) == expected


def test_words_follow_white_space_that_moves_out_of_a_pair() -> None:
    protected = Rules(SPANS, "en", "de").protect("A <b>b c</b>")
    text = "X ⟦32⟧ y z ⟦33⟧ w"
    assert protected.restore(text) == "X <b>y z</b> w"
    assert word_indices(Letters(text), list(range(6)), protected) == [0, 1, 1, 2, 2, 3]  # type: ignore[arg-type]


class Tokens:
    """A tokeniser of placeholders and letters, each a token."""

    def __init__(self, text: str) -> None:
        self.tokens = re.findall(r"\s*(?:⟦\d+⟧|\S)", text)

    @property
    def ids(self) -> list[int]:
        own = (re.fullmatch(r"\s*⟦(\d+)⟧", token) for token in self.tokens)
        return [END + 1 + int(found[1]) if found else 1000 for found in own]

    def word_indices(self, tokens: list[int]) -> list[int]:
        starts = ["".join(self.tokens[: n + 1]).rstrip() for n in range(len(self.tokens))]
        return [len(text.split()) - 1 for text in starts]

    def decode(self, tokens: list[int]) -> str:
        return "".join(self.tokens)


def test_words_follow_white_space_that_moves_into_a_pair() -> None:
    protected = Rules(SPANS, "en", "de").protect("A<b> b </b>c")
    made = Tokens("X ⟦32⟧y⟦33⟧z")
    assert protected.restore(made.decode([])) == "X<b> y </b>z"
    assert word_indices(made, made.ids, protected) == [0, 0, 1, 2, 2]  # type: ignore[arg-type]
