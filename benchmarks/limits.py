"""Measures the machine's limits: operations per second of matrix products, bytes read per second.

    python benchmarks/limits.py [--threads 2]

Benchmarks measure the limits before and after their rounds and report each row's fraction of the
limit.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import linear

from heedful.basics.device import has_fast_bfloat16

WIDTH = 2048
"""Rows and columns of the multiplied matrices."""
READ = 1 << 28
"""Bytes read to measure memory bandwidth; larger than any cache."""
SLICE = 0.5
"""Seconds for each limit."""


def best_rate(run: Callable[[], object], work: float) -> float:
    """``work`` divided by the shortest time of several runs."""
    run()
    shortest, until = float("inf"), time.perf_counter() + SLICE
    while True:
        began = time.perf_counter()
        run()
        now = time.perf_counter()
        shortest = min(shortest, now - began)
        if now > until:
            return work / shortest


def limits(threads: int) -> dict[str, float]:
    """Operations per second for each precision, and bytes per second."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    left, right = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    work = 2.0 * WIDTH**3
    found = {"float32": best_rate(lambda: linear(left, right), work)}
    if torch.backends.mkldnn.is_available():
        packed_left, packed_right = left.to_mkldnn(), right.to_mkldnn()
        product = torch.ops.aten.mkldnn_linear
        found["float32, packed"] = best_rate(lambda: product(packed_left, packed_right, None), work)
    if has_fast_bfloat16(torch.device("cpu")):
        low_left, low_right = left.bfloat16(), right.bfloat16()
        found["bfloat16"] = best_rate(lambda: linear(low_left, low_right), work)
    buffer = torch.zeros(READ // 4)
    found["memory"] = best_rate(buffer.sum, float(READ))
    torch.set_num_threads(before)
    return found


def highest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The maximum of each limit over two measurements."""
    return {name: max(rate, other[name]) for name, rate in one.items()}


def operations(found: Mapping[str, float], precision: str) -> float | None:
    """The limit for matrix products in a precision; None if it was not measured."""
    if precision == "float32":
        return max(found["float32"], found.get("float32, packed", 0.0))
    return found.get(precision)


def said(found: Mapping[str, float]) -> str:
    """The limits in one line."""
    rates = [f"{found[name] / 1e9:,.0f} GFLOP/s in {name}" for name in found if name != "memory"]
    memory = f"{found['memory'] / 1e9:,.0f} GB/s from memory"
    return f"Limits in this run: {'; '.join([*rates, memory])}."


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="default 2")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    found = limits(options.threads)
    print(json.dumps(found) if options.json else said(found))


if __name__ == "__main__":
    main()
