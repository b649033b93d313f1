"""The worker of ``benchmarks/attention.py``, which runs the contenders of one part on request."""

import argparse
import gc
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from attention_contenders import PARTS, Case, Part, Ready
from heedful.kernels import additive_compiled as compiled
from resident import peak_resident, reset_peak
from workers import serve

WARM_UP = 64  # T of the warm-up call, which loads libraries


class Bench:
    """Handles requests: builds a case, computes it, and returns its time and memory."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.ready: dict[tuple[str, Case], Ready] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Handle a request: ``contender``, ``case`` and, except for the first one, ``calls``."""
        name, case = request["contender"], Case(**request["case"])
        try:
            if "calls" not in request:
                return self._first(name, case)
            ready = self.ready[name, case]
            gc.disable()
            seconds = [timed(ready, case.backward)[0] for _ in range(request["calls"])]
            gc.enable()
            return {"seconds": median(seconds)}
        except (RuntimeError, MemoryError) as error:  # raised by torch without memory or a compiler
            return {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0]}

    def _first(self, name: str, case: Case) -> dict[str, Any]:
        """Build and compute once, after a warm-up, which is small if nothing is compiled."""
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
    """The seconds, the context and the gradients."""
    began = time.perf_counter()
    with ready.around(), torch.set_grad_enabled(backward):
        found = [ready.compute()]
        if backward:
            found += torch.autograd.grad(found[0], ready.leaves, torch.ones_like(found[0]))
    return time.perf_counter() - began, found


def sampled(numbers: Tensor) -> list[float]:
    """Eight elements and the root mean square of a tensor."""
    flat = numbers.flatten()
    few = flat[:: max(1, len(flat) // 8)][:8].tolist()
    return [*few, float(flat.square().mean().sqrt())]


def additive_kernel() -> str:
    """The kernel that computes additive scores on this machine."""
    return "PyTorch tiles" if compiled.library() is None else "C"


def main() -> None:
    """Handle the requests for one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    serve(Bench(PARTS[options.part]).answer)


if __name__ == "__main__":
    main()
