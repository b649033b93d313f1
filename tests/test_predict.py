"""Every task is used in one way: ``heedful predict``, ``heedful.load`` and ``/api/predict``."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import heedful
from earlier_runs import CASES
from heedful.cli import main
from heedful.cli.predict import _lines
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.spec import TaskSpec, register, spec_named, specs
from serving_help import running

EARLIER = Path(__file__).parent / "data" / "runs-0.1"
LATER = {
    "algorithm",
    "answer",
    "answer-spans",
    "bidirectional",
    "captioning",
    "denoising",
    "dialogue",
    "embedding",
    "image-classification",
    "multi-label",
    "permutation",
    "regression",
    "replaced",
    "summary",
    "synthesis",
    "transcription",
}
"""Tasks that version 0.1 did not have; the tests of each cover its predictions."""
INPUTS: dict[str, list[Any]] = {
    "translation": ["the red dog sees a cat", ""],
    "text-to-text": ["the red dog sees a cat", ""],
    "alignment": [("the red dog", "der rote Hund"), ("", "")],
    "classification": ["the red dog sees a cat", ""],
    "tagging": ["the red dog", ""],
    "masked": ["the [MASK] dog", ""],
    "language-model": ["the ", "a dog"],
}


def run_of(task: str) -> str:
    return str(EARLIER / task / "run")


def as_line(one: Any) -> str:
    return one if isinstance(one, str) else "\t".join(one)


def test_every_task_has_a_case() -> None:
    own = {spec.name for spec in specs() if type(spec).__module__.startswith("heedful.")}
    assert own - LATER == {case.recipe["task"] for case in CASES.values()}


@pytest.mark.parametrize("task", INPUTS)
def test_any_run_predicts(task: str, tmp_path: Path) -> None:
    predictor = heedful.load(run_of(task), device="cpu")
    own = [json.loads(json.dumps(one.to_json())) for one in predictor.predict(INPUTS[task])]
    assert len(own) == 2
    if not main.app.registered_commands:
        main._register()
    lines = "".join(f"{as_line(one)}\n" for one in INPUTS[task])
    done = CliRunner().invoke(
        main.app, ["predict", run_of(task), "--json", "--device", "cpu"], input=lines
    )
    assert done.exit_code == 0, done.output
    assert [json.loads(line) for line in done.stdout.splitlines()] == own
    plain = CliRunner().invoke(main.app, ["predict", run_of(task)], input=lines)
    assert len(plain.stdout.splitlines()) == 2


def test_samples_do_not_depend_on_the_windows_of_lines() -> None:
    spec = spec_named("language-model")
    predictor = spec.load(run_of("language-model"), device="cpu")

    def written(windows: list[list[str]]) -> list[str]:
        found = _lines(spec, predictor, windows, None, as_json=False)
        return [line for window in found for line in window]

    lines = written([["the "] * 3])
    assert written([["the "], ["the "] * 2]) == lines
    assert len(set(lines)) == 3


@pytest.mark.parametrize("task", [*INPUTS, "several"])
def test_any_run_is_plotted(task: str, tmp_path: Path) -> None:
    if not main.app.registered_commands:
        main._register()
    text = "the [MASK] dog" if task == "masked" else "the red dog"
    head = ("--head", "words") if task == "several" else ()
    target = ("--target", "der rote Hund") if task == "alignment" else ()
    file = tmp_path / "drawn.svg"
    command = ["plot", run_of(task), text, "--device", "cpu", *head, *target]
    done = CliRunner().invoke(main.app, [*command, "--output", str(file)])
    assert done.exit_code == 0, done.exception
    assert "<svg" in file.read_text()
    named = CliRunner().invoke(main.app, [*command, "--map", "?"]).stdout.split()
    shown = CliRunner().invoke(main.app, [*command, "--map", named[0]])
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) >= 3
    beam = CliRunner().invoke(main.app, [*command, "--beam", "2", "--map", "?"])
    searches = task in ("translation", "text-to-text", "alignment")
    assert (beam.exit_code == 0) is searches
    assert searches or "does not search; leave out --beam" in str(beam.exception)


def test_a_head_is_chosen() -> None:
    run = run_of("several")
    [found] = heedful.load(run, head="words").predict(["the red dog"])
    assert found.tags == ("DET", "ADJ", "NOUN")
    assert heedful.load(run, head="colour").predict(["the red dog"])[0].label
    with pytest.raises(heedful.UserError, match=r"several heads: give --head.*colour"):
        heedful.load(run)
    with pytest.raises(heedful.UserError, match="no head 'none'"):
        heedful.load(run, head="none")
    with pytest.raises(heedful.UserError, match="no heads"):
        heedful.load(run_of("translation"), head="words")


def test_the_server_predicts() -> None:
    tasks = [task for task in INPUTS if task != "language-model"]  # which draws
    places = [EARLIER / task / "run" for task in [*tasks, "several"]]
    models = load_all(places, [], several=True, device="cpu")
    application = make_application(models)
    names = {one.spec.name: one.name for one in models if "/" not in one.name}
    with running(application) as address:
        for task in tasks:
            answer = httpx.post(
                f"{address}/api/predict/{names[task]}", json={"inputs": INPUTS[task]}, timeout=60
            )
            assert answer.status_code == 200, answer.text
            expected = heedful.load(run_of(task), device="cpu").predict(INPUTS[task])
            assert answer.json()["results"] == [
                json.loads(json.dumps(one.to_json())) for one in expected
            ]
        head = next(one.name for one in models if one.name.endswith("/words"))
        answer = httpx.post(f"{address}/api/predict/{head}", json={"inputs": ["the red dog"]})
        assert answer.json()["results"][0]["tags"] == ["DET", "ADJ", "NOUN"]
        for body, status in (({"inputs": "a"}, 400), ({"inputs": [["a"]]}, 400), ({}, 400)):
            answer = httpx.post(f"{address}/api/predict/{head}", json=body)
            assert answer.status_code == status, answer.text
        assert httpx.post(f"{address}/api/predict/none", json={"inputs": []}).status_code == 404


def test_tasks_are_listed_without_pytorch() -> None:
    code = (
        "import sys; from heedful.tasks.spec import specs; assert len(specs()) > 7; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_name_is_registered_once() -> None:
    known = spec_named("tagging")
    register(known)
    assert spec_named("tagging") is known

    class Other(type(known)):  # type: ignore[misc]
        """Another task under the same name."""

    with pytest.raises(heedful.UserError, match=r"'tagging' .* is already registered by"):
        register(Other())
    with pytest.raises(heedful.UserError, match="did you mean 'tagging'"):
        spec_named("taging")


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.name)
def test_a_spec_is_whole(spec: TaskSpec) -> None:
    """What is imported on demand is there."""
    assert spec.recipe_type().model_fields["task"].annotation is not None
    assert spec.run_type().__name__
    assert spec.facts_type().__name__
    assert spec.does or spec.name == "several"
    assert spec.command in _commands()
    if not spec.train_option:
        with pytest.raises(heedful.UserError, match="needs a recipe"):
            spec.choose_recipe([])


def _commands() -> list[str]:
    if not main.app.registered_commands:
        main._register()
    return [one.callback.__name__ for one in main.app.registered_commands if one.callback]
