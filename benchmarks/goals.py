"""Required and desired speeds ("must" and "goal") of each comparison, and the measured ones.

A row divides heedful's and the peer's speeds round by round and reports the median ratio.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from reporting import table

FLOAT = ("float32", "bfloat16")
"""Floating-point precisions, of which heedful's fastest row counts."""
FASTER, QUICKER = "faster", "quicker"
"""Whether a ratio compares speeds (with a minimum) or times (with a maximum)."""
Results = Mapping[str, Any]


class Compared(NamedTuple):
    """A comparison of heedful with a peer, round by round."""

    ours: str
    peer: str
    ratio: float


class Goal(NamedTuple):
    """A row of the table."""

    what: str
    against: str
    must: float
    goal: float
    find: Callable[[Results], Compared | str]
    """Returns the measurement from all results, or the reason why it is missing."""
    kind: str = FASTER

    def reaches(self, ratio: float, wanted: float) -> bool:
        """Whether a ratio meets a target."""
        return ratio >= wanted if self.kind == FASTER else ratio <= wanted

    def said(self, wanted: float) -> str:
        """Format a target."""
        return f"≥ {wanted:g}×" if self.kind == FASTER else f"≤ {wanted:g}× its time"


def ratio_of(ours: Sequence[float], peer: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(ours, peer, strict=True))


def _best(rows: Mapping[str, Any], names: Sequence[str]) -> str:
    return max(names, key=lambda name: float(rows[name]["median"]))


def _translating(
    size: str, search: str, peer: str, precisions: tuple[str, ...]
) -> Callable[[Results], Compared | str]:
    def find(results: Results) -> Compared | str:
        found = results.get("translate_speed", {}).get("sizes", {}).get(size)
        if not found:
            return "not measured"
        rows, sides = found["searches"][search]["rows"], found["sides"]
        ours = _ours(sides, precisions)
        if not ours:
            return f"no row of heedful in {' or '.join(precisions)}"
        if peer not in rows:
            return f"{peer} skipped"
        best = _best(rows, ours)
        return Compared(best, peer, ratio_of(rows[best]["all"], rows[peer]["all"]))

    return find


def _ours(sides: Mapping[str, Any], precisions: tuple[str, ...]) -> list[str]:
    return [
        name
        for name, facts in sides.items()
        if name.startswith("ours") and facts["precision"] in precisions
    ]


def _one_sentence(size: str) -> Callable[[Results], Compared | str]:
    def find(results: Results) -> Compared | str:
        found = results.get("one_sentence", {}).get("sizes", {}).get(size)
        if not found:
            return "not measured"
        rows = {name: figures["p50"] for name, figures in found["rows"].items()}
        peers = [name for name in rows if name.startswith("CTranslate2, ") and "int8" not in name]
        if not peers:
            return "CTranslate2 skipped"
        ours = min(_ours(found["sides"], FLOAT), key=lambda name: median(rows[name]))
        peer = min(peers, key=lambda name: median(rows[name]))
        return Compared(ours, peer, ratio_of(rows[ours], rows[peer]))

    return find


def _recurrent(results: Results) -> Compared | str:
    found = results.get("recurrent_speed")
    if not found:
        return "not measured"
    rows = found["rows"]
    peers = [name for name in rows if name in ("Eole", "JoeyNMT")]
    if not peers:
        return "Eole and JoeyNMT skipped"
    ours, peer = _best(rows, _ours(found["sides"], FLOAT)), _best(rows, peers)
    return Compared(ours, peer, ratio_of(rows[ours]["all"], rows[peer]["all"]))


def _training(size: str, peers: Sequence[str]) -> Callable[[Results], Compared | str]:
    def find(results: Results) -> Compared | str:
        found = results.get("train_speed", {}).get("sizes", {}).get(size)
        if not found:
            return "not measured"
        rows = found["variants"]
        there = [name for name in peers if name in rows]
        if not there or "ours" not in rows:
            return f"{' and '.join(peers)} skipped"
        peer = _best(rows, there)
        return Compared("ours", peer, ratio_of(rows["ours"]["all"], rows[peer]["all"]))

    return find


def _goals() -> Iterator[Goal]:
    searches = ("greedy", "beam 5")
    wanted = {"tiny": (0.8, 1.2), "base": (1.2, 2.0)}
    for size, (must, goal) in wanted.items():
        for search in searches:
            what = f"translate, {size}, {search}, best float precision"
            find = _translating(size, search, "CTranslate2", FLOAT)
            yield Goal(what, "CTranslate2 float32", must, goal, find)
    for size in wanted:
        for search in searches:
            find = _translating(size, search, "CTranslate2, int8", ("int8",))
            yield Goal(f"translate, {size}, {search}, int8", "CTranslate2 int8", 0.6, 1.0, find)
    for size in wanted:
        for search in searches:
            find = _translating(size, search, "MarianMT", FLOAT)
            yield Goal(f"translate, {size}, {search}", "MarianMT generate", 3, 6, find)
    one = "CTranslate2 float32"
    for size, must, goal in (("tiny", 2.0, 1.0), ("base", 1.0, 0.7)):
        what = f"one sentence at a time, p50, {size}"
        yield Goal(what, one, must, goal, _one_sentence(size), QUICKER)
    yield Goal("recurrent Bahdanau, beam 5", "the faster of Eole and JoeyNMT", 3, 6, _recurrent)
    peers = "the faster of Eole and Sockeye"
    yield Goal("train tiny", peers, 2.5, 4, _training("tiny", ["Eole", "Sockeye"]))
    yield Goal("train base", peers, 1.2, 1.7, _training("base", ["Eole", "Sockeye"]))
    loop = "plain loop, float32, default allocator"
    yield Goal("train tiny", loop, 3, 5, _training("tiny", ["plain loop"]))
    yield Goal("train base", loop, 2.5, 3.5, _training("base", ["plain loop"]))


GOALS = tuple(_goals())


def verdict(goal: Goal, ratio: float) -> str:
    """Which of must and goal is met."""
    if goal.reaches(ratio, goal.goal):
        return "goal met"
    return "must met" if goal.reaches(ratio, goal.must) else "**missed**"


def report(results: Results) -> str:
    """The table of all comparisons."""
    rows = []
    for goal in GOALS:
        found = goal.find(results)
        wanted = [goal.said(goal.must), goal.said(goal.goal)]
        if isinstance(found, str):
            rows.append([goal.what, "–", goal.against, "–", *wanted, found])
            continue
        cells = [found.ours, goal.against, f"{found.ratio:.2f}×", *wanted]
        rows.append([goal.what, *cells, verdict(goal, found.ratio)])
    titles = ["what", "ours", "against", "ratio", "must", "goal", ""]
    return "\n".join(["## Must and goal", "", table(titles, rows)])
