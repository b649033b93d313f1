"""Compares the speed and memory of attention modules with their alternatives.

    python benchmarks/attention.py [--parts A,B,C,D] [--sizes 256,1024] [--rounds 5] [--threads 2]

A. Additive attention, B = 1, softmax, with projected queries and keys as inputs: heedful's fast
   path, its PyTorch implementation, ``torch.compile`` of the plain formula, the plain formula, and
   scaled dot-product attention (SDPA) of the same width.
B. Dot-product attention: ``attend``, ``Attention`` and ``MultiHeadAttention`` compared with a
direct
   call of ``F.scaled_dot_product_attention``, without a mask, causal, and with padding. T = 16 is a
   single sequence, which shows the overhead of a call.
C. Linearized attention in its three forms, and SDPA.
D. The cost of watching: nothing, all weights, 8 rows, or the 8 largest weights of each row.

Contenders are measured in turns of a few calls each. The table shows the median of the rounds, and
the median of the rounds' ratios to the baseline (1×). Memory is the peak resident memory during the
first call minus the memory before it (results and gradients count, inputs do not). Each contender
runs in a new process for each T; only part B runs in one process, because a few microseconds matter
there. Outputs and gradients of equivalent contenders are compared first. Cases that would need too
much time or memory, extrapolated with the square of T, are skipped and marked in the table.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from attention_contenders import PARTS, Case, Part
from attention_report import Cell, report, said_of
from attention_worker import additive_kernel
from reporting import available_cores, machine, summarised
from workers import Worker, WorkerError

SLOW = 5.0  # with longer calls (in seconds), only one call is measured
SLICE = 0.1  # duration of a round in seconds


class Asker(Protocol):
    """The protocol of :class:`attention_worker.Bench`."""

    def ask(self, **request: Any) -> dict[str, Any]:
        """Answer a request."""
        ...


Start = Callable[[str], Asker]
"""Starts a new worker for the letter of a part."""


def measure_part(part: Part, letter: str, options: argparse.Namespace, start: Start) -> list[Cell]:
    """All cells of a part: contender, case, and the result or the reason why it was skipped."""
    cells: list[Cell] = []
    for size in options.sizes or part.sizes:
        width = options.width or part.width
        cases = [Case(size, width, mask, back) for mask in part.masks for back in part.passes]
        askers: dict[str, Asker] = {}
        with ExitStack() as stack:

            def asker(
                name: str, askers: dict[str, Asker] = askers, stack: ExitStack = stack
            ) -> Asker:
                key = letter if part.together else name
                if key not in askers:
                    askers[key] = stack.enter_context(started(start, letter))
                return askers[key]

            for name in part.contenders:  # Start all at once, because imports take long.
                if any(wanted(part, name, case, cells, options) for case in cases):
                    asker(name)
            for case in cases:
                print(f"{letter}: {said_of(case)}", file=sys.stderr, flush=True)
                cells += measure_case(part, case, cells, options, asker)
    return cells


def wanted(
    part: Part, name: str, case: Case, before: list[Cell], options: argparse.Namespace
) -> bool:
    """Whether a contender supports a case within the limits."""
    able = part.contenders[name].takes_part(case)
    return able and not projected(name, case, before, options)


@contextmanager
def started(start: Start, letter: str) -> Iterator[Asker]:
    """A worker that is closed at the end if it is a process."""
    with ExitStack() as stack:
        worker = start(letter)
        if isinstance(worker, Worker):
            stack.enter_context(worker)
        yield worker


def measure_case(
    part: Part,
    case: Case,
    before: list[Cell],
    options: argparse.Namespace,
    asker: Callable[[str], Asker],
) -> list[Cell]:
    """The cells of one case: the first call of each contender, then rounds."""
    cells = {
        name: {"contender": name, **asdict(case), **projected(name, case, before, options)}
        for name, contender in part.contenders.items()
        if contender.takes_part(case)
    }
    for name, cell in cells.items():
        if "skipped" not in cell:
            cell |= asked(asker(name), contender=name, case=asdict(case))
    able = {name: cell for name, cell in cells.items() if "seconds" in cell}
    check_agreement(part, able)
    for name, times in rounds_of(part, case, able, options, asker).items():
        able[name]["all"] = times
    for name, cell in able.items():
        base = able.get(part.contenders[name].base, {}).get("all")
        own = cell.pop("all")
        cell |= summarised(own, None)
        if base:
            count = min(len(own), len(base))
            cell |= {"ratio": summarised(own[:count], base[:count])["ratio"]}
    return list(cells.values())


def asked(worker: Asker, **request: Any) -> dict[str, Any]:
    """The answer; a failure if the worker has ended, for example out of memory."""
    try:
        found = worker.ask(**request)
    except WorkerError as error:
        found = {"failed": str(error)}
    return {"skipped": f"failed: {found['failed']}"} if "failed" in found else found


def rounds_of(
    part: Part,
    case: Case,
    able: dict[str, Cell],
    options: argparse.Namespace,
    asker: Callable[[str], Asker],
) -> dict[str, list[float]]:
    """Measure the contenders in turns; returns the seconds per call of each round."""
    firsts = {name: cell["seconds"] for name, cell in able.items()}
    times: dict[str, list[float]] = {name: [] for name in able}
    for done in range(options.rounds):
        for name, first in firsts.items():
            calls = max(1, min(200, int(SLICE / first)))
            if first > SLOW or (done and done * calls * first > part.seconds):
                continue
            found = asked(asker(name), contender=name, case=asdict(case), calls=calls)
            if "seconds" in found:
                times[name].append(found["seconds"])
    return {name: some or [firsts[name]] for name, some in times.items()}


def projected(
    name: str, case: Case, before: list[Cell], options: argparse.Namespace
) -> dict[str, str]:
    """The reason to skip a contender, extrapolated from its largest measured size; else None."""
    same = [
        cell
        for cell in before
        if cell["contender"] == name
        and (cell["mask"], cell["backward"]) == (case.mask, case.backward)
        and "median" in cell
        and cell["size"] < case.size
    ]
    if not same:
        return {}
    last = same[-1]
    more = (case.size / last["size"]) ** 2
    memory, seconds = (last["peak"] or 0) * more, last["median"] * more
    if memory > options.most_memory * 2**30:
        return {"skipped": f"needs {memory / 2**30:,.0f} GiB"}
    if seconds > options.most_seconds:
        return {"skipped": f"takes {seconds:,.0f} s"}
    return {}


def check_agreement(part: Part, able: dict[str, Cell]) -> None:
    """Raise RuntimeError if equivalent contenders gave different results."""
    samples = {name: cell.pop("sample") for name, cell in able.items()}
    for name, ours in samples.items():
        theirs = samples.get(part.contenders[name].like or "")
        if theirs is None:
            continue
        # The last number of each tensor is its root mean square. A gradient that is zero up to
        # rounding (softmax ignores a constant) is only as exact as its terms.
        largest = max(abs(other[-1]) for other in theirs)
        for one, other in zip(ours, theirs, strict=True):
            close = 1e-3 * abs(other[-1]) + 1e-4 * largest + 1e-6
            far = max(abs(a - b) for a, b in zip(one, other, strict=True))
            if not far <= close:
                raise RuntimeError(f"{name} and {part.contenders[name].like}: {one} and {other}")


def measure(options: argparse.Namespace, start: Start) -> dict[str, Any]:
    """Measure all selected parts."""
    return {
        "machine": machine(options.threads),
        "kernel": additive_kernel(),
        "rounds": options.rounds,
        "parts": {
            letter: measure_part(PARTS[letter], letter, options, start) for letter in options.parts
        },
    }


def numbers(text: str) -> list[int]:
    """Parse ``256,1024`` as positive integers."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return sorted(found)


def letters(text: str) -> list[str]:
    """Parse ``A,B`` as parts."""
    found = text.upper().split(",")
    if not set(found) <= set(PARTS):
        raise ValueError(text)
    return found


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = available_cores()
    parser.add_argument("--parts", type=letters, default=list(PARTS), help="default A,B,C,D")
    parser.add_argument("--sizes", type=numbers, help="values of T; default: those of each part")
    parser.add_argument("--width", type=int, help="width d; default: that of each part")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument(
        "--threads",
        type=int,
        default=cores,
        help=f"number of threads; default: {cores}, the number of cores",
    )
    for name, value, unit in (("most-memory", 8.0, "GiB"), ("most-seconds", 30.0, "seconds")):
        words = f"maximum {unit} of a call, extrapolated from smaller sizes; default {value:g}"
        parser.add_argument(f"--{name}", type=float, default=value, help=words)
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    options = parse()

    def start(letter: str) -> Worker:
        script = Path(__file__).with_name("attention_worker.py")
        arguments = [letter, "--threads", str(options.threads)]
        return Worker(Path(sys.executable), script, arguments, options.threads)

    found = measure(options, start)
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    main()
