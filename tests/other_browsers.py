"""Firefox by WebDriver BiDi and WebKitGTK by WebDriver: what the tests of the page need of them.

Playwright drives builds of its own of these browsers; these are the ones that Debian ships.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
WEBKIT = shutil.which("WebKitWebDriver")
MINI = next(iter(sorted(glob("/usr/lib/*/webkit2gtk-4.*/MiniBrowser"), reverse=True)), None)
XVFB = shutil.which("Xvfb")
SECONDS = 30
ENTER, DOWN, RIGHT = "\ue007", "\ue015", "\ue014"
"""Keys, as WebDriver names them."""
_AS_JSON = "Promise.resolve({}).then((it) => JSON.stringify(it) ?? null)"


class Driver:
    """A window. ``call`` evaluates an expression of JavaScript; ``act`` performs input."""

    def __init__(self, call: Callable[[str], Any], act: Callable[[list[Any]], None]) -> None:
        self.evaluate = call
        self._act = act
        self.goto: Callable[[str], Any]
        self.errors: Callable[[], list[str]]
        self.screenshot: Callable[[], bytes]

    def wait_for(self, expression: str) -> Any:
        """The value of an expression, once it is true."""
        end = time.monotonic() + SECONDS
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < end, f"still false: {expression}"
            time.sleep(0.1)
        return found

    def click(self, selector: str) -> None:
        """Click in the middle of the first element that is visible."""
        one = f"[...document.querySelectorAll({json.dumps(selector)})].find((e) => e.offsetParent)"
        self.wait_for(f"Boolean({one})")
        x, y = self.evaluate(
            f"(() => {{ const e = {one}; e.scrollIntoView({{ block: 'center' }});"
            "const r = e.getBoundingClientRect();"
            "return JSON.stringify([r.x + r.width / 2, r.y + r.height / 2]); })()"
        )
        move = {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
        press = [{"type": f"pointer{way}", "button": 0} for way in ("Down", "Up")]
        self._act([{"type": "pointer", "id": "mouse", "actions": [move, *press]}])

    def type(self, keys: str) -> None:
        both = [{"type": f"key{way}", "value": key} for key in keys for way in ("Down", "Up")]
        self._act([{"type": "key", "id": "keyboard", "actions": both}])

    def tab(self, panel: str) -> None:
        self.click(f"[role=tab][data-panel={panel}]")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(SECONDS)


def attempts(function: Callable[[], Any]) -> Any:
    """Call until it does not fail because the other side is not there yet."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return function()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@contextmanager
def firefox(folder: Path) -> Iterator[Driver]:
    """A window of Firefox, in a profile of its own."""
    import websocket

    assert FIREFOX is not None
    port = free_port()
    arguments = ("--headless", "--no-remote", "--profile", str(folder))
    with running(FIREFOX, *arguments, "--remote-debugging-port", str(port)):
        line = attempts(
            lambda: websocket.create_connection(
                f"ws://127.0.0.1:{port}/session", timeout=SECONDS, suppress_origin=True
            )
        )
        problems: list[str] = []
        sent = 0

        def send(method: str, **parameters: Any) -> Any:
            nonlocal sent
            sent += 1
            line.send(json.dumps({"id": sent, "method": method, "params": parameters}))
            while (answer := json.loads(line.recv())).get("id") != sent:
                told = answer.get("params", {})
                if answer.get("method") == "log.entryAdded" and told["level"] == "error":
                    problems.append(str(told["text"]))
            assert answer["type"] == "success", answer
            return answer["result"]

        send("session.new", capabilities={})
        send("session.subscribe", events=["log.entryAdded"])
        context = send("browsingContext.getTree")["contexts"][0]["context"]

        def call(expression: str) -> Any:
            answer = send(
                "script.evaluate",
                expression=_AS_JSON.format(expression),
                target={"context": context},
                awaitPromise=True,
            )
            assert answer["type"] == "success", answer
            return _read(answer["result"].get("value"))

        driver = Driver(
            call, lambda acts: send("input.performActions", context=context, actions=acts)
        )
        driver.goto = lambda url: send(
            "browsingContext.navigate", context=context, url=url, wait="complete"
        )
        driver.errors = lambda: problems
        driver.screenshot = lambda: base64.b64decode(
            send("browsingContext.captureScreenshot", context=context)["data"]
        )
        send(
            "browsingContext.setViewport", context=context, viewport={"width": 1200, "height": 900}
        )
        yield driver
        line.close()


@contextmanager
def webkit(folder: Path) -> Iterator[Driver]:
    """A window of WebKitGTK's small browser, on a display of its own."""
    assert WEBKIT is not None
    assert XVFB is not None
    port, display = free_port(), f":{free_port()}"
    quiet = {"DISPLAY": display, "HOME": str(folder), "WEBKIT_DISABLE_COMPOSITING_MODE": "1"}
    with (
        running(XVFB, display, "-screen", "0", "1300x1000x24"),
        running(WEBKIT, f"--port={port}", **quiet),
    ):

        def send(method: str, path: str, body: Any = None) -> Any:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/session{path}",
                data=None if body is None else json.dumps(body).encode(),
                method=method,
                headers={"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return json.loads(answer.read())["value"]

        options = {"binary": MINI, "args": ["--automation"]}
        wanted = {"browserName": "MiniBrowser", "webkitgtk:browserOptions": options}
        made = attempts(lambda: send("POST", "", {"capabilities": {"alwaysMatch": wanted}}))
        own = f"/{made['sessionId']}"

        def call(expression: str) -> Any:
            script = (
                f"return Promise.resolve({expression}).then((it) => JSON.stringify(it) ?? null)"
            )
            return _read(send("POST", f"{own}/execute/sync", {"script": script, "args": []}))

        driver = Driver(call, lambda acts: send("POST", f"{own}/actions", {"actions": acts}))
        driver.goto = lambda url: send("POST", f"{own}/url", {"url": url})
        driver.errors = list  # none: WebDriver does not tell them
        driver.screenshot = lambda: base64.b64decode(send("GET", f"{own}/screenshot"))
        yield driver
        send("DELETE", own)


def _read(text: str | None) -> Any:
    """A value; texts of JSON are read as what they contain."""
    value = None if text is None else json.loads(text)
    if isinstance(value, str) and value[:1] == "[":
        return json.loads(value)
    return value
