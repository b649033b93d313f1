"""Times the frames of the link view while a pointer moves over its words, and while it plays.

    python benchmarks/page_frames.py [--tokens 100] [--heads 8]

Needs Chromium and ``pip install playwright``. Runs without a graphics card. Prints for how long the
page's thread is busy in each frame: the median, the 99th percentile and the maximum, in
milliseconds.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from heedful.inference.trace import Trace
from heedful.viewing.page import export_html

# From the first callback of a frame to the first task after it: style, layout and paint included.
_RECORD = """() => { window.frames_ = [];
    const channel = new MessageChannel();
    let begun = 0;
    channel.port1.onmessage = () => window.frames_.push(performance.now() - begun);
    const step = () => { begun = performance.now(); channel.port2.postMessage(0);
        window.recording_ = requestAnimationFrame(step); };
    window.recording_ = requestAnimationFrame(step); }"""


def main() -> None:
    """Print a row of figures for each kind of attention and each action."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--heads", type=int, default=8)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        print("attention | action | frames | median | 99 % | maximum (ms)")
        for name, trace in _traces(given.tokens, given.heads).items():
            path = Path(folder) / f"{name}.html"
            export_html(trace, path)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(path.as_uri())
            page.wait_for_selector(".heed-link-token")
            page.click("text=Colour by head")
            page.wait_for_timeout(1500)
            for action in (_hover, _play):
                times = _measured(page, action)
                row = [statistics.median(times), times[int(0.99 * len(times))], times[-1]]
                figures = " | ".join(f"{one:.1f}" for one in row)
                print(f"{name} | {action.__name__[1:]} | {len(times)} | {figures}", flush=True)
            page.close()
        browser.close()


def _traces(tokens: int, heads: int) -> dict[str, Trace]:
    """Random traces with attention between two axes and on one axis."""
    raw = torch.rand(heads, tokens, tokens, generator=torch.Generator().manual_seed(1)).pow(8)
    weights = raw / raw.sum(-1, keepdim=True)
    source, target = ([f"{side}{i}" for i in range(tokens)] for side in ("source", "target"))
    two = Trace.of({"source": source, "target": target}, {"cross": ("target", "source", weights)})
    one = Trace.of({"tokens": source}, {"layer": ("tokens", "tokens", weights)})
    return {"cross": two, "self": one}


def _measured(page: Any, action: Any) -> list[float]:
    page.evaluate(_RECORD)
    action(page)
    page.evaluate("cancelAnimationFrame(window.recording_)")
    return sorted(page.evaluate("window.frames_"))


def _hover(page: Any) -> None:
    boxes = page.eval_on_selector_all(
        ".heed-link-token",
        "(all) => all.map((one) => { const box = one.getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })",
    )
    for x, y in boxes:
        if y < 900:
            page.mouse.move(x, y, steps=4)
    page.mouse.move(2, 2)


def _play(page: Any) -> None:
    page.click(".heed-play")
    page.wait_for_timeout(6000)
    page.click(".heed-play")


if __name__ == "__main__":
    main()
