"""A story and a question, answered in a word: ``examples/plugins/story_questions.py``, one file."""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch
from safetensors.torch import load_file

import heedful
from command_help import run_command
from heedful.basics.errors import UserError
from heedful.runs import registry
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.spec import Opening, spec_of_run
from page_help import browser, needs_browser, opened
from serving_help import running

PLUGIN = Path(__file__).parents[1] / "examples" / "plugins" / "story_questions.py"
STORY = ["Mary went to the garden.", "John went to the hall.", "Mary went to the office."]
ASKED = {"story": STORY, "question": "Where is Mary?"}
RECIPE = {
    "task": "story-questions",
    "data": {"train": "train.jsonl", "validation": "test.jsonl", "test": "test.jsonl"},
    "training": {
        "learning_rate": 0.02,
        "warmup_steps": 10,
        "schedule": "constant",
        "max_steps": 240,
        "validate_every": 120,
        "batch_tokens": 1024,
        "choose_by": "accuracy",
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Stories and a trained run; the task is registered in this process."""
    place, rng = tmp_path_factory.mktemp("stories"), random.Random(1)
    with pytest.MonkeyPatch.context() as patch:
        registry.kinds()
        patch.setattr(registry, "_kinds", dict(registry._kinds))  # other tests list all tasks
        patch.setattr(registry, "_loaded", {})
        registry.load_file(PLUGIN)
        tell = sys.modules["heedful_plugin_story_questions"].tell
        for name, count in (("train", 1000), ("test", 100)):
            lines = [json.dumps(tell(rng)) + "\n" for _ in range(count)]
            (place / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        assert heedful.train(RECIPE, place / "run", data=place)
        yield place


def test_it_learns_to_answer(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    found = spec.evaluate(run, None, None, Opening(device="cpu"))
    assert found.figures["accuracy"].value > 60  # a guess is right in a quarter
    assert run.chosen().state["validation"]["accuracy"] == pytest.approx(
        found.figures["accuracy"].value / 100
    )


def test_a_stopped_training_is_resumed_exactly(folder: Path) -> None:
    training = {**RECIPE["training"], "max_steps": 100}
    heedful.train({**RECIPE, "training": training}, folder / "stopped", data=folder)
    assert heedful.train(RECIPE, folder / "stopped", data=folder)
    one, other = (
        load_file(folder / run / "checkpoints" / "step-00000240" / "model.safetensors")
        for run in ("run", "stopped")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_inputs_of_two_fields_are_json_lines(folder: Path) -> None:
    command = ("predict", "run", "--plugin", PLUGIN)
    done = run_command(*command, cwd=folder, given=json.dumps(ASKED) + "\n")
    assert done.returncode == 0, done.stderr
    run, spec = spec_of_run(folder / "run")
    [own] = spec.load(run.path).predict([spec.read_input(json.dumps(ASKED))])
    assert done.stdout == f"{own.text}\n"
    predictor = heedful.load(folder / "run", device="cpu")
    assert predictor.predict([ASKED]) == [own]
    with pytest.raises(UserError, match=r"input 2: 'question': field required"):
        predictor.predict([ASKED, {"story": STORY}])
    with pytest.raises(UserError, match=r"the input: 'story': list should have at least 1 item"):
        spec.read_input(json.dumps({**ASKED, "story": []}))
    with pytest.raises(UserError, match=r"the input: 'question': field required"):
        spec.read_input(json.dumps({"story": STORY}))


def test_an_answer_that_training_has_not_is_named(folder: Path, tmp_path: Path) -> None:
    rows = [{**ASKED, "answer": "office"}]
    data = {"train": rows, "validation": [{**ASKED, "answer": "moon"}]}
    with pytest.raises(UserError, match="the answer 'moon' is in no training example"):
        heedful.train({"task": "story-questions"}, tmp_path / "run", data=data)


def test_its_hops_are_steps_over_the_memory(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    trace = spec.trace(spec.load(run.path), json.dumps(ASKED))
    found = trace["attention"]
    assert (found.step_axis, found.query_axis, found.key_axis) == ("hops", "question", "story")
    assert found.weights.shape == (1, 2, 4, 3)
    assert (trace.axes["story"].kind, trace.axes["story"].labels) == ("slots", STORY)
    assert trace.axes["question"].labels == ["where", "is", "mary", "?"]
    torch.testing.assert_close(found.weights.sum(3), torch.ones(1, 2, 4))


@needs_browser()
def test_the_page_has_a_field_for_each_part_of_the_input(folder: Path) -> None:
    application = make_application(load_all([folder / "run"], [], device="cpu"))
    with running(application) as address, browser() as chromium, opened(chromium, address) as it:
        it.page.fill("textarea[aria-label=Story]", "\n".join(STORY))
        it.errors.clear()  # the server refuses a story without a question
        it.page.fill("textarea[aria-label=Question]", "Where is Mary?")
        it.page.wait_for_selector(".heed-result dd")
        it.errors.clear()
        it.tab("heads")
        it.page.wait_for_selector(".heed-slots >> visible=true")
        assert it.page.inner_text(".heed-step-name >> visible=true") == "hop 1"
        rows = it.page.locator(".heed-slots tbody th >> visible=true")
        assert rows.all_inner_texts() == STORY


@needs_browser()
def test_an_object_in_the_address_fills_the_fields(folder: Path) -> None:
    """``heedful view RUN '{"story": …}'`` opens the page so."""
    application = make_application(load_all([folder / "run"], [], device="cpu"))
    start = "#" + urlencode({"text": json.dumps(ASKED)})
    with (
        running(application) as address,
        browser() as chromium,
        opened(chromium, address + start) as it,
    ):
        it.page.wait_for_selector(".heed-result dd")
        assert it.page.input_value("textarea[aria-label=Story]") == "\n".join(STORY)
        assert it.page.input_value("textarea[aria-label=Question]") == "Where is Mary?"
