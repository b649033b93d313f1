"""What was typed in a panel is kept, and is what the other panels show."""

from collections.abc import Iterator
from typing import Any

import pytest

from heedful.serving import Served, make_application
from page_help import needs_browser, opened, pair_trace
from serving_help import running
from test_page_texts import TEXT, classified, readers
from test_reading import classifier, headed

pytestmark = needs_browser()
SHOWN = ".heed-sentence-bar .heed-detail:text-is('{}') >> visible=true"
"""The model whose text the other panels show."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    models = [one for one in readers() if one.name in ("mood", "pairs", "tags", "gpt", "slow")]
    models.append(Served("single", classifier(headed(), pairs=False)))
    with running(make_application(models)) as one:
        yield one


def test_a_panel_without_a_text_does_not_take_away_that_of_another(
    chromium: Any, address: str
) -> None:
    with opened(chromium, f"{address}#panel=write&text=ab&second=cd") as it:
        assert it.page.text_content(".heed-generated") == "abcd"
        it.tab("links")
        it.page.wait_for_selector(SHOWN.format("gpt"))
        it.page.reload()
        it.page.wait_for_selector(SHOWN.format("gpt"))
        it.tab("tag")
        it.page.fill(".heed-tag textarea", "it was good")
        it.page.wait_for_selector(".heed-tagged button")
        it.tab("links")
        it.page.wait_for_selector(SHOWN.format("tags"))
        it.page.wait_for_timeout(500)
        it.page.reload()
        it.page.wait_for_selector(SHOWN.format("tags"))


def test_the_text_above_a_view_keeps_its_lines(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=classify") as it:
        it.page.select_option(".heed-classify select", "mood")
        it.page.fill(".heed-classify textarea >> nth=0", "the film\nit was good")
        it.page.wait_for_selector(".heed-importance-text button:last-child >> text='good'")
        it.tab("heads")
        bar = it.page.locator(".heed-sentence-field")
        assert bar.input_value() == "the film⏎it was good"
        bar.fill("the film⏎it was bad")
        bar.press("Enter")
        it.tab("classify")
        it.page.wait_for_selector(".heed-importance-text button:last-child >> text='bad'")
        typed = it.page.input_value(".heed-classify textarea >> nth=0")
        assert typed == "the film\nit was bad"


def test_fields_follow_the_model_without_a_text(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=classify") as it:
        for model, shown in (("single", False), ("pairs", True), ("single", False)):
            it.page.select_option(".heed-classify select", model)
            assert it.page.is_visible(".heed-second") is shown


def test_another_model_while_a_text_is_written(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=write") as it:
        it.page.select_option(".heed-write select >> nth=0", "slow")
        it.page.fill("label:has-text('Token limit') input", "600")
        it.page.click(".heed-submit")
        it.page.wait_for_function(
            "() => document.querySelector('.heed-continuation').textContent.length > 5"
        )
        it.page.select_option(".heed-write select >> nth=0", "gpt")
        assert it.page.inner_text(".heed-submit") == "Generate"
        it.page.wait_for_timeout(300)
        assert not it.page.is_visible(".heed-write .heed-output")
        it.tab("links")
        it.page.wait_for_selector("text=generate a text first")


def test_an_address_opens_its_text_in_the_same_tab(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=tag&text=it+was+good") as it:
        it.page.wait_for_selector(".heed-tagged button")
        it.page.goto(f"{address}#panel=tag&text=it+was+bad")
        it.page.wait_for_function(
            "() => document.querySelector('.heed-tag textarea')?.value === 'it was bad'"
        )


def test_what_was_typed_last_does_not_replace_the_text_of_an_address(
    chromium: Any, address: str
) -> None:
    with opened(chromium, f"{address}#panel=tag&text=it+was+good") as it:
        it.page.wait_for_selector(".heed-tagged button")
        it.page.wait_for_timeout(500)
        # The inputs are saved again 400 ms after the first change: while the address is opened.
        it.page.evaluate(
            """() => {
              const field = document.querySelector(".heed-tag textarea");
              for (const text of ["typed first", "typed last"]) {
                field.value = text;
                field.dispatchEvent(new Event("input", { bubbles: true }));
              }
              const end = performance.now() + 390;
              while (performance.now() < end);
              window.location.hash = "panel=tag&text=it+was+bad";
            }"""
        )
        it.page.wait_for_function(
            "() => document.querySelector('.heed-tag textarea')?.value === 'it was bad'"
        )


def test_errors_of_saving_are_visible(chromium: Any, tmp_path: Any) -> None:
    from heedful.viewing.page import export_html

    words = [f"▁w{i}" for i in range(40)]
    export_html([pair_trace(words, [*words[:35], "</s>"])], tmp_path / "page.html")
    with opened(chromium, (tmp_path / "page.html").as_uri()) as it:
        it.tab("alignment")
        it.page.click("main > :not([hidden]) button[aria-label='Save as TEX']")
        it.page.wait_for_selector(".heed-export >> text=30")


def test_enter_on_a_matrix_moves_the_focus_to_the_lines(chromium: Any, address: str) -> None:
    with opened(chromium, f"{address}#panel=classify") as it:
        classified(it, TEXT)
        it.tab("heads")
        matrix = it.page.locator(".heed-chosen .heed-matrix canvas, .heed-chosen canvas").first
        it.page.wait_for_selector(".heed-legend li")
        matrix.focus()
        matrix.press("ArrowDown")
        it.page.wait_for_selector(".heed-chosen .heed-readout:not(:empty) >> visible=true")
        matrix.press("Enter")
        it.page.wait_for_selector(".heed-lines button:focus")
