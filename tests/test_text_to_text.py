"""Text to text: what is a pair, and no translation, is learnt and written by the same means."""

from pathlib import Path

import pytest

import heedful
from heedful.basics.errors import UserError


def test_questions_learn_their_answers(tmp_path: Path) -> None:
    names = ["Ann", "Bob", "Eve", "Dan"]
    places = ["inn", "den", "bay", "hut"]
    pairs = [
        f"{name} is in the {place} . Where is {name} ?\tin the {place}"
        for name in names
        for place in places
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs * 4) + "\n", encoding="utf-8")
    recipe = {
        "task": "text-to-text",
        "data": {
            "train": "pairs.tsv",
            "validation": "pairs.tsv",
            "filters": {"duplicates": False, "max_ratio": 20.0},
        },
        "tokeniser": {"vocabulary_size": 380},
        "model": {
            "layers": 1,
            "hidden_size": 32,
            "ffn_size": 64,
            "heads": 2,
            "pre_norm": True,
            "dropout": 0,
        },
        "training": {
            "max_steps": 150,
            "batch_tokens": 512,
            "learning_rate": 5e-3,
            "warmup_steps": 20,
            "validate_every": 150,
            "threads": 1,
        },
    }
    assert heedful.train(recipe, tmp_path / "run", data=tmp_path)
    [answer] = heedful.load(tmp_path / "run").translate(["Eve is in the bay . Where is Eve ?"])
    assert answer.text == "in the bay"
    with pytest.raises(UserError, match="use it with heedful translate"):
        heedful.load_classifier(tmp_path / "run")
