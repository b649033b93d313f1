"""The page as one file: opened from disk it shows a trace, saves pictures, and asks nobody."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heedful.basics.errors import UserError
from heedful.inference.trace import Trace
from heedful.viewing.page import export_html, html, page_data
from page_help import (
    HEBREW,
    SOURCE,
    WRITTEN,
    needs_browser,
    one_axis_trace,
    opened,
    pair_trace,
    pixels,
)

pytestmark = needs_browser()
SVG = "{http://www.w3.org/2000/svg}"


def exported(folder: Path, *traces: Trace) -> str:
    path = folder / "view.html"
    export_html(list(traces), path)
    return path.as_uri()


def cross(trace: Trace) -> torch.Tensor:
    return trace["cross.1"].weights


def numbers(text: str) -> Any:
    """The weights of a CSV with one layer."""
    rows = list(csv.reader(io.StringIO(text)))[1:]
    return np.array([[float(cell) for cell in row[1:]] for row in rows])


def test_alignment_is_drawn_and_read_out(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, exported(tmp_path, trace)) as it:
        tabs = it.page.locator("[role=tab]").all_text_contents()
        assert tabs == ["Links", "Alignment", "Heads", "Steps", "How it works"]
        it.tab("alignment")
        it.page.focus("canvas.heed-matrix >> visible=true")
        it.page.keyboard.press("ArrowDown")
        it.page.keyboard.press("ArrowRight")
        said = it.page.inner_text(".heed-readout >> visible=true")
        weight = cross(trace).mean(0)[1, 1].item()
        assert "klein → small" in said
        assert abs(float(re.search(r"small\s+([\d.]+)", said)[1]) - weight) < 0.01  # type: ignore[index]
        assert f"confidence {np.exp(-0.2):.2f}" in said
        box = it.page.locator("canvas.heed-matrix >> visible=true").bounding_box()
        it.page.mouse.move(box["x"] + 130, box["y"] + 120)
        assert " → " in it.page.inner_text(".heed-readout >> visible=true")


def test_csv_has_the_trace_s_numbers(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, exported(tmp_path, trace)) as it:
        it.tab("alignment")
        whole = it.saved("csv").decode()
        it.page.click("[role=radio]:text-is('Links')")
        hard = it.saved("csv").decode()
        it.page.click("[role=radio]:text-is('Words') >> visible=true")
        it.page.click("[role=radio]:text-is('Weights')")
        words = it.saved("csv").decode()
        it.tab("heads")
        it.page.click("text=Whole layer")
        it.page.wait_for_selector(".heed-legend li >> nth=2")
        several = it.saved("csv").decode()
    expected = cross(trace).mean(0).numpy()
    rows = list(csv.reader(io.StringIO(whole)))
    assert rows[0] == ["", "The", "small", "dog", "sleeps", ".", "</s>"]
    assert [row[0] for row in rows[1:]] == ["Der", "klein", "·e", "Hund", "schläft", ".", "</s>"]
    found = numbers(whole)
    # Half of a byte's step, of each head.
    assert np.abs(found - expected).max() <= cross(trace).amax().item() / 255 / 2 + 1e-6
    linked = numbers(hard)
    assert (linked.argmax(1) == expected.argmax(1)).all()
    assert (linked.sum(1) == 1).all()
    by_word = list(csv.reader(io.StringIO(words)))
    assert by_word[0] == ["", "The", "small", "dog", "sleeps."]
    assert [row[0] for row in by_word[1:]] == ["Der", "kleine", "Hund", "schläft."]
    small = expected[1:3, 1].mean()
    assert abs(float(by_word[2][2]) - small) < 0.005
    layers = list(csv.reader(io.StringIO(several)))
    assert len(layers) == 1 + 3 * len(WRITTEN)
    of_head = np.array([[float(cell) for cell in row[2:]] for row in layers[1:]])
    step = cross(trace).amax().item() / 255 / 2 + 1e-6
    assert np.abs(of_head - cross(trace).numpy().reshape(-1, len(SOURCE))).max() <= step


def test_png_and_svg_show_the_weights(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, exported(tmp_path, trace)) as it:
        it.tab("heads")
        it.page.click("[data-map='5'][data-head='1']")
        it.page.wait_for_selector("text=Layer 2 · head 2")
        png, svg = it.saved("png"), it.saved("svg")
    weights = cross(trace)[1].numpy()
    root = ET.fromstring(svg)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[:-3] == ["Cross: Layer 2 · head 2", "Der", "klein", "·e", "Hund", "schläft", ".",
                          "</s>", "The", "small", "dog", "sleeps", ".", "</s>"]  # fmt: skip
    assert texts[-3:] == ["Weight", "0", f"{weights.max():.3f}"]
    (panel,) = (one for one in root if "translate(0 30)" in one.get("transform", ""))
    fields = [field for field in panel.iter(f"{SVG}rect") if field.get("data-row")]
    found = np.zeros_like(weights)
    image, (width, height) = pixels(png), _size(root)
    sharp = image.shape[1] / width
    assert abs(image.shape[0] / height - sharp) < 0.05
    for field in fields:
        row, column = int(field.get("data-row", "")), int(field.get("data-column", ""))
        found[row, column] = float(field.get("data-weight", ""))
        middle = [
            int((off + float(field.get(at, "")) + float(field.get(side, "")) / 2) * sharp)
            for at, side, off in (("y", "height", 30), ("x", "width", 0))
        ]
        colour = [int(part) for part in re.findall(r"\d+", field.get("fill", ""))]
        assert np.abs(image[middle[0], middle[1]] - colour).max() <= 2
    assert np.abs(found - weights).max() <= weights.max() / 255 / 2 + 1e-6
    # The heavier a weight, the darker its field.
    order = sorted(fields, key=lambda field: float(field.get("data-weight", "")))
    reds = [int(re.findall(r"\d+", field.get("fill", ""))[0]) for field in order]
    assert reds == sorted(reds, reverse=True)


def _size(root: ET.Element) -> tuple[float, float]:
    return float(root.get("width", "")), float(root.get("height", ""))


def test_lines_of_one_word(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, exported(tmp_path, trace)) as it:
        it.tab("heads")
        it.page.click("text=Whole layer")
        it.page.click("text=Lines of one word")
        it.page.click(".heed-queries button >> nth=3")
        drawn = it.page.eval_on_selector_all(
            ".heed-lines path",
            "all => all.map(one => [+one.dataset.column, +one.dataset.weight,"
            " one.getAttribute('stroke'), +one.getAttribute('stroke-opacity')])",
        )
        svg = it.saved("svg")
        png = pixels(it.saved("png"))
    rows = cross(trace)[:, 3]
    colours = list(dict.fromkeys(colour for _, _, colour, _ in drawn))
    assert len(colours) == 3  # a colour a head
    for column, weight, colour, opacity in drawn:
        expected = rows[colours.index(colour), column].item()
        assert abs(weight - expected) < 0.005
        assert opacity == pytest.approx(weight**0.7, abs=0.01)
    root = ET.fromstring(svg)
    assert len(list(root.iter(f"{SVG}path"))) == len(drawn)
    assert "Hund" in {text.text for text in root.iter(f"{SVG}text")}
    assert png.std() > 1


def test_steps_move(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, exported(tmp_path, trace)) as it:
        it.tab("steps")
        it.page.focus(".heed-steps input[type=range]")
        it.page.keyboard.press("ArrowRight")
        assert "Step 2 of 7: output klein" in it.page.inner_text(".heed-step-readout")
        shown = it.page.locator(".heed-weights .heed-number").all_text_contents()
        expected = cross(trace).mean(0)[1]
        assert [float(each) for each in shown] == pytest.approx(expected.tolist(), abs=0.005)
        it.page.click("text=Play >> visible=true")
        it.page.wait_for_selector("text=Step 3 of 7")
        it.page.click("text=Pause")


def test_two_traces_beside_each_other(chromium: Any, tmp_path: Path) -> None:
    one, two = pair_trace(), pair_trace(title="another", seed=5)
    with opened(chromium, exported(tmp_path, one, two)) as it:
        it.tab("compare")
        it.page.wait_for_selector(".heed-side:nth-child(2) .heed-detail:not(:empty)")
        choices = it.page.eval_on_selector_all(
            ".heed-side .heed-field select", "all => all.map(o => o.value)"
        )
        assert choices == ["trace:a pair", "alignment", "trace:another", "alignment"]
        saved = [it.saved("csv", f".heed-side:nth-child({place})").decode() for place in (1, 2)]
        for trace, text in zip((one, two), saved, strict=True):
            assert np.abs(numbers(text) - cross(trace).mean(0).numpy()).max() < 0.005


def test_a_file_says_how_faithful_its_attention_was(chromium: Any, tmp_path: Path) -> None:
    measured = {
        "words": 1, "dropped": ["<b>dog"], "attended": 3.25, "random": 1.0,
        "random_spread": 0.5, "draws": 4, "higher": 2,
    }  # fmt: skip
    trace = replace(pair_trace(), faithfulness=measured)
    with opened(chromium, exported(tmp_path, trace, pair_trace(title="other"))) as it:
        it.page.wait_for_selector(".heed-figure:not(:empty)")
        told = it.page.inner_text(".heed-figure")
        assert "(<b>dog), the translation’s log-probability falls by 3.3" in told
        assert "falls by 1.0 ± 0.5 (4 draws). 2 of these 4" in told
        assert not it.page.is_visible("text=Test it on this sentence")
        it.page.select_option("header select", index=1)
        it.page.wait_for_function("!document.querySelector('.heed-figure').textContent")


def test_right_to_left_columns_run_from_the_right(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace(source=HEBREW)
    with opened(chromium, exported(tmp_path, trace)) as it:
        it.tab("alignment")
        it.page.focus("canvas.heed-matrix >> visible=true")
        it.page.keyboard.press("ArrowLeft")  # on to the second word, which stands to the left
        assert "הקטן" in it.page.inner_text(".heed-readout >> visible=true")
        root = ET.fromstring(it.saved("svg"))
        rows = list(csv.reader(io.StringIO(it.saved("csv").decode())))
    assert rows[0][1:3] == ["הכלב", "הקטן"]  # files keep the order of the text
    place = {
        int(field.get("data-column", "")): float(field.get("x", ""))
        for field in root.iter(f"{SVG}rect")
        if field.get("data-row") == "0"
    }
    assert sorted(place, key=lambda column: -place[column]) == sorted(place)


def test_markup_in_texts_stays_text(chromium: Any, tmp_path: Path) -> None:
    hostile = ["▁<img", "src=x", "onerror=alert(1)>", "▁</script><script>x()", "</s>"]
    trace = pair_trace(source=hostile, title="<b>bold</b></script><!--<script>")
    with opened(chromium, exported(tmp_path, trace)) as it:
        for tab in ("alignment", "heads", "steps"):
            it.tab(tab)
            it.page.wait_for_timeout(100)
        it.page.click("[data-panel=heads]")
        it.page.click("text=Lines of one word")
        assert "</script><script>x()" in it.page.inner_text(".heed-keys")
        assert it.page.locator("main img, main script, main b, header b").count() == 0
        assert it.page.inner_text(".heed-title") == "<b>bold</b></script><!--<script>"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_dark_and_light(chromium: Any, tmp_path: Path, scheme: str) -> None:
    address = exported(tmp_path, pair_trace(), pair_trace(title="b"))
    size = {"width": 360, "height": 700}
    with opened(chromium, address, viewport=size, color_scheme=scheme) as it:
        for tab in ("alignment", "heads", "steps", "compare"):
            it.tab(tab)
            it.page.wait_for_timeout(150)
            assert it.page.evaluate("document.documentElement.scrollWidth") == 360, tab
        it.tab("alignment")
        backgrounds = []
        for _ in range(2):
            backgrounds.append(pixels(it.page.screenshot()).mean(axis=(0, 1)).mean())
            assert _contrast(it.page) >= 4.5
            it.page.click(".heed-theme")
        dark, light = backgrounds if scheme == "dark" else reversed(backgrounds)
        assert dark < 60 < 200 < light


def _contrast(page: Any) -> float:
    """The least contrast of the page's texts with its ground (WCAG 2.1, relative luminance)."""
    colours = page.evaluate(
        "() => { const root = document.querySelector('.heedful');"
        "const texts = [...root.querySelectorAll('button, p, h2, small, strong')];"
        "return [root, ...texts].map(one => getComputedStyle(one))"
        ".map((style, i) => i ? style.color : style.backgroundColor); }"
    )
    levels = [_luminance([int(n) for n in re.findall(r"\d+", one)[:3]]) for one in colours]
    ground = levels[0]
    return min((max(a, ground) + 0.05) / (min(a, ground) + 0.05) for a in levels[1:])


def _luminance(colour: list[int]) -> float:
    shares = [part / 255 for part in colour]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_one_axis_has_heads_and_no_alignment(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, exported(tmp_path, one_axis_trace(9, 12, 12))) as it:
        assert it.page.get_attribute("[data-panel=links]", "aria-selected") == "true"
        it.tab("heads")
        assert it.page.locator(".heed-thumbnail").count() == 144
        it.tab("steps")
        assert "Step 1 of 9: at token0" in it.page.inner_text(".heed-step-readout")
        it.tab("alignment")
        notice = it.page.inner_text(".heed-notice >> visible=true")
        assert "there is no alignment; see Heads" in notice


def test_of_one_sequence_each_step_says_what_followed(chromium: Any, tmp_path: Path) -> None:
    trace = replace(one_axis_trace(3), decided=["b", "c", "d"], log_probabilities=[-0.7, 0.0, 0.0])
    with opened(chromium, exported(tmp_path, trace)) as it:
        it.tab("steps")
        said = it.page.inner_text(".heed-step-readout")
        assert "Step 1 of 3: at token0, output b · confidence 0.50" in said


def test_the_rows_of_a_pooling_have_no_probability(chromium: Any, tmp_path: Path) -> None:
    axes = {"hops": ["hop 1", "hop 2"], "text": ["<s>", "a", "</s>"]}
    maps = {"pooling": ("hops", "text", torch.full((1, 2, 3), 1 / 3))}
    trace = replace(Trace.of(axes, maps, title="a"), decided=["good"], log_probabilities=[-0.1])
    with opened(chromium, exported(tmp_path, trace)) as it:
        it.tab("alignment")
        it.page.focus("canvas.heed-matrix >> visible=true")
        it.page.keyboard.press("ArrowRight")
        said = it.page.inner_text(".heed-readout >> visible=true")
        assert "entropy" in said
        assert "confidence" not in said
        it.tab("steps")
        said = it.page.inner_text(".heed-step-readout")
        assert "Step 1 of 2: at hop 1" in said
        assert "confidence" not in said


def test_without_attention_no_panel_sends_to_another(chromium: Any, tmp_path: Path) -> None:
    nothing = Trace.of({"source": ["a", "</s>"], "target": ["<s>", "b"]}, {}, title="a")
    with opened(chromium, exported(tmp_path, nothing)) as it:
        for panel in ("alignment", "heads", "steps"):
            it.tab(panel)
            said = it.page.inner_text(".heed-notice >> visible=true")
            assert said.startswith("this model has no attention"), panel
            assert "single sequence" not in said


@pytest.mark.parametrize("length", [512, 1024])
def test_long_sequences_are_drawn_soon(
    chromium: Any, tmp_path: Path, length: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(chromium, exported(tmp_path, one_axis_trace(length, 2))) as it:
        it.page.wait_for_selector(".heed-legend li")
        started = it.page.evaluate("performance.now()")
        it.page.click("[data-map='0'][data-head='1']")
        it.page.wait_for_selector("text=Layer 1 · head 2")
        taken = it.page.evaluate("performance.now()") - started
        drawn = float(
            it.page.get_attribute("canvas.heed-matrix >> visible=true", "data-milliseconds")
        )
        canvas = it.page.locator("canvas.heed-matrix >> visible=true")
        assert "Not all labels fit: shown are 1 of " in it.page.inner_text(
            ".heed-chosen .heed-readout >> visible=true"
        )
        canvas.hover(position={"x": 300, "y": 300})
        it.page.mouse.wheel(0, -100)  # scrolls the page
        assert not it.page.is_visible(".heed-overview >> visible=true")
        it.page.keyboard.down("Control")
        it.page.mouse.wheel(0, -100)
        it.page.keyboard.up("Control")
        it.page.wait_for_selector(".heed-overview >> visible=true")
        canvas.focus()
        for _ in range(4):
            it.page.keyboard.press("+")
        assert it.page.is_visible(".heed-overview >> visible=true")
        box = canvas.bounding_box()
        it.page.mouse.move(box["x"] + 300, box["y"] + 300)
        before = it.page.inner_text(".heed-readout >> visible=true")
        it.page.mouse.down()
        it.page.mouse.move(box["x"] + 220, box["y"] + 220, steps=3)
        it.page.mouse.up()
        it.page.mouse.move(box["x"] + 300, box["y"] + 300)
        assert it.page.inner_text(".heed-readout >> visible=true") != before  # it was dragged away
        it.page.keyboard.press("0")
        assert not it.page.is_visible(".heed-overview >> nth=1")
    with capsys.disabled():
        print(f"\n  {length} tokens: chosen and shown in {taken:.0f} ms, drawn in {drawn:.0f} ms")
    assert taken < 5000


def test_what_an_exported_file_holds(tmp_path: Path) -> None:
    same = pair_trace()
    names = [each["name"] for each in page_data([same, same, pair_trace(title="")])["traces"]]
    assert names == ["a pair", "a pair (2)", "trace 3"]
    text = html(same)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    found = re.search(r'id="heedful-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert len(json.loads(found[1])["traces"][0]["maps"]) == len(same.maps)
    with pytest.raises(UserError, match="no trace"):
        export_html([], tmp_path / "none.html")
