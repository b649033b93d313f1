"""Profiles a training step and a search with PyTorch's profiler, by operation.

    python benchmarks/profile_step.py [--sizes tiny base] [--precision float32] [--threads 2]

Profiles steps of the training loop on batches of 4,096 tokens, and a search of one batch, greedy
and with beam 5, with 16 forced target tokens, each after two warm-up runs. The percentage is the
operation's own processor time. heedful's kernels in C are not operations of PyTorch: their time and
that of Python is the difference between elapsed time and the time of all operations.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from corpus import prepare_corpus
from heedful.kernels.allocator import keep_freed_memory
from heedful.models.transformer import TransformerSettings
from heedful_worker import Searcher
from reporting import machine, said, table
from sizes import SIZES
from train_speed import DROPOUT, Ours
from turns import SEARCHES, transformer

STEPS = 3
OTHER = "Python, heedful's C, waiting"
KINDS = {
    "matrix products": ("mm", "linear", "gemm", "conv"),
    "attention": ("attention",),
    "softmax and loss": ("softmax", "logsumexp", "crossentropy"),
    "norms": ("norm",),
    "random numbers and dropout": ("random", "bernoulli", "dropout", "uniform"),
    "optimiser": ("adam", "foreach"),
    "best tokens": ("topk", "argmax", "max", "sort"),
    "gathering and embedding": ("index", "gather", "embedding", "scatter", "select"),
    "copies, joins, memory": ("copy", "cat", "clone", "empty", "fill", "zero", "stack", "contig"),
    "elementwise": ("add", "mul", "div", "sub", "relu", "threshold", "where", "mask", "sum", "pow"),
}
"""Substrings of the operations' names for each group; the first match counts."""


def group_of(name: str) -> str:
    """The group of an operation."""
    bare = name.lower().removeprefix("aten::").removeprefix("mkldnn::")
    return next((kind for kind, parts in KINDS.items() if any(p in bare for p in parts)), "other")


def profiled(run: Callable[[], float], rows: int) -> dict[str, Any]:
    """Seconds by group, and the ``rows`` most expensive operations.

    Args:
        run: the function to profile, which returns the seconds that it measured.
        rows: number of operations.
    """
    run()
    unwatched = run()
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        seconds = run()
    groups: dict[str, float] = {}
    operations = []
    for event in watched.key_averages():
        own = event.self_cpu_time_total / 1e6
        groups[group_of(event.key)] = groups.get(group_of(event.key), 0.0) + own
        operations.append({"name": event.key, "seconds": own, "calls": event.count})
    operations.sort(key=lambda one: -float(one["seconds"]))
    groups[OTHER] = max(0.0, seconds - sum(groups.values()))
    return {
        "seconds": unwatched,
        "watched": seconds,
        "groups": dict(sorted(groups.items(), key=lambda one: -one[1])),
        "operations": operations[:rows],
    }


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Profile all sizes."""
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    corpus = prepare_corpus(folder, None, options.vocabulary, options.pairs)
    sizes: dict[str, dict[str, Any]] = {}
    for size in options.sizes:
        model = {**transformer(size), "dropout": DROPOUT}
        settings = TransformerSettings.model_validate(model)
        precision = "float32" if options.precision == "int8" else options.precision
        training = Ours(corpus.folder, settings, options.batch_tokens, precision)

        def train(training: Ours = training) -> float:
            return training.go_on(STEPS)[0]

        found = {f"{STEPS} training steps, {precision}": profiled(train, options.rows)}
        work = {"model": model, "vocabulary": corpus.vocabulary, "length": options.length}
        searcher = Searcher(work, options.precision, options.threads)
        draw = random.Random(1)
        for beam, name in SEARCHES.items():
            count = max(1, options.batch_tokens // (14 * beam))
            batch = [draw.choices(range(4, corpus.vocabulary), k=13) for _ in range(count)]

            def decode(
                searcher: Searcher = searcher, batch: list[list[int]] = batch, beam: int = beam
            ) -> float:
                began = time.perf_counter()
                searcher(batch, beam)
                return time.perf_counter() - began

            named = f"{count} sentences, {name}, {options.precision}"
            found[named] = profiled(decode, options.rows)
        sizes[size] = found
    return {"machine": machine(options.threads), "sizes": sizes}


def report(found: dict[str, Any]) -> str:
    """A table of groups and a table of operations for each profile."""
    parts = ["## Time by operation"]
    for size, profiles in found["sizes"].items():
        for name, own in profiles.items():
            groups = [
                [group, f"{1000 * seconds:,.1f}", f"{seconds / own['watched']:.0%}"]
                for group, seconds in own["groups"].items()
                if seconds > 0.005 * own["watched"]
            ]
            operations = [
                [
                    f"`{one['name']}`",
                    f"{1000 * one['seconds']:,.1f}",
                    f"{one['seconds'] / own['watched']:.0%}",
                    f"{one['calls']:,}",
                ]
                for one in own["operations"]
            ]
            parts += [
                f"### {size}: {name}",
                f"{1000 * own['seconds']:,.0f} ms, {1000 * own['watched']:,.0f} ms while profiled.",
                table(["", "ms", "share"], groups),
                table(["operation", "ms", "share", "calls"], operations),
            ]
    return "\n\n".join([*parts, said(found["machine"])])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["tiny", "base"])
    precisions = ["float32", "bfloat16", "int8"]
    parser.add_argument("--precision", choices=precisions, default="float32")
    for name, value in {
        "threads": 2,
        "length": 16,
        "vocabulary": 8000,
        "batch-tokens": 4096,
        "rows": 12,
        "pairs": 5000,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Profile and print."""
    options = parse()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(options, Path(temporary))
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    main()
