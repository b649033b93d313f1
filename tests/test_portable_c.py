"""The C code for other processors compiles without warnings and gives correct results.

A compiler for another processor (Debian's gcc-aarch64-linux-gnu) and its emulator (qemu-user) are
used if installed; otherwise the tests for ARM are skipped.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import heedful
from heedful.kernels import compiling
from portability import AVX512, processor_flags
from tolerance import assert_near

ROOT = Path(heedful.__file__).parent
SOURCES = sorted(ROOT.rglob("*.c"))
FOLDERS = sorted({f"-I{file.parent}" for file in ROOT.rglob("*.[ch]")})
DRIVER = Path(__file__).parent / "data" / "portable.c"
ARM = "aarch64-linux-gnu-gcc"
MISSING = "not installed; with Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"

TARGETS = {
    "ARM": (ARM, "armv8-a", ""),
    "x86-64": ("cc", "x86-64", ""),
    "x86-64-v2": ("cc", "x86-64-v2", "sse4_2"),
    "x86-64-v3": ("cc", "x86-64-v3", "avx2 fma"),
    "x86-64-v4": ("cc", "x86-64-v4", AVX512),
    "clang, ARM": ("clang --target=aarch64-linux-gnu", "armv8-a", ""),
    "clang, x86-64-v2": ("clang", "x86-64-v2", "sse4_2"),
    "clang, x86-64-v3": ("clang", "x86-64-v3", "avx2 fma"),
}
each_target = pytest.mark.parametrize("target", TARGETS)


def compiler(target: str) -> list[str]:
    """The compiler command for a target; skips the test if it is not installed."""
    command, march, _ = TARGETS[target]
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command.split()[0]} is {MISSING if command == ARM else 'not installed'}")
    if march.startswith("x86") and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("this processor is not of the x86-64 family")
    return [*command.split(), f"-march={march}"]


@each_target
@pytest.mark.parametrize("source", SOURCES, ids=[file.stem for file in SOURCES])
def test_every_file_compiles_without_warnings(source: Path, target: str, tmp_path: Path) -> None:
    command = [*compiler(target), *compiling.FLAGS, *FOLDERS, "-Wall", "-Wextra", "-Werror"]
    command += ["-O1"]  # enough to inline, which intrinsics need, and a tenth of the time
    if "clang" in target:  # which has no libraries for another processor to link with
        command = [part for part in command if part not in ("-shared", "-pthread")]
    done = subprocess.run(
        [*command, "-c", str(source), "-o", str(tmp_path / "made.o")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def run_driver(program: Path, target: str, given: bytes) -> bytes:
    command = [str(program)]
    if target == "ARM" and platform.machine() != "aarch64":
        emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
        if emulator is None:
            pytest.skip("qemu-aarch64 is not installed; with Debian: apt-get install qemu-user")
        command = [emulator, *command]
    elif lacking := set(TARGETS[target][2].split()) - processor_flags():
        pytest.skip(f"this processor has no {' '.join(sorted(lacking))}")
    done = subprocess.run(command, input=given, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "clang, ARM"])
def test_results_match_float64(target: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    exponents = torch.linspace(0, -87, 1024)
    a, b = torch.randn(5, 40), torch.randn(40, 67)
    gates, recurrent, state = 3 * torch.randn(3, 84), torch.randn(3, 84), torch.randn(3, 21)
    row = 5 * torch.randn(1003)
    program = tmp_path / "portable"
    flags = [*FOLDERS, "-O3", "-std=gnu11", "-static" if target == "ARM" else "-pthread"]
    command = [*compiler(target), *flags, str(DRIVER), "-o", str(program), "-lm"]
    subprocess.run(command, check=True, timeout=120)
    parts = (exponents, a, b, gates, recurrent, state, row)
    given = b"".join(part.numpy().astype("<f4").tobytes() for part in parts)
    found: NDArray[np.float32] = np.frombuffer(run_driver(program, target, given), dtype="<f4")
    sizes = [1024, 5 * 67, 63, 63, 4, 4, 1]
    powers, product, hidden, inner, best, columns, total = torch.from_numpy(found.copy()).split(
        sizes
    )

    assert_near(powers / exponents.double().exp(), torch.ones(1024), terms=1)
    assert_near(product.view(5, 67), a.double() @ b.double(), terms=40)
    i, f, g, o = (gates.double() + recurrent.double()).chunk(4, 1)
    cell = f.sigmoid() * state.double() + i.sigmoid() * g.tanh()
    assert_near(inner.view(3, 21), cell, terms=2)
    assert_near(hidden.view(3, 21), o.sigmoid() * cell.tanh(), terms=2)
    expected = row[4:].topk(4)
    assert torch.equal(best, expected.values)
    assert torch.equal(columns.long() - 4, expected.indices)
    assert_near(total, row.double().logsumexp(0, keepdim=True), terms=1)


def test_each_march_has_its_own_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("cc") is None or platform.machine() != "x86_64":
        pytest.skip("needs a C compiler and an x86-64 processor")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    source = tmp_path / "lanes.c"
    source.write_text('#include "simd.h"\nint width(void) { return LANES; }\n')
    for march, lanes in (("x86-64-v2", 4), ("x86-64-v3", 8)):
        monkeypatch.setenv("HEEDFUL_MARCH", march)
        if march == "x86-64-v3" and "avx2" not in processor_flags():
            continue
        library = compiling.compiled_library(source, "the test runs")
        assert library is not None
        assert library.width() == lanes
    monkeypatch.delenv("HEEDFUL_MARCH")
    assert compiling.compiled_library(source, "the test runs") is not None
    assert len(list((tmp_path / "heedful").glob("lanes-*.so"))) == 3


@pytest.mark.parametrize("accepted", ["-march=native", "-mcpu=native", "neither"])
def test_compilers_with_march_or_mcpu_or_neither(
    accepted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers for ARM differ: if one option fails, the other is tried."""
    real = shutil.which("cc")
    if real is None:
        pytest.skip("there is no C compiler here")
    command = tmp_path / "picky"
    command.write_text(
        "#!/bin/sh\n"
        "for word; do shift; case $word in\n"
        f"  {accepted}) continue ;;\n"
        "  -march=*|-mcpu=*) echo unsupported option >&2; exit 1 ;;\n"
        '  esac; set -- "$@" "$word"; done\n'
        f'exec {real} "$@"\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("CC", str(command))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HEEDFUL_MARCH", raising=False)
    source = tmp_path / "three.c"
    source.write_text("int three(void) { return 3; }\n")
    library = compiling.compiled_library(source, "the test runs")
    assert library is not None
    assert library.three() == 3


def test_an_unknown_march_prints_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("there is no C compiler here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HEEDFUL_MARCH", "x87")
    source = tmp_path / "three.c"
    source.write_text("int three(void) { return 3; }\n")
    assert compiling.compiled_library(source, "the test runs") is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the test runs without its compiled kernel" in said
    assert not list((tmp_path / "heedful").iterdir())
