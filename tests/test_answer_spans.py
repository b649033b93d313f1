"""The task answer-spans: training, answering, no answer, windows, commands, server and views."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from transformers import BertForQuestionAnswering
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.data.examples import SpanQuestion
from heedful.data.vocabularies import VocabularySettings, train_vocabulary
from heedful.inference.span_reader import Candidate, Found, Question, SpanAnswer, SpanReader
from heedful.inference.span_windows import Window
from heedful.inference.text_reader import Row
from heedful.interop.exporting import export_hf
from heedful.models.encoders import sequences_of
from heedful.runs.opening import open_run
from heedful.serving import Limits, Served, make_application
from heedful.tasks.answer_spans.training import SpanTask, choose_threshold
from heedful.tasks.spec import spec_of_run
from text_help import LOOP, MASKED, write_data

COLOURS, ANIMALS = ("red", "green", "blue", "old"), ("dog", "cat", "bird", "horse")
VERBS = ("sat", "ran", "slept", "ate")
FLOW = {
    "kind": "bidirectional-attention-flow",
    "embedding_size": 12,
    "hidden_size": 8,
    "character_filters": 4,
    "character_size": 3,
    "max_length": 24,
    "dropout": 0.0,
}


def question(chance: random.Random, *, answered: bool) -> dict[str, Any]:
    """Facts such as "The red dog sat.", and "Who sat?": "red dog"."""
    verbs = chance.sample(VERBS, 2)
    who = [f"{chance.choice(COLOURS)} {one}" for one in chance.sample(ANIMALS, 2)]
    facts = [f"The {name} {verb}." for name, verb in zip(who, verbs, strict=True)]
    context = " ".join(facts)
    right = chance.randrange(2)
    verb = verbs[right] if answered else "left"
    answers = [{"text": who[right], "answer_start": context.index(who[right])}]
    return {
        "context": context,
        "qas": [
            {
                "id": f"q{chance.random()}",
                "question": f"Who {verb}?",
                "answers": answers if answered else [],
                "is_impossible": not answered,
            }
        ],
    }


def write(path: Path, count: int, seed: int, *, none: float = 0.0) -> Path:
    chance = random.Random(seed)
    rows = [question(chance, answered=chance.random() >= none) for _ in range(count)]
    path.write_text(json.dumps({"version": "2", "data": [{"title": "t", "paragraphs": rows}]}))
    return path


def recipe(folder: Path, **more: Any) -> dict[str, Any]:
    data = {name: str(folder / f"{name}.json") for name in ("train", "validation", "test")}
    loop = {**LOOP, "batch_tokens": 400, "max_steps": 90, "validate_every": 45}
    return {
        "task": "answer-spans",
        "seed": 4,
        "data": data,
        "max_tokens": 24,
        "overlap": 4,
        "tokeniser": {"kind": "words", "vocabulary_size": 60, "lower_case": True},
        "model": FLOW,
        "training": {**loop, "checkpoint_every": 45, "log_every": 30, "learning_rate": 0.02},
        **more,
    }


def make(folder: Path, none: float) -> Path:
    for seed, (name, count) in enumerate([("train", 260), ("validation", 40), ("test", 40)]):
        write(folder / f"{name}.json", count, seed, none=none)
    assert heedful.train(recipe(folder), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("spans"), 0.35)


def command(arguments: list[str], lines: str | None = None) -> str:
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, arguments, input=lines)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refusal(arguments: list[str], lines: str | None = None) -> str:
    """The message of a command that is refused."""
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, arguments, input=lines)
    assert isinstance(done.exception, UserError), (done.output, done.exception)
    return str(done.exception)


def test_answers_are_learned_and_so_is_when_there_is_none(run: Path) -> None:
    scores = json.loads(command(["evaluate", str(run), "--json"]))["scores"]["answer-spans"]
    assert scores["examples"] == 40
    assert scores["f1"] > 60
    assert scores["best_f1"] >= scores["f1"] - 1e-9
    assert {"has_answer_f1", "no_answer_exact_match", "best_exact_match_threshold"} <= set(scores)
    assert scores["no_answer_f1"] > 30
    reader = heedful.load(run)
    assert isinstance(reader, SpanReader)
    assert scores["threshold"] == pytest.approx(reader.threshold)
    assert reader.threshold != 0  # chosen by validation, and saved with the weights


def test_the_chosen_threshold_is_between_the_scores_of_questions() -> None:
    examples = [SpanQuestion("q", "a b", (("a", 0),), str(one)) for one in range(2)]
    examples.append(SpanQuestion("q", "a b", (), "2"))
    best = Candidate("a", 0, 1, 0.5)
    found = [SpanAnswer("a", best, score, windows=1, window=1) for score in (0.1, 0.3, 0.5)]
    assert choose_threshold(examples, found) == pytest.approx(0.4)
    assert choose_threshold(examples[:2], found[:2]) == pytest.approx(1.3)
    assert choose_threshold(examples[2:], found[2:]) < 0.5


def test_prediction_files_are_the_official_ones(run: Path, tmp_path: Path) -> None:
    test = run.parent / "test.json"
    names = [
        one["id"]
        for paragraph in json.loads(test.read_text())["data"][0]["paragraphs"]
        for one in paragraph["qas"]
    ]
    first, second, third = (tmp_path / f"{one}.json" for one in range(3))
    answers = tmp_path / "answers.txt"
    command(["evaluate", str(run), "--predictions", str(first), "--output", str(answers)])
    command(["evaluate", str(run), "--data", str(test), "--predictions", str(second)])
    command(
        ["ask", str(run), str(test), "--predictions", str(third), "-o", str(tmp_path / "lines.txt")]
    )
    found = json.loads(first.read_text())
    assert list(found) == names
    assert found == json.loads(second.read_text()) == json.loads(third.read_text())
    assert list(found.values()) == answers.read_text().split("\n")[:-1]
    assert (tmp_path / "lines.txt").read_text() == answers.read_text()
    assert "" in found.values()  # no answer


def test_questions_in_squads_format_are_read_from_standard_input(run: Path, tmp_path: Path) -> None:
    given = json.loads((run.parent / "test.json").read_text())
    given["data"] = [{"title": "t", "paragraphs": given["data"][0]["paragraphs"][:3]}]
    lines = json.dumps({"title": "first", **given}, indent=1)
    found, own = tmp_path / "found.json", tmp_path / "own.json"
    own.write_text(lines)
    answers = command(["ask", str(run), "--predictions", str(found)], lines)
    assert answers == command(["ask", str(run), str(own)])
    assert "\n".join(json.loads(found.read_text()).values()) + "\n" == answers
    refused = refusal(["ask", str(run), str(own), "--context", str(run.parent / "test.json")])
    assert refused.endswith("leave out --context")


def test_a_question_without_a_text_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match="a question has no text; give a question and a text"):
        heedful.load(run, device="cpu").predict(["ab"])


def test_a_long_validation_question_is_refused_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, name in enumerate(("train", "validation", "test")):
        write(tmp_path / f"{name}.json", 8, seed)
    path = tmp_path / "validation.json"
    path.write_text(path.read_text().replace("Who ", "Who " * 30, 1))
    with pytest.raises(UserError, match=r"validation question 1: .* has 32 tokens, which leave"):
        heedful.train(recipe(tmp_path), tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").glob("*"))
    assert "step 30" not in capsys.readouterr().err


def test_repeated_identifiers_are_refused_before_the_work(run: Path, tmp_path: Path) -> None:
    rows = "question\tcontext\tanswer\nWho sat?\tThe dog sat.\tdog\n"
    for name in "ab":
        (tmp_path / f"{name}.tsv").write_text(rows)
    both = [f"--data={tmp_path / 'a.tsv'}", f"--data={tmp_path / 'b.tsv'}"]
    said = refusal(["evaluate", str(run), *both, "--predictions", str(tmp_path / "p.json")])
    assert "2 questions have the identifier" in said
    twice = json.loads((run.parent / "test.json").read_text())
    twice["data"] *= 2
    (tmp_path / "twice.json").write_text(json.dumps(twice))
    arguments = ["ask", str(run), str(tmp_path / "twice.json"), "-o", str(tmp_path / "lines")]
    said = refusal([*arguments, "--predictions", str(tmp_path / "p.json")])
    assert "questions have the identifier" in said
    assert not list(tmp_path.glob("p.json")) + list(tmp_path.glob("lines"))


def test_the_averaged_checkpoint_has_the_threshold_of_its_validation(tmp_path: Path) -> None:
    for seed, name in enumerate(("train", "validation", "test")):
        write(tmp_path / f"{name}.json", 60, seed, none=0.4)
    settings = recipe(tmp_path)
    settings["training"] |= {
        "max_steps": 30,
        "validate_every": 10,
        "checkpoint_every": 10,
        "average_checkpoints": 3,
        "keep_last": 3,
    }
    assert heedful.train(settings, tmp_path / "run")
    average = json.loads((tmp_path / "run" / "result.json").read_text())["average"]
    opened, spec = spec_of_run(tmp_path / "run")
    reader = spec.load(opened.path, device="cpu", checkpoint="average")
    from heedful.tasks.answer_spans.evaluation import score_spans

    examples: Any = spec.kept(opened, "answer-spans", "validation")
    found = score_spans("x", reader, examples, 0).figures
    assert found["f1"].value == pytest.approx(average["validation"]["f1"])
    assert found["best_f1"].value == pytest.approx(found["f1"].value)


def test_one_line_for_each_question_in_order(run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The red dog sat. The old cat ran.\n")
    both = "The red dog sat. The old cat ran."
    lines = command(["ask", str(run), "--context", str(text)], "Who sat?\n\nWho ran?\n")
    assert len(lines.split("\n")) == 4
    assert lines.split("\n")[1] == ""
    rows = '{"question": "Who sat?"}\n\nWho ran?\n'
    assert command(["ask", str(run), "--context", str(text)], rows) == lines
    tabs = command(["ask", str(run)], f"Who sat?\t{both}\n\nWho ran?\t{both}\n")
    objects = [{"question": "Who sat?", "context": both}, {"question": "Who ran?", "context": both}]
    rows = "".join(json.dumps(one) + "\n" for one in objects)
    full = [json.loads(line) for line in command(["ask", str(run), "--json"], rows).splitlines()]
    assert tabs.split("\n")[:3:2] == lines.split("\n")[:3:2] == [one["answer"] for one in full]
    for one in full:
        best = one["candidates"][0]
        assert both[best["start"] : best["end"]] == best["text"]
        assert 0 < one["probability"] <= 1
    many = command(["predict", str(run), "-"], "\n" + json.dumps(objects[0]) + "\n")
    assert many == "\n" + full[0]["answer"] + "\n"
    wrong = refusal(["predict", str(run), "-"], json.dumps(objects[0]) + '\n{"question": 3}\n')
    assert "line 2: " in wrong
    rows = f"Who sat?\t{both}\n\n{'Who ' * 600}?\t{both}\n"
    assert refusal(["predict", str(run), "-"], rows).startswith("question 3: ")
    trace = str(tmp_path / "trace.safetensors")
    traced = command(["ask", str(run), "--trace", trace], f"\nWho sat?\t{both}\n\n")
    assert traced == f"\n{full[0]['answer']}\n\n"


@pytest.mark.parametrize(
    ("arguments", "lines", "message"),
    [
        ([], "Who sat?\n", "standard input:1: no TAB between a question and its text"),
        ([], "context\tquestion\tanswer\n", "standard input:1: this is the header of a table"),
        ([], "\tThe dog sat.\n", "standard input:1: the question is empty"),
        ([], "Who?\t \n", "standard input:1: the text is empty"),
        ([], '{"question": "", "context": "x"}\n', "standard input:1: 'question'"),
        ([], '{"question": "Who?"}\n', "standard input:1: 'context'"),
        (["--json", "--scores"], "", "--json includes the scores"),
        (["--context", "-"], "Who?", "questions and --context are both standard input"),
        (["--context", __file__], "Who?\tThe dog.\n", "this line has a text of its own"),
        (["--context", __file__], '{"question": "Who?", "context": "x"}', "a text of its own"),
        (["--output", "a", "--predictions", "a"], "", "--output and --predictions are both a;"),
        (["--predictions", "p.json"], "Who?\tIt.\n", "--predictions needs a file in SQuAD's"),
        (
            [],
            "\n" * 300 + "who " * 30 + "?\tThe dog. " * 9 + "\n",
            "question 301: the question",
        ),
    ],
)
def test_bad_input_gives_one_clear_line(
    run: Path, arguments: list[str], lines: str, message: str
) -> None:
    found = refusal(["ask", str(run), *arguments], lines)
    assert message in found
    assert "\n" not in found.strip()


def test_a_long_text_is_read_in_windows_and_none_of_it_is_cut(run: Path) -> None:
    notices: list[str] = []
    reader = heedful.load(run)
    reader.notify = notices.append
    long = "The blue bird ran. " * 12 + "The red horse sat. " + "The old cat ate. " * 12
    (answer,) = reader.predict([("Who sat?", long)])
    assert answer.windows > 5
    assert "1 text was longer than the model's 24 tokens" in notices[0]
    windows = reader.windows_of(_asked(long))
    tokens = reader.locate(long).tokens
    covered = {one.begin + place for one in windows for place in range(len(one.row.second))}
    assert covered == set(range(len(tokens)))
    # The best answer is that of the window with the most probable one.
    alone = []
    for one in windows:
        found = reader.read([[one]])[0][0]
        alone.append(found.spans[0][0])
    assert answer.window == 1 + max(range(len(alone)), key=alone.__getitem__)
    assert answer.best is not None
    assert answer.best.probability == pytest.approx(float(torch.tensor(max(alone)).exp()), rel=1e-5)


def _asked(text: str) -> Any:
    return Question("Who sat?", text)


def test_spans_inside_words_are_extended_and_given_once(run: Path) -> None:
    text = "The reddish dog sat."
    trained = heedful.load(run)
    letters = VocabularySettings(kind="characters", vocabulary_size=99)
    vocabulary = train_vocabulary(lambda: [text], letters, seed=1, where="the test")
    reader = SpanReader(trained.model, vocabulary, may_refuse=False, overlap=4, longest=9)
    ranges = reader.locate(text).ranges
    at = {one: ranges.index((one, one + 1)) for one in range(len(text)) if text[one] != " "}
    found = Found(-9.0, [(-0.1, at[4], at[6]), (-0.2, at[4], at[10]), (-3.0, at[0], at[1])], 0.0)
    answer = reader.answer(_asked(text), [Window(Row([], []), 0)], [found])
    assert answer.answer == "reddish"
    assert [one.text for one in answer.candidates] == ["reddish", "The"]
    assert answer.best is not None
    assert answer.best.probability == pytest.approx(math.exp(-0.1), rel=1e-5)


def test_a_question_alone_and_in_a_batch_has_the_same_answer(run: Path) -> None:
    reader = heedful.load(run)
    reader.notify = lambda text: None
    asked = [(f"Who {verb}?", "The red dog sat. " * n) for n, verb in enumerate(VERBS, start=1)]
    together = reader.predict(asked)
    for one, own in zip(asked, together, strict=True):
        (alone,) = reader.predict([one])
        assert alone.answer == own.answer
        assert alone.no_answer == pytest.approx(own.no_answer, abs=1e-5)


def test_interrupted_training_ends_as_uninterrupted(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = recipe(run.parent)
    often = {"max_steps": 12, "validate_every": 4, "checkpoint_every": 4}
    tables["training"] = {**tables["training"], **often}
    assert heedful.train(tables, tmp_path / "whole")
    loss, calls = SpanTask.loss, [0]

    def failing(task: SpanTask, batch: Any) -> Any:
        calls[0] += 1
        if calls[0] == 7:
            raise KeyboardInterrupt
        return loss(task, batch)

    monkeypatch.setattr(SpanTask, "loss", failing)
    with pytest.raises(KeyboardInterrupt):
        heedful.train(tables, tmp_path / "part")
    monkeypatch.undo()
    assert heedful.train(tables, tmp_path / "part")
    one, other = (
        spec_of_run(tmp_path / name)[1].load(tmp_path / name, checkpoint="last").model.state_dict()
        for name in ("whole", "part")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "heads.answer-spans.threshold" in one


def test_the_loss_is_the_mean_of_both_boundaries_over_the_text(run: Path) -> None:
    from heedful.data.positions import Position

    opened = open_run(run)
    spec = spec_of_run(run)[1]
    settings = opened.recipe.training  # type: ignore[attr-defined]
    model: Any = spec.build_model(opened)
    task: Any = spec.build_task(opened, model, settings, torch.device("cpu"), "float32")
    assert isinstance(task, SpanTask)
    batch = next(iter(task.batches(Position(0))))[1]
    model.eval()
    found = task.loss(batch)
    total = 0.0
    logits = model.heads["answer-spans"](model.encoder(batch.rows)).detach()
    for row, tokens in enumerate(batch.rows.tokens.tolist()):
        ends = [place for place, token in enumerate(tokens) if token == 3]
        places = [0, *range(ends[0] + 1, ends[1])]
        for which in (0, 1):
            scores = logits[row, places, which].log_softmax(0)
            total -= float(scores[places.index(int(batch.boundaries[row, which]))]) / 2
    assert float(found.total.detach()) == pytest.approx(total, rel=1e-5)
    parts = task.split(batch, 3, 1)
    assert sum(one.weight for one in parts) == batch.weight
    assert sum(float(task.loss(one).total.detach()) for one in parts) == pytest.approx(
        total, rel=1e-5
    )


def test_a_trace_shows_where_the_answer_was_read(run: Path) -> None:
    reader = heedful.load(run)
    text = "The red dog sat. The old cat ran."
    trace = reader.trace(("Who sat?", text))
    maps = {one.name: one for one in trace.maps}
    answer = maps["answer"]
    assert (answer.query_axis, answer.key_axis, answer.kind) == (
        "boundaries",
        "second",
        "posterior",
    )
    assert answer.weights.shape == (1, 2, 10)
    read = maps["encoder.context_to_question"]
    assert (read.query_axis, read.key_axis) == ("second", "first")
    assert torch.allclose(read.weights.sum(-1), torch.ones(1, 10))
    assert maps["encoder.question_to_context"].weights.shape == (1, 1, 10)
    (found,) = reader.predict([("Who sat?", text)])
    first, last = (one.partition(": ")[2] for one in trace.decided)
    assert found.best is not None
    assert found.best.text.split()[0].lower() == first
    assert found.best.text.split()[-1].rstrip(".").lower() in (last, "")
    best = answer.weights[0].max(-1).values
    assert float(best[0]) >= float(torch.tensor(trace.log_probabilities[0]).exp()) - 1e-6


def test_a_long_text_is_traced_in_the_window_of_its_answer(run: Path) -> None:
    reader = heedful.load(run)
    reader.notify = lambda text: None
    long = "The blue bird ran. " * 12 + "The red horse sat. " + "The old cat ate. " * 12
    (found,) = reader.predict([("Who sat?", long)])
    trace = reader.trace(("Who sat?", long), relevance=False)
    window = reader.windows_of(_asked(long))[found.window - 1]
    assert list(trace.axes["second"].labels) == reader.vocabulary.pieces(window.row.second)


def test_the_server_answers_and_traces(run: Path) -> None:
    served = Served("spans", heedful.load(run))
    with TestClient(make_application([served], limits=Limits())) as client:
        models = client.get("/api/models").json()
        assert [one["name"] for one in models["readers"]] == ["spans"]
        assert {"name": "ask", "title": "Ask"}.items() <= models["panels"][0].items()
        asked = {"question": "Who sat?", "context": "The red dog sat. The old cat ran."}
        (found,) = client.post("/api/predict/spans", json={"inputs": [asked]}).json()["results"]
        (own,) = heedful.load(run).predict([asked])
        assert found == json.loads(json.dumps(own.to_json()))
        bad = client.post("/api/predict/spans", json={"inputs": [{"question": "Who?"}]})
        assert bad.status_code == 400
        assert "context" in bad.text
        empty = client.post(
            "/api/predict/spans", json={"inputs": [{"question": " ", "context": "x"}]}
        )
        assert empty.status_code == 400
        assert "question is empty" in empty.text
        given = {"model": "spans", "source": asked["question"], "target": asked["context"]}
        trace = client.post("/api/trace", json=given).json()
        assert "answer" in json.dumps(trace)


def test_a_recipe_is_chosen_for_a_file_and_other_models_can_be_used(
    run: Path, tmp_path: Path
) -> None:
    spec = spec_of_run(run)[1]
    tables = spec.choose_recipe([str(run.parent / "train.json")])
    assert tables["model"]["kind"] == "bidirectional-attention-flow"
    bert = {"layers": 1, "hidden_size": 8, "heads": 2, "ffn_size": 8, "max_length": 24}
    short = {**recipe(run.parent)["training"], "max_steps": 2, "validate_every": 2}
    for model in (bert, {**FLOW, "flow": "none"}, {**FLOW, "attention": {"score": "additive"}}):
        name = tmp_path / str(len(list(tmp_path.iterdir())))
        assert heedful.train(recipe(run.parent, model=model, training=short), name)
    with pytest.raises(UserError, match="no vectors of tokens"):
        heedful.train(recipe(run.parent, model={"kind": "decomposable"}), tmp_path / "x")


def test_a_pre_trained_bert_is_fine_tuned(run: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    assert heedful.train(MASKED, tmp_path / "masked", data=tmp_path)
    short = {**recipe(run.parent)["training"], "max_steps": 2, "validate_every": 2}
    tables = recipe(run.parent, model=MASKED["model"], training=short)
    tables["tokeniser"] = MASKED["tokeniser"]
    assert heedful.train(tables, tmp_path / "spans", start_from=tmp_path / "masked")
    opened = open_run(tmp_path / "spans")
    model: Any = spec_of_run(tmp_path / "spans")[1].build_model(opened)
    spec_of_run(tmp_path / "spans")[1].load_start(opened, model)
    before = open_run(tmp_path / "masked").chosen(None).weights()
    name = "encoder.embeddings.tokens.weight"
    assert torch.equal(model.state_dict()[name], before[name])
    export_hf(tmp_path / "spans", tmp_path / "hf")
    reader = heedful.load(tmp_path / "spans", device="cpu")
    theirs: Any = BertForQuestionAnswering.from_pretrained(tmp_path / "hf").eval()
    (window,) = reader.windows_of(_asked("The red dog sat."))
    batch = sequences_of([window.row.first], [window.row.second])
    with torch.no_grad():
        wanted = theirs(batch.tokens, torch.ones_like(batch.tokens), batch.segments)
        found = reader.model.heads["answer-spans"](reader.model.encoder(batch))
    both = torch.stack([wanted.start_logits, wanted.end_logits], -1)
    torch.testing.assert_close(found, both, atol=1e-5, rtol=1e-5)


def test_python_rows_are_data_too(tmp_path: Path) -> None:
    rows = [("Who sat?", f"The {one} sat.", one) for one in ("dog", "cat", "red bird") * 5]
    tables = recipe(tmp_path)
    tables["training"] = {**tables["training"], "max_steps": 2, "validate_every": 2}
    tables["data"] = {}
    assert heedful.train(tables, tmp_path / "run", data={"train": rows, "validation": rows[:3]})
    with pytest.raises(UserError, match=r"row 1: the answer 'dog' is not in the text"):
        heedful.train(tables, tmp_path / "other", data={"train": [("Who?", "It sat.", "dog")]})


def test_exports_of_other_models_are_refused(run: Path, tmp_path: Path) -> None:
    for format in ("hf", "onnx"):
        found = refusal(["export", format, str(run), "--out", str(tmp_path / format)])
        assert "answer-spans" in found
