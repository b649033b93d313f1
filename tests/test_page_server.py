"""The page as a server sends it: translating, choosing, comparing; by mouse, by keyboard alone."""

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from heedful.decoding import SearchOptions
from heedful.serving import Limits, Served, make_application
from heedful.serving.keys import Keys, new_key
from page_help import needs_browser, opened, pair_trace
from serving_help import running, translator

pytestmark = needs_browser()
TEXT = "the small cat sat on a mat"


def made() -> list[Served]:
    options = SearchOptions(beam=5)  # as many as the page asks for
    return [
        Served("first", translator(seed=1, options=options), "en", "de"),
        Served("second", translator(seed=6, options=options), "en", "fr"),
    ]


@pytest.fixture(scope="module")
def models() -> list[Served]:
    """Models of the same weights as the server's, which are used in its thread only."""
    return made()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    limits = Limits(characters=400)
    with running(make_application(made(), limits=limits, traces={"kept": pair_trace()})) as one:
        yield one


def typed(it: Any, text: str = TEXT) -> str:
    it.page.fill("textarea", text)
    it.page.wait_for_selector(".heed-target .heed-word")
    return str(it.page.inner_text(".heed-target"))


def expected(models: list[Served], place: int = 0, text: str = TEXT) -> Any:
    return models[place].predictor.translate([text], alignments=True)[0]


def test_typing_translates(chromium: Any, address: str, models: list[Served]) -> None:
    with opened(chromium, address) as it:
        assert typed(it) == expected(models).text
        it.page.click(".heed-numbers summary")
        score = f"{expected(models).score:.2f}".replace("-", "−")
        assert score in it.page.inner_text(".heed-score")
        before = len([url for url in it.requests if url.endswith("/translate")])
        it.page.locator(".heed-input textarea").press_sequentially(" with a red dog", delay=20)
        it.page.wait_for_selector(".heed-source >> text=dog")
        after = len([url for url in it.requests if url.endswith("/translate")])
        assert after - before <= 2  # when the typing pauses, not at every key
        assert (
            it.page.inner_text(".heed-target") == expected(models, 0, TEXT + " with a red dog").text
        )
        it.page.select_option(".heed-translate select", "second")
        it.page.wait_for_selector("text=Transformer")
        other = expected(models, 1, TEXT + " with a red dog").text
        it.page.wait_for_function(
            "one => document.querySelector('.heed-target').textContent == one", arg=other
        )
        assert it.page.locator(".heed-hypothesis").count() == 5
        it.page.fill("textarea", "")
        it.page.wait_for_selector(".heed-source-words", state="hidden")
        assert it.page.inner_text(".heed-target") == ""


def test_what_is_of_the_text_before_is_dimmed(chromium: Any, address: str) -> None:
    """The server's answer is held back for a moment."""
    with opened(chromium, address) as it:
        typed(it)
        held: list[Any] = []
        it.page.route("**/api/translate", lambda route: held.append(route))
        it.page.fill("textarea", "a red dog")
        it.page.wait_for_selector(".heed-output[aria-busy=true]")
        assert it.page.inner_text(".heed-waiting") == "Translating…"
        for part in (".heed-source", ".heed-best", ".heed-target", ".heed-score"):
            assert float(it.page.eval_on_selector(part, "one => getComputedStyle(one).opacity")) < 1
        while not held:
            it.page.wait_for_timeout(20)
        held[0].continue_()
        it.page.wait_for_selector(".heed-output[aria-busy=false]")
        assert it.page.eval_on_selector(".heed-best", "one => getComputedStyle(one).opacity") == "1"


def test_pointing_at_a_word_shows_its_partners(
    chromium: Any, address: str, models: list[Served]
) -> None:
    result = expected(models)
    soft = result.alignment.soft
    with opened(chromium, address) as it:
        typed(it)
        it.page.hover(".heed-target .heed-word >> nth=0")
        strengths = it.page.eval_on_selector_all(
            ".heed-source .heed-word",
            "all => all.map(one => +one.style.getPropertyValue('--strength'))",
        )
        heavy = np.where(soft[0].numpy() >= 0.04, soft[0].numpy(), 0)
        assert np.allclose(strengths, heavy, atol=0.002)
        strong = it.page.eval_on_selector_all(
            ".heed-source .heed-word",
            "all => all.map(one => one.classList.contains('heed-aligned'))",
        )
        linked = {source for source, target in result.alignment.links if target == 0}
        assert {place for place, is_strong in enumerate(strong) if is_strong} == linked
        it.page.focus(".heed-source .heed-word >> nth=1")
        back = it.page.eval_on_selector_all(
            ".heed-target .heed-word",
            "all => all.map(one => +one.style.getPropertyValue('--strength'))",
        )
        column = soft[:, 1].numpy()
        assert np.allclose(back, np.where(column >= 0.04, column, 0), atol=0.002)


def test_the_page_is_three_files(chromium: Any, address: str) -> None:
    """Modules that a browser finds only in other modules are slow over a network."""
    with opened(chromium, address) as it:
        it.page.wait_for_selector("[role=tab]")
        files = [url.removeprefix(address) for url in it.requests if "/api/" not in url]
    assert sorted(file for file in files if not file.startswith("data:")) == [
        "/",
        "/page/page.css",
        "/page/page.js",
    ]


def test_another_word_forces_what_follows(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        before = typed(it)
        it.page.click(".heed-target .heed-word >> nth=1")
        it.page.wait_for_selector(".heed-menu button")
        words = it.page.locator(".heed-menu button span").all_text_contents()
        shares = it.page.locator(".heed-menu small").all_text_contents()
        numbers = [float(share.lstrip("< ").removesuffix(" %")) for share in shares]
        assert numbers == sorted(numbers, reverse=True)
        place = next(i for i, word in enumerate(words) if word != before.split()[1])
        it.page.click(f".heed-menu button >> nth={place}")
        it.page.wait_for_selector(".heed-forced >> nth=1")
        after = it.page.inner_text(".heed-target")
        assert after.split()[0] == before.split()[0]
        assert after.split()[1].startswith(words[place])
        it.page.click("text=Remove the chosen words")
        it.page.wait_for_selector(".heed-forced", state="detached")
        assert it.page.inner_text(".heed-target") == before


def test_another_hypothesis_is_looked_at(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        first = typed(it)
        it.page.click(".heed-hypothesis >> nth=1")
        it.page.wait_for_selector(".heed-hypothesis[aria-pressed=true] >> nth=0")
        second = it.page.inner_text(".heed-target")
        assert second != first
        it.tab("alignment")
        it.page.wait_for_selector("text=From ")
        it.page.click("[role=radio] >> text=Words >> visible=true")
        rows = list(csv.reader(io.StringIO(it.saved("csv").decode())))
        assert [row[0] for row in rows[1:]] == second.split()
        assert rows[0][1:] == TEXT.split()


def test_heads_of_a_server_are_the_model_s(
    chromium: Any, address: str, models: list[Served]
) -> None:
    with opened(chromium, address) as it:
        target = typed(it)
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
        it.page.select_option(".heed-panel:not([hidden]) select >> nth=0", label="Encoder")
        it.page.click(".heed-grid button >> nth=1")
        it.page.wait_for_selector(".heed-legend >> text=head 2")
        found = list(csv.reader(io.StringIO(it.saved("csv").decode())))
        trace = models[0].predictor.trace(TEXT, target)
        weights = trace.maps[0].weights[1].numpy()
        shown = np.array([[float(cell) for cell in row[1:]] for row in found[1:]])
        assert np.abs(shown - weights).max() <= weights.max() / 255 / 2 + 1e-5
        it.page.check("text=Include attention × gradient and rollout")
        it.page.wait_for_selector(
            "option:has-text('Attention × gradient: cross')", state="attached"
        )
        it.page.select_option(".heed-panel:not([hidden]) select >> nth=0", label="Rollout: encoder")
        it.page.wait_for_selector(".heed-legend >> text=Layer 1")


def test_by_keyboard_alone(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        keys = it.page.keyboard

        def until(selector: str) -> None:
            it.page.wait_for_selector(f"{selector} >> visible=true")  # the page is built late
            for _ in range(40):
                if it.page.evaluate("one => document.activeElement.matches(one)", selector):
                    seen = it.page.evaluate(
                        "(style => [style.outlineStyle, style.outlineWidth])"
                        "(getComputedStyle(document.activeElement))"
                    )
                    assert seen == ["solid", "2px"], f"{selector}: focus is not seen"
                    return
                keys.press("Tab")
            pytest.fail(f"Tab does not reach {selector}")

        until("textarea")
        keys.type(TEXT)
        it.page.wait_for_selector(".heed-target .heed-word")
        until(".heed-target .heed-word")
        keys.press("ArrowRight")
        keys.press("Enter")
        it.page.wait_for_selector(".heed-menu button:focus")
        keys.press("ArrowDown")
        keys.press("Escape")
        assert it.page.locator(".heed-menu").count() == 0
        assert it.page.evaluate(
            "document.activeElement.matches('.heed-target .heed-word:nth-child(2)')"
        )
        it.page.evaluate("document.activeElement.blur()")
        until("[role=tab]")
        for _ in range(3):
            keys.press("ArrowRight")
        assert it.page.get_attribute("[data-panel=heads]", "aria-selected") == "true"
        it.page.wait_for_selector(".heed-legend li")
        until(".heed-thumbnail")
        keys.press("ArrowRight")
        keys.press("Enter")
        it.page.wait_for_selector(".heed-legend >> text=head 2")
        keys.press("ArrowLeft")
        keys.press("Shift+Enter")
        it.page.wait_for_selector(".heed-legend li >> nth=1")
        until("[role=radio]")
        keys.press("ArrowRight")
        it.page.wait_for_selector(".heed-lines path", state="attached")
        until("[role=option]")
        keys.press("ArrowDown")
        assert it.page.get_attribute("[role=option] >> nth=1", "aria-selected") == "true"
        until(".heed-faithfulness button")
        keys.press("Enter")
        it.page.wait_for_selector(".heed-figure >> text=log-probability")


def test_faithfulness_is_asked_for(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it)
        it.page.click("text=Test it on this sentence")
        it.page.wait_for_selector("text=most attended source word")
        said = it.page.inner_text(".heed-figure")
        assert re.search(r"(falls|rises) by \d+\.\d; without a random one it (falls|rises)", said)


def test_two_models_beside_each_other(chromium: Any, address: str, models: list[Served]) -> None:
    with opened(chromium, address) as it:
        typed(it)
        it.tab("compare")
        it.page.wait_for_selector(".heed-side:nth-child(2) .heed-detail:not(:empty)")
        it.page.wait_for_selector(".heed-side:nth-child(1) .heed-detail:not(:empty)")
        shown = it.page.locator(".heed-side .heed-sentence").all_text_contents()
        assert shown == [expected(models, 0).text, expected(models, 1).text]
        it.page.select_option(".heed-side:nth-child(2) select >> nth=0", "trace:kept")
        it.page.wait_for_selector(".heed-side:nth-child(2) >> text=Der kleine Hund schläft.")


def test_refusals_are_told_and_markup_stays_text(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        hostile = '<img src=x onerror="document.title=1"> the <b>cat</b>'
        typed(it, hostile)
        assert it.page.inner_text(".heed-source").strip() == hostile
        assert it.page.locator("main img, main b").count() == 0
        assert it.page.title() == "heedful"
        it.page.fill("textarea", "cat " * 200)
        it.page.wait_for_selector(".heed-notice:has-text('Not translated')")
        assert "400" in it.page.inner_text(".heed-notice >> visible=true")
        # The browser's own line about the 413 is no error of the page.
        it.errors[:] = [error for error in it.errors if "status of 4" not in error]
        typed(it, "thecat" * 60)
        assert it.page.evaluate("document.documentElement.scrollWidth") == 1280
        typed(it, "the cat")
        assert it.page.inner_text(".heed-translate .heed-notice") == ""


def test_a_server_with_keys_asks_for_one(chromium: Any, tmp_path: Any) -> None:
    key = new_key(tmp_path / "keys")
    application = make_application(made()[:1], keys=Keys.read(tmp_path / "keys"))
    with running(application) as address, opened(chromium, address) as it:
        for given in ("not that one", key):
            it.page.fill(".heed-key", given)
            it.page.press(".heed-key", "Enter")
        typed(it)
        it.errors[:] = [error for error in it.errors if "status of 403" not in error]


def test_panel_and_text_in_the_address(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=alignment&text=the+cat") as it:
        it.page.wait_for_selector("text=From ")
        assert it.page.get_attribute("[data-panel=alignment]", "aria-selected") == "true"
