"""``training.precision = "auto"``: measured when a training begins, kept when it is resumed."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from heedful.basics.autotuning import Measured
from heedful.training import fastest_precision
from heedful.training.train import train

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("precision"), random.Random(1)
    chosen = [[rng.choice(list(WORDS)) for _ in range(rng.randint(2, 6))] for _ in range(200)]
    lines = [" ".join(one) + "\t" + " ".join(WORDS[word] for word in one) for one in chosen]
    (folder / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def recipe(steps: int, precision: str = "auto") -> dict[str, Any]:
    return {
        "data": {
            "train": "train.tsv",
            "source": "en",
            "target": "de",
            "filters": {"duplicates": False},
        },
        "tokeniser": {"vocabulary_size": 360},
        "model": {
            "kind": "transformer",
            "layers": 1,
            "hidden_size": 16,
            "ffn_size": 16,
            "heads": 2,
        },
        "training": {
            "max_steps": steps,
            "batch_tokens": 200,
            "checkpoint_every": 2,
            "threads": 1,
            "precision": precision,
            "device": "cpu",
        },
    }


def choosing(monkeypatch: pytest.MonkeyPatch, chosen: str) -> list[str]:
    """Let measuring choose; the questions that it is asked."""
    asked: list[str] = []

    def fastest(ways: Any, question: str) -> Measured:
        asked.append(question)
        for way in ways.values():
            way()
        return Measured(chosen, {"float32": 1.0, "bfloat16": 0.5})

    monkeypatch.setattr(fastest_precision, "fastest", fastest)
    monkeypatch.setattr(fastest_precision, "has_fast_bfloat16", lambda device: True)
    return asked


def precision_of(run: Path, step: int) -> str:
    state = json.loads((run / "checkpoints" / f"step-{step:08}" / "state.json").read_text())
    return str(state["precision"])


def weights_of(run: Path) -> bytes:
    return (run / "checkpoints" / "step-00000004" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("first", "then"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_a_resumed_run_keeps_what_was_measured(
    data: Path,
    tmp_path: Path,
    first: str,
    then: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = choosing(monkeypatch, first)
    train(recipe(2), tmp_path / "run", data=data)
    assert precision_of(tmp_path / "run", 2) == first
    assert f"training.precision = 'auto': {first}; bfloat16 has 2×" in capsys.readouterr().err
    assert len(asked) == 1

    asked = choosing(monkeypatch, then)
    train(recipe(4), tmp_path / "run", data=data)
    assert precision_of(tmp_path / "run", 4) == first
    assert not asked

    # Measuring changes nothing: the same weights as of a run that was told.
    train(recipe(4, first), tmp_path / "told", data=data)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "told")


def test_another_processor_may_need_another_precision(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosing(monkeypatch, "bfloat16")
    train(recipe(2), tmp_path / "run", data=data)
    monkeypatch.setattr(fastest_precision, "has_fast_bfloat16", lambda device: False)
    train(recipe(4), tmp_path / "run", data=data)
    assert precision_of(tmp_path / "run", 4) == "float32"


def test_a_checkpoint_of_0_1_goes_by_the_processor_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosing(monkeypatch, "bfloat16")
    train(recipe(2), tmp_path / "run", data=data)
    state = tmp_path / "run" / "checkpoints" / "step-00000002" / "state.json"
    written = json.loads(state.read_text())
    for key in ("sha256", "threads", "precision", "parts"):
        written.pop(key, None)
    state.write_text(json.dumps(written))
    asked = choosing(monkeypatch, "float32")
    train(recipe(4), tmp_path / "run", data=data)
    assert precision_of(tmp_path / "run", 4) == "bfloat16"
    assert not asked
