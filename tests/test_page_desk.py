"""The Translate panel as a translator uses it: sentences, files, copying, doubts, two runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.decoding import SearchOptions
from heedful.serving import Served, make_application
from page_help import needs_browser, opened
from serving_help import TOKENISERS, running, serving, translator

SENTENCES = "the small cat sat on a mat. the dog sat.\na red house with a tree."
EXAMPLES = ("the small cat sat on a mat.", "a red house")
PO = (
    'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "the cat."\nmsgstr ""\n'
)
MEASURES = """import('/page/confidence.js').then((own) => {
    const source = 'one two three four five six seven eight nine ten';
    const [tokens, scores] = [['▁a', 'b', '▁cd', '.'], [0, -1, -2, -0.5]];
    return {
        short: own.warnings({ source, text: 'eins' }),
        dense: own.warnings({ source, text: '一二三四五' }),
        words: own.wordProbabilities({ text: 'ab cd.', tokens, token_scores: scores }),
        none: own.wordProbabilities({ text: 'one other', tokens: ['▁a'], token_scores: [0] }),
        unread: own.hardlyRead('a b c .', [{ first: 0, weights: [0.5, 0.02, 0.48, 0] }]),
        differs: own.differences('a x c', 'a b c'),
        sure: [-0.1, -1, -6].map((one) => own.sureness({ log_probability: one, tokens: ['a'] })),
    };
})"""


def made() -> list[Served]:
    options = SearchOptions(beam=5)
    return [
        Served("first", translator(seed=1, options=options), "en", "de"),
        Served("second", translator(seed=6, options=options), "en", "de"),
        Served("back", translator(seed=3, options=options), "de", "en"),
    ]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(make_application(made())) as one:
        yield one


def typed(it: Any, text: str) -> str:
    it.page.fill("textarea", text)
    it.page.wait_for_selector(".heed-target .heed-word")
    return str(it.page.inner_text(".heed-target"))


def test_rows_are_the_parts_of_a_text() -> None:
    with serving(*made()) as client:
        fields = {"model": "first", "text": SENTENCES, "alignments": True, "nbest": 2}
        given = {**fields, "rows": True, "checks": True}
        [found] = client.post("/api/translate", json=given).json()["translations"]
        [plain] = client.post("/api/translate", json=fields).json()["translations"]
        assert found["text"] == plain["text"]
        rows = found["rows"]
        assert [row["source"] for row in rows] == [
            "the small cat sat on a mat.",
            "the dog sat.",
            "a red house with a tree.",
        ]
        assert "".join(row["gap"] + row["text"] for row in rows) + found["after"] == found["text"]
        assert all(len(row["soft"]) == len(row["target_words"]) for row in rows)
        assert all("findings" in row and len(row["alternatives"]) == 1 for row in rows)
        assert "soft" in plain
        assert "soft" not in found
        arabic = client.post("/api/translate", json={**given, "text": "مرحبا بالعالم"}).json()
        pieces = TOKENISERS.source.pieces(TOKENISERS.source.encode("مرحبا بالعالم"))
        share = sum(piece.startswith("<0x") for piece in pieces) / len(pieces)
        assert arabic["translations"][0]["rows"][0]["unknown"] == pytest.approx(share, abs=1e-3)
        assert share > 0.5
        assert rows[0]["unknown"] < 0.1
        empty = client.post("/api/translate", json={**given, "text": " \n"}).json()
        assert empty["translations"][0]["rows"] == []
        for path, more in (("translate", {"prefix": "a"}), ("translate/stream", {})):
            wrong = {"model": "first", "text": "a cat", "rows": True, **more}
            answer = client.post(f"/api/{path}", json=wrong)
            assert (answer.status_code, "rows" in answer.json()["error"]) == (400, True)


def test_a_file_is_translated_by_the_named_run() -> None:
    with serving(*made()) as client:
        found = {}
        for name in ("first", "second"):
            data = {"source": "en", "target": "de", "model": name}
            files = {"file": ("a.po", PO.encode())}
            answer = client.post("/translate_file", data=data, files=files).json()
            found[name] = client.get(answer["translatedFileUrl"]).text
        assert found["first"] != found["second"]
        for wrong, said in (("back", "does not translate en to de"), ("none", "no model")):
            data = {"source": "en", "target": "de", "model": wrong}
            answer = client.post("/translate_file", data=data, files=files)
            assert (answer.status_code in (400, 404), said in answer.text) == (True, True)


@needs_browser()
def test_each_sentence_has_a_row_with_all_views(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it, SENTENCES)
        it.page.wait_for_selector(".heed-rows > li >> nth=2")
        whole = it.page.inner_text(".heed-whole")
        rows = it.page.locator(".heed-rows .heed-target").all_inner_texts()
        assert whole.split() == " ".join(rows).split()
        it.page.click(".heed-rows > li >> nth=1 >> text=Look inside")
        it.page.wait_for_selector(".heed-inside + [role=tab][aria-selected=true]")
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
        it.page.select_option(".heed-panel:not([hidden]) select >> nth=0", label="Encoder")
        saved = it.saved("csv").decode().splitlines()
        assert "dog" in saved[0].replace("·", "")
        it.tab("translate")
        # An alternative changes one sentence only.
        it.page.click(".heed-rows > li:nth-child(2) .heed-target .heed-word >> nth=0")
        it.page.wait_for_selector(".heed-menu button")
        words = it.page.locator(".heed-menu button span").all_text_contents()
        place = next(i for i, word in enumerate(words) if not rows[1].startswith(word))
        it.page.click(f".heed-menu button >> nth={place}")
        it.page.wait_for_selector(".heed-forced")
        after = it.page.locator(".heed-rows .heed-target").all_inner_texts()
        assert (after[0], after[2]) == (rows[0], rows[2])
        assert after[1].startswith(words[place])
        assert it.page.inner_text(".heed-whole").split() == " ".join(after).split()


@needs_browser()
def test_the_translation_can_be_selected_and_copied(chromium: Any, address: str) -> None:
    grants = {"permissions": ["clipboard-read", "clipboard-write"]}
    with opened(chromium, address, **grants) as it:
        text = typed(it, "the cat sat on a mat")
        it.page.click(".heed-target .heed-word >> nth=0", click_count=3)
        assert it.page.evaluate("getSelection().toString().trim()") == text.strip()
        it.page.wait_for_selector(".heed-menu", state="detached")
        it.page.evaluate("getSelection().removeAllRanges()")
        first = it.page.locator(".heed-target .heed-word").nth(3).bounding_box()
        second = it.page.locator(".heed-target .heed-word").nth(4).bounding_box()
        it.page.mouse.move(first["x"] + 2, first["y"] + first["height"] / 2)
        it.page.mouse.down()
        it.page.mouse.move(second["x"] + second["width"] - 2, second["y"] + second["height"] / 2)
        it.page.mouse.up()
        assert len(it.page.evaluate("getSelection().toString()").split()) == 2
        assert it.page.locator(".heed-menu").count() == 0
        it.page.click("text=Alternatives for the selected words")
        it.page.wait_for_selector(".heed-menu button")
        options = it.page.locator(".heed-menu button span").all_text_contents()
        assert len(set(options)) == len(options) > 1
        words = text.split()
        chosen = next(one for one in options if one.split() != words[3:5])
        it.page.click(f".heed-menu button >> nth={options.index(chosen)}")
        it.page.wait_for_selector(".heed-forced")
        after = it.page.inner_text(".heed-target").split()
        assert after[:3] == words[:3]
        assert " ".join(after[3:]).startswith(chosen)
        variants = it.page.evaluate(
            "import('/page/phrase.js').then(({ phraseVariant: of }) =>"
            " [of('a b c d', 'a x y c d', 1, 1), of('a b c', 'a b c', 0, 1), of('a b', 'z', 0, 1)])"
        )
        assert variants == ["x y", "a b", "z"]
        it.page.click("text=Remove the chosen words")
        it.page.wait_for_selector(".heed-forced", state="detached")
        it.page.click("text=Copy")
        it.page.wait_for_selector("text=Copied")
        assert it.page.evaluate("navigator.clipboard.readText()") == text


@needs_browser()
def test_two_runs_of_a_pair_swap_and_clear(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        first = typed(it, "the cat sat on a mat")
        assert it.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
        names = it.page.locator(".heed-languages option").all_text_contents()
        assert names == [
            "English → German · first",
            "English → German · second",
            "German → English",
        ]
        it.page.select_option(".heed-languages select", "second")
        it.page.wait_for_function(
            "one => ![one, ''].includes(document.querySelector('.heed-target').innerText)",
            arg=first,
        )
        second = it.page.inner_text(".heed-target")
        it.page.click("[aria-label='Swap the languages']")
        it.page.wait_for_selector(".heed-input h2:text-is('German')")
        assert it.page.input_value("textarea") == second
        assert f"{len(second)} characters" in it.page.inner_text(
            ".heed-input .heed-detail >> nth=0"
        )
        it.page.click("text=Clear")
        assert it.page.input_value("textarea") == ""
        assert it.page.inner_text(".heed-target") == ""


@needs_browser()
def test_doubts_are_shown(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it, "مرحبا بالعالم")
        it.page.wait_for_selector(".heed-warnings >> text=does not know this script")
        found = it.page.evaluate(MEASURES)
        assert "10 words became 1" in found["short"][0]
        assert found["dense"] == []
        assert found["words"] == pytest.approx([0.3679, 0.1353], abs=1e-3)
        assert found["none"] is None
        assert found["unread"] == [1]
        assert found["differs"] == [False, True, False]
        assert found["sure"] == ["Sure", "Fairly sure", "Unsure"]


@needs_browser()
def test_files_are_dropped_and_downloaded(chromium: Any, address: str, tmp_path: Path) -> None:
    with opened(chromium, address) as it:
        it.page.wait_for_selector("textarea")
        it.page.set_input_files(
            "input[type=file]", {"name": "m.po", "mimeType": "", "buffer": PO.encode()}
        )
        it.page.wait_for_selector("text=Download m.de.po")
        with it.page.expect_download() as waiting:
            it.page.click("text=Download m.de.po")
        assert waiting.value.suggested_filename == "m.de.po"
        assert 'msgid "the cat."\nmsgstr "' in Path(waiting.value.path()).read_text()
        drop = """async () => {
            const data = new DataTransfer();
            data.items.add(new File(["one\\ttwo\\nthe cat\\tx\\n"], "t.tsv"));
            const how = { dataTransfer: data, bubbles: true, cancelable: true };
            document.querySelector(".heed-translate").dispatchEvent(new DragEvent("drop", how));
        }"""
        it.page.evaluate(drop)
        it.page.wait_for_selector("text=which column")
        it.page.fill(".heed-files input[type=text]", "one")
        it.page.click(".heed-files >> text=Translate")
        it.page.wait_for_selector("text=Download t.de.tsv")
        it.page.set_input_files(
            "input[type=file]", {"name": "a.exe", "mimeType": "", "buffer": b"x"}
        )
        it.page.wait_for_selector("text=this file format is not supported")
        it.errors[:] = [error for error in it.errors if "status of 400" not in error]


@needs_browser()
def test_it_waits_for_the_server_and_goes_on_by_itself(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it, "the cat")
        it.page.route("**/api/translate", lambda route: route.abort())
        it.page.fill("textarea", "the red dog")
        it.page.wait_for_selector("text=Trying again")
        it.page.unroute("**/api/translate")
        it.page.wait_for_selector(".heed-source >> text=dog")
        assert it.page.inner_text(".heed-translate > .heed-notice") == ""
        it.errors[:] = [error for error in it.errors if "ERR_FAILED" not in error]


@needs_browser()
def test_waiting_is_told_at_once(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        it.page.wait_for_selector("textarea")
        it.page.route("**/api/translate", lambda route: None)
        waited = it.page.evaluate("""async () => {
            const field = document.querySelector("textarea");
            field.value = "the cat";
            const began = performance.now();
            field.dispatchEvent(new Event("input"));
            const told = () => document.querySelector(".heed-waiting").textContent;
            while (!told()) await new Promise(requestAnimationFrame);
            return performance.now() - began;
        }""")
        assert waited < 100


@needs_browser()
def test_the_first_visit(chromium: Any) -> None:
    model = translator(seed=1)
    model.examples = EXAMPLES
    application = make_application([Served("one", model, "en", "de")])
    with running(application) as address, opened(chromium, address) as it:
        it.page.wait_for_selector(".heed-target .heed-word")
        assert it.page.input_value("textarea") == EXAMPLES[0]
        it.page.wait_for_selector(".heed-word.heed-linked >> nth=0")
        for _ in range(3):
            it.page.click(".heed-welcome .heed-submit")
        assert it.page.locator(".heed-welcome").count() == 0
        it.page.click("text=Clear")
        it.page.click(f".heed-example >> text={EXAMPLES[1]}")
        it.page.wait_for_selector(".heed-source >> text=house")
        it.page.goto("about:blank")
        it.page.goto(address)
        it.page.wait_for_selector("textarea")
        assert it.page.locator(".heed-welcome").count() == 0


def test_the_text_is_edited_above_every_panel(chromium: Any, address: str) -> None:
    field = ".heed-sentence-field"
    with opened(chromium, address) as it:
        typed(it, "the small cat sat on a mat.")
        assert not it.page.is_visible(field)
        for panel in ("links", "alignment", "heads", "steps", "how"):
            it.tab(panel)
            assert it.page.input_value(field) == "the small cat sat on a mat."
            assert it.page.inner_text(".heed-sentence-bar .heed-detail") == "first"
        it.tab("links")
        it.page.wait_for_selector("[data-side=key] .heed-link-token:text-is('cat')")
        it.page.fill(field, "the small dog sat on a mat.")
        it.page.keyboard.press("Enter")
        it.page.wait_for_selector("[data-side=key] .heed-link-token:text-is('dog')")
        assert it.page.input_value("textarea >> nth=0") == "the small dog sat on a mat."
        it.page.fill(field, " ")
        it.page.keyboard.press("Enter")
        assert it.page.input_value(field) == "the small dog sat on a mat."
        it.tab("compare")
        assert not it.page.is_visible(field)


def test_one_sentence_of_several_is_edited(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        it.page.fill("textarea", "the cat sat. a red house.")
        it.page.wait_for_selector(".heed-rows li:nth-child(2)")
        it.tab("heads")
        assert it.page.input_value(".heed-sentence-field") == "the cat sat."
        it.page.fill(".heed-sentence-field", "the dog sat.")
        it.page.keyboard.press("Enter")
        it.page.wait_for_function(
            "() => document.querySelector('textarea').value === 'the dog sat. a red house.'"
        )


def test_panels_are_in_the_history_and_in_the_address(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it, "the small cat sat on a mat.")
        for panel in ("links", "heads"):
            it.tab(panel)
            assert it.page.url.endswith(f"#panel={panel}")
        shown = "[role=tab][aria-selected=true][data-panel={}]"
        it.page.go_back()
        it.page.wait_for_selector(shown.format("links"))
        it.page.go_back()
        it.page.wait_for_selector(shown.format("translate"))
        assert it.page.input_value("textarea >> nth=0") == "the small cat sat on a mat."
        it.page.go_forward()
        it.page.wait_for_selector(shown.format("links"))
        it.page.reload()
        it.page.wait_for_selector(shown.format("links"))
        it.page.wait_for_selector("[data-side=key] .heed-link-token:text-is('cat')")
