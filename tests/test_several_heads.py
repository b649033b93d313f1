"""Multi-task training with the heads of every task, those of pre-training included."""

import re
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import heedful
from heedful.basics.errors import UserError
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.tasks.several.training import SeveralTasks
from heedful.tasks.spec import spec_named, spec_of_run, specs
from heedful.tasks.texts.evaluation import score_text_run
from heedful.tasks.texts.heads import HeadSettings
from heedful.tasks.texts.run import TextRun
from heedful.tasks.texts.spec import HeadSpec
from heedful.training.train import train
from text_help import BERT, DOCUMENTS, LABELLED, LOOP, TAGGED, WORDS, XLNET, write_data

TEXT = "the red dog sees a cat"
QUESTIONS = {"train": "questions.tsv", "validation": "questions.tsv"}
SETS = {"train": "sets.tsv", "validation": "sets.tsv"}
SIMILAR = {"train": "similar.tsv", "validation": "similar.tsv", "texts": ["one", "other"]}
ELMO = {
    "kind": "elmo",
    "layers": 1,
    "hidden_size": 8,
    "character_size": 4,
    "filters": [[1, 4], [2, 4]],
    "projection_size": 8,
}
BYTES = {"kind": "bytes", "vocabulary_size": 260}
MASK = {**WORDS, "mask": True}
RECIPES: dict[str, dict[str, Any]] = {
    "discriminator": {
        "tokeniser": MASK,
        "model": BERT,
        "tasks": {
            "spotted": {"task": "replaced", "data": DOCUMENTS, "weight": 0.5},
            "colour": {"task": "classification", "data": LABELLED},
        },
    },
    "permutation": {
        "tokeniser": MASK,
        "model": XLNET,
        "tasks": {
            "hidden": {"task": "permutation", "data": DOCUMENTS, "permutation": {"memory": 7}},
            "words": {"task": "tagging", "data": TAGGED},
        },
    },
    "directions": {
        "tokeniser": BYTES,
        "model": ELMO,
        "max_tokens": 40,
        "tasks": {
            "language": {"task": "bidirectional", "data": DOCUMENTS, "words": 9},
            "colour": {"task": "classification", "data": LABELLED},
        },
    },
    "others": {
        "tokeniser": WORDS,
        "model": BERT,
        "tasks": {
            "found": {"task": "answer-spans", "data": QUESTIONS, "overlap": 4},
            "labels": {"task": "multi-label", "data": SETS, "threshold": "validation"},
            "vectors": {"task": "embedding", "data": SIMILAR},
        },
    },
}
INPUTS: dict[str, Any] = {
    "hidden": "the red dog sees a [MASK]",
    "found": {"question": "which colour", "context": TEXT},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    write_data(folder)
    texts = [line.split("\t") for line in (folder / "labelled.tsv").read_text().splitlines()[1:]]
    questions = [f"which colour\t{text}\t{label}" for text, label in texts]
    sets = [f"{text}\t{label};{'long' if len(text) > 28 else 'short'}" for text, label in texts]
    similar = [f"{text}\t{text.replace('sees', 'eats')}" for text, _ in texts]
    for name, lines in (
        ("questions.tsv", ["question\tcontext\tanswer", *questions]),
        ("sets.tsv", ["text\tlabel", *sets]),
        ("similar.tsv", ["one\tother", *similar]),
    ):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def recipe(name: str, **training: Any) -> dict[str, Any]:
    """A recipe in which all tasks are drawn equally often, and tested on their validation data."""
    tables = {"task": "several", "seed": 5, "max_tokens": 24, "temperature": 1000.0}
    tasks = {
        head: {**settings, "data": {**settings["data"], "test": settings["data"]["validation"]}}
        for head, settings in RECIPES[name]["tasks"].items()
    }
    return {**tables, **RECIPES[name], "tasks": tasks, "training": {**LOOP, **training}}


@pytest.fixture(scope="module")
def run_of(folder: Path) -> Any:
    def made(name: str) -> Path:
        path = folder / "runs" / name
        if not path.exists():
            assert train(recipe(name), path, data=folder)
        return path

    return made


def test_every_head_can_be_one_of_several() -> None:
    """The tables of a recipe choose among the heads of all tasks, those of plug-ins included."""
    heads = {spec.name: spec.head_type() for spec in specs() if isinstance(spec, HeadSpec)}
    assert len(heads) >= 10
    assert {kind.model_fields["task"].default for kind in HeadSettings.variants()} == set(heads)


@pytest.mark.parametrize("name", RECIPES)
def test_every_head_is_trained_and_validated(name: str, run_of: Any) -> None:
    run = open_run(run_of(name))
    begun, learnt = run.checkpoints()[0].weights(), run.checkpoints()[-1].weights()
    figures = run.chosen().state["validation"]
    for head, settings in RECIPES[name]["tasks"].items():
        assert any(figure.startswith(f"{head}.") for figure in figures), head
        layers = [one for one in learnt if one.startswith(f"heads.{head}.")]
        # Embeddings have no layers of their own.
        assert bool(layers) == (settings["task"] != "embedding")
        assert not layers or any(not torch.equal(begun[one], learnt[one]) for one in layers)


@pytest.mark.parametrize("name", RECIPES)
def test_every_head_predicts_and_is_evaluated(name: str, run_of: Any) -> None:
    path = run_of(name)
    spec = spec_of_run(path)[1]
    found = {score.name: score for score in score_text_run(cast(TextRun, open_run(path)))}
    for head, settings in RECIPES[name]["tasks"].items():
        own = spec_named(settings["task"])
        assert isinstance(spec.load(path, head=head), type(own.load(path, head=head)))
        [result] = heedful.load(path, head=head).predict([INPUTS.get(head, TEXT)])
        assert result.to_json()
        assert found[head].figures


@pytest.mark.parametrize("name", RECIPES)
def test_interrupted_and_resumed_equals_uninterrupted(
    name: str, folder: Path, run_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = open_run(run_of(name)).checkpoints()[-1].weights()
    path, steps = folder / f"interrupted-{name}", 0
    loss = SeveralTasks.loss

    def interrupted(self: SeveralTasks, batch: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 6:
            raise KeyboardInterrupt
        return loss(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(SeveralTasks, "loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(recipe(name), path, data=folder)
    assert train(recipe(name), path, data=folder)
    found = open_run(path).checkpoints()[-1].weights()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[one], expected[one]) for one in expected)


def test_the_generator_of_a_discriminator_can_be_used_by_its_name(run_of: Any) -> None:
    run = run_of("discriminator")
    [filled] = heedful.load_filler(run, head="spotted_generator", device="cpu").predict(
        ["the red dog sees a [MASK]"]
    )
    assert filled.text.startswith("the red dog sees a ")


def test_a_name_of_a_part_of_a_head_is_refused() -> None:
    given = recipe("discriminator")
    tasks = {**given["tasks"], "spotted_generator": given["tasks"]["colour"]}
    with pytest.raises(UserError, match="'spotted_generator' is the name of a part of 'spotted'"):
        check_recipe({**given, "tasks": tasks}, "it")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("discriminator", {"model": XLNET}, "tasks.spotted: replaced tokens need model.kind = 'bert'"),
    ("discriminator", {"tokeniser": WORDS}, "tasks.spotted: replaced tokens need tokeniser.mask"),
    ("permutation", {"model": BERT}, "tasks.hidden: model.kind = 'bert' cannot predict tokens in"),
    ("permutation", {"tokeniser": WORDS}, "tasks.hidden: heedful fill needs a symbol for masked"),
    ("directions", {"model": {**ELMO, "frozen": True}}, "tasks.language: model.frozen leaves"),
    ("directions", {"training": {"choose_by": "language.accuracy"}}, "not a validation figure"),
    ("others", {"model": {**BERT, "dropout": 0}}, ""),
    ("others", {"training": {"batch_tokens": 40}}, "tasks.vectors: training.batch_tokens 40"),
    ("others", {"training": {"consistency": 1.0}}, "compare the probabilities of classes"),
    ("others", {"training": {"label_smoothing": 0.1}}, "label_smoothing is for labels and tags"),
]


@pytest.mark.parametrize(("name", "tables", "message"), WRONG, ids=str)
def test_what_does_not_fit_a_head_is_one_line(
    name: str, tables: dict[str, Any], message: str
) -> None:
    given = {**recipe(name), **tables}
    if not message:
        check_recipe(given, "it")  # pairs are not compared with themselves
        return
    with pytest.raises(UserError, match=re.escape(message)) as error:
        check_recipe(given, "it")
    assert "\n" not in str(error.value)


def test_a_threshold_from_validation_needs_validation() -> None:
    given = recipe("others")
    labels = {**given["tasks"]["labels"], "data": {"train": "sets.tsv"}}
    tasks = {**given["tasks"], "labels": labels}
    with pytest.raises(UserError, match=r"tasks\.labels: threshold = 'validation' needs"):
        check_recipe({**given, "tasks": tasks}, "it")


def test_the_mean_needs_a_figure_that_rises() -> None:
    """Language models have losses only, so that there is no mean of accuracies."""
    given = recipe("directions")
    given["tasks"] = {"language": given["tasks"]["language"]}
    with pytest.raises(UserError, match=r"'mean' is not a validation figure.*language\.loss"):
        check_recipe(given, "it")
    given["training"] = {**LOOP, "choose_by": "language.loss"}
    assert check_recipe(given, "it").training.choose_by == "language.loss"
