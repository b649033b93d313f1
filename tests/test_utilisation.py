"""The use of a device in the training record: model FLOPs utilisation and memory."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.benchmark import Timer

from heedful.training import utilisation
from heedful.training.utilisation import Utilisation, peak_memory, peak_operations, sheet_peak
from test_loop import loop_of

CPU = torch.device("cpu")


def test_a_measured_product_counts_its_operations_and_leaves_random_numbers() -> None:
    before = torch.get_rng_state()
    found = peak_operations(CPU, "float32")
    assert torch.equal(torch.get_rng_state(), before)
    assert found.measured
    assert found == peak_operations(CPU, "float32")  # measured once
    assert peak_operations(CPU, "float32", again=True).operations >= found.operations
    left = torch.ones(256, 256)
    timer = Timer("left @ left", globals={"left": left})
    known = 2 * 256**3 / timer.blocked_autorange(min_run_time=0.05).median
    assert known / 20 < found.operations < known * 20  # the machine may be busy


def test_utilisation_is_relative_to_the_peak_of_all_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(utilisation, "_measured", {("cpu", "float32", 1): 2e9})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    lines: list[str] = []
    one = Utilisation(CPU, "float32", processes=1, notify=lines.append)
    two = Utilisation(CPU, "float32", processes=2, notify=lines.append)
    assert one.figures(3e9, 3.0)["mfu"] == pytest.approx(0.5)
    assert two.figures(3e9, 3.0)["mfu"] == pytest.approx(0.25)
    one.figures(1e9, 3.0)
    expected = "MFU is relative to 0.002 TFLOP/s of cpu, measured with a matrix product in float32"
    assert lines == [f"{expected} and 1 thread"] * 2
    assert "mfu" not in one.figures(0, 3.0)  # nothing was counted


def test_a_peak_that_training_exceeds_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("cpu", "float32", torch.get_num_threads())
    monkeypatch.setattr(utilisation, "_measured", {key: 1e6})
    use = Utilisation(CPU, "float32", processes=1, notify=lambda text: None)
    assert use.figures(2e6, 1.0)["mfu"] == pytest.approx(2)
    assert use.figures(2e6, 1.0)["mfu"] < 1
    assert utilisation._measured[key] > 1e8


def test_sheets_name_whole_cards_only() -> None:
    names = {
        "NVIDIA A100-SXM4-80GB": 312e12,
        "NVIDIA A100 80GB PCIe": 312e12,
        "NVIDIA H100 80GB HBM3": 989.4e12,
        "NVIDIA H100 PCIe": 756e12,
        "NVIDIA H100 NVL": 835.5e12,
        "NVIDIA H200": 989.4e12,
        "NVIDIA L4": 121e12,
        "NVIDIA L40S": 362.05e12,
        "NVIDIA GeForce RTX 4090": 165.2e12,
        "NVIDIA GeForce RTX 4090 Laptop GPU": None,
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb": None,
        "NVIDIA GeForce GTX 1080": None,
    }
    assert {name: sheet_peak(name) for name in names} == names


def test_memory_is_the_highest_so_far() -> None:
    before = peak_memory(CPU)
    if before is None:
        pytest.skip("this system does not report the memory of a process")
    kept = torch.ones(2**24)
    after = peak_memory(CPU)
    assert after is not None
    assert after >= max(before, kept.nbytes)


def test_train_lines_have_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = loop_of([4.0, 3.0, 2.0, 1.0], tmp_path)
    assert isinstance(loop.task.model, nn.Linear)
    with loop.report:
        assert loop.run()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    assert trained
    for line in trained:
        assert line["mfu"] > 0
        assert line["memory"] > 2**20
    written = capsys.readouterr().err
    assert written.count("MFU is relative to") == 1
    assert "% MFU · " in written
    assert "GiB" in written
