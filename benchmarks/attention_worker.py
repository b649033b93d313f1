"""The worker of ``benchmarks/attention.py``: computes contenders of one part as often as asked."""

import argparse
import contextlib
import ctypes
import gc
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from attention_contenders import PARTS, Case, Part, Ready
from heedful.kernels import additive_compiled as compiled
from workers import serve

WARM_UP = 64  # T of a contender's first call; enough for what is loaded then to be loaded


class Bench:
    """Answers the parent: builds a case, computes it, says how long it took and what it held."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.ready: dict[tuple[str, Case], Ready] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """``contender`` and ``case``; the first time nothing else, then ``calls``."""
        name, case = request["contender"], Case(**request["case"])
        try:
            if "calls" not in request:
                return self._first(name, case)
            ready = self.ready[name, case]
            gc.disable()
            seconds = [timed(ready, case.backward)[0] for _ in range(request["calls"])]
            gc.enable()
            return {"seconds": median(seconds)}
        except (RuntimeError, MemoryError) as error:  # what torch raises without memory or compiler
            return {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0]}

    def _first(self, name: str, case: Case) -> dict[str, Any]:
        """Build and compute once, after a warm-up that is small where nothing is compiled."""
        contender = self.part.contenders[name]
        ready = self.ready[name, case] = contender.build(case)
        small = replace(case, size=min(case.size, WARM_UP))
        timed(ready if contender.compiles else contender.build(small), case.backward)
        gc.collect()
        before = reset_peak()
        seconds, numbers = timed(ready, case.backward)
        after = peak_resident()
        peak = None if before is None or after is None else max(0, after - before)
        return {
            "seconds": seconds,
            "peak": peak,
            "sample": [sampled(some.detach()) for some in numbers],
        }


def timed(ready: Ready, backward: bool) -> tuple[float, list[Tensor]]:
    """Seconds, and the context with the gradients, if any."""
    began = time.perf_counter()
    with ready.around(), torch.set_grad_enabled(backward):
        found = [ready.compute()]
        if backward:
            found += torch.autograd.grad(found[0], ready.leaves, torch.ones_like(found[0]))
    return time.perf_counter() - began, found


def sampled(numbers: Tensor) -> list[float]:
    """Eight of the numbers, and their root mean square."""
    flat = numbers.flatten()
    few = flat[:: max(1, len(flat) // 8)][:8].tolist()
    return [*few, float(flat.square().mean().sqrt())]


_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> int | None:
    """Give freed memory back to the system, and count the highest resident memory from here."""
    if not _REFERENCES.exists():
        return None
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _REFERENCES.write_text("5", encoding="ascii")
    except OSError:
        return None
    return peak_resident()


def peak_resident() -> int | None:
    """Highest resident memory of this process since it was last reset, in bytes."""
    if not _STATUS.exists():
        return None
    status = _STATUS.read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def additive_kernel() -> str:
    """What computes additive scores here."""
    return "PyTorch tiles" if compiled.library() is None else "C"


def main() -> None:
    """Serve one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    serve(Bench(PARTS[options.part]).answer)


if __name__ == "__main__":
    main()
