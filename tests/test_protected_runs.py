"""Runs that protect spans: trained, resumed, translated and served; nothing is lost or invented."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import heedful
from heedful.basics.errors import UserError
from heedful.data.documents.html import HtmlDocument
from heedful.data.protected.spans import find_spans
from heedful.decoding import SearchOptions
from heedful.inference import Translator
from heedful.inference.document_files import translate_document
from heedful.runs.recipe import check_recipe

RULES = ["tags", "printf", "number", "url"]
WORDS = ["red", "dog", "sees", "house", "one", "small"]
TEXTS = [
    "the %s sees <b>the <i>%d</i></b> dog",
    "  the dog \n\n <b>sees</b> 1,234.5\n",
    "see https://a.org/x or 2024",
    "",
    "the dog",
    "⟦3⟧ %s ⟦32⟧",
    "</i>the <b>dog",
    " ".join(f"{word} %s <b>x</b>" for word in WORDS * 2),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt almost nothing: what it keeps, search makes it keep."""
    folder = tmp_path_factory.mktemp("protected")
    lines = []
    for number in range(60):
        words = [WORDS[(number * place) % len(WORDS)] for place in (1, 2, 5)]
        source = f"{words[0]} %s <b>{words[1]}</b> {words[2]} {number * 37:,}"
        target = f"{number * 37:,}".replace(",", ".") + f" <b>{words[1]}</b> {words[2]} %s"
        lines.append(f"{source}\t{target}\n")
    (folder / "train.tsv").write_text("".join(lines), "utf-8")
    recipe = check_recipe(
        {
            "data": {
                "train": [str(folder / "train.tsv")],
                "validation_share": 0.1,
                "source": "en",
                "target": "de",
                "protect": RULES,
            },
            "tokeniser": {"vocabulary_size": 360},
            "model": {
                "kind": "transformer",
                "hidden_size": 16,
                "heads": 2,
                "ffn_size": 16,
                "layers": 1,
            },
            "training": {"max_steps": 4, "batch_tokens": 256, "validate_every": 4},
        },
        "the test",
    )
    heedful.train(recipe, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return heedful.load_translator(run)


def kept(text: str) -> list[str]:
    return sorted(text[span.start : span.end] for span in find_spans(text, RULES))


def white(text: str) -> tuple[str, str, int]:
    inner = text.strip()
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :], inner.count("\n")


def test_a_text_with_more_spans_than_placeholders_is_split(translator: Translator) -> None:
    text = " ".join(f"{word} %({number})s," for number, word in enumerate(WORDS * 9))
    (found,) = translator.translate([text])
    assert sorted(kept(found.text)) == sorted(kept(text))
    assert found.parts > 1


@pytest.mark.parametrize("beam", [1, 3])
def test_nothing_is_lost_and_nothing_is_invented(translator: Translator, beam: int) -> None:
    found = translator.translate(TEXTS, options=SearchOptions(beam=beam, nbest=beam))
    for text, best in zip(TEXTS, found, strict=True):
        expected = sorted(one.replace("1,234.5", "1.234,5") for one in kept(text))
        for one in (best, *best.alternatives):
            for span in set(expected):
                # A model that knows nothing may write a word right beside a number.
                assert one.text.count(span) >= expected.count(span)
            assert [mark for mark in kept(one.text) if mark[0] in "<%"] == [
                mark for mark in expected if mark[0] in "<%"
            ]
            assert white(one.text) == white(text)
        nested = [mark for mark in ("<b>", "<i>", "</i>", "</b>") if mark in best.text]
        assert nested == [mark for mark in ("<b>", "<i>", "</i>", "</b>") if mark in text]


def test_a_page_keeps_its_markup(
    translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = b'<p>the <b class="x">dog</b> sees\n one <code>red <i>%s</i></code> house</p>'
    document = HtmlDocument(page, "a.html")
    rules = translator.protection.rules
    translate_document(translator, document, tmp_path / "a.html", options=SearchOptions())
    found = (tmp_path / "a.html").read_text("utf-8")
    assert "left untranslated" not in capsys.readouterr().err
    assert translator.protection.rules is rules
    for code in ('<b class="x">', "</b>", "<code>red <i>%s</i></code>"):
        assert found.count(code) == 1
    assert found.index("<b ") < found.index("</b>")


def test_a_long_paragraph_keeps_its_markup(
    translator: Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "The red <code>dog</code> sees one <b>small</b> house. "
    document = HtmlDocument(f"<p>{sentence * 40}</p>".encode(), "a.html")
    translate_document(translator, document, tmp_path / "a.html", options=SearchOptions())
    found = (tmp_path / "a.html").read_text("utf-8")
    said = capsys.readouterr().err
    assert "left untranslated" not in said
    assert found.count("<code>dog</code>") == found.count("<b>") == found.count("</b>") == 40
    assert "The red" not in found


def test_placeholders_in_json_are_what_they_stand_for(translator: Translator) -> None:
    (one,) = translator.translate(["the %s sees"])
    assert "%s" in one.tokens
    assert not any("⟦" in token for token in one.tokens)


def test_alignments_are_of_the_words_that_people_see(translator: Translator) -> None:
    text = 'the <b class="x y">dog</b> sees %s'
    (one,) = translator.translate([text], alignments=True)
    assert one.alignment is not None
    assert one.alignment.soft.shape[1] <= len(text.split())
    assert one.alignment.soft.shape[0] <= len(one.text.split())
    for source, target in one.alignment.links:
        assert source < len(text.split())
        assert target < len(one.text.split())


def test_a_stream_finds_what_a_batch_finds(translator: Translator) -> None:
    lines = [text for text in TEXTS if text.strip() and "\n" not in text]

    class Once:
        def __init__(self) -> None:
            self.given = iter([list(enumerate(lines)), []])

        def next(self) -> Sequence[tuple[int, str]]:
            return next(self.given, [])

        def left(self, key: int) -> None: ...

        def wanted(self, key: int) -> bool:
            return True

    with translator.ready():
        steps = translator.translate_running(Once(), options=translator.options, alignments=False)
        found = {key: one.text for step in steps for key, one in step}
    expected = [one.text for one in translator.translate(lines)]
    assert [found[place] for place in range(len(lines))] == expected


def test_given_beginnings_may_have_spans(translator: Translator) -> None:
    one = translator.continue_from("the %s sees <b>the</b> dog", "Der %s ")
    assert one.text.startswith("Der %s ")
    assert kept(one.text) == ["%s", "</b>", "<b>"]
    assert translator.alternatives("the %s sees", "Der ")


def test_the_tokeniser_has_seen_no_span(run: Path, translator: Translator) -> None:
    names = translator.tokenisers.source.pieces(range(68, translator.tokenisers.source.size))
    assert not any("%s" in name or "<b" in name for name in names)


def test_links_and_protected_spans_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leave one of them out"):
        check_recipe({"data": {"train": ["a.tsv"], "links": "b", "protect": ["tags"]}}, "the test")


def test_unknown_rules_are_refused_when_the_recipe_is_read() -> None:
    with pytest.raises(UserError, match="no rule 'tag'"):
        check_recipe({"data": {"train": ["a.tsv"], "protect": ["tag"]}}, "the test")
