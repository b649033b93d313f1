"""Seconds and peak memory of causal self-attention by length: forward, and with backward.

    python benchmarks/attention_by_length.py [--lengths 256 1024 4096 16384] [--width 512]
                                             [--heads 8] [--rounds 5] [--threads 1] [--json]

Layers as recipes make them: softmax (PyTorch's SDPA), linear, the delta rule, a window of 128, the
8 best blocks of 64, and four layers with a residual connection, all softmax or three linear ones
and a softmax one. If x-transformers is installed, its flash attention of the same size is measured
beside them. The sides take turns in one process. The ratio is the median of the rounds' ratios to
softmax, or to four layers of softmax: below 1 is faster. With one thread, times are those of the
processor, so that other programs disturb them less. Peak memory is that of a process for each
side: how far its resident memory grows above what it was before the call.
"""

import argparse
import importlib.util
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import masks
from heedful.attention.settings import AttentionSettings
from reporting import machine, said, summarised, table
from resident import peak_resident, reset_peak

LENGTHS = (256, 1024, 4096, 16384)
TABLES: dict[str, list[dict[str, Any]]] = {
    "softmax": [{}],
    "linear": [{"kind": "linear"}],
    "delta rule": [{"kind": "delta"}],
    "window 128": [{"mask": {"name": "window", "before": 128, "after": 0}}],
    "top blocks 8 × 64": [{"mask": {"name": "top-blocks", "size": 64, "count": 8}}],
    "4 × softmax": [{}] * 4,
    "3 × linear, softmax": [{"kind": "linear"}] * 3 + [{}],
}
"""The tables ``[model.attention]`` of the layers of each side."""
PEER = "x-transformers, flash"


class Sizes(NamedTuple):
    """The sizes of all sides; batches have one text."""

    width: int
    heads: int
    threads: int


class Layers(nn.Module):
    """Causal self-attention layers, ``[1, T, width] -> [1, T, width]``."""

    def __init__(self, tables: Sequence[dict[str, Any]], sizes: Sizes) -> None:
        super().__init__()
        settings = [AttentionSettings.model_validate({"heads": sizes.heads, **t}) for t in tables]
        self.layers = nn.ModuleList(one.build_self(sizes.width, "causal") for one in settings)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, x, mask=masks.causal())
        return x


def side(name: str, sizes: Sizes) -> nn.Module:
    """The module of a side."""
    torch.manual_seed(1)
    if name != PEER:
        return Layers(TABLES[name], sizes)
    from x_transformers.x_transformers import Attention  # an optional peer

    class Peer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            head = sizes.width // sizes.heads
            self.own = Attention(
                sizes.width, heads=sizes.heads, dim_head=head, causal=True, flash=True
            )

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.own(x)[0]
            return x + result

    return Peer()


def call_of(name: str, sizes: Sizes, length: int, *, backward: bool) -> Callable[[], object]:
    """One call of a side."""
    module = side(name, sizes)
    x = torch.randn(1, length, sizes.width)
    if backward:
        return lambda: module(x).sum().backward()

    def forward() -> object:
        with torch.no_grad():
            return module(x)

    return forward


def seconds(call: Callable[[], object], threads: int) -> float:
    """Seconds of a call: of the processor with one thread, otherwise of the clock."""
    clock = time.process_time if threads == 1 else time.perf_counter
    began = clock()
    call()
    return clock() - began


def peak(name: str, sizes: Sizes, length: int, backward: bool) -> float | None:
    """MiB by which a fresh process grows in the call."""
    torch.set_num_threads(sizes.threads)
    call_of(name, sizes, 32, backward=backward)()  # loads what every call needs
    call = call_of(name, sizes, length, backward=backward)
    before = reset_peak()
    call()
    after = peak_resident()
    return None if before is None or after is None else (after - before) / (1 << 20)


def measure(
    names: Sequence[str], sizes: Sizes, length: int, rounds: int, *, backward: bool, memory: bool
) -> dict[str, dict[str, Any]]:
    """The figures of all sides for one length."""
    calls = {name: call_of(name, sizes, length, backward=backward) for name in names}
    for call in calls.values():
        call()
    turns = [
        {name: seconds(call, sizes.threads) for name, call in calls.items()} for _ in range(rounds)
    ]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        base = "4 × softmax" if len(TABLES.get(name, [{}])) > 1 else "softmax"
        found[name] = summarised([turn[name] for turn in turns], [turn[base] for turn in turns])
    if not memory:
        return found
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in names:
            found[name]["mebibytes"] = pool.apply(peak, (name, sizes, length, backward))
    return found


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-memory", action="store_true", help="measure the time only")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    asked = parser.parse_args(given)
    torch.set_num_threads(asked.threads)
    sizes = Sizes(asked.width, asked.heads, asked.threads)
    names = [*TABLES, *([PEER] if importlib.util.find_spec("x_transformers") else [])]
    memory = not asked.no_memory
    found = {
        (length, way): measure(
            names, sizes, length, asked.rounds, backward=way == "with backward", memory=memory
        )
        for length in asked.lengths
        for way in ("forward", "with backward")
    }
    if asked.json:
        rows = [{"length": n, "way": way, "sides": own} for (n, way), own in found.items()]
        print(json.dumps({"machine": machine(asked.threads), "rows": rows}, indent=2))
        return
    print(said(machine(asked.threads)))
    for (length, way), own in found.items():
        print(f"\n{length:,} positions, width {asked.width}, {asked.heads} heads, {way}\n")
        cells = [
            [
                name,
                *(f"{1e3 * one[key]:,.1f}" for key in ("median", "lowest", "highest")),
                f"{one['ratio']:.2f}",
                f"{one['mebibytes']:,.0f}" if one.get("mebibytes") is not None else "–",
            ]
            for name, one in own.items()
        ]
        print(table(["", "ms, median", "lowest", "highest", "ratio", "MiB"], cells))


if __name__ == "__main__":
    main()
