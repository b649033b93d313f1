"""Seconds and peak memory of the delta rule: in chunks, and position by position.

    python benchmarks/delta_rule.py [--length 4096] [--heads 4] [--width 64] [--rounds 3]
                                    [--threads 1] [--json]

The loop is the recurrence of Schlag, Irie, Schmidhuber 2021, equation 24, in PyTorch: for each
position, read the value of its key, write the difference, read the query. The sides take turns in
one process; the ratio is the median of the rounds' ratios to the loop, below 1 is faster. With one
thread, times are those of the processor. Peak memory is that of a process for each side: how far
its resident memory grows in the call.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_by_length import seconds
from heedful.attention.delta import delta_attend
from reporting import machine, said, summarised, table
from resident import peak_resident, reset_peak

SIDES = ("loop", "chunks")


def loop(query: Tensor, key: Tensor, value: Tensor, strength: Tensor) -> Tensor:
    """The recurrence ``W ← W + β (v − W k) kᵀ``, read by ``W q``."""
    W = value.new_zeros(*value.shape[:-2], value.shape[-1], key.shape[-1])
    found = []
    parts = (query.unbind(-2), key.unbind(-2), value.unbind(-2), strength.unbind(-1))
    for q, k, v, beta in zip(*parts, strict=True):
        change = beta.unsqueeze(-1) * (v - (W @ k.unsqueeze(-1)).squeeze(-1))
        W = W + change.unsqueeze(-1) * k.unsqueeze(-2)
        found.append((W @ q.unsqueeze(-1)).squeeze(-1))
    return torch.stack(found, -2)


def call_of(side: str, sizes: Sequence[int], backward: bool) -> Callable[[], Tensor]:
    """One call of a side, for ``heads, length, width``."""
    torch.manual_seed(1)
    query, key = (F.normalize(torch.randn(1, *sizes), dim=-1) for _ in range(2))
    inputs = [query, key, torch.randn(1, *sizes), torch.rand(1, *sizes[:2])]
    run = loop if side == "loop" else delta_attend

    def call() -> Tensor:
        with torch.set_grad_enabled(backward):
            result = run(*(one.requires_grad_(backward) for one in inputs))
            if backward:
                result.sum().backward()
        return result.detach()

    return call


def peak(side: str, sizes: Sequence[int], backward: bool) -> float | None:
    """MiB by which a fresh process grows in the call."""
    torch.set_num_threads(1)
    call_of(side, (1, 2, 2), backward)()
    call = call_of(side, sizes, backward)
    before = reset_peak()
    call()
    after = peak_resident()
    return None if before is None or after is None else (after - before) / (1 << 20)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Both sides, forward and with backward."""
    torch.set_num_threads(options.threads)
    sizes = (options.heads, options.length, options.width)
    rows = []
    for backward in (False, True):
        calls = {side: call_of(side, sizes, backward) for side in SIDES}
        torch.testing.assert_close(calls["chunks"](), calls["loop"](), rtol=1e-3, atol=1e-4)
        turns = [
            {s: seconds(call, options.threads) for s, call in calls.items()}
            for _ in range(options.rounds)
        ]
        for side in SIDES:
            own, base = ([turn[one] for turn in turns] for one in (side, "loop"))
            row = {"side": side, "backward": backward, **summarised(own, base)}
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                row["mebibytes"] = pool.apply(peak, (side, sizes, backward))
            rows.append(row)
    return {"machine": machine(options.threads), "sizes": sizes, "rows": rows}


def report(found: dict[str, Any]) -> str:
    """A table with a row for each side, forward and with backward."""
    rows = [
        [
            row["side"],
            "forward and backward" if row["backward"] else "forward",
            f"{row['median']:.3f}",
            f"{row['ratio']:.3f}×",
            "–" if row["mebibytes"] is None else f"{row['mebibytes']:,.0f}",
        ]
        for row in found["rows"]
    ]
    heads, length, width = found["sizes"]
    what = f"{length:,} positions, {heads} heads of {width}. {said(found['machine'])}"
    return "\n".join([table(["", "", "seconds", "ratio", "MiB"], rows), "", what])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options)
    print(json.dumps(found, indent=2) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
