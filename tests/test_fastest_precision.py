"""What ``auto`` chooses on the CPU: measured, kept, and the same for a run that is resumed."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from heedful.basics import autotuning
from heedful.basics.autotuning import Measured, fastest
from heedful.basics.device import check_precision
from heedful.inference import fastest_precision
from heedful.inference.fastest_precision import resolve_precision
from heedful.models.aligner import AlignerSettings, WordAligner
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.recurrent import RecurrentEncoderDecoder
from heedful.models.recurrent_language import RecurrentLanguageModel, RecurrentLanguageSettings
from heedful.models.recurrent_settings import RecurrentSettings
from heedful.models.transformer import Transformer, TransformerSettings

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where answers are kept, empty at first."""
    kept = tmp_path / "measured"
    kept.mkdir()
    monkeypatch.setattr(autotuning, "_folder", lambda: kept)
    forget(monkeypatch)
    return kept


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process knows nothing."""
    monkeypatch.setattr(autotuning, "_kept", {})


class Way:
    """Takes a while; counts its calls."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.calls = seconds, 0

    def __call__(self) -> None:
        self.calls += 1
        time.sleep(self.seconds)


@pytest.mark.parametrize(
    ("usual", "other", "chosen"),
    [(0.01, 0.001, "other"), (0.001, 0.01, "usual"), (0.01, 0.01, "usual")],
)
def test_the_fastest_way_is_found(usual: float, other: float, chosen: str) -> None:
    ways = {"usual": Way(usual), "other": Way(other)}
    found = fastest(ways, "sleeping", margin=3)
    assert found.chosen == chosen
    assert set(found.seconds) == {"usual", "other"}
    assert found.ratio("usual", "usual") == 1


def test_an_answer_is_kept_in_the_process_and_on_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = {"usual": Way(0.003), "other": Way(0.0)}
    first = fastest(ways, "question")
    calls = ways["usual"].calls
    assert fastest(ways, "question") == first
    forget(monkeypatch)
    assert fastest(ways, "question") == first
    assert ways["usual"].calls == calls
    fastest(ways, "another question")
    assert ways["usual"].calls > calls
    assert len(list(folder.glob("*.json"))) == 2


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"chosen": "usual"}', '{"chosen": "usual", "seconds": {"usual": 1}}']
)
def test_a_damaged_answer_is_measured_again(
    damage: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = {"usual": Way(0.003), "other": Way(0.0)}
    fastest(ways, "question")
    (file,) = folder.glob("*.json")
    file.write_text(damage)
    forget(monkeypatch)
    assert fastest(ways, "question").chosen == "other"
    assert json.loads(file.read_text())["chosen"] == "other"


def test_without_a_folder_the_process_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotuning, "_folder", lambda: None)
    ways = {"usual": Way(0.003), "other": Way(0.0)}
    fastest(ways, "question")
    calls = ways["usual"].calls
    assert fastest(ways, "question").chosen == "other"
    assert ways["usual"].calls == calls


MODELS: dict[str, Callable[[], nn.Module]] = {
    "transformer": lambda: Transformer(
        TransformerSettings(layers=1, hidden_size=16, heads=2, ffn_size=16), 30, 30
    ),
    "short": lambda: Transformer(
        TransformerSettings(layers=1, hidden_size=16, heads=2, ffn_size=16, max_length=2), 30, 30
    ),
    "recurrent": lambda: RecurrentEncoderDecoder(
        RecurrentSettings(attention="bahdanau", cell="gru", embedding_size=8, hidden_size=8), 30, 30
    ),
    "convolutional": lambda: ConvolutionalEncoderDecoder(
        ConvolutionalSettings(embedding_size=8, hidden_size=8), 30, 30
    ),
    "aligner": lambda: WordAligner(AlignerSettings(hidden_size=8), 30, 30),
    "gpt": lambda: Gpt(GptSettings(layers=1, hidden_size=8, heads=2, max_length=2), 30),
    "language": lambda: RecurrentLanguageModel(RecurrentLanguageSettings(hidden_size=8), 30),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fast", [True, False])
def test_auto_is_what_was_measured(name: str, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest_precision, "has_fast_bfloat16", lambda device: fast)
    model = MODELS[name]().eval()
    asked: list[Measured] = []

    def other(ways: Any, question: str) -> Measured:
        """Really measured, but the other one is chosen."""
        found = fastest(ways, question)
        asked.append(found)
        chosen = "float32" if found.chosen == "bfloat16" else "bfloat16"
        return Measured(chosen, found.seconds)

    said: list[str] = []
    settled = resolve_precision(model, "auto", CPU, said.append)
    monkeypatch.setattr(fastest_precision, "fastest", other)
    opposite = resolve_precision(model, "auto", CPU, said.append)
    assert said[0].startswith(f"--precision auto: {settled}; ")
    if name == "aligner" and not fast:
        assert (settled, opposite, asked) == ("float32", "float32", [])
    else:
        assert {settled, opposite} == {"float32", "bfloat16"}
        assert "× the speed of float32" in said[0]
        assert all(seconds > 0 for seconds in asked[0].seconds.values())


def test_only_auto_is_measured(folder: Path) -> None:
    said: list[str] = []
    for name in ("float32", "bfloat16", "int8"):
        assert resolve_precision(MODELS["gpt"](), name, CPU, said.append) == name
    assert not said
    assert not list(folder.iterdir())
    assert check_precision("auto", CPU) == "auto"
    assert check_precision("auto", torch.device("meta")) == "float32"


def test_threads_and_the_generator_are_as_before() -> None:
    torch.manual_seed(4)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    resolve_precision(MODELS["transformer"]().eval(), "float32", CPU)
    torch.set_rng_state(before)
    model = MODELS["transformer"]().eval()
    state = torch.get_rng_state()
    resolve_precision(model, "auto", CPU, lambda text: None)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
