"""The Classify panel for models that give any number of labels."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from heedful.inference.explaining import explain
from heedful.models.encoders import HeadedEncoder
from heedful.models.label_set_layer import LabelSetLayer
from heedful.serving import Limits, Served, make_application
from heedful.tasks.multi_label.predictor import MultiLabelClassifier
from page_help import needs_browser, opened
from serving_help import running
from test_page_texts import TEXT
from test_reading import headed, vocabulary

LABELS = ("plot", "music", "a label that is much longer than the others are", "cast")


def topics(count: int = len(LABELS)) -> MultiLabelClassifier:
    model = headed()
    torch.manual_seed(7)
    layer = LabelSetLayer(16, count, 0.0, threshold=None)
    torch.nn.init.normal_(layer.output.weight, std=0.5)
    names = (*LABELS, *(f"label {number}" for number in range(5, count + 1)))
    made = HeadedEncoder(model.encoder, {"multi-label": layer}).eval()
    reader = MultiLabelClassifier(made, vocabulary(), names, pairs=False, notify=lambda text: None)
    (found,) = reader.predict([TEXT])
    # Every second label is given.
    shifts = [-0.1 if place % 2 == 0 else 0.1 for place in range(count)]
    least = [
        min(max(own + shift, 0.02), 0.98)
        for own, shift in zip(found.probabilities.values(), shifts, strict=True)
    ]
    layer.choose(least)
    return reader


TOPICS, MANY = topics(), topics(23)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    served = [Served("topics", TOPICS), Served("many", MANY)]
    with running(make_application(served, limits=Limits(characters=2000))) as one:
        yield one


def shown(it: Any, model: str, reader: MultiLabelClassifier) -> list[str]:
    """The labels whose bars reach their mark, from what is drawn."""
    it.page.select_option(".heed-classify select", model)
    it.page.fill(".heed-classify textarea >> nth=0", TEXT)
    it.page.wait_for_selector(".heed-importance-text button:last-child >> text='long'")
    it.page.wait_for_timeout(700)  # the bars grow
    (found,) = reader.predict([TEXT])
    assert it.page.inner_text(".heed-prediction") == ", ".join(found.labels)
    rows = it.page.locator(".heed-classify .heed-bars li")
    drawn = rows.evaluate_all(
        """all => all.map((row) => {
          const end = row.querySelector("i").getBoundingClientRect().right;
          const mark = row.querySelector("b").getBoundingClientRect();
          const label = row.querySelector(".heed-bar-label").textContent;
          return { label, reached: end >= (mark.left + mark.right) / 2 - 0.5 };
        })"""
    )
    named = {one["label"] for one in drawn}
    assert named >= set(found.labels)
    return [one["label"] for one in drawn if one["reached"]]


@needs_browser()
def test_bars_have_their_thresholds_and_labels_can_be_explained(
    chromium: Any, address: str
) -> None:
    (found,) = TOPICS.predict([TEXT])
    assert 0 < len(found.labels) < len(LABELS)
    with opened(chromium, address) as it:
        assert shown(it, "topics", TOPICS) == list(found.labels)
        other = next(label for label in LABELS if label not in found.labels)
        button = it.page.locator(f".heed-bar-button:text-is('{other}')")
        assert ", not given, threshold" in button.get_attribute("aria-label")
        button.click()
        it.page.wait_for_selector(f".heed-importance h2:has-text('{other}')")
        words = it.page.locator(".heed-importance-text button")
        assert words.all_text_contents() == TEXT.split()
        it.page.hover(".heed-importance-text button >> nth=4")
        fall = explain(TOPICS, TEXT, label=other).words[4].fall
        said = it.page.inner_text(".heed-importance .heed-readout")
        assert f"{'falls' if fall > 0 else 'rises'} by {abs(fall):.3f}" in said
        it.page.fill(".heed-classify textarea >> nth=0", " ")
        it.page.wait_for_selector(".heed-importance", state="hidden")
        assert it.page.inner_text(".heed-prediction") == ""


@needs_browser()
def test_of_many_labels_all_that_are_given_have_bars(chromium: Any, address: str) -> None:
    (found,) = MANY.predict([TEXT])
    assert len(found.labels) > 10
    with opened(chromium, address) as it:
        assert set(shown(it, "many", MANY)) == set(found.labels)
        hint = it.page.inner_text(".heed-classify .heed-output .heed-detail")
        assert f"other {23 - len(found.labels)} labels are not given" in hint


@needs_browser()
def test_a_text_without_labels_says_so(chromium: Any, address: str) -> None:
    before = TOPICS.layer.thresholds()
    TOPICS.layer.choose([0.999] * len(LABELS))
    try:
        with opened(chromium, address, viewport={"width": 375, "height": 800}) as it:
            it.page.select_option(".heed-classify select", "topics")
            it.page.fill(".heed-classify textarea >> nth=0", TEXT)
            it.page.wait_for_selector(".heed-prediction:has-text('No label reaches')")
            width = it.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 375
    finally:
        TOPICS.layer.choose(before)
