"""Milliseconds of a step of the neural Turing machine and the differentiable neural computer.

    python benchmarks/memories.py [--rows 1 16] [--steps 40] [--heads 1 4] [--rounds 7] [--json]

heedful's models and the same models by the equations of their papers (``plain_memories.py``), with
the same weights: memory 128 × 20, an LSTM controller of 100, one thread. The sides take turns in
one process. A ratio is the median of the rounds' ratios to the equations, below 1 is faster.
Times are those of the processor, so that other programs disturb them less.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from heedful.models import SequenceSettings, build_sequence_model
from plain_memories import plain
from reporting import machine, said, summarised, table

KINDS = ("neural-turing-machine", "differentiable-neural-computer")
SIDES = ("equations", "heedful")
WIDTH = 9


def milliseconds(call: Callable[[], object]) -> float:
    """Processor time of a call."""
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def call_of(model: nn.Module, inputs: torch.Tensor, backward: bool) -> Callable[[], torch.Tensor]:
    """The logits of all steps, with or without gradients."""

    def call() -> torch.Tensor:
        with torch.set_grad_enabled(backward):
            found: torch.Tensor = model(inputs)
        if backward:
            model.zero_grad(set_to_none=True)
            found.square().mean().backward()
        return found.detach()

    return call


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each model, number of heads, number of rows, direction and side."""
    torch.set_num_threads(1)
    found = []
    for kind, heads, rows in itertools.product(KINDS, options.heads, options.rows):
        torch.manual_seed(1)
        settings = SequenceSettings.model_validate({"kind": kind, "read_heads": heads})
        model = build_sequence_model(settings, WIDTH, WIDTH - 1)
        inputs = torch.randint(2, (rows, options.steps, WIDTH)).float()
        for backward in (False, True):
            calls = {
                side: call_of(one, inputs, backward)
                for side, one in zip(SIDES, (plain(model), model), strict=True)
            }
            torch.testing.assert_close(
                calls["heedful"](), calls["equations"](), rtol=1e-3, atol=1e-4
            )
            turns = [
                {side: milliseconds(call) / options.steps for side, call in calls.items()}
                for _ in range(options.rounds)
            ]
            for side in SIDES:
                own, base = ([turn[one] for turn in turns] for one in (side, "equations"))
                what = {"kind": kind, "heads": heads, "rows": rows, "backward": backward}
                found.append({**what, "side": side, **summarised(own, base)})
            print(f"{kind}, {heads} heads, {rows} rows", file=sys.stderr, flush=True)
    return found


def report(found: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """A table with a row for each measurement."""
    lines = []
    for base, own in zip(found[::2], found[1::2], strict=True):
        lines.append(
            [
                own["kind"],
                str(own["heads"]),
                str(own["rows"]),
                "forward and backward" if own["backward"] else "forward",
                f"{base['median']:.2f}",
                f"{own['median']:.2f}",
                f"{own['ratio']:.2f}×",
            ]
        )
    titles = ["", "read heads", "rows", "", "equations, ms", "heedful, ms", "ratio"]
    return "\n".join([table(titles, lines), "", f"{options.steps} steps. {said(machine(1))}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--heads", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = measure(options)
    print(json.dumps(found, indent=2) if options.json else report(found, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
