"""Compares attention of short sequences in heedful's C code with PyTorch's kernel (SDPA).

    python benchmarks/short_attention.py [--rounds 21] [--threads 1] [--json] [--quick]

Both sides take turns in one process, on the same projected tensors. The ratio is the median of the
rounds' ratios of heedful to SDPA: below 1, heedful is faster. heedful uses its own kernel above a
number of multiplications B·H·T·T·D and SDPA below (column "taken"); here both compute all shapes.
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels import short_attention as short
from heedful.kernels import short_attention_operators as short_operators
from reporting import machine, said, table

SHAPES = [
    (1, 4, 16, 8),
    (1, 8, 10, 32),
    (2, 4, 16, 32),
    (4, 4, 16, 32),
    (8, 8, 16, 64),
    (32, 4, 16, 32),
    (64, 8, 30, 64),
    (16, 8, 64, 64),
    (8, 8, 128, 64),
    (256, 4, 8, 32),
    (16, 8, 100, 64),
]
"""B, H, T, D."""
Shape = tuple[int, int, int, int]
QUICK = SHAPES[:1]
_SPAN = 0.02
"""Seconds per side and round."""


def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return short_operators.short_attention(query, key, value, None, False, query.shape[-1] ** -0.5)


def seconds(call: Callable[[], object], times: int) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times


def compare(shape: Shape, backward: bool, rounds: int, span: float) -> dict[str, Any]:
    """Median microseconds of both, and the median of the rounds' ratios."""
    batch, heads, length, width = shape
    made = torch.randn(3, batch, length, heads, width)
    given = [part.transpose(1, 2).requires_grad_(backward) for part in made]
    grad = torch.randn(batch, length, heads, width).transpose(1, 2)

    def side(attention: Callable[..., Tensor]) -> Callable[[], object]:
        if not backward:
            return lambda: attention(*given)
        return lambda: torch.autograd.grad(attention(*given), given, grad)

    calls = [side(ours), side(F.scaled_dot_product_attention)]
    times = [max(1, int(span / max(seconds(call, 3), 1e-7))) for call in calls]
    found = [[seconds(*each) for each in zip(calls, times, strict=True)] for _ in range(rounds)]
    own, theirs = (1e6 * median(one) for one in zip(*found, strict=True))
    return {"ours": own, "sdpa": theirs, "ratio": median(one / other for one, other in found)}


def measure(
    shapes: list[tuple[int, int, int, int]], rounds: int, span: float
) -> list[dict[str, Any]]:
    """The figures of each shape."""
    return [
        {
            "shape": list(shape),
            "products": shape[0] * shape[1] * shape[2] ** 2 * shape[3],
            "forward": compare(shape, False, rounds, span),
            "with backward": compare(shape, True, rounds, span),
        }
        for shape in shapes
    ]


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    parser.add_argument(
        "--quick", action="store_true", help="only one small shape, to check that it runs"
    )
    asked = parser.parse_args(given)
    if short.library() is None:
        parser.exit(1, "no C compiler is available, so attention in C cannot be measured\n")
    torch.set_num_threads(asked.threads)
    shapes, rounds, span = (QUICK, 2, 1e-4) if asked.quick else (SHAPES, asked.rounds, _SPAN)
    found = measure(shapes, rounds, span)
    if asked.json:
        print(
            json.dumps({"limit": short._LEAST, "threads": asked.threads, "rows": found}, indent=2)
        )
        return
    print(said(machine(asked.threads)), "\n")
    rows = [
        [
            "B{} H{} T{} D{}".format(*one["shape"]),
            "ours" if one["products"] >= short._LEAST else "SDPA",
            *(
                f"{one[way][name]:,.0f}" if name != "ratio" else f"{one[way][name]:.2f}"
                for way in ("forward", "with backward")
                for name in ("ours", "sdpa", "ratio")
            ),
        ]
        for one in found
    ]
    heads = ["shape", "taken", "ours µs", "SDPA µs", "ratio", "ours µs, with backward"]
    print(table([*heads, "SDPA µs, with backward", "ratio, with backward"], rows))


if __name__ == "__main__":
    main()
