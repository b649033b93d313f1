"""Training on a CUDA card: heedful's loop beside a plain loop around torch.nn.Transformer.

    python benchmarks/card.py [--sizes base big] [--batch-tokens 25000] [--device cuda]

Measures target tokens per second (without padding), the share of the card's peak that matrix
products reach (MFU), and the peak memory, for batches of random sentences. Both loops get the same
batches and compute in bfloat16 by autocast with float32 weights. One variant after the other; each
builds its model, warms up, and trains a few turns, of which the median counts.

Additive scores are measured as well: the formula, the tiles in PyTorch and the Triton kernel,
forward, and forward with backward.
"""

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from corpus import Corpus, prepare_corpus
from heedful.kernels.additive import additive_scores
from heedful.kernels.additive_selection import Kernel, use_kernel
from heedful.models.transformer_settings import SIZES, TransformerSettings
from reporting import table
from sizes import Size
from train_peers import write_texts
from train_speed import DROPOUT, TRAINING, Ours, Plain

PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bfloat16 operations per second on the data sheets."""
VARIANTS = ("plain loop", "ours", "ours, compiled")
SHAPES = ((32, 64, 64, 256), (8, 512, 512, 256), (4, 2048, 2048, 256))
"""Batch, queries, keys and units of additive scores."""


def synchronise(device: str) -> None:
    """Wait for the work of the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def build(variant: str, size: str, corpus: Corpus, options: argparse.Namespace) -> Any:
    """The training of a variant."""
    settings = TransformerSettings.model_validate(SIZES[size] | {"dropout": DROPOUT})
    device, precision = options.device, options.precision
    if variant == "plain loop":
        return Plain(
            corpus.folder,
            settings,
            options.batch_tokens,
            everywhere=False,
            device=device,
            precision=precision,
        )
    training = TRAINING.model_copy(update={"compile": variant.endswith("compiled")})
    return Ours(corpus.folder, settings, options.batch_tokens, precision, device, training)


def train(variant: str, size: str, corpus: Corpus, options: argparse.Namespace) -> dict[str, Any]:
    """Speed, memory and loss of a variant."""
    torch.manual_seed(1)
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    training = build(variant, size, corpus, options)
    training.go_on(options.warm_up)
    speeds, losses = [], []
    for _ in range(options.repetitions):
        seconds, tokens, loss = training.go_on(options.steps)
        speeds.append(tokens / seconds)
        losses.append(loss)
    return {
        "tokens_per_second": median(speeds),
        "lowest": min(speeds),
        "highest": max(speeds),
        "loss": losses[-1],
        "parameters": training.parameters,
        "memory": torch.cuda.max_memory_allocated() if options.device == "cuda" else None,
    }


def peak(device: str) -> float | None:
    """The card's peak, if it is known."""
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    return next((rate for part, rate in PEAKS.items() if part in name), None)


def measure(options: argparse.Namespace, corpus: Corpus, source_tokens: float) -> dict[str, Any]:
    """The figures of all sizes and variants; a variant that fails is recorded with its error."""
    found: dict[str, Any] = {"peak": peak(options.device), "sizes": {}}
    for size in options.sizes:
        operations = Size(**SIZES[size]).training(source_tokens, corpus.vocabulary)
        rows = {}
        for variant in options.variants:
            try:
                rows[variant] = train(variant, size, corpus, options)
            except (RuntimeError, MemoryError) as error:
                rows[variant] = {"failed": f"{error!r:.300}"}
            gc.collect()
            if options.device == "cuda":
                torch.cuda.empty_cache()
        found["sizes"][size] = {"operations": operations, "variants": rows}
    return found


def seconds_of(call: Callable[[], Any], device: str, times: int) -> float:
    """The median time of a call."""
    taken = []
    for _ in range(times + 2):
        synchronise(device)
        began = time.perf_counter()
        call()
        synchronise(device)
        taken.append(time.perf_counter() - began)
    return median(taken[2:])


def additive(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Times of additive attention by kernel, with the error against float64."""
    rows = []
    for shape in SHAPES:
        batch, queries, keys, units = shape
        torch.manual_seed(1)
        parts = tuple(
            torch.randn(*sizes, device=options.device, requires_grad=True)
            for sizes in ((batch, queries, units), (batch, keys, units), (units,))
        )
        for kernel in options.kernels:
            row: dict[str, Any] = {"shape": shape, "kernel": kernel}
            try:
                row |= _additive(kernel, parts, options)
            except RuntimeError as error:
                row["failed"] = f"{error!r:.300}"
            rows.append(row)
            if options.device == "cuda":
                torch.cuda.empty_cache()
    return rows


def _additive(
    kernel: Kernel, parts: tuple[torch.Tensor, ...], options: argparse.Namespace
) -> dict[str, Any]:
    def forward() -> torch.Tensor:
        scores: torch.Tensor = additive_scores(*parts)
        return scores

    def both() -> None:
        torch.autograd.grad(forward().square().mean(), parts)

    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if options.device == "cuda" else 0
    with use_kernel(kernel):
        with torch.no_grad():
            alone = seconds_of(forward, options.device, options.repetitions)
        whole = seconds_of(both, options.device, options.repetitions)
    memory = torch.cuda.max_memory_allocated() - before if options.device == "cuda" else None
    return {"forward": alone, "both": whole, "memory": memory}


def report(found: dict[str, Any]) -> str:
    """The figures as Markdown tables."""
    parts = [f"## {found['device']}, PyTorch {torch.__version__}", ""]
    for size, own in found["training"]["sizes"].items():
        rows = []
        base = own["variants"].get("plain loop", {}).get("tokens_per_second")
        for name, figures in own["variants"].items():
            if "failed" in figures:
                rows.append([name, figures["failed"], "", "", "", ""])
                continue
            speed, most = figures["tokens_per_second"], found["training"]["peak"]
            rows.append(
                [
                    name,
                    f"{speed:,.0f}",
                    f"{speed / base:.2f}×" if base else "–",
                    f"{speed * own['operations'] / most:.1%}" if most else "–",
                    f"{(figures['memory'] or 0) / 2**30:.2f} GiB",
                    f"{figures['loss']:.3f}",
                ]
            )
        titles = [size, "target tokens/s", "ratio", "MFU", "memory", "loss"]
        parts += [table(titles, rows), ""]
    rows = []
    for row in found["additive"]:
        cells = [row.get("failed", "")]
        if "forward" in row:
            memory = (row["memory"] or 0) / 2**20
            times = [f"{1e3 * row[key]:.2f} ms" for key in ("forward", "both")]
            cells = [*times, f"{memory:,.0f} MiB"]
        rows.append([f"{row['shape']} {row['kernel']}", *cells, *[""] * (3 - len(cells))])
    parts += [table(["additive scores", "forward", "with backward", "memory"], rows)]
    return "\n".join(parts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["base", "big"])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS[:2]))
    parser.add_argument(
        "--kernels", nargs="*", choices=["plain", "tiles", "triton"], default=["plain", "triton"]
    )
    for name, value in {
        "batch-tokens": 25_000,
        "steps": 10,
        "repetitions": 3,
        "warm-up": 5,
        "pairs": 40_000,
        "vocabulary": 16_000,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    with tempfile.TemporaryDirectory() as temporary:
        corpus = prepare_corpus(Path(temporary), None, options.vocabulary, options.pairs)
        source_tokens = write_texts(corpus, corpus.folder / "words").source_tokens
        training = measure(options, corpus, source_tokens)
    found = {"device": name, "training": training, "additive": additive(options)}
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    main()
