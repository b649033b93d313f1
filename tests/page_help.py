"""A browser for the tests of the page, and traces to display."""

import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.inference import Axis, Media, Trace

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
"""Chromium without windows, which opens a page in half the time, or another one."""
SPY = """() => {
    const own = AudioBufferSourceNode.prototype, start = own.start;
    window.played = [];
    own.start = function (...given) { window.played.push(given); start.apply(this, given); };
}"""
"""Records the arguments of what starts to play sounds in ``window.played``."""
HOW = "no browser: apt-get install chromium-headless-shell, pip install playwright, to run these"

SOURCE = ["▁The", "▁small", "▁dog", "▁sleeps", ".", "</s>"]
WRITTEN = ["▁Der", "▁klein", "e", "▁Hund", "▁schläft", ".", "</s>"]
HEBREW = ["▁הכלב", "▁הקטן", "▁ישן", ".", "</s>"]


def needs_browser() -> pytest.MarkDecorator:
    """Skip the test if there is no browser, with a line on how to install one."""
    try:
        import playwright  # noqa: F401  (only whether it is there)
    except ImportError:
        return pytest.mark.skip(reason=HOW)
    return pytest.mark.skipif(CHROMIUM is None, reason=HOW)


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as play:
        one = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if root else [])
        yield one
        one.close()


def look_often(page: Any, timeout: float = 15_000) -> None:
    """Let ``wait_for_selector`` look every 20 ms. Playwright waits up to half a second in between.

    Args:
        page: a page.
        timeout: the default for all waiting, in milliseconds.
    """
    page.set_default_timeout(timeout)
    wait = page.wait_for_selector

    def is_so(selector: str, state: str) -> bool:
        if state in ("visible", "hidden"):
            return bool(page.is_visible(selector)) == (state == "visible")
        return (page.query_selector(selector) is not None) == (state == "attached")

    def often(selector: str, *, state: str = "visible", timeout: float = timeout) -> Any:
        end = time.monotonic() + timeout / 1000
        while not is_so(selector, state) and time.monotonic() < end:
            page.wait_for_timeout(20)
        return wait(selector, state=state, timeout=1000)

    page.wait_for_selector = often


class Watched:
    """A page with its requests and its errors."""

    def __init__(self, one: Any, **context: Any) -> None:
        self.context = one.new_context(accept_downloads=True, **context)
        self.page = self.context.new_page()
        look_often(self.page)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def outside(self, address: str) -> list[str]:
        """Requests to other addresses than the page's own."""
        own = (address, "data:", "blob:")
        return [url for url in self.requests if not url.startswith(own)]

    def saved(self, ending: str, inside: str = "main > :not([hidden])") -> bytes:
        """The file that a Save button downloads."""
        with self.page.expect_download() as waiting:
            self.page.click(f"{inside} button[aria-label='Save as {ending.upper()}']")
        assert waiting.value.suggested_filename.endswith(f".{ending}")
        return Path(waiting.value.path()).read_bytes()

    def tab(self, name: str) -> None:
        self.page.click(f"[role=tab][data-panel={name}]")


@contextmanager
def opened(one: Any, address: str, **context: Any) -> Iterator[Watched]:
    """Open a page; fails on any error and on requests to other addresses."""
    watched = Watched(one, **context)
    watched.page.goto(address)
    yield watched
    errors, outside = watched.errors, watched.outside(address.split("#")[0])
    watched.context.close()
    assert errors == []
    assert outside == []


def weights(heads: int, queries: int, keys: int, seed: int = 1, power: float = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    raw = torch.rand(heads, queries, keys, generator=generator).pow(power) + 1e-4
    return raw / raw.sum(-1, keepdim=True)


def pair_trace(
    source: list[str] = SOURCE, written: list[str] = WRITTEN, title: str = "a pair", seed: int = 1
) -> Trace:
    """A translator's trace: encoder, decoder and cross-attention, and the alternatives of each
    step."""
    from dataclasses import replace

    fed = ["<s>", *written[:-1]]
    maps = {}
    for layer in range(2):
        own = weights(3, len(source), len(source), seed + layer)
        maps[f"encoder.{layer}"] = ("source", "source", own)
    for layer in range(2):
        past = weights(3, len(fed), len(fed), seed + 7 + layer).tril() + 1e-9
        maps[f"decoder.{layer}"] = ("target", "target", past / past.sum(-1, keepdim=True))
        cross = weights(3, len(fed), len(source), seed + 20 + layer)
        maps[f"cross.{layer}"] = ("target", "source", cross)
    trace = Trace.of({"source": source, "target": fed}, maps, title=title)
    return replace(
        trace,
        decided=written,
        log_probabilities=[-0.1 * (i + 1) for i in range(len(written))],
        words={"source": _words(source), "target": _words(fed)},
    )


def one_axis_trace(length: int, heads: int = 1, layers: int = 1, title: str = "one axis") -> Trace:
    """The trace of an encoder-only or decoder-only model."""
    tokens = [f"token{i}" for i in range(length)]
    maps = {
        f"transformer.h.{layer}.attn": ("tokens", "tokens", weights(heads, length, length, layer))
        for layer in range(layers)
    }
    return Trace.of({"tokens": tokens}, maps, title=title)


def _words(tokens: list[str]) -> list[int]:
    found, word = [], -1
    for token in tokens:
        word += token.startswith("▁")
        found.append(-1 if token in ("<s>", "</s>") else word)
    return found


def pixels(png: bytes) -> Any:
    """The pixels of a PNG ``[height, width, 3]``."""
    import numpy as np
    from matplotlib.image import imread

    return (np.asarray(imread(io.BytesIO(png), format="png"))[..., :3] * 255).round().astype(int)


def picture_axis(rows: int = 7, columns: int = 7) -> Axis:
    """An axis of cells over a picture: two discs in front of a gradient."""
    y, x = torch.meshgrid(torch.linspace(0, 1, 140), torch.linspace(0, 1, 140), indexing="ij")
    pixels = torch.stack([0.55 + 0.3 * y, 0.75 - 0.2 * y, 0.9 - 0.5 * x], 2)
    for centre, size, colour in (
        ((0.3, 0.35), 0.16, (0.8, 0.2, 0.15)),
        ((0.7, 0.7), 0.2, (0, 0, 0)),
    ):
        inside = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < size**2
        pixels[inside] = torch.tensor(colour, dtype=pixels.dtype)
    return Axis("image", extent=(rows, columns), media=Media.picture(pixels))


def sound_axis(frames: int = 60, seconds: float = 1.5) -> Axis:
    """An axis over a sound with three beeps."""
    time = torch.arange(int(8000 * seconds)) / 8000
    loud = ((time * 2) % 1 < 0.6).float() * (1 - (time * 2) % 1)
    samples = 0.8 * loud * torch.sin(2 * torch.pi * 440 * time * (1 + time.floor()))
    return Axis("time", extent=(frames, seconds), media=Media.sound(samples, 8000))


def features_axis(frames: int = 60, seconds: float = 1.5) -> Axis:
    """An axis over time with a picture of features."""
    bands, places = torch.meshgrid(
        torch.linspace(1, 0, 40), torch.linspace(0, 9, 240), indexing="ij"
    )
    pixels = torch.exp(-12 * (bands - 0.5 - 0.35 * torch.sin(places)) ** 2)
    return Axis("time", extent=(frames, seconds), media=Media.picture(pixels))


STORY = [
    "Mary moved to the bathroom.", "John went to the hallway.", "Mary took the football there.",
    "Daniel went back to the hallway.", "Sandra moved to the garden with the apple.",
]  # fmt: skip


def kinds_trace() -> Trace:
    """A trace with one map to each kind of axis, from generated tokens, hops and labels."""
    axes = {
        "target": Axis("tokens", ["▁a", "▁red", "▁disc", "</s>"], steps=True),
        "hops": Axis("labels", ["hop 1", "hop 2", "hop 3"], steps=True),
        "picture": picture_axis(),
        "sound": sound_axis(),
        "features": features_axis(),
        "memory": Axis("slots", STORY),
        "classes": Axis("labels", ["disc", "square", "star"]),
    }
    maps = {
        "caption": ("target", "picture", _bump(2, 4, 7, 7)),
        "patches": ("picture", "picture", weights(2, 49, 49)),
        "speech": ("target", "sound", _bump(2, 4, 1, 60)),
        "listener": ("target", "features", _bump(1, 4, 1, 60)),
        "reader": ("hops", "memory", weights(1, 3, 5)),
        "classes": ("target", "classes", weights(1, 4, 3)),
    }
    return Trace.of(axes, maps, title="all kinds")


def _bump(heads: int, queries: int, rows: int, columns: int) -> torch.Tensor:
    """Weights whose maximum moves over the cells from query to query."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    found = torch.zeros(heads, queries, rows * columns)
    for head in range(heads):
        for query in range(queries):
            share = (query + 0.5) / queries
            near = (x / columns - share) ** 2 + (y / rows - (share if head else 0.35)) ** 2
            found[head, query] = torch.exp(-30 * near).flatten()
    return found / found.sum(-1, keepdim=True)
