"""Answers to questions about stories: data, training, the command, evaluation, bad input."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import evaluate, task_commands
from heedful.cli import train as train_command
from heedful.data.readers.stories import read_stories
from heedful.inference import Trace
from heedful.tasks.answer.command import read_questions
from heedful.tasks.answer.training import StoryBatch
from heedful.tasks.spec import Opening, spec_of_run

PEOPLE, PLACES = ("Mary", "John", "Sandra", "Daniel"), ("garden", "kitchen", "office", "hall")
STORY = ["Mary went to the garden.", "John went to the hall.", "Mary went to the office."]
ASKED = {"story": STORY, "question": "Where is Mary?"}
BABI = (
    "1 Mary went to the hall.\n2 John went to the office.\n3 Where is Mary? \thall\t1\n"
    "4 Mary took the milk.\n5 Where is the milk? \thall\t4 1\n"
    "1 John went to the garden.\n2 Where is John?\tgarden\t1\n"
)
RECIPE: dict[str, Any] = {
    "task": "answer",
    "data": {"train": "train.jsonl", "validation": "test.jsonl", "test": "test.jsonl"},
    "model": {
        "kind": "memory-network", "hidden_size": 16, "hops": 2, "memory": 6, "can_stop": True
    },
    "training": {
        "learning_rate": 0.02,
        "warmup_steps": 10,
        "schedule": "constant",
        "max_steps": 120,
        "validate_every": 60,
        "checkpoint_every": 60,
        "batch_tokens": 2048,
        "supervision": 1.0,
        "linear_start": 1,
        "choose_by": "accuracy",
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    },
}  # fmt: skip


def tell(rng: random.Random) -> dict[str, Any]:
    went = [(rng.choice(PEOPLE), rng.choice(PLACES)) for _ in range(rng.randint(2, 6))]
    who = rng.choice(went)[0]
    last = max(place for place, (one, _) in enumerate(went) if one == who)
    story = [f"{one} went to the {where}." for one, where in went]
    return {
        "story": story,
        "question": f"Where is {who}?",
        "answer": went[last][1],
        "supports": [last + 1],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("stories"), random.Random(1)
    for name, count in (("train", 600), ("test", 80)):
        lines = [json.dumps(tell(rng)) + "\n" for _ in range(count)]
        (place / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    assert heedful.train(RECIPE, place / "run", data=place)
    return place


def invoke(*arguments: str, **how: Any) -> Any:
    app = typer.Typer()
    for one in (task_commands, evaluate, train_command):
        one.register(app)
    return CliRunner().invoke(app, list(arguments), **how)


def test_it_learns_to_answer_and_to_read_the_supporting_fact(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    found = spec.evaluate(run, None, None, Opening(device="cpu"))
    assert found.figures["accuracy"].value > 90
    [answer] = heedful.load(folder / "run", device="cpu").predict([ASKED])
    assert answer.answer == "office"
    first, second = (hop[0] for hop in answer.hops)
    assert (first.number, first.text) == (3, STORY[2])
    assert (second.number, second.text) == (0, "(no further fact)")
    assert json.loads(json.dumps(answer.to_json()))["hops"][0][0]["number"] == 3


def test_a_stopped_training_is_resumed_exactly(folder: Path) -> None:
    first = {**RECIPE["training"], "max_steps": 50}
    heedful.train({**RECIPE, "training": first}, folder / "stopped", data=folder)
    assert heedful.train(RECIPE, folder / "stopped", data=folder)
    one, other = (
        load_file(folder / run / "checkpoints" / "step-00000120" / "model.safetensors")
        for run in ("run", "stopped")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_batch_answers_like_single_questions(folder: Path) -> None:
    predictor, rng = heedful.load(folder / "run", device="cpu"), random.Random(3)
    rows = [{k: v for k, v in tell(rng).items() if k in ASKED} for _ in range(7)]
    singly = [predictor.predict([one])[0] for one in rows]
    for one, other in zip(predictor.predict(rows), singly, strict=True):
        assert one.answer == other.answer
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        assert [hop[0].number for hop in one.hops] == [hop[0].number for hop in other.hops]


def test_the_first_epochs_are_linear(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    task = spec.build_task(
        run, spec.fresh_model(run), run.recipe.training, torch.device("cpu"), "float32"
    )
    from heedful.data.positions import Position

    seen = []
    for after, batch in task.batches(Position(1)):
        assert isinstance(batch, StoryBatch)
        seen.append(batch.linear)
        if after.epoch == 2:
            break
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {True, False}


def test_batches_of_a_number_of_rows_have_all_lengths(folder: Path) -> None:
    from heedful.data.positions import Position

    run, spec = spec_of_run(folder / "run")
    settings = run.recipe.training.model_copy(update={"batch_rows": 32, "batch_tokens": 8})
    task = spec.build_task(run, spec.fresh_model(run), settings, torch.device("cpu"), "float32")
    epoch, mixed = [], 0
    for after, batch in task.batches(Position(1)):
        epoch.append(batch.weight)
        mixed += len(set(batch["story"].shapes[:, 0].tolist())) > 1
        if after.epoch == 1:
            break
    assert epoch == [32] * 18 + [24]  # all 600 questions
    assert mixed == len(epoch)
    resumed = next(task.batches(Position(1, 0, 32)))  # the second batch: pools have 32 rows
    second = [batch for _, (_, batch) in zip(range(2), task.batches(Position(1)), strict=False)][1]
    assert torch.equal(resumed[1]["question"].values, second["question"].values)


def test_stories_of_text_have_one_line_for_each_question(folder: Path) -> None:
    told = "\n".join([*STORY, "Where is Mary?", "Where is John?", "", *STORY[1:], "Where is Mary?"])
    done = invoke("answer", str(folder / "run"), input=told)
    assert done.stdout == "office\nhall\noffice\n"
    facts = invoke("answer", str(folder / "run"), "--facts", input=told).stdout.splitlines()
    assert facts[0].startswith("office\t3 Mary went to the office. (")
    numbered = folder / "numbered.txt"
    numbered.write_text(BABI, encoding="utf-8")
    done = invoke("answer", str(folder / "run"), str(numbered))
    assert len(done.stdout.splitlines()) == 3


def test_json_lines_have_a_line_each(folder: Path) -> None:
    given = json.dumps(ASKED) + "\n\n" + json.dumps({**ASKED, "answer": "x"}) + "\n"
    lines = invoke("answer", str(folder / "run"), "--json", input=given).stdout.split("\n")
    assert len(lines) == 4
    assert lines[1] == "" == lines[3]
    assert json.loads(lines[0])["answer"] == "office" == json.loads(lines[2])["answer"]


def test_a_trace_has_hops_over_facts(folder: Path) -> None:
    path = folder / "one.safetensors"
    done = invoke("answer", str(folder / "run"), "--trace", str(path), input=json.dumps(ASKED))
    assert done.exit_code == 0, done.stderr
    trace = Trace.load(path)
    found = trace["attention"]
    assert (found.query_axis, found.key_axis) == ("hops", "facts")
    assert trace.axes["facts"].labels == ["(no further fact)", *STORY]
    assert trace.axes["facts"].kind == "slots"
    torch.testing.assert_close(torch.as_tensor(found.weights).sum(-1), torch.ones(1, 2))


def test_several_files_have_a_row_each(folder: Path) -> None:
    babi = folder / "qa.txt"
    babi.write_text(BABI, encoding="utf-8")
    both = ("--data", str(babi), "--data", str(folder / "test.jsonl"))
    done = invoke("evaluate", str(folder / "run"), *both, "--json")
    found = json.loads(done.stdout)
    assert [Path(one["file"]).name for one in found["files"]] == ["qa.txt", "test.jsonl"]
    mean = sum(one["error"] for one in found["files"]) / 2
    assert found["figures"]["mean_error"]["value"] == pytest.approx(mean)
    table = invoke("evaluate", str(folder / "run"), *both).stdout
    assert "mean of the files" in table


def test_babis_lines_become_examples(tmp_path: Path) -> None:
    path = tmp_path / "qa.txt"
    path.write_text(BABI, encoding="utf-8")
    found = [one for _, one in read_stories(str(path))]
    assert [len(one["story"]) for one in found] == [2, 3, 1]
    assert found[1] == {
        "story": ["Mary went to the hall.", "John went to the office.", "Mary took the milk."],
        "question": "Where is the milk?",
        "answer": "hall",
        "supports": [3, 1],
    }


def test_long_stories_are_refused_or_lose_their_oldest_facts(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    predictor = heedful.load(folder / "run", device="cpu")
    long = {**ASKED, "story": STORY * 3}
    with pytest.raises(UserError, match=r"a story has 9 facts, but the memory 6; raise"):
        predictor.predict([long])
    rows = [{**long, "answer": "office", "supports": [9, 1]}, {**ASKED, "answer": "office"}]
    with pytest.raises(UserError, match="a story has 9 facts"):
        heedful.train({**RECIPE, "data": {}}, folder / "refused", data={"train": rows})
    assert not (folder / "refused" / "data").exists()
    recipe = {
        **RECIPE,
        "data": {"longer": "drop-oldest"},
        "training": {**RECIPE["training"], "max_steps": 2},
    }
    heedful.train(recipe, folder / "dropped", data={"train": rows})
    assert "1 of 2 training stories have more than 6 facts" in capfd.readouterr().err
    shorter = heedful.load(folder / "dropped", device="cpu")
    one, other = shorter.predict([long, {**ASKED, "story": STORY * 2}])
    assert one.log_probability == pytest.approx(other.log_probability, abs=1e-6)
    assert "1 of 2 stories have more than 6 facts" in capfd.readouterr().err
    assert {fact.number for fact in one.hops[0]} <= {0, *range(4, 10)}


def test_an_unknown_answer_counts_as_wrong(folder: Path) -> None:
    path = folder / "moon.jsonl"
    rows = [{**ASKED, "answer": "moon"}, {**ASKED, "answer": "office"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = invoke("evaluate", str(folder / "run"), "--data", str(path), "--json")
    assert json.loads(done.stdout)["figures"]["accuracy"]["value"] == 50
    assert "1 of 2 questions have an answer that is in no training example" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"story": ["a b"], "question": "c?", "answer": "d", "supports": [2]}', ":1: .*fact 2"),
        ('{"story": [], "question": "c?", "answer": "d"}', ":1: 'story'"),
        ('{"story": ["a"], "question": "c?"}', ":1: 'answer': field required"),
        ("1 Mary went.\n2 Where?\thall\t7\n", ":2: the supporting fact 7 does not exist"),
        ("Mary went.\n", ":1: neither a JSON object nor a numbered line"),
        ("", "is empty"),
    ],
)
def test_bad_data_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "train.jsonl").write_text(text, encoding="utf-8")
    recipe = {**RECIPE, "data": {"train": "train.jsonl"}}
    with pytest.raises(UserError, match=said):
        heedful.train(recipe, tmp_path / "run", data=tmp_path)


def test_supervision_needs_supporting_facts(tmp_path: Path) -> None:
    rows = [{**ASKED, "answer": "office"}]
    with pytest.raises(UserError, match="no training example has any"):
        heedful.train({**RECIPE, "data": {}}, tmp_path / "run", data={"train": rows})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["Where is Mary?"], "text:1: a question without a story"),
        (["Mary went.", "", "John went.", "Where is John?"], "text:2: the story before it has no"),
        (["Mary went."], "text: the last fact has no question"),
        (['{"story": ["a"]}'], "text:1: 'question': field required"),
    ],
)
def test_questions_that_cannot_be_read(lines: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        list(read_questions(lines, "text"))


def test_no_lines_have_no_questions() -> None:
    assert list(read_questions([], "text")) == []
    assert list(read_questions(["", ""], "text")) == []


def test_a_corpus_alone_is_enough(folder: Path) -> None:
    out = folder / "chosen"
    done = invoke(
        "train", "--task", "answer", "--data", str(folder / "train.jsonl"), "--out", str(out),
        "--set", "training.max_steps=3", "--set", "training.threads=1",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "memory-network" in done.stderr
    assert heedful.load(out, device="cpu").predict([ASKED])[0].answer in PLACES
    with pytest.raises(UserError, match="is a run for answer"):
        heedful.load(out, head="other")
