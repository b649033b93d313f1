"""States of the page that were once wrong: each in the browser, as a user meets it."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.inference.trace import Trace
from heedful.serving import Served, make_application
from heedful.viewing.page import export_html
from page_help import (
    kinds_trace,
    needs_browser,
    one_axis_trace,
    opened,
    pair_trace,
    pixels,
)
from serving_help import running, translator

pytestmark = needs_browser()
TEXT = "the small cat sat on a mat"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    models = [Served("only", translator(seed=1), "en", "de")]
    with running(make_application(models, traces={"kinds": kinds_trace()})) as one:
        yield one


def typed(it: Any) -> None:
    it.page.fill(".heed-translate textarea", TEXT)
    it.page.wait_for_selector(".heed-target .heed-word")


def file_of(folder: Path, *traces: Any) -> str:
    export_html(traces, folder / "page.html")
    return (folder / "page.html").as_uri()


def test_several_heads_are_small_multiples_with_one_scale(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, file_of(tmp_path, trace)) as it:
        it.tab("heads")
        it.page.click("text=Whole layer")
        assert it.page.locator(".heed-multiples button").count() == 3
        peak = float(it.page.inner_text(".heed-scale .heed-number >> nth=1 >> visible=true"))
        root, image = ET.fromstring(it.saved("svg")), pixels(it.saved("png"))
        it.page.click(".heed-multiples button >> nth=1")
        it.page.wait_for_selector("h3:text-is('Cross: Layer 2 · head 2')")
        assert it.page.locator(".heed-multiples button >> visible=true").count() == 0
    names = [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "name"]
    assert names == [f"Layer 2 · head {head}" for head in (1, 2, 3)]
    weights = trace["cross.1"].weights.max().item()
    assert peak == pytest.approx(weights, abs=0.001)
    cells = [one for one in root.iter(f"{SVG}rect") if one.get("data-weight")]
    full = [
        one.get("fill") for one in cells if float(one.get("data-weight", "0")) >= weights * 0.998
    ]
    assert full == ["rgb(11,107,99)"]  # of all heads, one cell has the full colour
    assert (image == [11, 107, 99]).all(-1).any()


def test_added_maps_are_shown_and_the_figure_stays(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it)
        it.page.click("text=Test it on this sentence")
        it.page.wait_for_selector(".heed-figure:has-text('log-probability')")
        figure = it.page.inner_text(".heed-figure")
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
        it.page.check("text=Include attention × gradient and rollout")
        it.page.wait_for_function(
            "() => document.querySelector('.heed-panel:not([hidden]) select')"
            ".selectedOptions[0]?.text.startsWith('Attention × gradient')"
        )
        assert it.page.inner_text(".heed-figure") == figure


def test_several_heads_tick_the_box_and_lines_are_counted(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, file_of(tmp_path, one_axis_trace(6, heads=12))) as it:
        it.tab("heads")
        box = it.page.locator("label:has-text('Select several heads') input")
        assert not box.is_checked()
        it.page.click("text=Whole layer")
        assert box.is_checked()
        assert it.page.locator(".heed-multiples button").count() == 12
        it.page.click("[role=radio]:has-text('Lines') >> visible=true")
        it.page.wait_for_selector("text=Lines of 8 of the 12 selected heads.")
        assert it.page.locator(".heed-legend li").count() == 8
        box.uncheck()
        assert it.page.locator(".heed-legend li").count() == 1


def test_masked_cells_are_hatched(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, file_of(tmp_path, pair_trace())) as it:
        it.tab("heads")
        for group, masked in (("Encoder", False), ("Decoder", True)):
            it.page.select_option(".heed-panel:not([hidden]) select >> nth=0", label=group)
            it.page.hover("canvas.heed-matrix >> visible=true", position={"x": 3, "y": 3})
            said = it.page.inner_text(".heed-readout >> visible=true")
            assert ("Hatched cells are masked" in said) == masked
        it.page.focus("canvas.heed-matrix >> visible=true")
        it.page.keyboard.press("End")
        it.page.wait_for_selector(".heed-readout:has-text('masked') >> visible=true")


def test_without_the_server_the_reason_is_told(chromium: Any) -> None:
    models = [Served("only", translator(seed=1), "en", "de")]
    with running(make_application(models)) as address, opened(chromium, address) as it:
        typed(it)
        it.page.route("**/api/**", lambda route: route.abort())
        it.page.fill("textarea", "the cat")
        it.page.wait_for_selector("text=the server cannot be reached >> visible=true")
        it.tab("heads")
        said = it.page.inner_text(".heed-notice >> visible=true")
        assert "cannot be reached" in said
        assert "type a sentence" not in said
        it.errors[:] = [error for error in it.errors if "ERR_FAILED" not in error]


def test_captions_name_only_what_is_shown(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it)
        it.tab("alignment")
        it.page.wait_for_selector("text=Confidence: the probability")
        it.page.select_option(".heed-head select", "kinds")
        it.page.wait_for_selector("text=Confidence: the probability", state="hidden")
        it.tab("steps")
        assert "generates one token" not in it.page.inner_text(".heed-steps")


def test_a_model_without_a_comparable_one_is_compared_by_two_maps(chromium: Any) -> None:
    models = [
        Served("only", translator(seed=1), "en", "de"),
        Served("other", translator(seed=2), "fr", "de"),
    ]
    with running(make_application(models)) as address, opened(chromium, address) as it:
        typed(it)
        it.tab("compare")
        it.page.wait_for_selector(".heed-side:nth-child(2) .heed-detail:not(:empty)")
        shown = it.page.eval_on_selector_all(
            ".heed-side select", "all => all.map(one => one.selectedOptions[0].text)"
        )
        assert shown[0] == shown[2] == "only"
        assert shown[1] != shown[3]


def test_the_theme_is_kept(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        it.page.wait_for_selector(".heed-theme")
        it.page.click(".heed-theme")
        assert it.page.get_attribute("#heedful", "data-theme") == "dark"
        it.page.reload()
        it.page.wait_for_selector(".heed-theme:text-is('Light')")
        assert it.page.get_attribute("#heedful", "data-theme") == "dark"


def test_print_has_no_controls(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it)
        it.page.emulate_media(media="print")
        assert it.page.locator("button.heed-button >> visible=true").count() == 0
        assert it.page.locator("select >> visible=true").count() == 0
        assert it.page.locator(".heed-target >> visible=true").count() == 1


def test_headings_and_languages(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it)
        assert it.page.locator("h1").count() == 1
        assert it.page.get_attribute(".heed-translate textarea", "lang") == "en"
        assert it.page.get_attribute(".heed-target", "lang") == "de"


def test_terms_are_explained(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it)
        assert "Transformer, " in it.page.inner_text(".heed-translate .heed-detail >> nth=0")
        it.tab("heads")
        it.page.wait_for_selector(".heed-legend li")
        it.page.click(".heed-term:text-is('rollout')")
        it.page.wait_for_selector(".heed-popover:has-text('residual connections') >> visible=true")
        it.page.keyboard.press("Escape")
        it.page.wait_for_selector(".heed-popover >> visible=true", state="hidden")
        names = it.page.evaluate(
            "import('/page/glossary.js').then(({ architectureName: of }) =>"
            " ['Gpt', 'RecurrentTextEncoder', 'LSTMReader', 'BLIP'].map(of))"
        )
        assert names == ["GPT", "Recurrent text encoder", "LSTM reader", "BLIP"]
        signed = it.page.evaluate(
            "import('/page/matrices.js').then(({ formatSigned: of }) => [of(-0.001, 2), of(-1, 2)])"
        )
        assert signed == ["0.00", "\u22121.00"]


def test_rows_and_columns_have_a_least_size_and_the_rest_is_counted(
    chromium: Any, tmp_path: Path
) -> None:
    with opened(chromium, file_of(tmp_path, one_axis_trace(60))) as it:
        it.page.set_viewport_size({"width": 600, "height": 800})
        it.tab("heads")
        matrix = "canvas.heed-matrix >> visible=true"
        it.page.wait_for_selector(matrix)

        def hint() -> str:
            return str(it.page.inner_text(".heed-chosen .heed-readout >> visible=true"))

        hidden = re.search(r"(\d+) of 60 columns are outside", hint())
        assert hidden
        assert "labels fit" not in hint()
        it.page.locator(matrix).evaluate("one => one.scrollIntoView()")
        box = it.page.locator(matrix).bounding_box()
        assert box["width"] <= 600
        assert box["height"] >= 60 * 14
        it.page.mouse.move(box["x"] + 200, box["y"] + 200)
        before = it.page.inner_text(".heed-chosen .heed-readout >> visible=true")
        it.page.mouse.wheel(14 * 10, 0)  # ten columns
        it.page.mouse.move(box["x"] + 201, box["y"] + 200)
        after = it.page.inner_text(".heed-chosen .heed-readout >> visible=true")
        columns = [int(re.findall(r"token(\d+)", text)[1]) for text in (before, after)]
        assert columns[1] == columns[0] + 10
        it.page.click("[aria-label='Fit the whole matrix'] >> visible=true")
        it.page.mouse.move(3, 3)
        it.page.wait_for_selector("text=Not all labels fit: shown are 1 of")
        assert "outside" not in hint()


def test_two_fingers_zoom_a_matrix(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, file_of(tmp_path, one_axis_trace(60))) as it:
        it.tab("heads")
        matrix = "canvas.heed-matrix >> visible=true"
        it.page.wait_for_selector(matrix)
        it.page.eval_on_selector(
            "canvas.heed-matrix",
            """canvas => {
              const box = canvas.getBoundingClientRect();
              const send = (type, pointerId, x) => canvas.dispatchEvent(new PointerEvent(type, {
                pointerId, pointerType: "touch", clientX: box.x + x, clientY: box.y + 300,
                bubbles: true, buttons: 1,
              }));
              canvas.setPointerCapture = () => {};
              send("pointerdown", 1, 200);
              send("pointerdown", 2, 250);
              send("pointermove", 2, 300);
            }""",
        )
        it.page.wait_for_selector(".heed-overview >> visible=true")


def test_both_sides_of_a_comparison_have_one_scale(chromium: Any, tmp_path: Path) -> None:
    with opened(
        chromium, file_of(tmp_path, pair_trace(), pair_trace(title="another", seed=5))
    ) as it:
        it.tab("compare")
        it.page.wait_for_selector(".heed-side:nth-child(2) .heed-scale")
        it.page.wait_for_function(
            "() => new Set([...document.querySelectorAll('.heed-side .heed-scale')]"
            ".map(one => one.textContent)).size === 1"
        )


def test_the_steps_are_a_strip_with_a_scrubber(chromium: Any, tmp_path: Path) -> None:
    trace = pair_trace()
    with opened(chromium, file_of(tmp_path, trace)) as it:
        it.tab("steps")
        strip = it.page.locator(".heed-steps canvas.heed-matrix")
        box = strip.bounding_box()
        it.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.6)
        it.page.mouse.down()
        it.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.6, steps=4)
        it.page.mouse.up()
        step = int(it.page.input_value(".heed-steps input[type=range]"))
        assert step >= 3
        assert f"Step {step + 1} of 7" in it.page.inner_text(".heed-step-readout")
        strip.focus()
        it.page.keyboard.press("ArrowLeft")
        assert it.page.input_value(".heed-steps input[type=range]") == str(step - 1)
        shown = it.page.locator(".heed-weights .heed-number").all_text_contents()
        expected = trace["cross.1"].weights.mean(0)[step - 1]
        assert [float(one) for one in shown] == pytest.approx(expected.tolist(), abs=0.005)


@pytest.mark.parametrize(
    ("attended", "higher", "sentence"),
    [
        (0.4, 15, "the most attended word matters less than random ones: do not read this picture"),
        (
            3.0,
            1,
            "the most attended word matters more than random ones: the weights point at words",
        ),
        (1.1, 7, "it is not clear that the most attended word matters more than random ones"),
    ],
)
def test_the_faithfulness_test_ends_in_a_sentence(
    chromium: Any, tmp_path: Path, attended: float, higher: int, sentence: str
) -> None:
    measured = {
        "words": 1, "dropped": ["dog"], "attended": attended, "random": 1.0,
        "draws": 20, "random_spread": 0.3, "higher": higher,
    }  # fmt: skip
    trace = replace(pair_trace(), faithfulness=measured)
    with opened(chromium, file_of(tmp_path, trace)) as it:
        it.page.wait_for_selector(f".heed-figure:has-text('{sentence}')")


def test_heads_are_listed_by_what_they_attend_to(chromium: Any, tmp_path: Path) -> None:
    tokens = [f"t{place}" for place in range(8)]
    previous = torch.eye(8)[[0, 0, 1, 2, 3, 4, 5, 6]]
    first = torch.zeros(8, 8)
    first[:, 0] = 1
    mixed = torch.eye(8)[[5, 2, 7, 1, 6, 0, 4, 3]]
    maps = {"layers.0": ("text", "text", torch.stack([first, previous, previous, mixed]))}
    with opened(chromium, file_of(tmp_path, Trace.of({"text": tokens}, maps, title="t"))) as it:
        it.tab("heads")
        found = it.page.locator(".heed-patterns li").all_inner_texts()
        assert [text.split() for text in found[:2]] == [
            ["previous", "token", "2"],
            ["first", "token", "1"],
        ]
        assert found[2] == "no single pattern: 1 of 4"
        it.page.click(".heed-pattern:has-text('previous token')")
        assert it.page.locator(".heed-multiples button").count() == 2
        legend = it.page.inner_text(".heed-legend li >> nth=0")
        assert "Layer 1 \u00b7 head 2" in legend
        assert "previous token 1.00" in legend
        label = it.page.get_attribute(".heed-thumbnail >> nth=0", "aria-label")
        assert "first token 1.00" in label
