"""Frames of a sound as queries: links, and what is heard after a click, in a browser."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heedful.inference import Axis, Media, Trace
from heedful.viewing.page import export_html
from page_help import SPY, needs_browser, opened

pytestmark = needs_browser()
TOKENS = ["h", "e", "y", "</s>"]
MANY = [*"thequickbrownfoxjumpsover", "</s>"]
EACH = 0.0125
SVG = "{http://www.w3.org/2000/svg}"


def weights_of(frames: int, tokens: int = len(TOKENS)) -> torch.Tensor:
    """Weights ``[1, frames, tokens]``: a diagonal."""
    centres = (torch.arange(frames) + 0.5) / frames * tokens
    bumps = torch.exp(-0.5 * ((torch.arange(tokens) + 0.5 - centres[:, None]) / 0.4) ** 2)
    return (bumps / bumps.sum(1, keepdim=True))[None]


def saved(path: Path, frames: int, *, tokens: Sequence[str] = TOKENS, sound: bool = True) -> str:
    """The address of a page with the weights of frames over tokens."""
    seconds = frames * EACH
    time = torch.arange(int(8000 * seconds)) / 8000
    media = Media.sound(0.5 * torch.sin(2 * torch.pi * 400 * time), 8000) if sound else None
    axis = Axis("time", extent=(frames, seconds), media=media, steps=True)
    maps = {"decoder.attention": ("time", "source", weights_of(frames, len(tokens)))}
    trace = Trace.of({"source": Axis("tokens", list(tokens)), "time": axis}, maps, title="hey")
    export_html(trace, path / "view.html")
    return (path / "view.html").as_uri()


def played(it: Any) -> list[tuple[float, float]]:
    return [(begin, length) for _, begin, length in it.page.evaluate("window.played")]


def part(first: float, last: float, frames: int) -> tuple[float, float]:
    """The part that is heard of some frames: at least 0.15 s."""
    begin, end, whole = first * EACH, (last + 1) * EACH, frames * EACH
    added = max(0.0, 0.15 - (end - begin)) / 2
    begin = max(0.0, min(begin - added, whole - 0.15))
    return begin, min(max(end + added, begin + 0.15), whole) - begin


@pytest.mark.parametrize(
    ("frames", "every", "width", "tokens"), [(80, 1, 1000, TOKENS), (900, 3, 390, MANY)]
)
def test_links_of_frames_are_heard(
    chromium: Any, tmp_path: Path, frames: int, every: int, width: int, tokens: list[str]
) -> None:
    """A frame plays its part, a token the frames that read it; many frames are joined."""
    weights = weights_of(frames, len(tokens))[0].unflatten(0, (-1, every)).mean(1)
    with opened(chromium, saved(tmp_path, frames, tokens=tokens)) as it:
        it.page.set_viewport_size({"width": width, "height": 800})
        it.page.evaluate(SPY)
        it.tab("links")
        it.page.wait_for_selector("text=Click a part of the sound, or a token, to hear it.")
        it.page.mouse.move(0, 0)  # the readout describes what is under the pointer
        queries = it.page.locator("[data-side=query] button")
        assert queries.count() == frames // every
        boxes = it.page.evaluate(
            "[...document.querySelectorAll('[data-side=query] button')].map((one) => {"
            "const { x, y, width, height } = one.getBoundingClientRect();"
            "return [x, y, width, height]; })"
        )
        across = width > 400
        along = np.array(boxes)[:, [0, 2] if across else [1, 3]]
        np.testing.assert_allclose(along[1:, 0], along[:-1].sum(1), atol=0.1)  # one after the other
        for at in (0, 30, frames // every - 1):
            queries.nth(at).focus()
            it.page.keyboard.press("Enter")
            [*_, found] = played(it)
            assert found == pytest.approx(part(at * every, at * every + every - 1, frames))
            said = it.page.inner_text(".heed-links-readout")
            most = int(weights[at].argmax())
            assert f" s reads {tokens[most]} " in said
            assert float(said.split(" reads ")[1].split(",")[0].split()[-1]) == pytest.approx(
                float(weights[at].max()), abs=0.006
            )
        it.page.click("[data-side=key] button >> nth=1")
        [*_, (begin, length)] = played(it)
        column = weights[:, 1]
        first, last = round(begin / EACH / every), round((begin + length) / EACH / every)
        assert 0.89 <= float(column[first:last].sum() / column.sum()) < 0.97
        drawn = ET.fromstring(it.saved("svg"))
        texts = ["".join(one.itertext()) for one in drawn.iter(f"{SVG}text")]
        assert tokens[0] in texts
        assert sum(text.endswith(" s") for text in texts) <= 12  # times, but not of each frame
        assert it.errors == []


def test_a_click_on_a_matrix_plays_the_frame(chromium: Any, tmp_path: Path) -> None:
    """In Steps a column is a frame; in Alignment and in Heads a row is one."""
    frames = 60
    with opened(chromium, saved(tmp_path, frames)) as it:
        it.page.evaluate(SPY)
        it.tab("steps")
        it.page.wait_for_selector("text=Click to hear a frame.")
        box = it.page.locator(".heed-steps canvas.heed-matrix").bounding_box()
        for share in (0.3, 0.7):
            it.page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            step = int(it.page.input_value(".heed-steps input[type=range]"))
            assert played(it)[-1] == pytest.approx(part(step, step, frames))
        assert played(it)[0] != played(it)[1]
        for tab, presses in (("alignment", 3), ("heads", 5)):
            it.tab(tab)
            canvas = it.page.locator("main > :not([hidden]) canvas.heed-matrix")
            canvas.press("Home")
            for _ in range(presses):
                canvas.press("ArrowDown")
            before = len(played(it))
            canvas.press("Enter")
            assert len(played(it)) == before + 1
            row = presses
            assert played(it)[-1] == pytest.approx(part(row, row, frames))
        assert it.errors == []


def test_frames_without_a_sound_are_linked_and_silent(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, saved(tmp_path, 40, sound=False)) as it:
        it.page.evaluate(SPY)
        it.tab("links")
        it.page.locator("[data-side=query] button").nth(7).click()
        assert it.page.inner_text(".heed-links-readout").startswith("0.09 s reads h")
        assert played(it) == []
        assert not it.page.is_visible("text=to hear it")
        it.tab("steps")
        assert not it.page.is_visible("text=Click to hear")
        assert it.errors == []
