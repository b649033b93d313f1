"""How the page draws each kind of axis: over a picture, along time, a memory's slots."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heedful.inference import Axis, Trace
from heedful.serving import make_application
from heedful.viewing.page import export_html
from page_help import STORY, kinds_trace, needs_browser, opened, pixels
from serving_help import running

pytestmark = needs_browser()
KINDS = kinds_trace()


def only(name: str) -> Trace:
    """The trace of one map."""
    one = KINDS[name]
    axes = {axis: KINDS.axes[axis] for axis in (one.query_axis, one.key_axis)}
    return Trace.of(axes, {name: (one.query_axis, one.key_axis, one.weights)}, title=name)


def exported(folder: Path, name: str) -> str:
    export_html(only(name), folder / "view.html")
    return (folder / "view.html").as_uri()


def said(it: Any) -> str:
    return str(it.page.inner_text(".heed-axis-view .heed-readout >> visible=true"))


def test_weights_lie_over_the_picture_step_by_step(chromium: Any, tmp_path: Path) -> None:
    mean = KINDS["caption"].weights.mean(0)
    with opened(chromium, exported(tmp_path, "caption")) as it:
        assert it.page.get_attribute("[data-panel=steps]", "aria-selected") == "true"
        for step in (0, 1):
            best = int(mean[step].argmax())
            place = f"Largest: row {best // 7 + 1} column {best % 7 + 1}, {mean[step].max():.3f}"
            assert said(it)[:-1] == place[:-1]
            it.page.focus("input[type=range] >> visible=true")
            it.page.keyboard.press("ArrowRight")
        assert "a red disc" in it.page.inner_text(".heed-steps .heed-sentence").replace("\n", " ")
        it.page.focus(".heed-image-view >> visible=true")
        it.page.keyboard.press("ArrowDown")
        it.page.keyboard.press("ArrowRight")
        assert said(it).startswith("row 2 column 2, ")
        box = it.page.locator(".heed-image-view >> visible=true").bounding_box()
        it.page.mouse.move(box["x"] + box["width"] * 0.99, box["y"] + 3)
        assert said(it).startswith("row 1 column 7, ")


def test_cells_with_little_weight_are_hidden(chromium: Any, tmp_path: Path) -> None:
    """Of the saved picture: its colours where the weights are, grey elsewhere; smooth or not."""
    weights = KINDS["caption"].weights[0, 0].numpy()
    with opened(chromium, exported(tmp_path, "caption")) as it:
        it.tab("heads")
        it.page.wait_for_selector(".heed-image-view >> visible=true")
        picture = pixels(it.saved("png"))
        svg = ET.fromstring(it.saved("svg"))
        it.page.click("text=Smooth >> visible=true")
        smooth = pixels(it.saved("png"))
        it.page.locator("input[type=range][max='1'] >> visible=true").fill("0")
        bare = pixels(it.saved("png"))
        it.page.click("text=Weights over the picture >> visible=true")
        plain = pixels(it.saved("png"))
    side = len(picture) / 7
    middles = [int((place + 0.5) * side) for place in range(7)]
    shown = picture[middles][:, middles].astype(int).reshape(49, -1)
    own = plain[middles][:, middles].astype(int).reshape(49, -1)
    hidden = abs(shown - own).max(1) / abs(own - 128).max(1)
    assert hidden[weights.argmax()] < 0.02
    share = 0.85 * (1 - (weights.min() / weights.max()) ** 0.75)
    assert hidden[weights.argmin()] == pytest.approx(share, abs=0.05)
    assert abs(smooth.astype(int) - picture).max() > 20
    assert abs(bare.astype(int) - plain).max() <= 2
    assert len(svg.findall(".//{http://www.w3.org/2000/svg}image")) == 2


def test_the_places_of_steps_are_outlined(chromium: Any, tmp_path: Path) -> None:
    weights = torch.zeros(1, 3, 20)  # 4 rows of 5 cells
    weights[0, 0, [6, 7, 11, 12]] = 0.24
    weights[0, 0, 19] = 0.04  # less than half of the largest weight
    weights[0, 1, [2]] = 1.0
    weights[0, 2, [13, 14, 18, 19]] = 0.25
    glimpses = Axis("labels", ["first", "second", "third"], steps=True)
    axes = {"glimpses": glimpses, "image": Axis("image", extent=(4, 5))}
    trace = Trace.of(axes, {"sensor": ("glimpses", "image", weights)}, title="3")
    export_html(trace, tmp_path / "view.html")
    with opened(chromium, (tmp_path / "view.html").as_uri()) as it:
        assert it.page.get_attribute("[data-panel=steps]", "aria-selected") == "true"
        counts = []
        for _ in range(3):
            drawn = ET.fromstring(it.saved("svg"))
            boxes = drawn.findall(".//{http://www.w3.org/2000/svg}rect[@stroke]")
            counts.append(len(boxes))
            it.page.focus("input[type=range] >> visible=true")
            it.page.keyboard.press("ArrowRight")
    assert counts == [1, 2, 3]
    assert float(boxes[0].get("width")) == pytest.approx(2 * float(boxes[1].get("width")))
    cell = float(boxes[1].get("width"))
    measured = [round(float(boxes[2].get(name)) / cell) for name in ("x", "y", "width", "height")]
    assert measured == [3, 2, 2, 2]


def test_a_cell_of_the_picture_is_chosen_as_the_query(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, exported(tmp_path, "patches")) as it:
        it.tab("heads")
        box = it.page.locator(".heed-image-view >> visible=true").bounding_box()
        it.page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
        assert it.page.inner_text(".heed-query-label") == "row 4 column 4"
        it.page.focus(".heed-image-view >> visible=true")
        it.page.keyboard.press("Home")
        it.page.keyboard.press("Enter")
        assert it.page.inner_text(".heed-query-label") == "row 4 column 1"
        weight = float(KINDS["patches"].weights[0, 21, 21])
        assert abs(float(said(it).split(", ")[1]) - weight) < 0.002


def test_several_heads_stand_side_by_side(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, exported(tmp_path, "caption")) as it:
        it.tab("heads")
        it.page.click("text=Whole layer")
        it.page.wait_for_function(
            "document.querySelectorAll('.heed-axis-views .heed-image-view').length == 2"
        )


@pytest.mark.parametrize("name", ["speech", "listener"])
def test_weights_along_time(chromium: Any, tmp_path: Path, name: str) -> None:
    with opened(chromium, exported(tmp_path, name)) as it:
        frame = int(KINDS[name].weights.mean(0)[0].argmax())
        begin = float(said(it).removeprefix("Largest: ").split(" ")[0])
        assert begin == pytest.approx(frame * 0.025, abs=0.006)
        it.page.focus(".heed-time-view >> visible=true")
        it.page.keyboard.press("End")
        it.page.keyboard.press("ArrowLeft")
        assert said(it).startswith("1.45 to 1.47 s, ")
        svg = it.saved("svg").decode()
        assert ">1.0 s</" in svg
        if name == "speech":
            it.page.wait_for_selector("text=Play the sound")
            it.page.focus(".heed-time-view >> visible=true")
            it.page.keyboard.press("Home")
            it.page.keyboard.press("Enter")
            it.page.wait_for_selector("text=Stop")
            it.page.wait_for_selector("text=Play the sound")  # at its end
            assert it.page.evaluate("document.querySelectorAll('.heed-time-view path').length") == 2
        else:
            assert not it.page.is_visible("text=Play the sound")


def test_a_memorys_slots_are_rows_with_a_column_a_hop(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, exported(tmp_path, "reader")) as it:
        rows = it.page.locator(".heed-slots tbody tr >> visible=true")
        assert [text.split("\t")[0] for text in rows.all_inner_texts()] == STORY
        shown = [[float(cell) for cell in text.split("\t")[1:]] for text in rows.all_inner_texts()]
        np.testing.assert_allclose(shown, KINDS["reader"].weights[0].T, atol=0.003)
        assert it.page.inner_text(".heed-slots th.heed-current") == "hop 1"


def test_many_slots_are_one_matrix_and_heads_have_the_names_of_their_modules(
    chromium: Any, tmp_path: Path
) -> None:
    weights = torch.eye(64)[:20].expand(1, -1, -1)
    axes = {
        "steps": Axis("labels", [f"step {i + 1}" for i in range(20)], steps=True),
        "slots": Axis("slots", [f"slot {i + 1}" for i in range(64)]),
    }
    maps = dict.fromkeys(("writing", "reading"), ("steps", "slots", weights))
    export_html(Trace.of(axes, maps, title="machine"), tmp_path / "view.html")
    with opened(chromium, (tmp_path / "view.html").as_uri()) as it:
        it.tab("steps")
        strip = it.page.locator(".heed-steps canvas.heed-matrix")
        assert strip.bounding_box()["height"] < 600  # all slots, without scrolling
        assert not it.page.is_visible(".heed-slots >> visible=true")
        it.tab("heads")
        assert it.page.locator(".heed-layer-name").all_inner_texts() == ["Writing", "Reading"]
        assert "Reading · head 1" in it.page.inner_text(".heed-heads")
        assert not it.page.is_visible("text=outside the visible part")


def test_a_list_of_labels_has_bars_and_a_matrix(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, exported(tmp_path, "classes")) as it:
        it.tab("steps")
        assert it.page.locator(".heed-weights li >> visible=true").count() == 3
        it.tab("heads")
        assert it.page.is_visible("canvas.heed-matrix >> visible=true")


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_page(chromium: Any, tmp_path: Path, width: int) -> None:
    for name in ("caption", "speech", "reader"):
        address = exported(tmp_path, name)
        with opened(chromium, address, viewport={"width": width, "height": 800}) as it:
            for tab in ("steps", "heads"):
                it.tab(tab)
                it.page.wait_for_selector(".heed-axis-view >> visible=true")
                assert it.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_server_s_policy_lets_media_through(chromium: Any) -> None:
    traces = {name: only(name) for name in ("caption", "speech")}
    with running(make_application([], traces=traces)) as address, opened(chromium, address) as it:
        it.page.wait_for_selector(".heed-image-view >> visible=true")
        it.page.select_option(".heed-head select", "speech")
        it.page.wait_for_selector("text=Play the sound")
