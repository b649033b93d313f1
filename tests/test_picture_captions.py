"""A task with a modality that heedful does not have, ``examples/plugins/picture_captions.py``.

It is one file. Training, resuming, evaluation, the server and the page are heedful's.
"""

import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

import heedful
from command_help import DEVNULL, PIPE, Started, run_command
from heedful.basics.errors import UserError
from heedful.runs import registry
from heedful.runs.summary import describe_run, summarise_run
from heedful.tasks.spec import spec_of_run
from page_help import browser, needs_browser, opened

PLUGIN = Path(__file__).parents[1] / "examples" / "plugins" / "picture_captions.py"
STEPS = 60
RECIPE = f"""
task = "picture-captions"
[data]
train = "train.jsonl"
validation = "test.jsonl"
test = "test.jsonl"
[training]
learning_rate = 0.01
warmup_steps = 5
schedule = "constant"
max_steps = {STEPS}
validate_every = 20
checkpoint_every = 10
batch_tokens = 256
precision = "float32"
device = "cpu"
threads = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Pictures, a recipe and a trained run; the task is registered in this process."""
    place, rng = tmp_path_factory.mktemp("captions"), random.Random(1)
    with pytest.MonkeyPatch.context() as patch:
        registry.kinds()
        patch.setattr(registry, "_kinds", dict(registry._kinds))  # other tests list all tasks
        patch.setattr(registry, "_loaded", {})
        registry.load_file(PLUGIN)
        draw = sys.modules["heedful_plugin_picture_captions"].draw
        for name, count in (("train", 400), ("test", 40)):
            lines = [json.dumps(draw(rng)) + "\n" for _ in range(count)]
            (place / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        (place / "recipe.toml").write_text(RECIPE, encoding="utf-8")
        assert heedful.train(place / "recipe.toml", place / "whole", data=place)
        yield place


def command(folder: Path, *arguments: str, given: str | None = None) -> Any:
    return run_command(*arguments, "--plugin", PLUGIN, cwd=folder, given=given)


def weights(run: Path, step: int = STEPS) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08}" / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


def examples(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]


def test_a_killed_training_is_resumed_exactly(folder: Path) -> None:
    arguments = ["recipe.toml", "--data", ".", "--out", "killed", "--plugin", str(PLUGIN)]
    with Started("train", *arguments, cwd=folder, stderr=DEVNULL) as process:
        first = folder / "killed" / "checkpoints" / "step-00000010"
        while not first.exists() and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert first.exists()
    assert heedful.train(folder / "recipe.toml", folder / "killed", data=folder)
    assert same(weights(folder / "killed"), weights(folder / "whole"))


def test_rows_of_python_data_train_the_same_weights(folder: Path, tmp_path: Path) -> None:
    tables = {"task": "picture-captions", "training": {"max_steps": 2, "device": "cpu"}}
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    files = {**tables, "data": {"train": "train.jsonl"}}
    assert heedful.train(files, tmp_path / "files", data=folder)
    assert heedful.train(tables, tmp_path / "rows", data={"train": rows})
    assert same(weights(tmp_path / "files", 2), weights(tmp_path / "rows", 2))
    with pytest.raises(UserError, match=r"row 1: 'picture': string should match"):
        heedful.train(tables, tmp_path / "wrong", data={"train": [{**rows[0], "picture": "r"}]})


def test_a_share_of_the_training_examples_is_held_out(folder: Path, tmp_path: Path) -> None:
    data = {"train": "train.jsonl", "validation_share": 0.1, "test_share": 0.1}
    tables = {"task": "picture-captions", "data": data, "training": {"max_steps": 1}}
    assert heedful.train(tables, tmp_path / "run", data=folder)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert facts["train"] + facts["validation"] + facts["test"] == 400
    assert 10 < facts["validation"] < 80
    kept = (tmp_path / "run" / "data" / "test.jsonl").read_text().splitlines()
    assert 10 < len(kept) == facts["test"] < 80


def test_a_mistake_in_the_data_is_named(folder: Path, tmp_path: Path) -> None:
    line = (folder / "train.jsonl").read_text().splitlines()[0]
    (tmp_path / "train.jsonl").write_text(f'{line}\n{{"picture": "r"}}\n')
    tables = {"task": "picture-captions", "data": {"train": "train.jsonl"}}
    with pytest.raises(UserError, match=r"train\.jsonl:2: 'picture': string should match"):
        heedful.train(tables, tmp_path / "run", data=tmp_path)
    assert not (tmp_path / "run").exists()
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(UserError, match=r"data\.train: .*train\.jsonl is empty"):
        heedful.train(tables, tmp_path / "run", data=tmp_path)


def test_it_is_evaluated_and_predicts(folder: Path) -> None:
    found = command(folder, "evaluate", "whole", "--output", "captions.txt", "--json")
    assert found.returncode == 0, found.stderr
    captions = (folder / "captions.txt").read_text().splitlines()
    right = [one["caption"] for one in examples(folder)]
    share = 100 * sum(map(str.__eq__, captions, right)) / len(right)
    accuracy = json.loads(found.stdout)["figures"]["accuracy"]
    assert accuracy == {"value": pytest.approx(share), "unit": "%", "more_is_better": True}
    assert set(" ".join(captions).split()) > {"red", "ring"}


def test_it_predicts(folder: Path) -> None:
    given = "".join(json.dumps({"picture": one["picture"]}) + "\n" for one in examples(folder))
    found = command(folder, "predict", "whole", given=given)
    assert found.returncode == 0, found.stderr
    run, spec = spec_of_run(folder / "whole")
    own = spec.load(run.path).predict([spec.read_input(line) for line in given.splitlines()])
    assert found.stdout.splitlines() == [one.text for one in own]
    for wrong, message in (
        ("red ring", "the input: Invalid JSON"),
        ('{"picture": "r"}', "the input: 'picture': string should match"),
    ):
        with pytest.raises(UserError, match=message):
            spec.read_input(wrong)


def test_info_tells_what_it_was_trained_on(folder: Path) -> None:
    told = describe_run(summarise_run(folder / "whole"))
    assert "(picture-captions)" in told
    assert "400 examples" in told
    assert "40 validation, 40 test" in told


def test_an_export_refuses_its_run(folder: Path) -> None:
    exported = command(folder, "export", "hf", "whole", "--out", "exported")
    assert exported.returncode == 2
    assert "is a run for picture-captions, and Hugging Face's layout has no" in exported.stderr


def test_options_of_other_tasks_are_refused(folder: Path) -> None:
    refused = command(folder, "evaluate", "whole", "--beam", "2")
    assert refused.returncode == 2
    assert "whole is a run for picture-captions" in refused.stderr


def test_its_run_names_no_plugin(folder: Path) -> None:
    without = run_command("predict", "whole", cwd=folder)
    assert without.returncode == 2
    assert "unknown task 'picture-captions'" in without.stderr
    assert "--plugin FILE.py" in without.stderr


def test_its_attention_is_traced(folder: Path) -> None:
    run, spec = spec_of_run(folder / "whole")
    predictor = spec.load(run.path)
    given = spec.read_input(json.dumps({"picture": examples(folder)[0]["picture"]}))
    [caption] = predictor.predict([given])
    trace = spec.trace(predictor, given)
    picture = trace.axes["picture"]
    assert (picture.kind, picture.extent, picture.media.size) == ("image", (4, 4), (12, 12))
    assert trace.decided == [*caption.text.split(), "</s>"]
    assert trace.axes["caption"].steps
    found = trace["attention"].weights
    torch.testing.assert_close(found.sum(2), torch.ones(1, len(trace.decided)))
    # The caption's probability is that of the search.
    assert sum(trace.log_probabilities) == pytest.approx(caption.log_probability, abs=1e-4)


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A server of the run, in a process of its own."""
    serve = ("serve", "whole", "--port=0", "--device=cpu", "--plugin", PLUGIN)
    with Started(*serve, cwd=folder, stderr=PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "serving whole at" in said, said + process.stderr.read()
        yield said.split(" at ")[1].split(" ")[0]
        process.terminate()
        assert process.wait(10) == 0


def test_it_is_served(folder: Path, address: str) -> None:
    picture = examples(folder)[0]["picture"]
    run, spec = spec_of_run(folder / "whole")
    with httpx.Client(base_url=address, timeout=30) as client:
        listed = client.get("/api/models").json()
        assert listed["readers"] == [{"name": "whole", "task": "picture-captions"}]
        assert listed["panels"] == [{"name": "predict", "title": "Predict", "models": ["whole"]}]
        assert listed["inputs"]["whole"]["required"] == ["picture"]
        answer = client.post("/api/predict/whole", json={"inputs": [{"picture": picture}]}).json()
        [expected] = spec.load(run.path).predict(
            [spec.read_input(json.dumps({"picture": picture}))]
        )
        assert answer["results"][0]["text"] == expected.text
        for wrong, message in (
            ("red ring", "inputs.0: input should be a valid dictionary"),
            ({"picture": "12"}, "inputs.0.picture: string should match"),
            ({"picture": picture, "more": 1}, "inputs.0.more: extra inputs are not permitted"),
        ):
            refused = client.post("/api/predict/whole", json={"inputs": [wrong]})
            assert refused.status_code == 400
            assert message in refused.json()["error"]
        trace = {"model": "whole", "input": {"picture": picture}}
        found = client.post("/api/trace", json=trace).json()
        assert found["kinds"]["picture"]["kind"] == "image"
        shown = client.post("/api/attention", json={**trace, "map": 0}).content
        assert len(shown) == 16 * len(found["decided"])
        bad = client.post("/api/trace", json={**trace, "input": {"picture": "12"}})
        assert (bad.status_code, "input.picture" in bad.json()["error"]) == (400, True)


@needs_browser()
def test_the_page_shows_each_word_over_the_picture(folder: Path, address: str) -> None:
    picture = examples(folder)[0]["picture"]
    with browser() as chromium, opened(chromium, address) as it:
        assert it.page.inner_text("[role=tab][aria-selected=true]") == "Predict"
        it.page.fill("textarea[aria-label=Picture]", picture[:10])
        it.page.wait_for_selector("text=string should match")
        it.errors.clear()  # what the server refuses is logged by the browser as well
        it.page.fill("textarea[aria-label=Picture]", picture)
        it.page.wait_for_selector(".heed-result dd")
        caption = it.page.inner_text(".heed-result dd >> nth=0")
        assert caption
        it.tab("heads")
        it.page.wait_for_selector(".heed-image-view >> visible=true")
        run, spec = spec_of_run(folder / "whole")
        trace = spec.trace(spec.load(run.path, device="cpu"), json.dumps({"picture": picture}))
        for word, weights in zip(trace.decided, trace["attention"].weights[0], strict=True):
            it.page.wait_for_selector(f".heed-query-label >> text='{word}'")
            place = int(weights.argmax())
            best = f"row {place // 4 + 1} column {place % 4 + 1}, {weights.max():.3f}"
            said = it.page.inner_text(".heed-axis-view .heed-readout >> visible=true")
            assert said[:-1] == f"Largest: {best}"[:-1]
            it.page.focus("input[aria-label='Query'] >> visible=true")
            it.page.keyboard.press("ArrowRight")
        it.page.reload()
        it.tab("predict")
        it.page.wait_for_selector(".heed-result dd")
        assert it.page.input_value("textarea[aria-label=Picture]") == picture


def test_its_attention_is_viewed(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "view.html"
    given = json.dumps({"picture": examples(folder)[0]["picture"]})
    done = command(folder, "view", "whole", given, "--output", str(page))
    assert done.returncode == 0, done.stderr
    assert "data:image/" in page.read_text(encoding="utf-8")
