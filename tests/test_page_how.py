"""How it works: the stages of the model, and the equation with numbers that can be changed."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.inference.equation import EquationRow, equation_of
from heedful.inference.lens import lens_of
from heedful.inference.removal import effect_of_heads
from heedful.serving import Served, make_application
from heedful.viewing.labels import token_labels
from heedful.viewing.page import export_html
from page_help import needs_browser, opened, pair_trace
from serving_help import running, translator
from test_serving_readers import TAGGER

pytestmark = needs_browser()
TEXT = "the small cat sat on a mat"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    models = [Served("one", translator(), "en", "de"), Served("tags", TAGGER)]
    with running(make_application(models, traces={"kept": pair_trace()})) as one:
        yield one


def typed(it: Any) -> str:
    """Type the text and open the panel; returns the translation."""
    it.page.fill("textarea", TEXT)
    it.page.wait_for_selector(".heed-target .heed-word")
    target = str(it.page.inner_text(".heed-target"))
    it.tab("how")
    it.page.wait_for_selector(".heed-how tbody tr")
    return target


def expected(module: str, head: int, row: int, target: str) -> EquationRow:
    one = translator()
    return equation_of(module, lambda: one.trace(TEXT, target)).row(head, row)


def numbers(it: Any, column: str) -> list[float]:
    cells = f".heed-how tbody td[data-column={column}] input"
    return list(it.page.eval_on_selector_all(cells, "all => all.map((one) => one.valueAsNumber)"))


def near(found: list[float], right: torch.Tensor) -> bool:
    return torch.allclose(torch.tensor(found), right, atol=2e-3)  # three decimals are shown


def test_the_stages_and_heads_of_the_model(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        target = typed(it)
        stages = it.page.eval_on_selector_all(
            ".heed-lane", "all => all.map((lane) => lane.innerText.replaceAll('\\n', ' '))"
        )
        assert stages[0].split(" ", 1)[0] == "Source"
        assert "Target embedding Target positions Decoder layer 1" in stages[1].replace(" → ", " ")
        it.page.click("button.heed-stage >> text=Encoder layer 1")
        assert it.page.locator(".heed-part").all_inner_texts()[:2] == [
            "Self-attention", "Residual and norm",
        ]  # fmt: skip
        it.page.click(".heed-head-chip >> nth=1")
        it.page.wait_for_selector(".heed-head-chip[aria-pressed=true] >> text=2")
        assert it.page.input_value("label:has-text('Head') select") == "1"
        it.page.select_option("label:has-text('Query') select", "0")
        it.page.wait_for_function(
            "() => !document.querySelector('.heed-equation').hasAttribute('aria-busy')"
        )
        right = expected("encoder.0.self_attention", 1, 0, target)
        assert near(numbers(it, "compare"), right.keys @ right.query)
        assert near(numbers(it, "normalise"), right.weights)
        it.page.click("button.heed-stage >> text=Target embedding")
        assert "parameters" in it.page.inner_text(".heed-stage-details")


def test_a_changed_number_changes_what_follows(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        target = typed(it)
        row = int(it.page.input_value("label:has-text('Query') select"))
        right = expected("decoder.0.cross_attention", 0, row, target)
        assert near(numbers(it, "normalise"), right.weights)
        it.page.fill(".heed-how tbody tr:first-child [data-column=compare] input", "20")
        it.page.keyboard.press("Enter")
        products = right.keys @ right.query
        products[0] = 20
        weights = (products * right.scale).softmax(0)
        assert near(numbers(it, "normalise"), weights)
        assert it.page.locator("tbody td[data-column=normalise] .heed-followed").count() > 1
        assert "Now" in it.page.inner_text(".heed-context")
        it.page.uncheck(".heed-how tbody tr:nth-child(2) input[type=checkbox]")
        masked = (products * right.scale).index_fill(0, torch.tensor([1]), -math.inf)
        assert near(numbers(it, "normalise"), masked.softmax(0))
        it.page.fill("thead .heed-edit", "0")
        it.page.keyboard.press("Tab")
        even = torch.full_like(masked, 1 / (len(masked) - 1)).index_fill(0, torch.tensor([1]), 0)
        assert near(numbers(it, "normalise"), even)
        assert "3 numbers changed" in it.page.inner_text(".heed-how")
        it.page.click("text=Reset numbers")
        assert near(numbers(it, "normalise"), right.weights)
        assert it.page.locator(".heed-equation .heed-followed").count() == 0


def test_the_worked_example_of_the_docs(chromium: Any, address: str, tmp_path: Path) -> None:
    """docs/attention.md: the weights of "run" are 0.03, 0.23, 0.66 and 0.08."""

    def check(it: Any) -> None:
        it.page.select_option("label:has-text('Query') select", "3")
        assert [round(one, 2) for one in numbers(it, "normalise")] == [0.03, 0.23, 0.66, 0.08]
        context = it.page.locator(".heed-component").all_inner_texts()
        assert context == ["person 0.66", "act 0.11"]
        it.page.select_option("label:has-text('Query') select", "0")
        it.page.click(".heed-key-button >> text=See")
        sentence = it.page.inner_text(".heed-equation .heed-readout")
        assert "−1.00 × 0.707 = −0.71" in sentence
        assert "exp(score) = 0.49, of the sum 8.66: 0.06" in sentence

    with opened(chromium, address) as it:
        typed(it)
        it.page.click("[role=radio] >> text=See that girl run")
        check(it)
        it.page.click("[role=radio] >> text=Your text")
        it.page.wait_for_selector(".heed-stage")
    path = tmp_path / "view.html"
    export_html(pair_trace(), path)
    with opened(chromium, path.as_uri()) as it:
        it.tab("how")
        assert "This file contains weights only" in it.page.inner_text(".heed-how")
        check(it)


def test_walking_through_the_steps_by_keyboard(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        typed(it)
        it.page.focus(".heed-how input[type=range]")
        it.page.keyboard.press("Home")
        it.page.wait_for_timeout(400)
        faint = "(one) => getComputedStyle(one).opacity"
        cells = ".heed-how tbody tr:first-child td[data-column={}]"
        assert it.page.eval_on_selector(cells.format("compare"), faint) == "1"
        assert float(it.page.eval_on_selector(cells.format("normalise"), faint)) < 0.5
        it.page.keyboard.press("End")
        it.page.wait_for_timeout(400)
        assert it.page.eval_on_selector(cells.format("normalise"), faint) == "1"


def test_what_each_layer_would_predict(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        target = typed(it)
        it.page.wait_for_selector(".heed-lens tbody td")
        right = lens_of(lambda: translator().trace(TEXT, target))
        rows = it.page.locator(".heed-lens tbody tr")
        assert rows.count() == len(right.layers)
        head = it.page.locator(".heed-lens thead th").all_inner_texts()
        assert head == token_labels(right.decided)[: len(head)]
        cells = rows.first.locator("td")
        for place, one in enumerate(right.predictions[-1][: len(head)]):
            label, rank = str(cells.nth(place).inner_text()).split("\n")
            assert (label.strip(), int(rank)) == (token_labels(one.labels)[0].strip(), one.rank)
        cells.nth(1).focus()
        said = str(it.page.inner_text(".heed-lens-section .heed-readout"))
        assert said.startswith("Layer 1, in the place of")
        assert f"rank {right.predictions[-1][1].rank}" in said


def test_the_lens_of_a_long_output_keeps_the_focus(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        it.page.fill("textarea", " ".join([TEXT] * 2))
        it.page.wait_for_selector(".heed-target .heed-word")
        it.tab("how")
        later, earlier = (
            it.page.get_by_role("button", name=f"{one} tokens") for one in ("Later", "Earlier")
        )
        later.focus()
        for _ in range(20):
            if later.is_disabled():
                break
            it.page.keyboard.press("Enter")
        assert later.is_disabled()
        assert earlier.evaluate("one => one.matches(':focus')")


def test_a_head_is_removed_by_a_click(chromium: Any, address: str) -> None:
    one, name = translator(), "decoder.0.cross_attention"
    with opened(chromium, address) as it:
        it.page.fill("textarea", TEXT)
        it.page.wait_for_selector(".heed-target .heed-word")
        target = str(it.page.inner_text(".heed-target"))
        it.tab("heads")
        it.page.wait_for_selector(".heed-removal button")
        it.page.check("text=Select several heads")
        it.page.click("text=Whole layer")
        count = one.model.get_submodule(name).heads
        assert it.page.inner_text(".heed-removal button") == f"Remove these {count} heads"
        it.page.click(".heed-removal button")
        it.page.wait_for_selector(".heed-removal-result p")
        heads = [(name, head) for head in range(count)]
        right = effect_of_heads(lambda: one.trace(TEXT, target), heads)
        text = it.page.inner_text(".heed-removal-result").replace("\u2212", "-")
        assert f"{sum(right.before):.2f} → {sum(right.after):.2f}" in text
        changes = it.page.locator(".heed-removal-result p:last-child bdi")
        assert changes.count() == len(right.decided)
        fell = [after < before for before, after in zip(right.before, right.after, strict=True)]
        kinds = changes.evaluate_all("all => all.map((one) => one.className == 'heed-fell')")
        assert kinds == fell
        it.page.click(".heed-all-heads canvas >> nth=0")  # another selection: the result is gone
        assert it.page.locator(".heed-removal-result p").count() == 0


def test_a_text_is_edited_and_compared(chromium: Any) -> None:
    other = "the small dog sat on a mat"
    title = ".heed-side:nth-child(2) .heed-picture-title:has-text('{}')"
    with (
        running(make_application([Served("one", translator(), "en", "de")])) as address,
        opened(chromium, address) as it,
    ):
        it.page.fill("textarea", TEXT)
        it.page.wait_for_selector(".heed-target .heed-word")
        it.tab("compare")
        it.page.wait_for_selector(title.format("head"))  # another map of the same text
        assert it.page.input_value(".heed-edited") == TEXT
        it.page.fill(".heed-edited", other)
        it.page.wait_for_selector(title.format(f"Alignment: {other}"))
        first = ".heed-side:nth-child(1) .heed-picture-title"
        assert it.page.inner_text(first) == f"Alignment: {TEXT}"
        maps = it.page.eval_on_selector_all(
            ".heed-side label:has-text('Map') select", "all => all.map((one) => one.value)"
        )
        assert maps == ["alignment", "alignment"]
        it.page.fill(".heed-edited", " ")
        it.page.wait_for_selector(".heed-side .heed-notice:has-text('the text is empty')")
        assert it.page.locator(".heed-side:nth-child(2) .heed-sentence").inner_text() == ""
        it.page.fill(".heed-edited", TEXT)
        it.page.wait_for_selector(title.format(f"Alignment: {TEXT}"))
        marked = """async () => {
          const { markedWords } = await import("./page/hypotheses.js");
          const found = markedWords("the old cat sat", "the cat sat down");
          return found.filter((one) => one instanceof Element).map((one) => one.textContent); }"""
        assert it.page.evaluate(marked) == ["old"]


def test_the_comparison_component_by_component(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        target = typed(it)
        row = int(it.page.input_value("label:has-text('Query') select"))
        right = expected("decoder.0.cross_attention", 0, row, target)
        it.page.wait_for_selector(".heed-neurons tbody td canvas")
        sums = it.page.locator(".heed-neurons .heed-number").all_text_contents()
        found = [float(one.replace("\u2212", "-")) for one in sums]
        products = right.keys * right.query
        assert len(found) == len(products)
        assert torch.allclose(torch.tensor(found), products.sum(1), atol=0.0051)
        canvas = it.page.locator(".heed-neurons tbody tr:nth-child(3) canvas >> nth=1")
        width = canvas.evaluate("(one) => one.width")
        assert width == products.shape[1]
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        it.page.mouse.move(box["x"] + box["width"] * 1.5 / width, box["y"] + box["height"] / 2)
        said = it.page.inner_text(".heed-neuron-section .heed-readout").replace("\u2212", "-")
        q, k = float(right.query[1]), float(right.keys[1, 1])
        assert said.endswith(f"component 2: {q:.2f} × {k:.2f} = {q * k:.2f}.")
        canvas.focus()
        largest = int(products[1].abs().argmax()) + 1
        assert f"component {largest}: " in it.page.inner_text(".heed-neuron-section .heed-readout")
        it.page.click("[role=radio]:has-text('See that girl run')")
        it.page.wait_for_selector(".heed-neurons th:has-text('girl')")


def test_an_additive_score_has_components_too(chromium: Any, address: str) -> None:
    with opened(chromium, address) as it:
        found = it.page.evaluate(
            """async () => (await import("./page/how_neurons.js")).componentsOf(
                 { query: [1, -2], keys: [[0.5, 1]], vector: [2, 3], score: "additive" }, 0)"""
        )
    assert found == pytest.approx([2 * math.tanh(1.5), 3 * math.tanh(-1.0)])
