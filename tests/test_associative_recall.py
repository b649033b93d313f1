"""Associative recall: its data, words without a tag, its recipe; attention by length."""

import importlib
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import heedful
from heedful.data.examples import Tagged, tagged_only
from heedful.tasks.texts.rows import tagged_rows

RECIPES = Path(heedful.__file__).parent / "recipes"
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def folder(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("recall")
    sizes = ["--length", "20", "--pairs", "3", "--symbols", "5"]
    counts = ["--train", "40", "--validation", "5", "--test", "5"]
    benchmark("associative_recall").main(["--out", str(folder), *sizes, *counts])
    return folder


def test_tags_are_the_values_of_keys_that_come_again(benchmark: Any, folder: Path) -> None:
    texts = (folder / "train.tsv").read_text().strip().split("\n\n")
    assert len(texts) == 40
    for one in texts:
        words = [line.split("\t") for line in one.split("\n")]
        assert len(words) == 20
        known = {words[at][0]: words[at + 1][0] for at in (0, 2, 4)}
        tagged = {word: tag for word, tag in words if tag != "_"}
        assert tagged == known
        assert all(tag == "_" for _, tag in words[:6])
    again = benchmark("associative_recall").texts(40, (20, 3, 5), "train 1")
    assert "".join(again).strip().split("\n\n") == texts


def test_a_text_has_room_for_its_keys(benchmark: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        benchmark("associative_recall").main(["--out", str(tmp_path), "--pairs", "20"])


def test_words_without_a_tag_are_neither_trained_nor_scored(folder: Path, tmp_path: Path) -> None:
    recipe = tomllib.loads((RECIPES / "associative-recall-gpt.toml").read_text())
    recipe["model"]["language_model"] |= {"hidden_size": 8, "positions": "none"}
    recipe["model"]["language_model"]["attention"] = {"kind": "linear"}
    recipe["training"] |= {"max_steps": 2, "batch_tokens": 200, "validate_every": 1}
    recipe["training"] |= {"precision": "float32", "threads": 1, "warmup_steps": 0}
    run = tmp_path / "run"
    heedful.train(recipe, run, data=folder)
    tagger = heedful.load_tagger(run)
    assert "_" not in tagger.tags
    assert "" not in tagger.tags
    kept = (run / "data" / "tagging" / "test.jsonl").read_text().splitlines()
    assert sum(bool(tag) for line in kept for tag in json.loads(line)[1]) == 5 * 3
    example = Tagged(("k1", "v2", "k1"), ("", "", "v2"))
    assert example.labels == ("v2",)
    assert tagged_only(example, [5, 6, 7]) == [7]
    ((tokens, tags),) = tagged_rows(example, {"v2": 0}, tagger.vocabulary, 20)
    assert len(tokens) == len(tags) == 3
    assert tags == [0, 0, 1]


@pytest.mark.parametrize("backward", [False, True])
def test_sides_of_the_benchmark_by_length_run(benchmark: Any, backward: bool) -> None:
    module = benchmark("attention_by_length")
    sizes = module.Sizes(16, 2, 1)
    for name in module.TABLES:
        module.call_of(name, sizes, 40, backward=backward)()
        assert module.side(name, sizes)(torch.zeros(1, 40, 16)).shape == (1, 40, 16)
