"""Two users, from the first visit on, with the keyboard only: a translator and a teacher."""

from collections.abc import Iterator
from typing import Any

import pytest

from heedful.decoding import SearchOptions
from heedful.serving import Served, make_application
from page_help import needs_browser, opened
from serving_help import running, translator

pytestmark = needs_browser()
TEXT = "the small cat sat on a mat."


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    served = [Served("one", translator(seed=9, options=SearchOptions(beam=5)), "en", "de")]
    with running(make_application(served)) as one:
        yield one


def tab_until(it: Any, selector: str, key: str = "Tab", most: int = 40) -> None:
    """Press a key until an element that matches has the focus."""
    for _ in range(most):
        if it.page.evaluate(f"() => document.activeElement.matches({selector!r})"):
            return
        it.page.keyboard.press(key)
    raise AssertionError(f"{most} times {key} do not reach {selector}")


def focus_is_visible(it: Any) -> bool:
    """Whether the element with the focus has a ring."""
    return bool(
        it.page.evaluate(
            "() => { const style = getComputedStyle(document.activeElement);"
            " return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0; }"
        )
    )


def test_a_translator_with_the_keyboard(chromium: Any, address: str) -> None:
    """Types, reads, chooses another word, copies and looks inside."""
    with opened(chromium, address, permissions=["clipboard-read", "clipboard-write"]) as it:
        it.page.wait_for_selector(".heed-translate textarea")
        tab_until(it, "textarea")  # the field has the focus from the beginning
        it.page.keyboard.type(TEXT)
        it.page.wait_for_selector(".heed-target .heed-word")
        tab_until(it, ".heed-target .heed-word")
        assert focus_is_visible(it)
        it.page.keyboard.press("Enter")  # other words that could stand there
        it.page.wait_for_selector(".heed-menu button")
        it.page.keyboard.press("ArrowDown")
        it.page.keyboard.press("Enter")

        it.page.wait_for_selector("button:text-is('Remove the chosen words')")
        chosen = it.page.inner_text(".heed-target").strip()
        tab_until(it, "button.heed-button:not(.heed-present-button)", "Shift+Tab")
        for _ in range(12):
            if it.page.evaluate("() => document.activeElement.textContent") == "Copy":
                break
            it.page.keyboard.press("Tab")
        it.page.keyboard.press("Enter")
        it.page.wait_for_selector("button:text-is('Copied')")
        assert it.page.evaluate("() => navigator.clipboard.readText()") == chosen
        it.page.focus("[role=tab][aria-selected=true]")
        it.page.keyboard.press("ArrowRight")
        it.page.wait_for_selector(".heed-link-token")
        assert it.page.get_attribute("[data-panel=links]", "aria-selected") == "true"


def test_a_teacher_with_the_keyboard(chromium: Any, address: str) -> None:
    """Shows the links on a wall, one word at a time, and then the numbers behind them."""
    with opened(chromium, f"{address}#panel=links&text=the+small+cat+sat+on+a+mat") as it:
        it.page.wait_for_selector(".heed-link-token")
        it.page.keyboard.press("p")
        it.page.wait_for_selector(".heed-present")
        it.page.keyboard.press(" ")
        it.page.wait_for_selector(".heed-link-token[data-state=unwritten]", state="attached")
        written = "[data-side=query] .heed-link-token:not([data-state=unwritten])"
        it.page.wait_for_selector(f"{written} >> nth=2")
        tab_until(it, "[data-side=query] .heed-link-token")
        assert " reads " in it.page.inner_text(".heed-links-readout")
        place = "() => Number(document.activeElement.dataset.at)"
        first = it.page.evaluate(place)
        it.page.keyboard.press("ArrowDown")  # left and right are other examples
        assert it.page.evaluate(place) == first + 1
        it.page.keyboard.press("Escape")
        it.page.keyboard.press("Escape")
        it.page.wait_for_selector(".heedful:not(.heed-present)")
        it.page.focus("[role=tab][aria-selected=true]")
        for _ in range(4):
            it.page.keyboard.press("ArrowRight")
        assert it.page.get_attribute("[data-panel=how]", "aria-selected") == "true"
        it.page.wait_for_selector(".heed-how tbody tr")
        tab_until(it, ".heed-how tbody input.heed-edit", most=60)
        it.page.keyboard.type("9")
        it.page.keyboard.press("Enter")
        it.page.wait_for_selector("text=/1 number changed/")
