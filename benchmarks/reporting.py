"""What benchmarks print: the machine, medians, ratios, one table."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from heedful.basics.device import has_fast_bfloat16


def machine(threads: int) -> dict[str, Any]:
    """What the figures depend on: processor, threads, bf16, versions."""
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
    bf16 = "multiplies bfloat16 in hardware" if facts["bf16"] else "has no bfloat16 instructions"
    return (
        f"{facts['processor']} ({facts['instructions']}, {bf16}), {facts['cores']} cores, "
        f"{facts['threads']} threads, PyTorch {facts['torch']}, Python {facts['python']}"
    )


def processor_name() -> str:
    """As Linux names it; elsewhere as Python does."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def summarised(speeds: Sequence[float], base: Sequence[float] | None) -> dict[str, Any]:
    """Median, range, and how many times the base, repetition by repetition.

    Both were measured one right after the other, so the ratio of a repetition is steadier than
    either speed; the median of the ratios is the figure.
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
    """A Markdown table; numbers (all columns but the first) to the right."""
    widths = [max(len(row[place]) for row in [titles, *rows]) for place in range(len(titles))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        texts = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
        return "| " + " | ".join(texts) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(titles), line(rule), *map(line, rows)])


def speed_table(unit: str, found: dict[str, dict[str, Any]]) -> str:
    """A row a variant: median, lowest and highest speed, ratio to the base."""
    rows = []
    for name, figures in found.items():
        ratio = figures.get("ratio")
        cells = [f"{figures[which]:,.0f}" for which in ("median", "lowest", "highest")]
        rows.append([name, *cells, "–" if ratio is None else f"{ratio:.2f}×"])
    return table(["", f"{unit}, median", "lowest", "highest", "ratio"], rows)
