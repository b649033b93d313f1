"""What can be got wrong with single texts: one clear line each, exit code 2, before training."""

import functools
import json
import sys
from pathlib import Path

import pytest

import heedful.cli.main as command_line
from heedful.basics.notices import without_notices
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.tasks.texts.default_recipe import choose_classification
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.recipe import LabelledData
from heedful.tasks.texts.run import TextRun
from heedful.training.train import prepare, train
from text_help import RECIPES, TAGS, write_data

Command = list[str]
REGISTER = functools.cache(command_line._register)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data, and a recipe file of each task."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_data(folder)
    for name, tables in RECIPES.items():
        (folder / f"{name}.toml").write_text(toml(tables), encoding="utf-8")
    return folder


def toml(tables: object) -> str:
    """Inline tables: every recipe is JSON with '=' for ':' between a key and its value."""
    assert isinstance(tables, dict)
    return "\n".join(f"{key} = {inline(value)}" for key, value in tables.items())


def inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def heedful(
    arguments: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The exit code of ``heedful …`` and what it wrote to standard error."""
    monkeypatch.setattr(sys, "argv", ["heedful", *arguments])
    monkeypatch.setattr(command_line, "_register", REGISTER)
    code = 0
    try:
        command_line.main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, capsys.readouterr().err


CLASSIFY = ["--task", "classify", "--data"]
RECIPE_MISTAKES: list[tuple[str, dict[str, str], Command, str]] = [
    # (recipe, files to write, --set …, what is said)
    (
        "classification",
        {"test.tsv": "text\tlabel\nthe pink cat\tpink\n"},
        ["data.test=test.tsv"],
        "test.tsv: the label 'pink' does not occur in the training examples (example 1, "
        "'the pink cat')",
    ),
    (
        "tagging",
        {"test-tags.tsv": "oh\tINTJ\n"},
        ["data.test=test-tags.tsv"],
        "test-tags.tsv: the label 'INTJ' does not occur in the training examples",
    ),
    (
        "classification",
        {"one.tsv": "text\tlabel\na cat\tred\na dog\tred\n"},
        ["data.train=one.tsv"],
        "every example of one.tsv has the label 'red'",
    ),
    (
        "classification",
        {"prices.tsv": "text\tlabel\n" + "".join(f"a cat {n}\t{n % 30}\n" for n in range(50))},
        ["data.train=prices.tsv"],
        "prices.tsv: 30 different labels in 50 examples",
    ),
    (
        "classification",
        {"real.tsv": "text\tlabel\n" + "".join(f"a {n}\t{n % 11 / 10}\n" for n in range(200))},
        ["data.train=real.tsv"],
        "real.tsv: the labels are 11 different real numbers",
    ),
    (
        "classification",
        {"empty.tsv": "text\tlabel\na cat\tred\n \tblue\n"},
        ["data.train=empty.tsv"],
        "empty.tsv:3: 'text' is empty",
    ),
    (
        "classification",
        {"nothing.tsv": ""},
        ["data.train=nothing.tsv"],
        "nothing.tsv: the file is empty",
    ),
    (
        "classification",
        {},
        ["data.label=lable"],
        "there is no column 'lable'; did you mean 'label'?",
    ),
    ("pairs", {}, ['data.text=["first", "secnd"]'], "did you mean 'second'?"),
    ("pairs", {}, ['data.text=["first"]', "data.format=label-text"], "no space in this line"),
    (
        "pairs",
        {},
        ["data.format=label-text"],
        "format = 'label-text' has one text per line: set one column of text",
    ),
    (
        "tagging",
        {"uneven.jsonl": '{"words": ["a", "cat"], "tags": ["DET"]}\n'},
        ["data.train=uneven.jsonl", "data.column=tags"],
        "uneven.jsonl:1: 2 words",
    ),
    ("classification", {}, ["task=clasification"], "did you mean 'classification'?"),
    ("classification", {}, ["training.lerning_rate=1"], "did you mean 'learning_rate'?"),
    ("classification", {}, ["model.hopz=1"], "unknown key 'model.hopz'"),
    ("several", {}, ["tasks.colour.data.lable=x"], "'tasks.colour.data.lable'; did you mean 'lab"),
    (
        "several",
        {},
        ["tasks.colour.task=tag"],
        "unknown 'tasks.colour.task' = 'tag'; did you mean 'tagging'?",
    ),
    ("several", {}, ["training.choose_by=color.accuracy"], "did you mean 'colour.accuracy'?"),
    ("several", {}, ["training.choose_by=loss"], "is not a validation figure"),
    (
        "classification",
        {},
        ["model.kind=brt"],
        "unknown 'model.kind' = 'brt'; did you mean 'bert'?",
    ),
    ("classification", {}, ["max_tokens=500"], "max_tokens 500 is more than model.max_length 40"),
    ("gpt", {}, ["context=50", "model.max_length=40"], "context 50 is more than model.max_length"),
    ("gpt", {}, ["data.sentences=en"], "data.sentences is for masked tokens"),
    ("classification", {}, ["training.penalty=0.1"], "model.pooling = 'structured'"),
    ("frozen", {}, ["training.penalty=0.1"], "training.penalty needs a task of whole texts"),
    ("masked", {}, ["tokeniser.mask=false"], "masked tokens need tokeniser.mask = true"),
    ("masked", {}, ["training.label_smoothing=0.1"], "training.label_smoothing is for labels"),
    ("alone", {}, ["training.choose_by=next_accuracy"], "needs masking.next_sentence = true"),
    (
        "masked",
        {},
        ["data.documents=whole"],
        "the train text is one document, but next-sentence prediction needs several",
    ),
    (
        "tagging",
        {},
        ['model={kind = "decomposable"}'],
        "model.kind = 'decomposable' has no word vectors for tagging",
    ),
    (
        "classification",
        {},
        ['model={kind = "decomposable"}'],
        "reads pairs of texts only: set data.text to both columns",
    ),
    (
        "attentive",
        {},
        ["model.pairs=apart"],
        "model.kind = 'recurrent-encoder' with pairs = 'apart' reads pairs of texts only",
    ),
    (
        "classification",
        {},
        ["data.validation=[]", "data.validation_share=0.001"],
        "data.validation_share = 0.001 holds out none of the 48 examples of labelled.tsv",
    ),
    (
        "classification",
        {},
        ["data.validation=[]", "data.validation_share=0.5", "data.test_share=0.5"],
        "leave nothing to train on",
    ),
    (
        "vectors",
        {"wide.txt": "cat 1 2 3\ndog 4 5 6\n"},
        ["vectors.file=wide.txt"],
        "wide.txt: the vectors are 3 wide, the model's embeddings 8; set model.embedding_size = 3",
    ),
    ("classification", {}, ["data.train=absent.tsv"], "absent.tsv does not exist"),
    (
        "gpt",
        {"blank.txt": "\n\n \n"},
        ["data.train=blank.txt"],
        "blank.txt: the file has no text",
    ),
]


@pytest.mark.parametrize(("recipe", "files", "settings", "message"), RECIPE_MISTAKES)
def test_what_is_wrong_in_a_recipe_or_its_data(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recipe: str,
    files: dict[str, str],
    settings: Command,
    message: str,
) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    options = [part for setting in settings for part in ("--set", setting)]
    code, said = heedful(
        ["train", f"{recipe}.toml", "--out", str(tmp_path / "run"), *options], monkeypatch, capsys
    )
    *notices, error = said.splitlines()
    assert message in error
    assert error.startswith("heedful: ")
    assert code == 2
    assert len(notices) == (recipe == "vectors")  # that the texts have but few words
    assert not (tmp_path / "run").exists()


OPTION_MISTAKES: list[tuple[Command, str]] = [
    (
        ["--task", "tag", "--label", "x", "--data", "tagged.tsv"],
        "--label is for --task classify or regression, not for tag",
    ),
    ([*CLASSIFY, "labelled.tsv", "--from", "en"], "--from is for --task translate or align"),
    ([*CLASSIFY, "labelled.tsv", "--label", "colour"], "there is no column 'colour'; known names"),
    ([*CLASSIFY, "labelled.tsv", "--text", "txt"], "did you mean 'text'?"),
    ([*CLASSIFY, "."], "data file . is a folder; correct its path"),
    ([*CLASSIFY, "absent.csv"], "absent.csv does not exist"),
    ([*CLASSIFY, "latin.csv"], "latin.csv"),
    ([*CLASSIFY, "-"], "standard input can be read only once"),
    (["--task", "classify"], "give a recipe, or a corpus with --data FILE"),
    (["--task", "classify", "tagging.toml"], "has task = 'tagging', not --task classify"),
    (["tagging.toml", "--data", ".", "--label", "x"], "unknown key 'data.label'"),
    (["--task", "tag", "--data", "labelled.tsv", "--start-from", "absent"], "no run at absent"),
]


@pytest.mark.parametrize(("arguments", "message"), OPTION_MISTAKES)
def test_what_is_wrong_on_the_command_line(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Command,
    message: str,
) -> None:
    (folder / "latin.csv").write_bytes("text,label\ncafé,a\nthé,b\n".encode("latin-1"))
    monkeypatch.chdir(folder)
    command = ["train", *arguments, "--out", str(tmp_path / "run")]
    code, said = heedful(command, monkeypatch, capsys)
    (error,) = said.splitlines()
    assert message in error
    assert code == 2
    assert not (tmp_path / "run").exists()


def test_bytes_of_another_encoding_are_named_and_can_be_read(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = "".join(f"café {n},a\nthé {n},b\n" for n in range(30))
    (folder / "café.csv").write_bytes(f"text,label\n{rows}".encode("latin-1"))
    monkeypatch.chdir(folder)
    command = ["train", *CLASSIFY, "café.csv", "--out", str(tmp_path / "run")]
    command += ["--set", "training.max_steps=1", "--set", "model.hidden_size=8"]
    code, said = heedful(command, monkeypatch, capsys)
    assert code == 2
    assert "café.csv" in said
    assert "line 2" in said or ":2" in said
    assert "--set data.encoding=latin-1" in said
    code, said = heedful([*command, "--set", "data.encoding=latin-1"], monkeypatch, capsys)
    assert code == 0, said
    # The same command again says that it is trained, and needs no options to.
    for again in ([*command, "--set", "data.encoding=latin-1"], ["train", "--out", command[6]]):
        code, said = heedful(again, monkeypatch, capsys)
        assert code == 0, said
        assert "is already trained" in said


def test_a_run_is_refused_another_task_or_other_columns(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "run"
    short = {**RECIPES["classification"], "training": {"max_steps": 1}}
    train(short, path, data=folder)
    monkeypatch.chdir(folder)
    for options, message in (
        (["--task", "tag", "--data", "tagged.tsv"], "has task = 'classification', not"),
        ([*CLASSIFY, "labelled.tsv", "--text", "body"], "was started with data.text = ['text']"),
        ([*CLASSIFY, "pairs.tsv"], "data.train is not what"),
        ([*CLASSIFY, "labelled.tsv", "--set", "max_tokens=20"], "started with max_tokens = 24"),
        (
            ["--start-from", str(path), "--data", "labelled.tsv"],
            "was started without --start-from",
        ),
    ):
        code, said = heedful(["train", "--out", str(path), *options], monkeypatch, capsys)
        assert message in said.splitlines()[-1]
        assert code == 2


def test_without_a_task_it_is_that_of_the_run_started_from(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = {**RECIPES["classification"], "training": {"max_steps": 1}}
    train(short, tmp_path / "first", data=folder)
    train({**RECIPES["gpt"], "training": {"max_steps": 1}}, tmp_path / "gpt", data=folder)
    monkeypatch.chdir(folder)
    for start, data in (("first", "labelled.tsv"), ("gpt", "documents.txt")):
        command = ["train", "--data", data, "--start-from", str(tmp_path / start)]
        command += ["--out", str(tmp_path / f"next-{start}"), "--set", "training.max_steps=1"]
        code, said = heedful(command, monkeypatch, capsys)
        assert code == 0, said
        assert "recipe chosen from the corpus" in said
        assert "held out: " in said


def test_rare_labels_are_never_only_held_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in TAGS for _ in range(20)]
    rows = [f"{word} {number}\t{TAGS[word]}" for number, word in enumerate(words)]
    rare = [f"rare {number}\trare-{number}" for number in range(12)]
    (folder / "rare.tsv").write_text("\n".join(["text\tlabel", *rows, *rare]) + "\n")
    tables = {**RECIPES["classification"], "training": {"max_steps": 1}}
    tables["data"] = {"train": "rare.tsv", "validation_share": 0.3, "test_share": 0.3}
    train(tables, tmp_path / "run", data=folder)
    assert "all examples of some rare labels would have been" in capsys.readouterr().err
    run = open_run(tmp_path / "run")
    assert isinstance(run, TextRun)
    facts = run.facts["sets"]["classification"]
    for part in ("validation", "test"):
        labels = {example.label for example in run.labelled("classification", part)}
        assert labels <= set(TAGS.values())
    assert {f"rare-{number}" for number in range(12)} < set(facts["labels"])
    assert facts["train"] + facts["validation"] + facts["test"] == len(rows) + 12


@pytest.mark.parametrize(
    "labels",
    [
        ["0", "1", "2"],
        [str(half / 2) for half in range(1, 11)],
        ["1.0", "2.0", "3.0", "4.0", "5.0"],
        [str(code) for code in range(150)],
    ],
)
def test_numbers_that_are_classes_are_taken(tmp_path: Path, labels: list[str]) -> None:
    rows = "".join(f"text {n}\t{labels[n % len(labels)]}\n" for n in range(2 * len(labels)))
    (tmp_path / "rated.tsv").write_text(f"text\tlabel\n{rows}")
    data = LabelledData(train=["rated.tsv"], validation=["rated.tsv"])
    assert Examples("data", data, 1, tmp_path, tmp_path).find_labels() == sorted(labels)


def test_rows_without_a_label_may_be_skipped(tmp_path: Path) -> None:
    rows = "".join(f"text {n},{'ab'[n % 2] if n % 3 else ''}\n" for n in range(60))
    (tmp_path / "some.csv").write_text(f"text,label\n{rows}")
    chosen = choose_classification([str(tmp_path / "some.csv")], unlabelled="skip")
    data = LabelledData.model_validate(chosen["data"])
    examples = Examples("data", data, 1, tmp_path, None)
    assert examples.find_labels() == ["a", "b"]
    assert sum(len(list(examples.of(part))) for part in ("train", "validation", "test")) == 40


def test_the_row_chosen_has_room_for_texts_without_spaces(tmp_path: Path) -> None:
    rows = "".join(f"{'猫犬鳥魚' * 25}{n},{'ab'[n % 2]}\n" for n in range(20))
    (tmp_path / "zh.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    chosen = choose_classification([str(tmp_path / "zh.csv")])
    assert chosen["max_tokens"] == chosen["model"]["max_length"] == 102 + 3


def test_a_script_without_spaces_has_its_characters_counted(tmp_path: Path) -> None:
    chosen = []
    for name, text in (("zh", "猫犬鳥魚" * 25), ("en", "cat dog bird fish " * 25)):
        rows = "".join(f"{text}{n},{'ab'[n % 2]}\n" for n in range(400))
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
        chosen.append(choose_classification([str(tmp_path / f"{name}.csv")])["training"])
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("numbers", [True, False])
def test_a_first_line_that_seems_to_name_columns_is_doubted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], numbers: bool
) -> None:
    rows = [f"{word} {number}\t{TAGS[word]}" for number in range(20) for word in TAGS]
    header = ["text\tkind"] if numbers else []
    (folder / "numbered.tsv").write_text("\n".join([*header, *rows]) + "\n")
    tables = {**RECIPES["classification"], "training": {"max_steps": 1}}
    tables["data"] = {"train": "numbered.tsv", "text": "1", "label": "2", "validation_share": 0.2}
    train(tables, tmp_path / "run", data=folder)
    assert ("only the first line has the label 'kind'" in capsys.readouterr().err) == numbers


def test_long_texts_are_learnt_from_in_windows(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train({**RECIPES["classification"], "max_tokens": 8}, tmp_path / "whole", data=folder)
    assert "windows" not in capsys.readouterr().err
    characters = {"kind": "characters", "vocabulary_size": 60}
    tables = {**RECIPES["classification"], "max_tokens": 8, "tokeniser": characters}
    train(tables, tmp_path / "cut", data=folder)
    assert "48 of 48 training examples are longer than max_tokens 8" in capsys.readouterr().err
    facts = json.loads((tmp_path / "cut" / "run.json").read_text())["sets"]["classification"]
    lines = (folder / "labelled.tsv").read_text().splitlines()[1:]
    assert facts["windows"] == sum(-(-len(line.split("\t")[0]) // 6) for line in lines)


def test_a_notice_about_the_data_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"text {number}\t{number % 2}\n" for number in range(40))
    (tmp_path / "a.tsv").write_text(f"text\tlabel\n\n{rows}")
    with without_notices():
        tables = choose_classification([str(tmp_path / "a.tsv")])
    tables["tokeniser"] = {"kind": "characters"}
    prepare(check_recipe(tables, "the recipe"), tmp_path / "run")
    assert capsys.readouterr().err.count("1 empty line") == 1
