"""``heedful evaluate`` and ``info`` of runs for single texts."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli.main import _register, app
from heedful.runs.opening import open_run
from heedful.tasks.texts.evaluation import score_text_run
from heedful.tasks.texts.run import TextRun
from text_help import RECIPES, write_data

Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Trains a recipe, once; what is held out for validation is the test set, too."""
    folder = tmp_path_factory.mktemp("evaluated")
    write_data(folder)

    def run(name: str) -> Path:
        out = folder / name
        if not (out / "result.json").exists():
            tables: dict[str, Any] = json.loads(json.dumps(RECIPES[name]))
            for data in [tables, *tables.get("tasks", {}).values()]:
                if "data" in data:
                    data["data"]["test"] = data["data"]["validation"]
            assert heedful.train(tables, out, data=folder)
        return out

    return run


def heedful_command(*arguments: object) -> dict[str, Any]:
    _register()
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_labels_are_scored_as_sklearn_scores_them(made: Made) -> None:
    run = made("classification")
    found = heedful_command("evaluate", run, "--json")
    scores = found["scores"]["classification"]
    kept = open_run(run)
    assert isinstance(kept, TextRun)
    examples = kept.labelled("classification", "test")
    gold = [example.label for example in examples]
    given = heedful.load_classifier(run).classify([example.texts[0] for example in examples])
    labels = [one.label for one in given]
    assert scores["examples"] == len(examples) == 9
    assert scores["accuracy"] == pytest.approx(accuracy_score(gold, labels))
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(gold, labels))
    names = sorted({*gold, *labels})
    assert scores["macro_f1"] == pytest.approx(
        f1_score(gold, labels, labels=names, average="macro", zero_division=0)
    )
    wrong = sum(one != other for one, other in zip(gold, labels, strict=True))
    assert len(scores["worst"]) == min(wrong, 3)  # as many as --sentences shows


def test_tags_and_the_worst_mistakes_are_shown(made: Made) -> None:
    run = made("tagging")
    [score] = score_text_run(open_run(run))  # type: ignore[arg-type]
    kept = open_run(run)
    assert isinstance(kept, TextRun)
    sentences = kept.tagged("tagging", "test")
    given = heedful.load_tagger(run).tag([one.words for one in sentences])
    pairs = [
        (right, tag)
        for one, tags in zip(sentences, given, strict=True)
        for right, tag in zip(one.tags, tags, strict=True)
    ]
    assert score.examples == len(pairs)
    assert score.figures["accuracy"].value == pytest.approx(
        accuracy_score(*zip(*pairs, strict=True))
    )


@pytest.mark.parametrize("name", ["masked", "alone"])
def test_hidden_tokens_of_the_test_text(made: Made, name: str) -> None:
    run = made(name)
    figures = heedful_command("evaluate", run, "--json")["scores"]["masked"]
    validation = open_run(run).chosen().state["validation"]
    # The test text is the validation text here, and what is hidden in it is the same.
    for key in ("loss", "masked_accuracy", "masked_majority"):
        assert figures[key] == pytest.approx(validation[key], abs=1e-6), key
    assert ("next_accuracy" in figures) == (name == "masked")


def test_a_language_models_perplexity(made: Made) -> None:
    run = made("gpt")
    figures = heedful_command("evaluate", run, "--json")["scores"]["language-model"]
    kept = open_run(run)
    assert isinstance(kept, TextRun)
    texts = kept.documents("language-model", "test")
    found = heedful.load_generator(run).perplexity(texts, joined=True)
    assert figures["log_probability"] == pytest.approx(found.log_probability)
    assert figures["perplexity_per_token"] == pytest.approx(
        math.exp(-found.log_probability / found.tokens)
    )


def test_each_of_several_things_is_scored(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    run = made("several")
    scores = heedful_command("evaluate", run, "--json")["scores"]
    assert list(scores) == ["colour", "words", "hidden"]
    alone = heedful_command("evaluate", run, "--head", "words", "--json")["scores"]
    assert alone == {"words": scores["words"]}
    summary = heedful_command("info", run, "--json")
    scored = summary["scores"][0]["scores"]
    assert scored["colour.accuracy"]["value"] == scores["colour"]["accuracy"]
    from heedful.runs.summary import describe_run

    lines = describe_run(summary).splitlines()
    assert any("words: 16 sentences, 4 labels: ADJ, DET, NOUN, VERB" in line for line in lines)


def test_other_files_are_scored_by_the_recipes_columns(made: Made, tmp_path: Path) -> None:
    run = made("classification")
    table = tmp_path / "new.csv"
    table.write_text("label,text\nred,the red dog sees a cat\nviolet,the violet dog\n")
    scores = heedful_command("evaluate", run, "--data", table, "--json")["scores"]
    assert scores["classification"]["examples"] == 2
    assert scores["classification"]["unseen"] == {"violet": 1}
    table.write_bytes("label,text\nred,the red café\n".encode("latin-1"))
    with_it = ["--data", table, "--encoding", "latin-1", "--json"]
    assert heedful_command("evaluate", run, *with_it)["scores"]["classification"]["examples"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--beam", "3"],
            "--beam is for translation, text-to-text, alignment, denoising, dialogue or",
        ),
        (["--attention"], "--attention is for translation, text-to-text, alignment or denoising"),
        (["--encoding", "latin-1"], "--encoding needs --data"),
        (["--head", "nothing"], "has no head 'nothing'; its heads are classification"),
        (["--data", "missing.csv"], "data file missing.csv does not exist"),
    ],
)
def test_wrong_options_are_one_line(made: Made, arguments: list[str], message: str) -> None:
    _register()
    done = CliRunner().invoke(app, ["evaluate", str(made("classification")), *arguments])
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_files_without_examples_are_named(made: Made, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("label,text\n")
    run = open_run(made("classification"))
    assert isinstance(run, TextRun)
    with pytest.raises(UserError, match=r"new.csv has no examples to evaluate on$"):
        score_text_run(run, [str(tmp_path / "new.csv")])


def test_without_test_examples_files_are_asked_for(made: Made, tmp_path: Path) -> None:
    write_data(tmp_path)
    assert heedful.train(RECIPES["tagging"], tmp_path / "run", data=tmp_path)
    run = open_run(tmp_path / "run")
    assert isinstance(run, TextRun)
    with pytest.raises(UserError, match="has no test examples"):
        score_text_run(run)
