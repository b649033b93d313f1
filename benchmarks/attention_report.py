"""The report of ``benchmarks/attention.py``: tables, and measured values compared with targets."""

from collections.abc import Callable
from typing import Any

from attention_contenders import BY_HAND, COMPILED, DIRECT, OURS, PARTS, SDPA, Case
from reporting import said, table

MIB = 2**20
Cell = dict[str, Any]


def said_of(case: Case) -> str:
    """A case in words."""
    passes = "forward and backward" if case.backward else "forward"
    masked = {"none": "", "causal": ", causal", "padding": ", padding"}[case.mask]
    return f"{passes}{masked}, T = {case.size:,}"


def duration(seconds: float) -> str:
    """Format a time with three digits and a unit."""
    unit, factor = next(
        pair
        for pair in (("µs", 1e6), ("ms", 1e3), ("s", 1.0))
        if seconds * pair[1] < 999.5 or pair[0] == "s"
    )
    number = seconds * factor
    return f"{number:.{max(0, 2 - len(str(int(number))) + 1)}f} {unit}"


def time_of(cell: Cell) -> str:
    """A cell of a table of times."""
    if "median" not in cell:
        return str(cell["skipped"])
    ratio = f" · {cell['ratio']:.2f}×" if "ratio" in cell else ""
    return duration(cell["median"]) + ratio


def memory_of(cell: Cell) -> str:
    """A cell of a table of memory."""
    if "median" not in cell:
        return str(cell["skipped"])
    return "–" if cell["peak"] is None else f"{cell['peak'] / MIB:,.0f} MiB"


def tables(letter: str, cells: list[Cell]) -> list[str]:
    """A table of times and a table of memory for each mask and each pass."""
    lines = []
    for mask, backward in dict.fromkeys((cell["mask"], cell["backward"]) for cell in cells):
        some = [cell for cell in cells if (cell["mask"], cell["backward"]) == (mask, backward)]
        sizes = list(dict.fromkeys(cell["size"] for cell in some))
        what = "Forward and backward" if backward else "Forward"
        what += {"none": "", "causal": ", causal mask", "padding": ", padding mask"}[mask]
        shown = [("time and ratio", time_of)]
        if not PARTS[letter].together:
            shown.append(("peak memory", memory_of))
        for title, text in shown:
            rows = []
            for name in dict.fromkeys(cell["contender"] for cell in some):
                own = {cell["size"]: text(cell) for cell in some if cell["contender"] == name}
                rows.append([name, *(own.get(size, "–") for size in sizes)])
            titles = [f"{what}: {title}", *(f"T = {size:,}" for size in sizes)]
            lines += [table(titles, rows), ""]
    return lines


class Figures:
    """The cells of a part by contender, size and pass."""

    def __init__(self, cells: list[Cell]) -> None:
        self.cells = {
            (cell["contender"], cell["size"], cell["backward"], cell["mask"]): cell
            for cell in cells
            if "median" in cell
        }

    def get(
        self, name: str, size: int, *, backward: bool = False, mask: str = "none"
    ) -> Cell | None:
        """A cell, if it was measured."""
        return self.cells.get((name, size, backward, mask))


def verdict(what: str, figure: str, target: str, met: bool) -> str:
    """A target, the measured value, and whether it is met."""
    return f"- {what}: {figure}; target {target}: {'met' if met else '**missed**'}"


def additive_targets(cells: list[Cell]) -> list[str]:
    """The speed compared with the compiled formula and SDPA, and the growth of memory."""
    figures, lines = Figures(cells), []
    for backward, least in ((False, 10.0), (True, 8.0)):
        what = "forward and backward" if backward else "forward"
        peer = figures.get(COMPILED, 1024, backward=backward)
        if peer:
            goal = " (goal 15×)" if backward else ""
            text = f"{peer['ratio']:.1f}× as fast as torch.compile of the plain formula"
            met = peer["ratio"] >= least
            lines.append(verdict(f"T = 1,024, {what}", text, f"≥ {least:.0f}×{goal}", met))
    for (name, size, backward, _), cell in figures.cells.items():
        if name == SDPA:
            times = 1 / cell["ratio"]
            what = f"T = {size:,}, forward" + (" and backward" if backward else "")
            text = f"{times:.2f}× the time of SDPA"
            lines.append(verdict(what, text, "≤ 3×", times <= 3))
    for backward in (False, True):
        small, large = (figures.get(OURS, size, backward=backward) for size in (4096, 16384))
        if small and large and small["peak"] and large["peak"]:
            what = "memory at 16,384 over 4,096, forward" + (" and backward" if backward else "")
            grown = large["peak"] / small["peak"]
            lines.append(verdict(what, f"{grown:.1f}×", "linear (≤ 4×)", grown <= 4.4))
    return lines


def dot_targets(cells: list[Cell]) -> list[str]:
    """The worst ratio of each contender, and the overhead of a call at T = 16."""
    figures, lines = Figures(cells), []
    for name, contender in PARTS["B"].contenders.items():
        if name in (DIRECT, BY_HAND):
            continue
        own = [cell for key, cell in figures.cells.items() if key[0] == name and key[1] >= 64]
        if own:
            worst = max(own, key=lambda cell: cell["ratio"])
            case = Case(*(worst[key] for key in ("size", "width", "mask", "backward")))
            text = f"at most {worst['ratio']:.3f}× {contender.base} ({said_of(case)})"
            lines.append(verdict(name, text, "≤ 1.05×", worst["ratio"] <= 1.05))
        for mask in PARTS["B"].masks:
            here = figures.get(name, 16, mask=mask)
            base = figures.get(contender.base, 16, mask=mask)
            if here and base:
                more = (here["median"] - base["median"]) * 1e6
                lines.append(f"- {name}, mask {mask}: a call costs {more:.1f} µs more at T = 16")
    return lines


ABOUT = {
    "A": "B = 1, softmax, float32; 1× is ours (computed in {kernel}).",
    "B": "8 heads, float32, {tokens}; 1× is a direct call of the kernel, and for "
    f"MultiHeadAttention, {BY_HAND}.",
    "C": "B = 1, 4 heads, float32; 1× is SDPA.",
    "D": "One layer of self-attention, 8 heads, B = 1, float32; 1× is unwatched.",
}
TOKENS = "2,048 tokens per batch (one sequence at T = 16)"
TARGETS: dict[str, Callable[[list[Cell]], list[str]]] = {"A": additive_targets, "B": dot_targets}


def report(found: dict[str, Any]) -> str:
    """The tables of all parts, each followed by its targets."""
    lines = ["## Attention", "", said(found["machine"]), ""]
    for letter, cells in found["parts"].items():
        width = cells[0]["width"] if cells else 0
        about = ABOUT[letter].format(kernel=found["kernel"], tokens=TOKENS)
        lines += [f"### {PARTS[letter].title}, d = {width}", "", about, ""]
        lines += tables(letter, cells)
        targets = TARGETS[letter](cells) if letter in TARGETS else []
        lines += [*targets, ""] if targets else []
    return "\n".join(lines).rstrip()
