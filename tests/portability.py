"""Runs the numerical tests under the conditions of other processors: ``make portability``.

Each setting selects different instructions, code paths of libraries, compilers, numbers of threads
or random numbers, and runs the tests of NUMERICAL. Settings that this processor does not support
are listed as skipped. The exit code is 1 if a test fails.

    python tests/portability.py                      all settings, an hour or more on two cores
    python tests/portability.py --short              those of CI, three minutes
    python tests/portability.py --only seed=7 CC     settings whose names contain "seed=7" or "CC"
    python tests/portability.py --list               the settings
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.kernels.compiling import compiler

TESTS = Path(__file__).parent

NUMERICAL = [
    "attention_in_recipes",
    "attention_of_one_head",
    "copying_model",
    "pointing_model",
    "recurrent_mechanisms",
    "additive_kernels",
    "aligner",
    "attention_combinations",
    "attention_keras",
    "attention_properties",
    "attention_reference",
    "bert",
    "convolution_equivalence",
    "convolutional",
    "copying",
    "decoding",
    "decoding_sampling",
    "forward_mode",
    "fused",
    "fuzz_kernels",
    "gpt",
    "gradient_flow",
    "grouped",
    "guided",
    "inference_alignment",
    "interop_bert",
    "interop_gpt",
    "interop_marian",
    "interop_pair_models",
    "interop_pretrained",
    "interop_texts",
    "interop_translators",
    "joining",
    "linear_attention",
    "loop_operators",
    "losses",
    "masked_numbers",
    "masks_kinds",
    "normalizers",
    "normalizers_drawn",
    "normalizers_local",
    "normalizers_sparse",
    "normalizers_windowed",
    "operators",
    "plugin_model_files",
    "plugin_parts",
    "plugin_scores",
    "positions",
    "positions_in_heads",
    "positions_parity",
    "precision",
    "precision_runs",
    "reading",
    "recurrent",
    "recurrent_compiled",
    "recurrent_hard",
    "recurrent_parts",
    "reinforce",
    "relevance",
    "scores_more",
    "search_stream",
    "threads",
    "short_attention",
    "steps",
    "structured",
    "text_encoders",
    "text_runs",
    "tolerance",
    "transformer",
    "watch",
    "word_vectors",
]
"""Test files that compare floating-point numbers. Add new ones here."""

SHORT = [
    "convolutional",
    "fused",
    "precision",
    "recurrent_compiled",
    "steps",
    "tolerance",
]
"""Fast files of NUMERICAL that other settings have broken before."""

SLOW = "not benchmark and not compile and not learns and not killed"
"""Tests to skip: they train or start programs, and compare few numbers."""

SEEDS = 20


@dataclass(frozen=True)
class Setting:
    """Environment variables for a run of the tests, and their requirements.

    Attributes:
        variables: environment variables of the tests.
        flags: processor flags in /proc/cpuinfo without which the setting has no effect.
        machine: the processor's family; empty for any.
        short: whether CI runs it.
        compiled: whether it needs a C compiler.
    """

    variables: dict[str, str]
    flags: str = ""
    machine: str = ""
    short: bool = False
    compiled: bool = False

    @property
    def name(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.variables.items())

    def missing(self) -> str:
        """The reason why the setting cannot be tested here; empty if it can."""
        if self.machine and platform.machine() not in (self.machine, "AMD64"):
            return f"needs {self.machine}"
        if self.compiled and compiler() is None:
            return "needs a C compiler"
        lacking = set(self.flags.split()) - processor_flags()
        return f"needs {' '.join(sorted(lacking))}" if lacking else ""


def processor_flags() -> set[str]:
    """The flags of this processor, as named by Linux."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    return {flag for line in lines if line.startswith("flags") for flag in line.split()}


AVX512 = "avx512f avx512bw avx512cd avx512dq avx512vl"
X86 = "x86_64"


def settings() -> Iterator[Setting]:
    yield Setting({"ATEN_CPU_CAPABILITY": "default"}, machine=X86, short=True)
    yield Setting({"ATEN_CPU_CAPABILITY": "avx2"}, "avx2 fma", X86)
    for name, flags in (("SSE4_2", "sse4_2"), ("AVX2", "avx2"), ("AVX512", AVX512)):
        yield Setting({"MKL_ENABLE_INSTRUCTIONS": name}, flags, X86)
    # Needed on processors other than Intel's to make MKL use another code path.
    yield Setting({"MKL_CBWR": "COMPATIBLE"}, machine=X86)
    for name, flags in (
        ("SSE41", "sse4_1"),
        ("AVX2", "avx2"),
        ("AVX512_CORE", AVX512),
        ("AVX512_CORE_VNNI", f"{AVX512} avx512_vnni"),
        ("AVX512_CORE_BF16", f"{AVX512} avx512_bf16"),
        ("AVX512_CORE_AMX", f"{AVX512} amx_tile"),
    ):
        yield Setting({"ONEDNN_MAX_CPU_ISA": name}, flags, X86)
    for level, flags in (("v2", "sse4_2"), ("v3", "avx2 fma"), ("v4", AVX512)):
        march = {"HEEDFUL_MARCH": f"x86-64-{level}"}
        yield Setting(march, flags, X86, short=level == "v2", compiled=True)
    yield Setting({"CC": "none"}, short=True)
    for threads in ("1", "2", "4"):
        yield Setting({"OMP_NUM_THREADS": threads})
    for seed in range(1, SEEDS + 1):
        # Half of every tolerance: tests that barely pass here could fail elsewhere.
        own = {"HEEDFUL_TEST_SEED": str(seed), "HEEDFUL_TOLERANCE": "0.5"}
        # CI runs the first of them with several threads, as one setting.
        yield Setting({**own, "OMP_NUM_THREADS": "4"} if seed == 1 else own, short=seed == 1)


@dataclass
class Outcome:
    """The result of the tests under a setting."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: list[str]


def run(setting: Setting, names: list[str], workers: int) -> Outcome:
    """Run the named test files under a setting."""
    files = [str(TESTS / f"test_{name}.py") for name in names]
    command = [sys.executable, "-m", "pytest", "--tb=short", "-k", SLOW, *files]
    command += ["-n", str(workers), "--dist", "loadfile"]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **setting.variables}
    began = time.monotonic()
    done = subprocess.run(
        command, env=environment, cwd=TESTS.parent, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    last = lines[-1] if lines else ""
    counts = {what: int(number) for number, what in re.findall(r"(\d+) ([a-z]+)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
    if done.returncode and not failed:  # the run itself failed
        failed, failures = 1, [*lines, *done.stderr.splitlines()][-20:]
    return Outcome(
        counts.get("passed", 0),
        failed,
        counts.get("skipped", 0),
        time.monotonic() - began,
        failures,
    )


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="the settings and files that CI runs")
    parser.add_argument(
        "--only", nargs="+", metavar="PART", help="only settings whose name contains this text"
    )
    parser.add_argument("--files", nargs="+", metavar="NAME", help="tests/test_NAME.py")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--list", action="store_true", help="list the settings")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    chosen = [one for one in settings() if one.short or not asked.short]
    if asked.only:
        chosen = [one for one in chosen if any(part in one.name for part in asked.only)]
    names = asked.files or (SHORT if asked.short else NUMERICAL)
    width = max((len(one.name) for one in chosen), default=0)
    if not chosen:
        print(f"no setting matches: {' '.join(asked.only)}", file=sys.stderr)
        return 2
    print(f"{'setting':{width}}  passed  failed  skipped  seconds")
    total = 0
    for setting in chosen:
        missing = setting.missing()
        if missing or asked.list:
            print(f"{setting.name:{width}}  {f'skipped: {missing}' if missing else ''}".rstrip())
            continue
        found = run(setting, names, asked.workers)
        total += found.failed
        counts = f"{found.passed:6}  {found.failed:6}  {found.skipped:7}  {found.seconds:7.0f}"
        print(f"{setting.name:{width}}  {counts}", flush=True)
        for line in found.failures:
            print(f"    {line}", flush=True)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
