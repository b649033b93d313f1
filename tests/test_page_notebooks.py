"""The widget in notebooks: JupyterLab, marimo, and the frames and shadow trees that others use.

The tests do not require JupyterLab and marimo: ``make notebooks`` installs them.
"""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heedful.viewing.notebook import widget
from heedful.viewing.page import style
from page_help import Watched, needs_browser, pair_trace

pytestmark = needs_browser()
CELL = """\
import heedful, torch
from heedful.inference import Trace
weights = torch.softmax(3 * torch.eye(2), -1)[None]
words = {"source": ["a", "dog"], "target": ["ein", "Hund"]}
trace = Trace.of(words, {"cross.1": ("target", "source", weights)}, title="a pair")
heedful.view(trace)
"""
OWN = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTERLAB_SETTINGS_DIR", "XDG_CONFIG_HOME")
"""Folders of settings, so that those of the user are neither read nor changed."""
TAB = "[role=tab][data-panel={}]"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""Nothing from other addresses, as in the frames of VS Code."""


def host(tree: str) -> str:
    """A notebook's output, with a stand-in for the kernel's side: a model that has the traits."""
    made = widget(pair_trace())
    tree = {"document": "cell", "shadow": 'cell.attachShadow({ mode: "open" })'}[tree]
    return f"""<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<body data-vscode-theme-kind="vscode-dark"><div id="cell"></div>
<script type="application/json" id="data">{made.data.replace("<", chr(92) + "u003c")}</script>
<script type="application/json" id="style">{json.dumps(style()).replace("<", chr(92) + "u003c")}
</script>
<script type="module">
const text = (name) => document.getElementById(name).textContent;
const cell = document.getElementById("cell");
const tree = {tree};
const rules = document.createElement("style");
rules.textContent = JSON.parse(text("style"));
const el = document.createElement("div");
tree.append(rules, el);
{str(made._esm).replace("export default", "const widget =")}
widget.render({{ model: {{ get: (name) => ({{ data: text("data") }})[name] }}, el }});
</script>"""


@contextmanager
def hosted(one: Any, address: str, origin: str) -> Iterator[Watched]:
    """Open a notebook; fails on exceptions and on requests outside its origin."""
    watched = Watched(one)
    thrown: list[str] = []  # not the host's own messages in the console
    watched.page.on("pageerror", lambda error: thrown.append(str(error)))
    watched.page.goto(address)
    yield watched
    outside = watched.outside(origin)
    watched.context.close()
    assert thrown == []
    assert outside == []


@pytest.mark.parametrize("tree", ["document", "shadow"])
@pytest.mark.parametrize("framed", [False, True])
def test_the_widget_in_an_output(chromium: Any, tmp_path: Path, tree: str, framed: bool) -> None:
    """Notebooks show a widget in the page, in a shadow tree, or in a frame of no origin."""
    pytest.importorskip("anywidget")
    inner = tmp_path / "output.html"
    inner.write_text(host(tree), encoding="utf-8")
    outer = tmp_path / "notebook.html"
    outer.write_text(
        '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
        '<iframe sandbox="allow-scripts allow-downloads" width="900" height="900" '
        'src="output.html"></iframe>',
        encoding="utf-8",
    )
    shown = (outer if framed else inner).as_uri()
    with hosted(chromium, shown, tmp_path.as_uri()) as it:
        place = it.page.frame_locator("iframe") if framed else it.page
        place.locator(".heedful .heed-link-token").first.wait_for()
        assert place.locator(".heedful").get_attribute("data-theme") == "dark"
        place.locator(TAB.format("alignment")).click()
        matrix = place.locator("canvas.heed-matrix >> visible=true")
        matrix.focus()
        matrix.press("ArrowDown")
        assert "klein" in place.locator(".heed-readout >> visible=true").inner_text()
        matrix.dispatch_event("pointerleave")  # what has the focus is still read out
        assert "klein" in place.locator(".heed-readout >> visible=true").inner_text()
        place.locator(TAB.format("heads")).click()
        place.locator(".heed-legend li").first.wait_for()
        with it.page.expect_download() as waiting:
            place.locator("main > :not([hidden]) button[aria-label='Save as CSV']").click()
        assert Path(waiting.value.path()).read_bytes().startswith(b'"",The,small')


@contextmanager
def served(*command: str, folder: Path) -> Iterator[str]:
    """Start a notebook's server; yields its address."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, "--port", str(port)],
            cwd=folder,
            env={**os.environ, **{name: str(folder / "own") for name in OWN}},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, server, log)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(120):
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"no answer at {address}: {log.read_text(encoding='utf-8')}")


def needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed; see make notebooks")


def jupyter_lab(folder: Path) -> Any:
    settings = ("--no-browser", "--allow-root", "--IdentityProvider.token=", "--LabApp.news_url=")
    return served("jupyterlab", *settings, folder=folder)


def notebook(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@needs("jupyterlab")
def test_jupyterlab_and_a_notebook_that_is_opened_again(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.ipynb"
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    empty = {"metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    cells = [{**cell, "outputs": [], "source": CELL}]
    path.write_text(json.dumps({"cells": cells, **empty}), encoding="utf-8")
    with (
        jupyter_lab(tmp_path) as address,
        hosted(chromium, f"{address}/lab/tree/one.ipynb", address) as it,
    ):
        it.page.set_default_timeout(60_000)
        it.page.click(".jp-Notebook .cm-content")
        it.page.keyboard.press("Shift+Enter")
        it.page.wait_for_selector(".heedful .heed-link-token")
        it.tab("alignment")
        it.page.focus("canvas.heed-matrix >> visible=true")
        it.page.keyboard.press("ArrowDown")
        it.page.keyboard.press("ArrowDown")
        it.page.keyboard.press("ArrowRight")
        said = it.page.inner_text(".heed-readout >> visible=true")
        assert "Hund" in said
        assert "dog" in said
        cells = it.page.locator(".jp-Notebook .jp-Cell")
        assert cells.count() == 2
        it.page.keyboard.press("a")  # JupyterLab's key for a new cell
        it.page.wait_for_timeout(300)
        assert cells.count() == 2
        it.page.click(".lm-MenuBar-item >> text=Settings")
        it.page.click("text=Save Widget State Automatically")
        it.page.focus("canvas.heed-matrix >> visible=true")
        for _ in range(30):
            it.page.keyboard.press("Control+s")
            it.page.wait_for_timeout(500)
            if "widgets" in notebook(path)["metadata"]:
                break
        assert "widgets" in notebook(path)["metadata"]
    with (
        jupyter_lab(tmp_path) as address,  # without the kernel that made it
        hosted(chromium, f"{address}/lab/tree/one.ipynb", address) as it,
    ):
        it.page.set_default_timeout(60_000)
        it.page.wait_for_selector(".heedful .heed-link-token")
        it.tab("how")
        it.page.wait_for_selector(".heed-how >> visible=true")


@needs("marimo")
def test_marimo(chromium: Any, tmp_path: Path) -> None:
    lines = "".join(f"    {line}\n" for line in CELL.splitlines())
    (tmp_path / "one.py").write_text(
        f"import marimo\napp = marimo.App()\n\n\n@app.cell\ndef _():\n{lines}    return\n",
        encoding="utf-8",
    )
    settings = ("--headless", "--no-token")
    with (
        served("marimo", "run", "one.py", *settings, folder=tmp_path) as address,
        hosted(chromium, address, address) as it,
    ):
        it.page.set_default_timeout(60_000)
        it.page.wait_for_selector(".heedful .heed-link-token")
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
