"""The link view: the first panel of a trace."""

import csv
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.inference.trace import Trace
from heedful.viewing.page import export_html
from page_help import (
    HEBREW,
    SOURCE,
    WRITTEN,
    needs_browser,
    one_axis_trace,
    opened,
    pair_trace,
    pixels,
    weights,
)

pytestmark = needs_browser()
SVG = "{http://www.w3.org/2000/svg}"
# The pixels that a canvas has drawn on, once they are the same in three frames: links are drawn a
# part in each frame.
INKED = """async (name) => {
    const count = () => {
        const drawn = document.querySelector(name);
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [drawn.width, drawn.height];
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(drawn, 0, 0);
        const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
        let inked = 0;
        for (let i = 3; i < data.length; i += 4) inked += data[i] > 0;
        return inked;
    };
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    let [before, same] = [-1, 0];
    for (let frames = 0; same < 2 && frames < 60; frames++) {
        await frame();
        const now = count();
        same = now === before ? same + 1 : 0;
        before = now;
    }
    return before; }"""


def exported(folder: Path, trace: Trace) -> str:
    path = folder / "view.html"
    export_html(trace, path)
    return path.as_uri()


def ready(it: Any) -> None:
    it.page.wait_for_selector(".heed-link-token")
    it.page.wait_for_timeout(80)


def inked(it: Any, canvas: str) -> int:
    return int(it.page.evaluate(INKED, f".heed-links-{canvas}"))


def threshold(it: Any, place: int) -> None:
    slider = it.page.locator("[aria-label='Hide links below']")
    slider.evaluate(f"(one) => {{ one.value = {place}; one.dispatchEvent(new Event('input')); }}")


def test_all_links_are_drawn_and_hidden_ones_are_counted(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    mean = trace["cross.1"].weights.mean(0)
    with opened(chromium, exported(tmp_path, trace)) as it:
        ready(it)
        layout = it.page.get_attribute(".heed-links-frame", "data-layout")
        keys = it.page.locator("[data-side=key] .heed-link-token")
        queries = it.page.locator("[data-side=query] .heed-link-token")
        above = keys.first.bounding_box()["y"] < queries.first.bounding_box()["y"]
        assert (layout, above) == ("rows", True)
        assert queries.all_text_contents() == ["Der", "klein", "·e", "Hund", "schläft", ".", "</s>"]
        threshold(it, 0)
        everything = inked(it, "base")
        threshold(it, 4)
        it.page.wait_for_timeout(80)
        some = inked(it, "base")
        count = it.page.inner_text(".heed-links .heed-detail")
        paths = ET.fromstring(it.saved("svg")).findall(f".//{SVG}path")
    strong = int((mean >= 0.1).sum())
    assert count == f"{strong} of 42 links are shown; {42 - strong} below 0.1 are hidden."
    assert 0 < some < everything
    drawn = {(int(p.get("data-row", "")), int(p.get("data-column", ""))) for p in paths}
    assert drawn == {(row, column) for row, column in np.argwhere(mean.numpy() >= 0.1).tolist()}
    for path in paths:
        weight = mean[int(path.get("data-row", "")), int(path.get("data-column", ""))].item()
        assert abs(float(path.get("data-weight", "")) - weight) < 0.005
    # The larger the weight, the wider and the more opaque the link.
    paths.sort(key=lambda path: float(path.get("data-weight", "")))
    for measure in ("stroke-width", "stroke-opacity"):
        found = [float(path.get(measure, "")) for path in paths]
        assert found == sorted(found)
        assert found[0] < found[-1]


def test_a_word_isolates_its_links_in_both_directions(chromium: Any, tmp_path: Path) -> None:
    mean = pair_trace()["cross.1"].weights.mean(0)
    with opened(chromium, exported(tmp_path, pair_trace())) as it:
        ready(it)
        assert inked(it, "over") == 0
        it.page.hover("[data-side=key] .heed-link-token >> nth=2")
        it.page.wait_for_timeout(80)
        said = it.page.inner_text(".heed-links-readout")
        best = ["Der", "klein", "·e", "Hund", "schläft", ".", "</s>"][int(mean[:, 2].argmax())]
        read = re.match(r"dog is read by (\S+) ([\d.]+), ", said)
        assert read
        assert read[1] == best
        assert abs(float(read[2]) - mean[:, 2].max().item()) < 0.005
        assert inked(it, "over") > 0
        assert it.page.locator(".heed-isolating").count() == 1
        # By keyboard: the queries are one stop of Tab, arrows move within them.
        it.page.mouse.move(2, 2)
        it.page.focus("[data-side=query] .heed-link-token >> nth=0")
        it.page.keyboard.press("ArrowRight")
        said = it.page.inner_text(".heed-links-readout")
        assert said.startswith("klein reads ")
        assert it.page.inner_text(".heed-visually-hidden[aria-live=polite]") == said
        # Selected, it stays; Escape shows all links again.
        it.page.keyboard.press("Enter")
        it.tab("links")
        assert it.page.inner_text(".heed-links-readout").startswith("klein reads ")
        it.page.focus("[data-side=query] .heed-link-token >> nth=1")
        it.page.keyboard.press("Escape")
        assert it.page.locator(".heed-isolating").count() == 0


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_play_writes_token_by_token(chromium: Any, tmp_path: Path, motion: str) -> None:
    address = exported(tmp_path, pair_trace())
    with opened(chromium, address, reduced_motion=motion) as it:
        ready(it)
        everything = inked(it, "base")
        it.page.click(".heed-play")
        it.page.wait_for_timeout(900)
        visible = it.page.locator("[data-side=query] .heed-link-token:not([data-state=unwritten])")
        assert 0 < visible.count() < len(WRITTEN)
        assert 0 < inked(it, "base") < everything
        # Links grow on the upper canvas, unless the user prefers no motion.
        assert (inked(it, "over") > 0) == (motion == "no-preference")
        it.page.click(".heed-play:text-is('Pause')")
        slider = it.page.locator("[aria-label='Tokens written']")
        slider.focus()
        it.page.keyboard.press("End")
        it.page.wait_for_timeout(80)
        assert visible.count() == len(WRITTEN)
        assert inked(it, "base") == everything
        assert slider.get_attribute("aria-valuetext") == "7 of 7 tokens"


def test_heads_and_layers_are_filters_in_colour(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, exported(tmp_path, trace)) as it:
        ready(it)
        it.page.click("text=Colour by head")
        it.page.click(".heed-chip:text-is('Head 2')")
        heads = list(csv.reader(io.StringIO(it.saved("csv").decode())))
        image = pixels(it.saved("png"))
        it.page.select_option("label:has-text('Layer') select", label="All layers")
        names = it.page.locator(".heed-chip").all_text_contents()
        layers = list(csv.reader(io.StringIO(it.saved("csv").decode())))
        it.page.click("[role=radio]:text-is('Words')")
        words = it.page.locator("[data-side=query] .heed-link-token").all_text_contents()
        left = it.page.inner_text(".heed-links .heed-detail")
    assert {row[0] for row in heads[1:]} == {"Head 1", "Head 3"}
    found = np.array([[float(one) for one in row[2:]] for row in heads[1:]])
    expected = trace["cross.1"].weights[[0, 2]].flatten(0, 1).numpy()
    assert np.abs(found - expected).max() < 0.003
    colours = {tuple(colour) for colour in image.reshape(-1, 3).tolist()}
    assert (0x00, 0x72, 0xB2) in colours  # the first head's, in the legend
    assert (0xD5, 0x5E, 0x00) not in colours
    assert names == ["Layer 1", "Layer 2"]
    assert {row[0] for row in layers[1:]} == {"Layer 1", "Layer 2"}
    assert words == ["Der", "kleine", "Hund", "schläft."]
    assert left.endswith("Tokens that belong to no word, such as </s>, are left out.")


def test_layout_follows_the_space(chromium: Any, tmp_path: Path) -> None:
    """Rows, columns, arcs on a line or beside a column; no label is left out."""
    cases = [
        (pair_trace(SOURCE * 3, WRITTEN * 3), 320, "columns"),
        (pair_trace(SOURCE * 3, WRITTEN * 3), 3840, "rows"),
        (one_axis_trace(8, 2), 1280, "arcs"),
        (one_axis_trace(60), 1280, "column-arcs"),
        (pair_trace(HEBREW * 4, WRITTEN * 3), 320, "columns"),
    ]
    for trace, width, layout in cases:
        size = {"width": width, "height": 900}
        with opened(chromium, exported(tmp_path, trace), viewport=size) as it:
            ready(it)
            assert it.page.get_attribute(".heed-links-frame", "data-layout") == layout
            assert inked(it, "base") > 0
            boxes = it.page.eval_on_selector_all(
                ".heed-link-token",
                "(all) => all.map((one) => { const box = one.getBoundingClientRect();"
                " return [box.left, box.right, one.scrollWidth - one.clientWidth]; })",
            )
            assert all(left >= 0 and right <= width and cut <= 1 for left, right, cut in boxes)
            wide = it.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width


def test_causal_text_has_arcs_to_earlier_tokens_only(chromium: Any, tmp_path: Path) -> None:
    own = weights(2, 6, 6).tril()
    own /= own.sum(-1, keepdim=True)
    trace = Trace.of({"text": list("abcdef")}, {"gpt": ("text", "text", own)}, title="causal")
    with opened(chromium, exported(tmp_path, trace)) as it:
        ready(it)
        threshold(it, 0)
        shown = re.match(
            r"(\d+) of (\d+)|All (\d+)", it.page.inner_text(".heed-links .heed-detail")
        )
        assert shown
        assert (shown[2] or shown[3]) == "21"
        it.page.hover(".heed-link-token >> nth=3")
        said = it.page.inner_text(".heed-links-readout")
        assert "d reads " in said
        assert " · d is read by " in said


def test_present_mode_fills_the_screen(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "view.html"
    export_html([pair_trace(), one_axis_trace(9, 2)], path)
    for width, height in ((1024, 768), (3840, 2160)):
        size = {"width": width, "height": height}
        with opened(chromium, path.as_uri(), viewport=size) as it:
            ready(it)
            it.tab("heads")
            it.page.keyboard.press("p")
            it.page.wait_for_selector(".heed-present .heed-link-token >> visible=true")
            it.page.wait_for_timeout(100)
            stage = it.page.locator(".heed-links-stage").bounding_box()
            assert stage["height"] > 0.75 * height
            assert it.page.evaluate("document.documentElement.scrollHeight") <= height
            assert it.page.locator("button >> visible=true").count() == len(SOURCE + WRITTEN)
            font = it.page.eval_on_selector(
                ".heed-link-token", "(one) => parseFloat(getComputedStyle(one).fontSize)"
            )
            assert font >= height / 24
            it.page.keyboard.press("ArrowRight")
            it.page.wait_for_selector(".heed-link-token:text-is('token8')")
            it.page.keyboard.press("ArrowLeft")
            it.page.wait_for_selector(".heed-link-token:text-is('Hund')")
            it.page.keyboard.press("Space")
            it.page.wait_for_selector(".heed-link-token[data-state=unwritten]", state="attached")
            it.page.keyboard.press("Escape")
            assert it.page.is_visible(".heed-tabs")
            assert it.page.locator(".heed-links-stage").bounding_box()["height"] < 500
