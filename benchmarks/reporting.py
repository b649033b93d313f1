"""Reports of benchmarks: the machine, medians, ratios, tables."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from heedful.basics.device import has_fast_bfloat16


def machine(threads: int) -> dict[str, Any]:
    """The conditions of the figures: processor, threads, bf16, versions."""
    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "threads": threads,
        "bf16": has_fast_bfloat16(torch.device("cpu")),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def said(facts: dict[str, Any]) -> str:
    """The machine in one line."""
    bf16 = "bfloat16 in hardware" if facts["bf16"] else "no bfloat16 instructions"
    return (
        f"{facts['processor']} ({facts['instructions']}, {bf16}), {facts['cores']} cores, "
        f"{facts['threads']} threads, PyTorch {facts['torch']}, Python {facts['python']}"
    )


def processor_name() -> str:
    """The processor's name from Linux, otherwise from Python."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """The number of cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def summarised(speeds: Sequence[float], base: Sequence[float] | None) -> dict[str, Any]:
    """Median, range, and the median ratio to the baseline.

    Both are measured one after the other in each repetition, so the ratio of a repetition varies
    less than either speed.
    """
    found: dict[str, Any] = {
        "median": median(speeds),
        "lowest": min(speeds),
        "highest": max(speeds),
        "all": list(speeds),
    }
    if base is not None:
        ratios = [ours / theirs for ours, theirs in zip(speeds, base, strict=True)]
        found |= {"ratio": median(ratios), "ratios": ratios}
    return found


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns except the first are right-aligned."""
    widths = [max(len(row[place]) for row in [titles, *rows]) for place in range(len(titles))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        texts = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
        return "| " + " | ".join(texts) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(titles), line(rule), *map(line, rows)])


def speed_table(unit: str, found: dict[str, dict[str, Any]]) -> str:
    """A row for each variant: median, minimum and maximum speed, ratio to the baseline."""
    rows = []
    for name, figures in found.items():
        ratio = figures.get("ratio")
        cells = [f"{figures[which]:,.0f}" for which in ("median", "lowest", "highest")]
        rows.append([name, *cells, "–" if ratio is None else f"{ratio:.2f}×"])
    return table(["", f"{unit}, median", "lowest", "highest", "ratio"], rows)
