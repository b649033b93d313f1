"""Training on rows of Python data: the same weights as from files, exact resume, clear mistakes."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import heedful
from heedful.basics.errors import UserError
from heedful.runs.opening import open_run
from text_help import RECIPES, write_data

PAIRS = [(f"the dog {n % 7}", f"der Hund {n % 7}") for n in range(60)]
PAIR_RECIPE: dict[str, Any] = {
    "task": "translation",
    "data": {"filters": {"duplicates": False}, "source": "en", "target": "de"},
    "tokeniser": {"vocabulary_size": 360},
    "model": {"kind": "transformer", "layers": 1, "hidden_size": 8, "ffn_size": 8, "heads": 2},
    "training": {
        "max_steps": 4,
        "batch_tokens": 100,
        "precision": "float32",
        "validate_every": 4,
        "checkpoint_every": 4,
    },
    "evaluation": {"validation_pairs": 2, "beam": 1},
}


class Row:
    """What a row of a pandas DataFrame offers."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def keys(self) -> list[str]:
        return list(self._values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


class Frame:
    """What a pandas DataFrame offers: iterating gives the names of its columns."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows[0])

    def iterrows(self) -> Iterator[tuple[int, Row]]:
        return ((number, Row(row)) for number, row in enumerate(self._rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_data(folder)
    for name, pairs in (("train", PAIRS), ("held", PAIRS[:5])):
        lines = "\n".join("\t".join(pair) for pair in pairs) + "\n"
        (folder / f"{name}.tsv").write_text(lines, encoding="utf-8")
    return folder


def weights(run: Path) -> dict[str, torch.Tensor]:
    last = sorted((run / "checkpoints").glob("step-*"))[-1]
    return load_file(last / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def without_files(recipe: dict[str, Any]) -> dict[str, Any]:
    data = {key: own for key, own in recipe["data"].items() if key not in ("train", "validation")}
    return {**recipe, "data": data}


WAYS: dict[str, Callable[[list[tuple[str, str]]], Any]] = {
    "tuples": list,
    "generator": iter,
    "names": lambda pairs: [{"target": t, "source": s} for s, t in pairs],
    "languages": lambda pairs: [{"en": s, "de": t, "id": 1} for s, t in pairs],
    "translation": lambda pairs: [{"translation": {"de": t, "en": s}} for s, t in pairs],
    "frame": lambda pairs: Frame([{"source": s, "target": t} for s, t in pairs]),
}


def test_pairs_in_any_form_train_as_their_file_does(folder: Path, tmp_path: Path) -> None:
    files = {**PAIR_RECIPE["data"], "train": "train.tsv", "validation": "held.tsv"}
    heedful.train({**PAIR_RECIPE, "data": files}, tmp_path / "files", data=folder)
    for name, way in WAYS.items():
        data = {"train": way(PAIRS), "validation": way(PAIRS[:5])}
        assert heedful.train(PAIR_RECIPE, tmp_path / name, data=data)
        assert_same(tmp_path / "files", tmp_path / name)
    held_out = open_run(tmp_path / "frame").path / "data" / "validation.jsonl"
    assert held_out.read_text() == (tmp_path / "files/data/validation.jsonl").read_text()
    assert not list((tmp_path / "frame").glob(".*"))


def rows_of_files(name: str, folder: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for part, end in (("train", ""), ("validation", "-held")):
        if name in ("classification", "pairs"):
            file = {"classification": "labelled", "pairs": "pairs"}[name]
            with (folder / f"{file}{end}.tsv").open(encoding="utf-8") as lines:
                found[part] = list(csv.DictReader(lines, delimiter="\t"))
        elif name == "tagging":
            sentences = (folder / f"tagged{end}.tsv").read_text(encoding="utf-8").split("\n\n")
            words = [[line.split("\t") for line in one.split("\n") if line] for one in sentences]
            found[part] = [
                {"tokens": [word for word, _ in one], "upos": [tag for _, tag in one]}
                for one in words
                if one
            ]
        else:
            documents = (folder / f"documents{end}.txt").read_text(encoding="utf-8").strip()
            found[part] = documents.split("\n\n")
    return found


@pytest.mark.parametrize("name", ["classification", "pairs", "tagging", "alone", "gpt"])
def test_every_task_trains_as_from_its_files(name: str, folder: Path, tmp_path: Path) -> None:
    heedful.train(RECIPES[name], tmp_path / "files", data=folder)
    recipe = without_files(RECIPES[name])
    assert heedful.train(recipe, tmp_path / "rows", data=rows_of_files(name, folder))
    assert_same(tmp_path / "files", tmp_path / "rows")


def test_several_tasks_take_rows_by_their_names(folder: Path, tmp_path: Path) -> None:
    recipe = RECIPES["several"]
    heedful.train(recipe, tmp_path / "files", data=folder)
    kinds = {"colour": "classification", "words": "tagging", "hidden": "gpt"}
    data = {name: rows_of_files(kind, folder) for name, kind in kinds.items()}
    heedful.train(recipe, tmp_path / "rows", data=data)
    assert_same(tmp_path / "files", tmp_path / "rows")
    with pytest.raises(UserError, match="the recipe has the tasks 'colour', 'words', 'hidden'"):
        heedful.train(recipe, tmp_path / "other", data={"colour": data["colour"]})


def test_a_run_resumes_with_the_same_rows_only(tmp_path: Path) -> None:
    def train(steps: int, out: str, rows: list[tuple[str, str]]) -> bool:
        training = {**PAIR_RECIPE["training"], "max_steps": steps}
        recipe = {**PAIR_RECIPE, "training": training}
        return heedful.train(recipe, tmp_path / out, data={"train": iter(rows)})

    train(8, "whole", PAIRS)
    train(4, "parts", PAIRS)
    train(8, "parts", PAIRS)
    assert_same(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(UserError, match=r"data\.train is not what .* was started with"):
        train(8, "parts", [*PAIRS[:-1], ("another", "anderes")])
    with pytest.raises(UserError, match="was rows of Python data: give them again"):
        heedful.train(tmp_path / "parts" / "recipe.toml", tmp_path / "parts")


def refused(tmp_path: Path, recipe: dict[str, Any], data: Any) -> str:
    with pytest.raises(UserError) as caught:
        heedful.train(recipe, tmp_path / "run", data=data)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*PAIRS, ("one",)], "data['train'], row 61: 1 values instead of 2 (source, target)"),
        ([*PAIRS, ("one", None)], "data['train'], row 61: 'target' is a NoneType, not a text"),
        ([("a", "b"), {"source": "x", "goal": "y"}], "row 2: there is no column 'target'"),
        ([*PAIRS, "a text"], "row 61: a str is not a row"),
        ([*PAIRS, ("\ud800", "x")], "row 61: 'source' is not valid Unicode"),
        ([], "data['train'] has no rows"),
        ("train.tsv", "data['train'] is a str; give rows"),
        (3, "data['train'] is a int; give rows"),
    ],
)
def test_wrong_rows_of_pairs_are_one_line(tmp_path: Path, rows: Any, message: str) -> None:
    assert message in refused(tmp_path, PAIR_RECIPE, {"train": rows})


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("classification", {"text": "a", "label": 0.5}, "'label' is a float, neither a text nor"),
        ("classification", {"text": " ", "label": 1}, "'text' is empty"),
        ("classification", {"text": "a", "label": ""}, "'label' is empty"),
        ("tagging", (["a", "b"], ["X"]), "2 words with 1 tags"),
        ("tagging", {"words": ["a"], "xpos": ["X"]}, "there is no column 'upos'; did you mean"),
        ("gpt", {"content": "a"}, "there is no column 'text'"),
    ],
)
def test_wrong_rows_of_texts_are_one_line(
    tmp_path: Path, name: str, row: Any, message: str
) -> None:
    found = refused(tmp_path, without_files(RECIPES[name]), {"train": [row]})
    assert found.startswith(f"data['train'], row 1: {message}")


def test_labels_may_be_whole_numbers(tmp_path: Path) -> None:
    rows = [(f"{'good' if n % 2 else 'bad'} film {n}", n % 2) for n in range(20)]
    heedful.train(without_files(RECIPES["classification"]), tmp_path / "run", data={"train": rows})
    assert heedful.load(tmp_path / "run").labels == ("0", "1")


def test_parts_are_those_of_the_recipe(tmp_path: Path) -> None:
    assert "did you mean 'validation'?" in refused(
        tmp_path, PAIR_RECIPE, {"train": PAIRS, "validatoin": PAIRS}
    )
    assert "has no 'train'" in refused(tmp_path, PAIR_RECIPE, {"test": PAIRS})
    named = {**PAIR_RECIPE, "data": {**PAIR_RECIPE["data"], "validation": "held.tsv"}}
    assert "the recipe has files for validation" in refused(tmp_path, named, {"train": PAIRS})
