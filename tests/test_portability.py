"""The runner of numerical tests under other settings: what it chooses, runs, counts and prints."""

import re
from pathlib import Path

import pytest
import torch

import portability
from portability import NUMERICAL, SHORT, Setting, main, run, settings

TESTS = Path(__file__).parent


def test_every_file_with_derived_tolerances_is_numerical() -> None:
    for name in NUMERICAL:
        assert (TESTS / f"test_{name}.py").is_file(), name
    users = {
        path.stem.removeprefix("test_")
        for path in TESTS.glob("test_*.py")
        if re.search(r"^from (tolerance|stepping) import", path.read_text(encoding="utf-8"), re.M)
    }
    users.remove("portable_c")  # which chooses instruction sets itself
    assert users <= set(NUMERICAL)
    assert set(SHORT) <= set(NUMERICAL)


def test_settings_have_names_of_their_own_and_ci_runs_some() -> None:
    names = [one.name for one in settings()]
    assert len(set(names)) == len(names)
    assert 3 <= sum(one.short for one in settings()) < len(names) / 2
    assert sum("HEEDFUL_TEST_SEED" in one.variables for one in settings()) == 20


def test_what_a_processor_lacks_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(portability, "processor_flags", lambda: {"sse4_2"})
    monkeypatch.setattr(portability.platform, "machine", lambda: "x86_64")
    assert Setting({}, "avx2 sse4_2 fma").missing() == "needs avx2 fma"
    monkeypatch.setenv("CC", "none")
    assert Setting({}, compiled=True).missing() == "needs a C compiler"
    assert Setting({}, "sse4_2").missing() == ""
    monkeypatch.setattr(portability.platform, "machine", lambda: "aarch64")
    assert Setting({}, machine="x86_64").missing() == "needs x86_64"
    assert main(["--only", "MKL"]) == 0  # nothing that could be run
    printed = capsys.readouterr().out
    assert printed.count("skipped: needs x86_64") == printed.count("MKL_") == 4
    assert main(["--only", "nothing-is-named-so"]) == 2


@pytest.mark.slow
def test_a_setting_reaches_the_tests_and_failures_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_small.py").write_text(
        "import os, pytest\n"
        "def test_one(): assert os.environ['OMP_NUM_THREADS'] == '2'\n"
        "def test_two(): pytest.skip('no reason')\n"
        "def test_three(): assert 1 == 1\n"
    )
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    monkeypatch.setattr(portability, "TESTS", tmp_path)
    found = run(Setting({"OMP_NUM_THREADS": "2"}), ["small"], workers=1)
    assert (found.passed, found.failed, found.skipped, found.failures) == (2, 0, 1, [])
    assert main(["--only", "OMP_NUM_THREADS=4", "--files", "small", "--workers", "1"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^OMP_NUM_THREADS=4 +1 +1 +1 ", printed, re.M)
    assert "FAILED" in printed
    assert main(["--only", "OMP_NUM_THREADS=4", "--files", "broken", "--workers", "1"]) == 1
    assert "no_such_module" in capsys.readouterr().out


@pytest.mark.slow
def test_another_seed_moves_the_seeds_of_tests_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in ("conftest.py", "disk_help.py"):
        (inside / name).write_text((TESTS / name).read_text())
    (inside / "test_drawn.py").write_text(
        "import torch\n"
        "from pathlib import Path\n"
        "def test_drawn():\n"
        "    torch.manual_seed(3)\n"
        "    first = torch.rand(4)\n"
        "    generator = torch.Generator().manual_seed(3)\n"
        "    assert torch.equal(torch.rand(4, generator=generator), first)\n"
        "    library = {}\n"
        "    text = 'import torch; torch.manual_seed(3)'\n"
        "    exec(compile(text, '/else/where.py', 'exec'), library)\n"
        "    Path('drawn').write_text(f'{first.tolist()} {torch.rand(4).tolist()}')\n"
    )
    monkeypatch.setattr(portability, "TESTS", inside)
    drawn = []
    for seed in ("0", "5"):
        assert run(Setting({"HEEDFUL_TEST_SEED": seed}), ["drawn"], workers=1).failures == []
        drawn.append((tmp_path / "drawn").read_text())
    torch.manual_seed(3)
    unmoved = str(torch.rand(4).tolist())
    torch.manual_seed(8)
    moved = str(torch.rand(4).tolist())
    assert drawn == [f"{unmoved} {unmoved}", f"{moved} {unmoved}"]
