"""Spans put back by word alignment."""

import random
import re
import time
from pathlib import Path

import pytest

from heedful.data.documents.html import HtmlDocument
from heedful.data.protected.spans import find_spans
from heedful.decoding import SearchOptions
from heedful.inference.document_files import translate_document
from heedful.inference.span_placement import PLACED, PlacingTranslator, place_spans, remove_spans
from serving_help import translator

RULES = ["tags", "printf"]


def placed(source: str, translation: str, links: str) -> str:
    bare = remove_spans(source, find_spans(source, RULES))
    pairs = [link.split("-") for link in links.split()]
    return place_spans(bare, translation, {(int(own), int(other)): 1.0 for own, other in pairs})


@pytest.mark.parametrize(
    ("source", "translation", "links", "expected"),
    [
        ("Press <b>OK</b> now", "Jetzt OK drücken", "0-2 1-1 2-0", "Jetzt <b>OK</b> drücken"),
        (
            "Click the <b>red button</b>.",
            "Klicken Sie auf den roten Knopf.",
            "0-0 1-3 2-4 3-5",
            "Klicken Sie auf den <b>roten Knopf</b>.",
        ),
        (
            "<a>One</a> and <b>two</b>",
            "Zwei und eins",
            "0-2 1-1 2-0",
            "<b>Zwei</b> und <a>eins</a>",
        ),
        (
            "the <a>big <b>red</b> dog</a> barks",
            "es bellt der große rote Hund",
            "0-2 1-3 2-4 3-5 4-1",
            "es bellt der <a>große <b>rote</b> Hund</a>",
        ),
        ("Open %s now", "Öffne jetzt", "0-0 1-1", "Öffne %s jetzt"),
        ("%s files", "Dateien", "0-0", "%s Dateien"),
        ("Files: %s", "Dateien:", "0-0", "Dateien: %s"),
        ("<br/>", "", "", "<br/>"),
        ("a <b></b> c", "x z", "0-0 1-1", None),
        ("(<b>one</b>)", "(eins)", "0-0", "(<b>eins</b>)"),
        ("the <b>dog</b> barks", "der Hund bellt", "0-0 2-2", "der <b>Hund</b> bellt"),
        ("<b>One.</b>", "Eins.", "0-0", "<b>Eins.</b>"),
        ("SUM(<i>field</i>, 1)", "SUM(feld, 1)", "0-0 1-1", "SUM(<i>feld</i>, 1)"),
        ("<b>Community</b> headers", "Community-Kopfzeilen", "0-0 1-0", None),
        ("see the <br/> end", "sieh-das Ende", "0-0 1-0 2-1", "sieh-das <br/> Ende"),
    ],
)
def test_where_spans_go(source: str, translation: str, links: str, expected: str | None) -> None:
    found = placed(source, translation, links)
    if expected is None:
        assert re.sub("<[^>]*>", "", found).split() == translation.split()
    else:
        assert found == expected


def test_uncertain_words_do_not_decide() -> None:
    bare = remove_spans(source := "Select <b>Save</b>", find_spans(source, RULES))
    sure = {(0, 0): 0.9, (1, 1): 0.9, (0, 2): 0.4}
    placed = place_spans(bare, "Wählen Speichern aus", sure | {(1, 2): 0.3})
    assert placed == "Wählen <b>Speichern</b> aus"
    placed = place_spans(bare, "Wählen Speichern aus", sure | {(1, 2): 0.5})
    assert placed == "Wählen <b>Speichern aus</b>"


def test_everything_is_there_and_nests_for_any_links() -> None:
    chance = random.Random(1)
    for _ in range(300):
        words = [f"w{number}" for number in range(chance.randint(1, 8))]
        source = ""
        opened: list[str] = []
        for word in words:
            if chance.random() < 0.4:
                opened.append(chance.choice("abc"))
                source += f"<{opened[-1]}>"
            source += word
            while opened and chance.random() < 0.5:
                source += f"</{opened.pop()}>"
            source += chance.choice([" ", " %s ", " <br/> "])
        source += "".join(f"</{name}>" for name in reversed(opened))
        target = [
            f"t{number}{chance.choice(['', ',', '-t)', '_t'])}"
            for number in range(chance.randint(0, 8))
        ]
        links = [
            (chance.randrange(len(words)), chance.randrange(len(target)))
            for _ in range(chance.randint(0, 9) if target else 0)
        ]
        spans = find_spans(source, RULES)
        bare = remove_spans(source, spans)
        found = place_spans(bare, " ".join(target), dict.fromkeys(links, 1.0))
        texts = [source[span.start : span.end] for span in spans]
        again = [found[span.start : span.end] for span in find_spans(found, RULES)]
        assert sorted(again) == sorted(texts)
        assert "".join(re.sub(r"<[^>]*>|%s", "", found).split()) == "".join(target)
        names: list[str] = []
        for tag in re.findall(r"</?[abc]>", found):
            if tag[1] == "/":
                assert names.pop() == tag[2]
            else:
                names.append(tag[1])
        assert not names


def test_what_is_taken_out_leaves_one_space() -> None:
    text = "<b>Open</b> %s now %s"
    bare = remove_spans(text, find_spans(text, RULES))
    assert bare.text == "Open now"
    assert [text[span.start : span.end] for span in find_spans(text, RULES)] == [
        span.text for span in bare.spans
    ]


def test_a_model_without_placeholders_keeps_all_spans() -> None:
    texts = [
        "the <b>cat</b> sat on %s",
        "%s <br/> %d",
        "",
        "the dog",
        "see https://a.org/x or <g id='1'>the <x id='2'/> mat</g>.",
    ]
    own = translator()
    (found,) = PlacingTranslator(own).translate_windows([texts])
    assert [one.source for one in found] == texts
    for text, one in zip(texts, found, strict=True):
        spans = [text[span.start : span.end] for span in find_spans(text, PLACED)]
        again = [one.text[span.start : span.end] for span in find_spans(one.text, PLACED)]
        assert sorted(again) == sorted(spans)
    assert found[1].text == texts[1]
    assert found[3].text == own.translate([texts[3]])[0].text


def test_a_page_keeps_its_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = HtmlDocument(
        b'<p>the <b class="x">cat</b> sat\n on <code>the <i>mat</i></code></p><p>the dog', "a.html"
    )
    translate_document(translator(), document, tmp_path / "a.html", options=SearchOptions())
    found = (tmp_path / "a.html").read_text("utf-8")
    assert "left untranslated" not in capsys.readouterr().err
    assert re.findall("<.*?>", found) == re.findall("<.*?>", document.text)
    assert "<code>the <i>mat</i></code>" in found
    assert "the dog" not in found


def test_long_texts_take_little_time() -> None:
    words = " ".join(["ab"] * 20_000)
    source = f"<b>{words}</b> %s c"
    began = time.process_time()
    found = placed(source, f"{words} d", " ".join(f"{i}-{i}" for i in range(20_000)))
    assert time.process_time() - began < 3
    assert found == f"<b>{words}</b> %s d"
