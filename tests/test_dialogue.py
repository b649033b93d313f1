"""Dialogues: data, answers, conversations, evaluation, and the server."""

import gzip
import json
import os
import pty
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import heedful
from command_help import Started
from dialogue_help import as_lines, dialogues, recipe, trained
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.cli import main
from heedful.data import columns
from heedful.data.examples import Pair
from heedful.data.readers.dialogues import Dialogue, Turn, read_dialogues
from heedful.data.store import Store
from heedful.decoding import SearchOptions
from heedful.inference.batches import source_of
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.serving import make_application
from heedful.serving.loading import load_all
from heedful.tasks.dialogue.conversation import Conversation
from heedful.tasks.dialogue.responder import Answer, Responder, load_responder
from heedful.tasks.dialogue.run import open_dialogue_run
from heedful.tasks.dialogue.turns import history, pairs_of, shortened, turn_of_words
from heedful.tasks.spec import Opening, spec_named
from serving_help import running

GREEDY = SearchOptions(beam=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("dialogue"))


@pytest.fixture(scope="module")
def responder(run: Path) -> Responder:
    return load_responder(run, device="cpu")


def told(*texts: str) -> Dialogue:
    """A dialogue in which user and bot take turns."""
    return Dialogue.of(zip(["user", "bot"] * len(texts), texts, strict=False))


def invoke(*arguments: str, text: str | None = None) -> Any:
    if not main.app.registered_commands:
        main._register()
    return CliRunner().invoke(main.app, list(arguments), input=text)


# Files


def test_both_formats_are_read_alike(tmp_path: Path) -> None:
    made = dialogues(5)
    (tmp_path / "a.jsonl").write_text("\n" + as_lines(made), encoding="utf-8")
    plain = "\n\n\n".join("\n".join(f"{who}:  {text} " for who, text in one) for one in made)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(f"\n{plain}".encode()))
    expected = [Dialogue.of(one) for one in made]
    assert list(read_dialogues([str(tmp_path / "a.jsonl")])) == expected
    assert list(read_dialogues([str(tmp_path / "a.txt.gz")])) == expected
    assert list(read_dialogues([str(tmp_path / "a.jsonl"), str(tmp_path / "a.txt.gz")])) == (
        expected * 2
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("user: Hi\nHello\n", r"a:2: no colon"),
        ("user: Hi\n: Hello\n", r"a:2: 'speaker'"),
        ("user: Hi\nbot:\n", r"a:2: 'text': .*the turn is empty"),
        ('{"turns": []}\n', r"a:1: 'turns'"),
        ('{"turns": [{"speaker": "a", "text": "b", "tone": 1}]}\n', r"a:1: .*tone"),
        ('{"turns": [{"speaker": "a:b", "text": "b"}]}\n', r"no colon"),
        ('{"turns": [{"speaker": "a"}]}\n', r"a:1: .*text"),
        ('{"turns": [{"speaker": "a", "text": "\\ud800"}]}\n', r"a:1: .*lone surrogate"),
        ('{"turns": [{"speaker": "a", "text": "b"}]}\n{"turns"\n', r"a:2: not a JSON object"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        list(read_dialogues([str(tmp_path / "a")]))
    (tmp_path / "log.txt").write_text("a: x\n" * 65_537)
    with pytest.raises(UserError, match=r"log.txt:65537: a dialogue of more than 65,536 turns"):
        list(read_dialogues([str(tmp_path / "log.txt")]))


# Turns as pairs


def test_oldest_turns_are_dropped_one_by_one() -> None:
    rng = random.Random(1)

    def count(texts: Any) -> list[int]:
        return [len(text.split()) for text in texts]

    for _ in range(200):
        turns = [
            Turn(speaker=rng.choice("ab"), text=" ".join("x" * rng.randint(1, 9)))
            for _ in range(rng.randint(1, 12))
        ]
        limit = rng.randint(1, 60)
        found = shortened(history(turns, "b"), count, limit)
        # The first number of turns to drop with which the rest fits; the last turn stays.
        fitting = [
            drop for drop in range(len(turns)) if count([history(turns[drop:], "b")])[0] <= limit
        ]
        expected = fitting[0] if fitting else len(turns) - 1
        assert found == (history(turns[expected:], "b"), expected, bool(fitting))


def test_line_breaks_and_separators_stay_within_a_turn() -> None:
    dialogue = told("One\r\nline ⏎ bot: No.", "Yes\n.")
    [pair] = pairs_of(dialogue, "bot")
    assert pair == ("user: One line bot: No. ⏎ bot:", "Yes .")
    assert turn_of_words(pair.source) == [0, 0, 0, 0, 0, -1, 1]


# Preparation


def test_a_dialogue_is_in_one_part(tmp_path: Path) -> None:
    rng = random.Random(4)
    made = [[(who, f"{text} {rng.random()}") for who, text in one] for one in dialogues(100)]
    (tmp_path / "train.jsonl").write_text(as_lines(made), encoding="utf-8")
    data = {"train": "train.jsonl", "validation_share": 0.2, "test_share": 0.2, "max_tokens": 400}
    tables = recipe(data=data)
    tables["model"] |= {"max_length": 401}
    tables["training"] |= {"max_steps": 1}
    tables["evaluation"] |= {"validation_pairs": 1}
    assert heedful.train(tables, tmp_path / "run", data=tmp_path)
    run = open_dialogue_run(tmp_path / "run")
    held = {part: run.dialogues(part) for part in ("validation", "test")}
    assert all(4 < len(one) < 40 for one in held.values())
    pairs = {pair for one in made for pair in pairs_of(Dialogue.of(one), "bot")}
    out = {pair for own in held.values() for one in own for pair in pairs_of(one, "bot")}
    store = Store.open(run.train_folder)
    tokens = store.read("source", np.arange(len(store)))
    kept = {run.tokenisers().source.decode(one) for one in tokens.rows(columns.tokens(400))}
    assert kept == {pair.source for pair in pairs} - {pair.source for pair in out}
    assert len(store) == run.facts["data"]["train_pairs"] == len(pairs) - len(out)
    assert run.pairs("test") == [p for one in held["test"] for p in pairs_of(one, "bot")]
    assert (run.speaker, run.partner) == ("bot", "user")


@pytest.mark.parametrize(
    ("lines", "data", "message"),
    [
        (
            "a: x\nb: y\n\nb: x\na: y\n",
            {},
            "several speakers answer; name one in data.speaker: a, b",
        ),
        ("a: x\nb: y\n", {"speaker": "c"}, "data.speaker = 'c' has no turn; the speakers are a, b"),
        ("a: x\n\nb: y\n", {}, "nobody answers"),
        ("\n", {}, "are empty"),
        ("a: x\nb: y\n", {"reversed": True}, "data.reversed is for pairs"),
        ("a: x\nb: y\n", {"max_tokens": 90}, "must be less than model.max_length"),
    ],
)
def test_wrong_data_are_refused(
    tmp_path: Path, lines: str, data: dict[str, Any], message: str
) -> None:
    (tmp_path / "a.txt").write_text(lines, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        heedful.train(
            recipe(data={"train": "a.txt", "max_tokens": 60, **data}),
            tmp_path / "run",
            data=tmp_path,
        )


def test_what_is_left_out_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = dialogues(60)
    made[0] += [("user", "long\nlong " * 80), ("bot", "Yes.")]  # the last turn does not fit
    made[1] = made[1] * 8  # the oldest turns do not fit
    (tmp_path / "train.jsonl").write_text(as_lines(made), encoding="utf-8")
    tables = recipe(data={"train": "train.jsonl", "max_tokens": 60})
    tables["training"] |= {"max_steps": 1}
    assert heedful.train(tables, tmp_path / "run", data=tmp_path)
    facts = open_run(tmp_path / "run").facts
    assert facts["data"]["left_out"] == {"longer than 60 tokens": 1}
    assert 0 < facts["data"]["shortened"] < 24
    said = capsys.readouterr().err
    assert "1 longer than 60 tokens" in said
    assert f": {facts['data']['shortened']} of {facts['data']['train_pairs']}; they are" in said
    assert "training turns with line breaks, which become spaces: 1" in said


def test_python_data(tmp_path: Path) -> None:
    rows = [
        {"turns": [{"speaker": who, "text": text} for who, text in one]} for one in dialogues(80)
    ]
    tables = recipe(data={"max_tokens": 60})
    tables["training"] |= {"max_steps": 1}
    assert heedful.train(tables, tmp_path / "run", data={"train": rows})
    with pytest.raises(UserError, match="row 1: 'turns'"):
        heedful.train(tables, tmp_path / "other", data={"train": [{"turns": []}]})


@pytest.mark.parametrize("count", [5, 400])
def test_a_recipe_is_chosen(tmp_path: Path, count: int) -> None:
    (tmp_path / "train.jsonl").write_text(as_lines(dialogues(count)), encoding="utf-8")
    tables = spec_named("dialogue").choose_recipe(["train.jsonl"], speaker="bot", folder=tmp_path)
    found: Any = check_recipe(tables, "the recipe")
    assert found.data.speaker == "bot"
    assert found.data.validation_share == (0.1 if count == 5 else 0.05)
    (tmp_path / "train.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(UserError, match="no dialogues to train on"):
        spec_named("dialogue").choose_recipe(["train.jsonl"], folder=tmp_path)


# Answers


def test_answers_need_earlier_turns(responder: Responder) -> None:
    for name in ("Ann", "Dan"):
        asked = told(f"I am {name}.", "Hello!", "A milk, please.", "One milk.", "Who am I?")
        [answer] = responder.predict([asked])
        assert answer.text == f"{name}."
        assert answer.dropped == 0
        assert answer.read == history(asked.turns, "bot")


def test_scores_are_those_of_the_model(responder: Responder) -> None:
    asked = told("I am Eve.", "Hello!", "Who am I?")
    answer = responder.answer(asked, GREEDY)
    source = responder.tokenisers.source.encode(answer.read)
    target = responder.tokenisers.target.encode(answer.text)
    with responder.ready():
        logits = responder.model.teacher_force(
            source_of([source], responder.device), torch.tensor([[BEGIN, *target]])
        )
    scores = logits[0].double().log_softmax(-1).gather(1, torch.tensor([[*target, END]]).T)
    assert answer.token_scores == pytest.approx(scores[:, 0].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "options", [GREEDY, SearchOptions(beam=3), SearchOptions(sample=True, temperature=2.0, seed=5)]
)
def test_alone_in_a_batch_and_streamed(responder: Responder, options: SearchOptions) -> None:
    asked = [Dialogue.of(one[: 2 * (i % 2) + 1]) for i, one in enumerate(dialogues(9, seed=6))]
    together = [one.text for one in responder.answer_all(asked, options)]
    assert [responder.answer(one, options).text for one in asked] == together
    pieces: list[list[str]] = []
    for one, expected in zip(asked, together, strict=True):
        pieces.append([])
        assert responder.answer(one, options, stream=pieces[-1].append).text == expected
        assert "".join(pieces[-1]) == expected
    if options.width == 1:
        assert max(map(len, pieces)) > 1


def test_long_dialogues_lose_their_oldest_turns(responder: Responder) -> None:
    turns = ["I am Ann.", "Hello!"] * 12
    asked = told(*turns, "Who am I?")
    answer = responder.answer(asked, GREEDY)
    assert 0 < answer.dropped < len(turns)
    assert answer.read == history(asked.turns[answer.dropped :], "bot")
    count = responder.tokenisers.source.encode
    assert len(count(answer.read)) <= 60
    assert len(count(history(asked.turns[answer.dropped - 1 :], "bot"))) > 60
    assert answer.to_json()["dropped_turns"] == answer.dropped
    # Nothing but the turns that are read counts.
    rest = Dialogue(turns=asked.turns[answer.dropped :])
    assert responder.answer(rest, GREEDY).token_scores == answer.token_scores
    with pytest.raises(UserError, match=r"^the last turn has .* more than the 60"):
        responder.answer(told("word " * 80), GREEDY)


def test_strings_are_no_dialogues(responder: Responder) -> None:
    with pytest.raises(UserError, match="input 2 is not a dialogue; give a dictionary with turns"):
        responder.predict([told("Hi"), "Hi"])


def test_weights_are_of_words(responder: Responder) -> None:
    asked = told("I am Eve.", "Hello!", "Who am I?")
    answer = responder.answer(asked, GREEDY, alignments=True, stream=lambda text: None)
    [batch] = responder.answer_all([asked], GREEDY, alignments=True)
    assert answer.weights is not None
    assert batch.weights is not None
    assert answer.weights.shape == (len(answer.text.split()), len(answer.read.split()))
    assert torch.allclose(answer.weights, batch.weights, atol=1e-5)
    shown = answer.to_json()["weights"]
    assert len(shown) == 1
    assert sum(shown[0]) == pytest.approx(1, abs=0.5)
    trace = responder.trace(answer.read, answer.text)
    assert trace.axes["source"].labels[-1] == "</s>"
    assert trace.alignment is not None
    assert trace.alignment.module == "copying"
    assert answer.read.split()[int(answer.weights[0].argmax())] == "Eve."
    for given in (asked, asked.model_dump_json()):
        assert responder.trace(given, answer.text).axes["source"] == trace.axes["source"]


def test_own_history(responder: Responder) -> None:
    made = [Dialogue.of(one) for one in dialogues(6, seed=8)]
    # Given answers that the model does not give.
    given = [
        Dialogue(
            turns=[
                turn if turn.speaker == "user" else turn.model_copy(update={"text": "Bob?"})
                for turn in one.turns
            ]
        )
        for one in made
    ]
    found = {
        (number, place): answer.text
        for answers in responder.own_histories(given, GREEDY)
        for number, place, answer in answers
    }
    for number, one in enumerate(given):
        turns: list[Turn] = []
        for place, turn in enumerate(one.turns):
            if turn.speaker == "bot":
                text = responder.answer(Dialogue(turns=turns), GREEDY).text
                assert found.pop((number, place)) == text
                turns = [*turns, Turn(speaker="bot", text=text)]
            else:
                turns = [*turns, turn]
    assert not found


def test_own_history_without_own_turns_that_are_too_long(
    responder: Responder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Dialogue.of([("user", "Who?"), ("bot", "Eve."), ("bot", "Eve.")])
    protection = responder.protection
    count = super(type(protection), protection).counter(10_000)
    first = responder.answer(Dialogue(turns=asked.turns[:1]), GREEDY).text
    too_long = f"{first} " * 20
    wanted = [responder.answer(told("Who?"), GREEDY)] * 2
    monkeypatch.setattr(protection, "limit", count([history(asked.turns[:1], "bot")])[0])

    def long_answers(dialogues: Any, *given: Any, **how: Any) -> list[Answer]:
        found = Responder.answer_all(responder, dialogues, *given, **how)
        return [replace(one, text=too_long) for one in found]

    monkeypatch.setattr(responder, "answer_all", long_answers)
    found = [answer for each in responder.own_histories([asked], GREEDY) for *_, answer in each]
    assert [one.read for one in found] == [one.read for one in wanted]
    assert [one.token_scores for one in found] == [one.token_scores for one in wanted]


def test_evaluation(run: Path, responder: Responder, tmp_path: Path) -> None:
    made = dialogues(7, seed=9)
    rows = [json.loads(line) for line in as_lines(made).splitlines()]
    for row in rows:
        row["turns"][-1]["distance"] = len(row["turns"]) - 1
    rows[0]["turns"][-1]["text"] = "Nobody."
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    spec = spec_named("dialogue")
    options = spec.evaluation_options()(beam=1)
    found = spec.evaluate(open_run(run), [str(tmp_path / "test.jsonl")], options, Opening("cpu"))
    read = [Dialogue.model_validate(row) for row in rows]
    pairs = [pair for one in read for pair in pairs_of(one, "bot")]
    texts = [
        responder.answer(Dialogue(turns=one.turns[:place]), GREEDY).text
        for one in read
        for place in range(1, len(one.turns), 2)
    ]
    assert list(found.outputs or []) == texts
    right = [text == pair.target for text, pair in zip(texts, pairs, strict=True)]
    assert 0 < sum(right) < len(right)
    share = 100 * sum(right) / len(right)
    assert found.figures["exact match, given history"].value == pytest.approx(share)
    assert 0 < found.figures["exact match, own history"].value <= 100
    by_distance = found.to_json()["by_distance"]
    assert sum(one["answers"] for one in by_distance) == 7
    assert {one["group"] for one in by_distance} <= {3, 5}
    loss = _loss(responder, pairs)
    assert found.figures["perplexity"].value == pytest.approx(loss, rel=1e-4)
    assert spec.evaluate(open_run(run), None, options, Opening("cpu")).figures
    (tmp_path / "other.txt").write_text("user: Hi\n", encoding="utf-8")
    with pytest.raises(UserError, match="no turn of 'bot'"):
        spec.evaluate(open_run(run), [str(tmp_path / "other.txt")], options, Opening("cpu"))


def _loss(responder: Responder, pairs: list[Pair]) -> float:
    """The perplexity, one answer at a time."""
    scores: list[float] = []
    for pair in pairs:
        source = responder.tokenisers.source.encode(pair.source)
        target = responder.tokenisers.target.encode(pair.target)
        with responder.ready():
            logits = responder.model.teacher_force(
                source_of([source], responder.device), torch.tensor([[BEGIN, *target]])
            )
        own = logits[0].double().log_softmax(-1).gather(1, torch.tensor([[*target, END]]).T)
        scores += own[:, 0].tolist()
    return float(torch.tensor(scores).mean().neg().exp())


# The command


def test_a_long_turn_is_named_by_its_dialogue(run: Path, tmp_path: Path) -> None:
    long = "user: A tea, please.\nbot: Yes.\nuser: " + "tea " * 90 + "\nbot: Yes.\n"
    (tmp_path / "long.txt").write_text(f"user: A tea!\nbot: Yes.\n\n{long}")
    spec = spec_named("dialogue")
    options = spec.evaluation_options()(beam=1)
    with pytest.raises(UserError, match="dialogue 2: the last turn has"):
        spec.evaluate(open_run(run), [str(tmp_path / "long.txt")], options, Opening("cpu"))


def test_other_commands(run: Path, tmp_path: Path) -> None:
    told = invoke("info", str(run))
    assert told.exit_code == 0, told.exception
    assert "(dialogue, answers user as bot)" in told.stdout
    assert "answers" in told.stdout
    drawn = invoke("plot", str(run), "I am Eve.", "--output", str(tmp_path / "a.svg"))
    assert drawn.exit_code == 0, drawn.exception
    whole = Dialogue.of(dialogues(1)[0][:1]).model_dump_json()
    assert invoke("predict", str(run), text=f"{whole}\n").stdout == "Hello!\n"


def test_lines_of_a_pipe(run: Path, responder: Responder) -> None:
    whole = told("I am Bob.", "Hello!", "Who am I?")
    text = f"I am Ann.\nWho am I?\n\nWho am I?\n{whole.model_dump_json()}\n"
    done = invoke("chat", str(run), "--device", "cpu", text=text)
    assert done.exit_code == 0, done.output
    first = responder.answer(told("I am Ann.")).text
    second = responder.answer(told("I am Ann.", first, "Who am I?")).text
    fresh = responder.answer(told("Who am I?")).text
    assert done.stdout.splitlines() == [first, second, "", fresh, "Bob."]
    long = told(*["I am Bob.", "Hello!"] * 12, "Who am I?").model_dump_json()
    done = invoke("chat", str(run), "--json", "--device", "cpu", text=f"{long}\n{long}\n")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    dropped = answers[0]["dropped_turns"]
    assert dropped > 0
    assert (
        f"2 answers were written without the oldest turns ({2 * dropped} in total)" in done.stderr
    )
    done = invoke("predict", str(run), "--device", "cpu", text=f"{long}\n\n{long}\n")
    assert (
        f"2 answers were written without the oldest turns ({2 * dropped} in total)" in done.stderr
    )


def test_cut_off_answers_are_counted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = Responder.answer_all

    def cut_off(self: Responder, *given: Any, **how: Any) -> list[Answer]:
        return [replace(one, at_limit=True) for one in find(self, *given, **how)]

    monkeypatch.setattr(Responder, "answer_all", cut_off)
    notice = "heedful: 2 answers were cut off at the maximum length"
    done = invoke("chat", str(run), "--beam", "2", "--device", "cpu", text="Hi\nWho am I?\n")
    assert done.stderr.count(notice) == 1
    whole = told("Hi").model_dump_json()
    done = invoke("predict", str(run), "--device", "cpu", text=f"{whole}\n{whole}\n")
    assert done.stderr.count(notice) == 1


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        (["--seed", "3"], "Hi\n", "--seed is for sampling; add --sample"),
        (["--sample", "--beam", "3"], "Hi\n", "--sample and --beam exclude each other"),
        (["--beam", "0"], "Hi\n", "beam"),
        ([], '{"turns": [{"speaker": "user"}]}\n', "line 1: .*text"),
        ([], "Hi\n" + "word " * 90 + "\n", "line 2: the last turn"),
        ([], "Hi\nbot: Hello!\n", "line 2 begins with 'bot:', but each line is a turn of user"),
        ([], "user: Hi\n", "line 1 begins with 'user:'"),
    ],
)
def test_mistakes_are_one_line(run: Path, options: list[str], text: str, message: str) -> None:
    done = invoke("chat", str(run), "--device", "cpu", *options, text=text)
    assert isinstance(done.exception, UserError)
    assert "\n" not in str(done.exception)
    with pytest.raises(UserError, match=message):
        raise done.exception


class Terminal:
    """What a person types, and what is shown."""

    def __init__(self, responder: Responder, *lines: str) -> None:
        self.lines, self.shown = list(lines), ""
        self.conversation = Conversation(responder, GREEDY, ask=self.ask, write=self.write)
        self.conversation.run()

    def ask(self, prompt: str) -> str:
        if not self.lines:
            raise EOFError
        self.shown += f"{prompt}{self.lines[0]}\n"
        return self.lines.pop(0)

    def write(self, text: str) -> None:
        self.shown += text


def test_a_conversation(responder: Responder, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    lines = ["I am Eve.", "Who am I?", "/attention", f"/save {file}", f"/save {file}", "/undo"]
    lines += ["Who am I?", "/reset", "/attention", "/undo", "/wave", "/help", "/save", "//x"]
    shown = Terminal(responder, *lines).shown
    assert "user: Who am I?\nbot: Eve.\n" in shown
    assert "Eve.  ←  " in shown
    assert "(turn 1)" in shown
    assert f"error: {file} exists" in shown
    assert shown.count("bot: Eve.\n") == 2
    assert "error: there is no answer to look at yet" in shown
    assert "error: there is nothing to take back" in shown
    assert "error: unknown command /wave; /help lists them" in shown
    assert "error: give a file: /save FILE" in shown
    [saved] = read_dialogues([str(file)])
    assert [one.text for one in saved.turns][::2] == ["I am Eve.", "Who am I?"]


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "x" * 300, "a\0b", "folder"])
def test_a_conversation_goes_on_if_it_cannot_be_saved(
    responder: Responder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    shown = Terminal(responder, "I am Eve.", f"/save {name}", "Who am I?").shown
    assert "error: " in shown
    assert "bot: Eve.\n" in shown
    assert os.listdir(tmp_path) == ["folder"]


def test_empty_answers_that_are_saved_are_counted(responder: Responder, tmp_path: Path) -> None:
    terminal = Terminal(responder, "I am Eve.")
    conversation = terminal.conversation
    conversation.turns[1] = conversation.turns[1].model_copy(update={"text": ""})
    conversation.take(f"/save {tmp_path / 'talk.jsonl'}")
    assert "(1 answer is empty; training refuses empty turns" in terminal.shown


def test_dropped_turns_are_said_when_their_number_changes(responder: Responder) -> None:
    shown = Terminal(responder, *["I am Ann."] * 9).shown
    said = [line for line in shown.splitlines() if "left out" in line]
    assert all(one.startswith("(the model reads 60 tokens: the ") for one in said)
    assert len(set(said)) == len(said)
    assert len(said) >= 2


def test_an_answer_is_stopped(responder: Responder) -> None:
    def stop(text: str) -> None:
        if text.startswith("bot: "):
            raise KeyboardInterrupt

    terminal = Terminal(responder)
    conversation = terminal.conversation
    conversation.write = stop
    conversation.take("I am Ann.")
    assert conversation.turns == []
    pieces: list[str] = []

    def later(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 2:
            raise KeyboardInterrupt

    conversation.write = later
    conversation.take("I am Ann.")
    assert conversation.turns[0].text == "I am Ann."
    assert f"bot: {conversation.turns[1].text}" == pieces[0]
    assert pieces[-1] == " (stopped)\n"


@pytest.mark.slow
def test_a_terminal(run: Path) -> None:
    """In a real terminal: the prompt, an answer, and the end with Ctrl-D."""
    parent, child = pty.openpty()
    command = ("chat", run, "--device", "cpu")
    process = Started(*command, stdin=child, stdout=child, stderr=child)
    os.close(child)
    shown, sent = b"", 0
    typed = [b"I am Dan.\n", b"Who am I?\n", b"\x04"]
    until = time.monotonic() + 90
    while time.monotonic() < until:
        try:
            shown += os.read(parent, 1024)
        except OSError:  # the terminal is closed when the process ends
            break
        if shown.count(b"user: ") > sent and sent < len(typed):
            os.write(parent, typed[sent])
            sent += 1
    assert process.wait(30) == 0
    os.close(parent)
    assert b"bot: Dan." in shown


# The server


def test_the_server_answers(run: Path, responder: Responder) -> None:
    models = load_all([run], [], several=False, device="cpu")
    [name] = [one.name for one in models]
    asked = told("I am Ann.", "Hello!", "Who am I?")
    turns = asked.to_json()["turns"]
    expected = responder.answer(asked, GREEDY, alignments=True).to_json()
    with running(make_application(models)) as address:
        answer = httpx.post(f"{address}/api/chat", json={"turns": turns, "alignments": True})
        assert answer.json() == {"model": name, "answer": expected}
        streamed = httpx.post(f"{address}/api/chat/stream", json={"turns": turns})
        *pieces, last = map(json.loads, streamed.text.splitlines())
        assert "".join(one["text"] for one in pieces) == last["text"] == "Ann."
        assert last["done"] is True
        assert last["dropped_turns"] == 0
        body = {"inputs": [{"turns": turns}]}
        found = httpx.post(f"{address}/api/predict/{name}", json=body).json()["results"]
        assert found[0]["text"] == "Ann."
        for subject in (
            {"source": expected["read"], "target": "Ann."},
            {"input": body["inputs"][0]},
        ):
            trace = httpx.post(f"{address}/api/trace", json={"model": name, **subject})
            assert trace.status_code == 200, trace.text
            assert trace.json()["axes"]["source"][-1] == "</s>"
        silent = [turns[0], {"speaker": "bot", "text": ""}, turns[2]]
        assert httpx.post(f"{address}/api/chat", json={"turns": silent}).status_code == 200
        facts = httpx.get(f"{address}/api/models").json()
        assert facts["panels"] == [{"name": "chat", "title": "Chat", "models": [name]}]
        assert facts["readers"][0]["partner"] == "user"
        for wrong, message in (
            ({"turns": []}, "at least 1 item"),
            ({"turns": turns, "seed": 1}, "seed is for sampling"),
            ({"turns": turns, "beam": 1000}, "maximum"),
            ({"turns": [{"speaker": "user", "text": "word " * 90}]}, "the last turn"),
            ({"turns": [*turns, {"speaker": "user"}]}, "turns: 3.text: field required"),
            ({"turns": ["user: Hi"]}, "turns: 0: "),
            ({"turns": [{"speaker": "user", "text": " "}]}, "the last turn is empty"),
        ):
            refused = httpx.post(f"{address}/api/chat", json=wrong)
            assert refused.status_code == 400
            assert message.lower() in refused.json()["error"].lower()


# The generator


def test_generated_answers_follow_from_earlier_turns(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "dialogues.py"
    command = [sys.executable, str(script), "make", str(tmp_path), "--train", "300", "--held", "60"]
    subprocess.run(command, check=True, capture_output=True)
    parts = {
        part: list(read_dialogues([str(tmp_path / f"{part}.jsonl")]))
        for part in ("train", "validation", "test")
    }
    texts = {part: {one.model_dump_json() for one in own} for part, own in parts.items()}
    assert [len(own) for own in texts.values()] == [300, 30, 60]
    assert not texts["test"] & (texts["train"] | texts["validation"])
    far = 0
    for one in parts["train"]:
        for place, turn in enumerate(one.turns):
            named = turn.text.removeprefix("Yes, you are ").removesuffix(".")
            if turn.text.startswith("Yes, you are "):
                last = max(i for i in range(place) if named in one.turns[i].text)
                assert turn.distance == place - last
                far += turn.distance > 2
    assert far > 20
