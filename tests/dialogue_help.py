"""A tiny run that answers in dialogues, and the dialogues that it learns."""

import json
import random
from pathlib import Path
from typing import Any

import heedful

NAMES = ("Ann", "Bob", "Eve", "Dan")
DRINKS = ("tea", "milk", "soup", "juice")


def dialogues(count: int, seed: int = 1) -> list[list[tuple[str, str]]]:
    """Dialogues whose third answer needs the first turn."""
    rng, made = random.Random(seed), []
    for _ in range(count):
        name, drink = rng.choice(NAMES), rng.choice(DRINKS)
        turns = [("user", f"I am {name}."), ("bot", "Hello!")]
        turns += [("user", f"A {drink}, please."), ("bot", f"One {drink}.")][: rng.choice((2, 0))]
        made.append([*turns, ("user", "Who am I?"), ("bot", f"{name}.")])
    return made


def as_lines(made: list[list[tuple[str, str]]]) -> str:
    """Dialogues as JSON lines."""
    rows = [{"turns": [{"speaker": who, "text": text} for who, text in one]} for one in made]
    return "".join(json.dumps(row) + "\n" for row in rows)


def recipe(**more: Any) -> dict[str, Any]:
    """The tables of a tiny recipe; ``more`` replaces tables."""
    return {
        "task": "dialogue",
        "seed": 3,
        "data": {
            "train": "train.jsonl",
            "validation": "held.jsonl",
            "test": "held.jsonl",
            "max_tokens": 60,
        },
        "tokeniser": {"vocabulary_size": 380},
        "model": {
            "layers": 1,
            "hidden_size": 24,
            "ffn_size": 64,
            "heads": 2,
            "pre_norm": True,
            "dropout": 0.0,
            "max_length": 80,
            "copy_source": True,
        },
        "training": {
            "max_steps": 150,
            "batch_tokens": 512,
            "learning_rate": 1e-2,
            "warmup_steps": 10,
            "validate_every": 150,
            "precision": "float32",
            "threads": 1,
            "label_smoothing": 0.0,
        },
        "evaluation": {"beam": 1, "samples": 0},
        **more,
    }


def trained(folder: Path, **more: Any) -> Path:
    """A run that is trained in a folder."""
    (folder / "train.jsonl").write_text(as_lines(dialogues(120)), encoding="utf-8")
    (folder / "held.jsonl").write_text(as_lines(dialogues(8, seed=2)), encoding="utf-8")
    assert heedful.train(recipe(**more), folder / "run", data=folder)
    return folder / "run"
