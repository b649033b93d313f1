"""Maps with an axis of steps beside their queries: hops of a memory network over a story."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heedful.attention import Attention
from heedful.inference import AttentionMap, Axis, Trace, make_trace
from heedful.inference.inference_mode import ready
from heedful.inference.tracing import Decision, Described, trace_model
from heedful.viewing.page import export_html
from heedful.viewing.terminal import render_rows
from heedful.viewing.trace_encoding import map_bytes, summary
from heedful.viewing.trace_view import map_rows, trace_figure
from page_help import STORY, needs_browser, opened, weights

AXES = {
    "hops": Axis("labels", ["hop 1", "hop 2", "hop 3"], steps=True),
    "question": Axis("tokens", ["where", "is", "Mary", "?"]),
    "memory": Axis("slots", STORY),
}
WEIGHTS = weights(2, 12, 5).view(2, 3, 4, 5)


def stepped() -> Trace:
    maps = {"reader": ("question", "memory", WEIGHTS, "hops")}
    return Trace.of(AXES, maps, title="three hops")


def test_the_steps_are_an_axis_of_their_own(tmp_path: Path) -> None:
    trace = stepped()
    one = trace["reader"]
    assert (one.step_axis, one.query_axis, one.key_axis) == ("hops", "question", "memory")
    assert torch.equal(one.at_steps[1], WEIGHTS[:, 1])
    assert torch.equal(one.rows[:, 4:8], WEIGHTS[:, 1])
    trace.save(tmp_path / "hops.safetensors")
    again = Trace.load(tmp_path / "hops.safetensors")
    assert again.axes == trace.axes
    assert again["reader"].step_axis == "hops"
    assert torch.equal(again["reader"].weights, WEIGHTS)


@pytest.mark.parametrize(
    ("step_axis", "shape", "message"),
    [
        ("nowhere", (2, 3, 4, 5), "unknown axis nowhere"),
        ("question", (2, 4, 4, 5), "step axis question has no steps"),
        ("hops", (2, 4, 5), r"\[2, 4, 5\] do not fit its axes \(hops: 3, question: 4, memory: 5\)"),
        ("hops", (2, 3, 4, 4), r"\[2, 3, 4, 4\] do not fit its axes"),
        (None, (2, 3, 4, 5), r"\[2, 3, 4, 5\] do not fit its axes \(question: 4, memory: 5\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    step_axis: str | None, shape: tuple[int, ...], message: str
) -> None:
    one = AttentionMap("a", "question", "memory", torch.ones(shape), step_axis=step_axis)
    with pytest.raises(ValueError, match=message):
        make_trace(AXES, [one])


def test_the_steps_are_not_the_queries_or_keys() -> None:
    one = AttentionMap("a", "hops", "memory", torch.ones(1, 3, 3, 5), step_axis="hops")
    with pytest.raises(ValueError, match="hops is both its step axis and another axis"):
        make_trace(AXES, [one])


def test_figures_and_text_have_a_row_for_each_query_of_each_step() -> None:
    trace = stepped()
    rows, labels = map_rows(trace, trace["reader"])
    assert torch.equal(rows, WEIGHTS.flatten(1, 2))
    assert labels[:5] == [
        "hop 1 · where", "hop 1 · is", "hop 1 · Mary", "hop 1 · ?", "hop 2 · where",
    ]  # fmt: skip
    figure = trace_figure(trace, "reader")
    assert [one.get_text() for one in figure.axes[0].get_yticklabels()] == labels
    drawn = render_rows(rows[0], labels, trace.axes["memory"])
    assert drawn.split("\n")[-1].endswith("hop 3 · ?")
    alone = Trace.of(
        {**AXES, "question": ["?"]}, {"a": ("question", "memory", WEIGHTS[:, :, :1], "hops")}
    )
    assert map_rows(alone, alone["a"])[1] == ["hop 1", "hop 2", "hop 3"]


def test_a_page_gets_the_steps_of_a_head_together() -> None:
    trace = stepped()
    facts = summary(trace)["maps"][0]
    told = {key: facts[key] for key in ("step_axis", "heads", "steps", "queries", "keys")}
    assert told == {"step_axis": "hops", "heads": 2, "steps": 3, "queries": 4, "keys": 5}
    sent = np.frombuffer(map_bytes(trace, 0), np.uint8).reshape(2, 3, 4, 5)
    scale = np.array(facts["scale"]).reshape(2, 1, 1, 1)
    np.testing.assert_allclose(sent / 255 * scale, WEIGHTS, atol=0.003)


class Reader(nn.Module):
    """All words of a question read a memory at each hop."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.input, self.output = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, question: Tensor, memory: Tensor) -> Tensor:
        question = self.input(question)
        for _ in range(3):
            question = question + self.attention(question, memory)
        logits: Tensor = self.output(question.mean(1))
        return logits.log_softmax(1)[0, :1]

    def attention_axes(self) -> dict[str, tuple[str, str, str]]:
        return {"attention": ("question", "memory", "hops")}


def test_the_calls_of_a_module_are_steps_if_its_model_says_so() -> None:
    model = Reader()
    question, memory = torch.randn(1, 4, 6), torch.randn(1, 5, 6)
    described = Described("a", {name: AXES[name] for name in ("question", "memory")})
    trace = trace_model(
        model,
        lambda: Decision(["x"], model(question, memory)),
        described,
        ready(model, torch.device("cpu")),
        relevance=True,
    )
    found = trace["attention"]
    assert found.weights.shape == (1, 3, 4, 5)
    assert trace.axes["hops"].labels == ["hop 1", "hop 2", "hop 3"]
    assert trace.axes["hops"].steps
    first = (model.input(question) @ memory.mT / 6**0.5).softmax(-1)
    torch.testing.assert_close(found.at_steps[0], first)
    assert trace["attention × gradient"].step_axis == "hops"


def shown(it: Any) -> list[list[float]]:
    """The numbers of the slots' table, its columns being queries."""
    rows = it.page.locator(".heed-slots tbody tr >> visible=true").all_inner_texts()
    return [[float(cell) for cell in text.split("\t")[1:]] for text in rows]


@needs_browser()
def test_the_page_has_a_slider_of_steps_that_plays(chromium: Any, tmp_path: Path) -> None:
    export_html(stepped(), tmp_path / "view.html")
    with opened(chromium, (tmp_path / "view.html").as_uri()) as it:
        it.tab("heads")
        slider = "input[aria-label=Step] >> visible=true"
        assert it.page.inner_text(".heed-step-name >> visible=true") == "hop 1"
        np.testing.assert_allclose(shown(it), WEIGHTS[0, 0].T, atol=0.003)
        it.page.focus(slider)
        it.page.keyboard.press("ArrowRight")
        it.page.wait_for_selector("text=hop 2 >> visible=true")
        np.testing.assert_allclose(shown(it), WEIGHTS[0, 1].T, atol=0.003)
        it.page.click("text=Play >> visible=true")
        it.page.wait_for_selector(".heed-step-name >> text=hop 3")
        np.testing.assert_allclose(shown(it), WEIGHTS[0, 2].T, atol=0.003)
        it.tab("steps")
        it.page.wait_for_selector("text=Step 1 of 12")


@needs_browser()
def test_without_a_step_axis_there_is_no_slider_of_steps(chromium: Any, tmp_path: Path) -> None:
    maps = {"reader": ("hops", "memory", WEIGHTS[:, :, 0])}
    export_html(Trace.of(AXES, maps, title="plain"), tmp_path / "view.html")
    with opened(chromium, (tmp_path / "view.html").as_uri()) as it:
        it.tab("heads")
        it.page.wait_for_selector(".heed-slots >> visible=true")
        assert not it.page.is_visible("input[aria-label=Step]")
