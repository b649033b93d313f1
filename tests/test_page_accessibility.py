"""The page by axe-core, in every panel, light and dark, and at every width."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.serving import Served, make_application
from heedful.viewing.page import export_html
from page_help import needs_browser, one_axis_trace, opened, pair_trace
from serving_help import running, translator
from test_page_texts import readers

pytestmark = needs_browser()
axe = pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
RULES = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
INSIDE = ["links", "alignment", "heads", "steps", "how", "compare"]
TEXT = "the small cat sat on a mat"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(make_application([Served("one", translator(), "en", "de")])) as one:
        yield one


@pytest.fixture(scope="module")
def others() -> Iterator[str]:
    with running(make_application(readers())) as one:
        yield one


def violations(it: Any) -> list[str]:
    """What axe-core finds, one line for each rule."""
    it.page.evaluate(RULES)
    found = it.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {len(one['nodes'])} such as {one['nodes'][0]['target']}, "
        f"{one['nodes'][0].get('failureSummary', '')}"
        for one in found["violations"]
    ]


def typed(it: Any) -> None:
    it.page.fill("textarea", TEXT)
    it.page.wait_for_selector(".heed-target .heed-word")


def settled(it: Any, panel: str) -> None:
    it.tab(panel)
    waited = {
        "how": ".heed-neurons canvas",
        "links": ".heed-link-token",
        "heads": ".heed-legend li",
    }
    it.page.wait_for_selector(waited.get(panel, "main > :not([hidden]) canvas"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("panels", [["", "translate", "links"], INSIDE[1:4], INSIDE[4:]])
def test_a_translators_panels(chromium: Any, address: str, scheme: str, panels: list[str]) -> None:
    """The empty name is the page before a text is typed."""
    with opened(chromium, address, color_scheme=scheme) as it:
        for panel in panels:
            if panel == "":
                it.page.wait_for_selector(".heed-examples, .heed-welcome, textarea")
            elif panel == panels[0] or panel == "translate":
                typed(it)
            if panel not in ("", "translate"):
                settled(it, panel)
            assert violations(it) == [], panel


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_panels_of_other_tasks(chromium: Any, others: str, scheme: str) -> None:
    with opened(chromium, others, color_scheme=scheme) as it:
        it.page.wait_for_selector("[role=tab]")
        names = it.page.eval_on_selector_all(
            "[role=tab]", "all => all.map((one) => one.dataset.panel)"
        )
        for panel in [name for name in names if name not in INSIDE]:
            it.tab(panel)
            it.page.wait_for_selector(f"[role=tab][data-panel={panel}][aria-selected=true]")
            assert violations(it) == [], panel


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_file_and_present_mode(chromium: Any, tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "view.html"
    export_html([pair_trace(), one_axis_trace(9, 2)], path)
    with opened(chromium, path.as_uri(), color_scheme=scheme) as it:
        it.page.wait_for_selector(".heed-link-token")
        assert violations(it) == []
        it.page.keyboard.press("p")
        it.page.wait_for_selector(".heed-present")
        assert violations(it) == []


@pytest.mark.parametrize("width", [320, 768, 3840])
def test_nothing_is_wider_than_the_window(chromium: Any, address: str, width: int) -> None:
    with opened(chromium, address, viewport={"width": width, "height": 900}) as it:
        typed(it)
        for panel in ["translate", *INSIDE]:
            if panel != "translate":
                settled(it, panel)
            assert it.page.evaluate("document.documentElement.scrollWidth") == width, panel
