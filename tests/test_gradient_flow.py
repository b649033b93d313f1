"""The script behind docs/gradient-flow.md: its numbers by another way, and that it runs."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.models import build_model

SCRIPTS = Path(__file__).resolve().parents[1] / "docs" / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script, with strings of three symbols."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    module = importlib.import_module("gradient_flow")
    for name, number in (("LENGTH", 3), ("MEASURED", 2), ("SHOWN", (0, 2))):
        monkeypatch.setattr(module, name, number)
    yield module
    del sys.modules["gradient_flow"]


def test_norms_are_those_of_one_string_and_one_symbol_at_a_time(script: Any) -> None:
    """By the gradient of a row of the embedding: each symbol stands once in such a string."""
    for settings, _, _ in script.MODELS.values():
        torch.manual_seed(1)
        model = build_model(settings, script.VOCABULARY, script.VOCABULARY)
        found = script.measure(model)
        assert next(model.parameters()).dtype == torch.float32
        source, fed, goal = script.measured_strings()
        assert all(len(row.unique()) == 4 for row in source.tokens)
        model.double()
        table = model.source_embedding.weight
        norms = torch.zeros(3, 3, dtype=torch.float64)  # of the loss of a symbol, by an input
        for row in range(2):
            alone = type(source)(source.tokens[row : row + 1], source.lengths[row : row + 1])
            for place in range(3):
                logits = model.teacher_force(alone, fed[row : row + 1])[0, place]
                logits.retain_grad()
                model.zero_grad()
                (-logits.log_softmax(0)[goal[row, place]]).backward()
                for other in range(3):
                    symbol = source.tokens[row, other]
                    size = table.grad[symbol].norm() * table[symbol].norm() / logits.grad.norm()
                    norms[place, other] += size.detach() / 2
        torch.testing.assert_close(found.last.double(), norms[2].flip(0), rtol=1e-5, atol=1e-12)
        torch.testing.assert_close(
            found.needed.double(), norms.diagonal().flip(0), rtol=1e-5, atol=1e-12
        )


def test_it_runs(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = script.PAGE.read_text()
    script.main(["--updates", "2", "--seeds", "3", "--picture", str(tmp_path / "flow.png")])
    shown = capsys.readouterr().out
    assert shown.count("\n|") == 1 + 4 * len(script.MODELS)
    assert (tmp_path / "flow.png").stat().st_size > 10_000
    assert script.PAGE.read_text() == before
