"""The page in Firefox and WebKitGTK: the file that is exported, and the page of a server.

The tests do not require these browsers: the Makefile says what to install for ``make browsers``.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.decoding import SearchOptions
from heedful.serving import Served, make_application
from heedful.viewing.page import export_html
from other_browsers import DOWN, ENTER, FIREFOX, MINI, RIGHT, WEBKIT, XVFB, firefox, webkit
from page_help import pair_trace
from serving_help import running, translator

INKED = """(() => {
    const canvas = [...document.querySelectorAll("canvas")].find((one) => one.offsetParent);
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let inked = 0;
    for (let at = 3; at < data.length; at += 4) inked += data[at] > 60;
    return inked;
})()"""
"""How many points of the canvas that is visible are drawn."""
READ = '[...document.querySelectorAll(".heed-readout")].find((one) => one.offsetParent)?.innerText'
HAS_FIREFOX = FIREFOX and importlib.util.find_spec("websocket")
BROWSERS = [
    pytest.param(
        firefox,
        marks=pytest.mark.skipif(
            not HAS_FIREFOX, reason="no Firefox, or no websocket-client; see make browsers"
        ),
    ),
    pytest.param(
        webkit,
        marks=pytest.mark.skipif(
            not (WEBKIT and MINI and XVFB), reason="no WebKitGTK, or no Xvfb; see make browsers"
        ),
    ),
]


@pytest.fixture(scope="module", params=BROWSERS)
def driver(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with request.param(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    made = Served("first", translator(seed=1, options=SearchOptions(beam=5)), "en", "de")
    with running(make_application([made])) as one:
        yield one


def test_the_exported_file(driver: Any, tmp_path: Path) -> None:
    path = tmp_path / "view.html"
    export_html(pair_trace(), path)
    driver.goto(path.as_uri())
    driver.wait_for('document.querySelectorAll(".heed-link-token").length >= 10')
    driver.wait_for(f"{INKED} > 500")
    driver.tab("alignment")
    driver.click("canvas.heed-matrix")
    driver.evaluate('document.querySelector("canvas.heed-matrix").focus()')
    driver.type(DOWN + RIGHT)
    assert "→" in driver.wait_for(READ)
    driver.tab("heads")
    driver.wait_for('document.querySelectorAll(".heed-legend li").length')
    for panel in ("steps", "how"):
        driver.tab(panel)
        driver.wait_for(
            f'document.querySelector("[data-panel={panel}][aria-selected=true]") !== null'
        )
    assert driver.errors() == []


def test_translating_with_a_server(driver: Any, address: str) -> None:
    driver.goto(address)
    driver.click("textarea")
    driver.type("the small cat")
    words = 'document.querySelectorAll(".heed-target .heed-word").length'
    driver.wait_for(words)
    driver.evaluate('document.querySelector(".heed-target .heed-word").focus()')
    driver.type(ENTER)
    driver.wait_for('document.querySelectorAll("[role=menu] [role^=menuitem]").length > 1')
    driver.type("\ue00c")  # Escape
    driver.wait_for('!document.querySelector("[role=menu]")?.offsetParent')
    driver.tab("links")
    driver.wait_for(f"{INKED} > 500")
    assert driver.errors() == []
