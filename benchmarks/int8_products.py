"""Compares matrix products in float32 and int8, in processor time of one thread.

    python benchmarks/int8_products.py [--rounds 9] [--quick]

Prints the machine and a table as Markdown. Both sides of a product take turns in one process; the
ratio is the median of the rounds' ratios. Processor time depends little on other programs.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from heedful.layers.int8_linear import Int8Linear, largest_input
from reporting import machine, said

SHAPES = [
    (416, 128, 8000),
    (416, 128, 128),
    (416, 128, 512),
    (416, 512, 512),
    (416, 512, 2048),
    (416, 2048, 512),
    (416, 512, 8000),
    (1, 512, 2048),
    (1, 128, 8000),
    (1, 128, 128),
]
"""Rows, inputs, outputs: a step of 83 sentences with beam 5, and of one sentence with greedy
search."""
QUICK = [(4, 16, 24)]
_SPAN = 0.05
"""Seconds per side and round."""


def seconds(call: Callable[[], Tensor], times: int) -> float:
    """Processor time of one call."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def compare(rows: int, inputs: int, outputs: int, rounds: int, span: float) -> list[str]:
    """A row of the table: the shape, both times in µs, their ratio, the relative error."""
    plain = nn.Linear(inputs, outputs)
    whole = Int8Linear(plain.weight, plain.bias)
    x = torch.randn(rows, inputs)
    calls = [lambda: plain(x), lambda: whole(x)]
    times = [max(1, int(span / max(seconds(call, 3), 1e-7))) for call in calls]
    found = [[seconds(*each) for each in zip(calls, times, strict=True)] for _ in range(rounds)]
    error = float((calls[1]() - calls[0]()).norm() / calls[0]().norm())
    return [
        f"[{rows}, {inputs}] × [{inputs}, {outputs}]",
        *(f"{1e6 * median(side):,.0f}" for side in zip(*found, strict=True)),
        f"{median(one / other for one, other in found):.2f}×",
        f"{100 * error:.1f} %",
    ]


@torch.inference_mode()
def main() -> int:
    """Measure all shapes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="only check that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes, span = (QUICK, 0.001) if options.quick else (SHAPES, _SPAN)
    print(f"{said(machine(1))}; inputs rounded to ±{largest_input()} steps\n")
    print("| | float32, µs | int8, µs | float32 ÷ int8 | error |")
    print("| :--- | ---: | ---: | ---: | ---: |")
    for shape in shapes:
        cells = compare(*shape, 2 if options.quick else options.rounds, span)
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
