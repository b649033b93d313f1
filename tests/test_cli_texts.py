"""``heedful classify``, ``tag``, ``fill`` and ``generate``: lines in, as many lines out."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import heedful.cli.train
import heedful.tasks.spec
import heedful.tasks.texts.loading
from heedful.basics.errors import UserError
from heedful.cli import task_commands, view
from heedful.inference import Trace
from heedful.inference.fill_mask import FillMask
from heedful.inference.generator import Generator
from heedful.inference.tagger import Tagger
from heedful.models.gpt import Gpt, GptSettings
from heedful.serving.loading import load_all
from language_help import ByteVocabulary, Recited
from test_reading import LABELS, TAGS, classifier, headed, learnt, texts, vocabulary

torch.set_num_threads(1)
app = typer.Typer()
app.callback()(lambda: None)
task_commands.register(app)


@pytest.fixture(autouse=True)
def runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the commands open in place of a run: models of random weights, kept in memory."""
    if "trained" in request.fixturenames:
        return {}
    torch.manual_seed(1)
    gpt = Gpt(
        GptSettings(layers=1, hidden_size=16, heads=2, max_length=60), ByteVocabulary.size
    ).eval()
    there: dict[str, Any] = {
        "load_classifier": learnt(),
        "load_tagger": Tagger(headed(), vocabulary(), TAGS),
        "load_filler": FillMask(headed(), vocabulary()),
        "load_generator": Generator(gpt, ByteVocabulary()),
    }
    for name in list(there):
        monkeypatch.setattr(
            heedful.tasks.texts.loading, name, lambda *_, name=name, **__: there[name]
        )
    one_label = SimpleNamespace(gives_sets=False)
    monkeypatch.setattr(heedful.tasks.spec, "spec_of_run", lambda _: (None, one_label))
    return there


def ask(arguments: Sequence[object], given: str | None = None) -> str:
    found = CliRunner().invoke(app, list(map(str, arguments)), input=given)
    if isinstance(found.exception, UserError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.stdout


# Classify


def test_as_many_labels_as_lines_whatever_stands_in_them() -> None:
    lines = ["the film was bad", "", "good", "  ", "it was long"]
    assert ask(["classify", "run"], "\n".join(lines) + "\n") == "bad\n\ngood\n\nneither\n"
    scored = ask(["classify", "run", "--scores"], "\n".join(lines) + "\n").splitlines()
    assert [line.split("\t")[0] for line in scored] == ["bad", "", "good", "", "neither"]
    assert 0.5 < float(scored[0].split("\t")[1]) <= 1.0
    objects = [
        json.loads(line) for line in ask(["classify", "run", "--json"], "bad\n\n").split("\n")[:2]
    ]
    assert objects[0]["label"] == "bad"
    assert sum(objects[0]["probabilities"].values()) == pytest.approx(1.0)
    assert (objects[1]["label"], objects[1]["windows"]) == (None, 0)


def test_a_table_is_read_by_its_column(tmp_path: Path) -> None:
    table = tmp_path / "my.csv"
    table.write_text('team,body\nx,"the film, it was\nbad"\ny,good\n')
    output = tmp_path / "labels.txt"
    ask(["classify", "run", table, "--text", "body", "--output", output])
    assert output.read_text() == "bad\ngood\n"
    with pytest.raises(UserError, match="did you mean 'body'"):
        ask(["classify", "run", table, "--text", "bdoy"])
    table.write_bytes("body\nschön\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"my\.csv:2"):
        ask(["classify", "run", table, "--text", "body"])
    assert ask(["classify", "run", table, "--text", "body", "--encoding", "latin-1"]).strip()


def test_of_a_table_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('team,body\nx,bad\nx,\n\nx,"  "\ny,good\n')
    (tmp_path / "a.tsv").write_text("team\tbody\nx\tbad\nx\t\n\nx\t  \ny\tgood\n")
    rows = [{"body": "bad"}, {"body": ""}, None, {"body": None}, {"body": "good"}]
    lines = [json.dumps(row) if row else "" for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    for kind in ("csv", "tsv", "jsonl"):
        found = ask(["classify", "run", tmp_path / f"a.{kind}", "--text", "body"])
        assert found == "bad\n\n\n\ngood\n", kind


def test_lines_may_have_another_encoding(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes("bad\nschön\n".encode("latin-1"))
    for command in ("classify", "tag"):
        with pytest.raises(UserError, match=r"lines\.txt:2: byte 0xF6 is not UTF-8.*--encoding"):
            ask([command, "run", lines])
        assert len(ask([command, "run", lines, "--encoding", "latin-1"]).splitlines()) == 2


def test_words_of_conllu_are_tagged(tmp_path: Path) -> None:
    rows = [(1, "the"), ("2-3", "filmwas"), (2, "film"), (3, "was")]
    lines = [f"{name}\t{word}" + "\t_" * 8 for name, word in rows]
    path, trace = tmp_path / "a.conllu", tmp_path / "trace.safetensors"
    path.write_text("\n".join(["# text = the film", *lines, "", "1\tbad" + "\t_" * 8, "", ""]))
    assert ask(["tag", "run", path, "--words"]) == ask(
        ["tag", "run", "--words"], "the film was\nbad\n"
    )
    with pytest.raises(UserError, match="one sentence; the input has 2"):
        ask(["tag", "run", path, "--trace", trace])
    assert ask(["tag", "run", "--trace", trace], "\nthe film\n").startswith("\n")
    assert len(Trace.load(trace).decided) == 2


def test_the_words_that_matter_are_named() -> None:
    lines = ask(["classify", "run", "--explain"], "the film was bad\n\n").split("\n")
    label, words = lines[0].split("\t")
    assert label == "bad"
    assert words.split()[0].startswith("bad:0.")
    assert lines[1] == ""
    found = json.loads(ask(["classify", "run", "--explain", "--json"], "the film was bad\n"))
    assert [one["word"] for one in found["words"]] == ["the", "film", "was", "bad"]


def test_a_trace_is_written_of_one_text(tmp_path: Path) -> None:
    path = tmp_path / "why.safetensors"
    assert ask(["classify", "run", "--trace", path], "the film was bad\n") == "bad\n"
    assert Trace.load(path).decided == ["bad"]
    for given, message in (
        ("a\nb\n", "one text; the input has 2"),
        ("\n", "one text; the input has 0"),
    ):
        with pytest.raises(UserError, match=message):
            ask(["classify", "run", "--trace", path], given)
    with pytest.raises(UserError, match="must end in"):
        ask(["classify", "run", "--trace", tmp_path / "why.html"], "a\n")


def test_pairs_have_a_tab_between_them(runs: dict[str, Any]) -> None:
    runs["load_classifier"] = classifier(headed(), pairs=True)
    found = ask(["classify", "run"], "the film\tit was\n\n").split("\n")
    assert found[0] in LABELS
    assert found[1] == ""
    with pytest.raises(UserError, match="line 2: 0 TABs"):
        ask(["classify", "run"], "a\tb\na\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["classify", "run", "--json", "--scores"], "--scores"),
        (["classify", "run", "--encoding", "latin-x"], "unknown encoding"),
        (["classify", "run", "nowhere.txt"], "nowhere.txt"),
        (["classify", "run", "--threads", "0"], "--threads"),
        (["fill", "run", "the [MASK]", "--file", "x"], "leave one"),
        (["fill", "run", "nothing"], "the text has no mask"),
        (["fill", "run", "--trace", "x.safetensors"], "TEXT"),
        (["generate", "run", "x.txt", "--prompt", "x"], "leave one"),
        (["generate", "run", "--prompt", "x", "--beam", "2", "--top-k", "3"], "--top-k"),
        (["generate", "run", "--prompt", "x", "--beam", "0"], "--beam 0"),
        (["generate", "run", "--prompt", "x", "--length-penalty", "1"], "--beam"),
        (["generate", "run", "--prompt", "x", "--temperature", "0"], "temperature"),
        (["generate", "run", "--prompt", "x", "--max-tokens", "0"], "at least 1"),
        (["generate", "run", "--prompt", "x", "--stop", ""], "empty"),
        (["tag", "run", "--output", "."], "folder"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as found:
        ask(arguments, "x\n")
    assert "\n" not in str(found.value)


# Tag


def test_as_many_tags_as_words(tmp_path: Path) -> None:
    given = "the film was\n\nit\n"
    tags = ask(["tag", "run"], given).split("\n")
    assert [len(line.split()) for line in tags] == [3, 0, 1, 0]
    words = ask(["tag", "run", "--words"], given).split("\n")
    assert words[0].split()[0] == f"the/{tags[0].split()[0]}"
    objects = [json.loads(line) for line in ask(["tag", "run", "--json"], given).splitlines()]
    assert [one["tags"] for one in objects] == [line.split() for line in tags[:3]]
    with pytest.raises(UserError, match="leave out --words"):
        ask(["tag", "run", "--json", "--words"], given)
    path = tmp_path / "tags.safetensors"
    assert ask(["tag", "run", "--trace", path], "\nthe film was\n\n") == f"\n{tags[0]}\n\n"
    assert Trace.load(path).decided == tags[0].split()


# Fill


def test_hidden_words_are_filled_in(tmp_path: Path) -> None:
    shown = ask(["fill", "run", "the [MASK] was [MASK]", "--count", "3"]).split("\n")
    assert [bool(line) for line in shown] == [True, True, True, False, True, True, True, False]
    probability, word, text = shown[0].split("\t")
    assert 0 < float(probability) < 1
    assert text.split()[1] == word
    lines = ask(["fill", "run"], "the [MASK]\n\n[MASK] was\n").split("\n")
    assert lines[0].startswith("the ")
    assert (lines[1], len(lines)) == ("", 4)
    found = json.loads(ask(["fill", "run", "--json"], "the [MASK]\n"))
    assert len(found["masks"][0]) == 5
    with pytest.raises(UserError, match="line 3: the text has no mask"):
        ask(["fill", "run"], "[MASK]\n\nfilm\n")
    path = tmp_path / "fill.safetensors"
    ask(["fill", "run", "the [MASK]", "--trace", path])
    assert Trace.load(path).decided == [found["masks"][0][0]["token"]]


# Generate


def test_a_prompt_is_written_on(runs: dict[str, Any], tmp_path: Path) -> None:
    runs["load_generator"] = Generator(Recited("abc ☃\nd|"), ByteVocabulary())
    greedy = ["generate", "run", "--prompt", "x", "--beam", "1"]
    assert ask(greedy) == "xabc ☃\nd\n"
    assert ask([*greedy, "--stop", "\\n"]) == "xabc ☃\n"
    assert ask([*greedy, "--max-tokens", "2"]) == "xab\n"
    found = json.loads(ask([*greedy, "--json"]))
    assert (found["prompt"], found["text"], found["ended"]) == ("x", "abc ☃\nd", "end")
    output = tmp_path / "text.txt"
    ask([*greedy, "--output", output])
    assert output.read_text() == "xabc ☃\nd\n"


def test_of_what_is_refused_not_even_the_prompt_is_shown() -> None:
    found = CliRunner().invoke(app, ["generate", "run", "--prompt", "x", "--stop", ""])
    assert isinstance(found.exception, UserError)
    assert found.stdout == ""


def test_prompts_are_lines(runs: dict[str, Any]) -> None:
    given = "ab\n\nein Bär\n"
    lines = ask(["generate", "run", "--max-tokens", "5"], given).split("\n")
    assert len(lines) == 4
    assert lines[2].startswith("ein Bär")
    assert lines == ask(["generate", "run", "--max-tokens", "5"], given).split("\n")
    assert lines != ask(["generate", "run", "--max-tokens", "5", "--seed", "2"], given).split("\n")
    several = ask(["generate", "run", "--nbest", "3", "--max-tokens", "4"], given).splitlines()
    objects = [json.loads(line) for line in several]
    assert [one["prompt"] for one in objects] == ["ab", "", "ein Bär"]
    assert all(len(one["alternatives"]) == 2 for one in objects)


def test_what_is_written_is_traced(tmp_path: Path) -> None:
    path = tmp_path / "text.safetensors"
    ask(["generate", "run", "--prompt", "ab", "--max-tokens", "4", "--top-k", "3", "--trace", path])
    trace = Trace.load(path)
    assert trace.axes["text"].labels[:2] == ["a", "b"]
    assert len(trace.decided) == len(trace.axes["text"])


# A run that has learnt


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier from a table, as a stranger makes it."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [f'{text.split()[-1]},"{text}, so it is"' for text in texts(300)]
    (folder / "my.csv").write_text("\n".join(["team,body", *rows]) + "\n")
    train = typer.Typer()
    train.callback()(lambda: None)
    heedful.cli.train.register(train)
    steps = "training.max_steps=30"
    command = ["train", "--task", "classify", "--data", folder / "my.csv", "--text", "body"]
    command += ["--label", "team", "--out", folder / "run", "--set", steps, "--threads", 1]
    found = CliRunner().invoke(train, list(map(str, command)))
    assert found.exit_code == 0, found.exception
    return folder / "run"


def test_a_stranger_classifies_and_looks_at_why(trained: Path, tmp_path: Path) -> None:
    assert len(ask(["classify", trained], "the film was good\n\nbad\n").split("\n")) == 4
    look = typer.Typer()
    look.callback()(lambda: None)
    view.register(look)
    page, saved = tmp_path / "view.html", tmp_path / "why.safetensors"
    command = ["view", trained, "the film was good", "--output", page, "--save", saved]
    found = CliRunner().invoke(look, list(map(str, command)))
    assert found.exit_code == 0, found.exception
    assert page.stat().st_size > 10_000
    assert Trace.load(saved).title == "the film was good"
    without = CliRunner().invoke(look, ["view", str(trained), "--output", str(page)])
    assert "needs a text" in str(without.exception)
    with pytest.raises(UserError, match="use it with heedful classify"):
        ask(["generate", trained, "--prompt", "x"])


def test_a_run_is_served_under_its_name(trained: Path) -> None:
    [one] = load_all([trained], [], device="cpu")
    assert (one.name, one.facts["task"]) == (trained.name, "classification")
    assert set(one.facts["labels"]) == {"good", "bad"}
