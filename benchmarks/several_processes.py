"""Measures target tokens per second of ``heedful train`` in one process and in several.

    python benchmarks/several_processes.py [--processes 2] [--repetitions 5] [--steps 30] [--json]

Variants, in turns, with the same batches and as many threads in all as processes:

- none: one process with one thread and one virtual shard, without a process group;
- strategy: the same, started by torchrun, with a process group of one process; at most 2 % slower;
- threads: one process with N threads and N virtual shards;
- processes: N processes with one thread each, N virtual shards, and exact sums of gradients;
- fast: the same with ``training.exact_reduction = false``.

The texts are random words. Speeds are those that the trainings record, medians over the steps after
the first half; starting the processes is not included. Run nothing else at the same time.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from reporting import machine, said, speed_table, summarised
from sizes import SIZES

RECIPE = """
seed = 1
[data]
train = "train.tsv"
validation = "validation.tsv"
source = "en"
target = "de"
[tokeniser]
vocabulary_size = {vocabulary}
[model]
kind = "transformer"
layers = {layers}
hidden_size = {width}
ffn_size = {inner}
heads = {heads}
[training]
precision = "float32"
batch_tokens = {batch}
max_steps = {steps}
log_every = 1
checkpoint_every = {steps}
validate_every = {steps}
"""


def write_texts(folder: Path, pairs: int) -> None:
    """Random words, 5 to 30 in a text."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnop", k=6)) for _ in range(3000)]

    def text() -> str:
        return " ".join(chance.choices(words, k=chance.randint(5, 30)))

    for name, count in (("train", pairs), ("validation", 20)):
        lines = [f"{text()}\t{text()}\n" for _ in range(count)]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def speed(folder: Path, launcher: list[str], options: list[str], *, threads: int) -> float:
    """Target tokens per second of a training."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        run = Path(place, "run")
        command = [sys.executable, "-m", *launcher, "train", folder / "recipe.toml", "--out", run]
        command += ["--data", folder, *options, "--threads", threads]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [one for one in map(json.loads, lines) if "tokens_per_second" in one]
    found = [one["tokens_per_second"] for one in steps]
    return float(median(found[len(found) // 2 :]))


def variants(processes: int) -> dict[str, tuple[list[str], list[str], int]]:
    """Name → how it is started, options, threads of a process."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "heedful"]
    shards = ["--set", f"training.virtual_shards={processes}"]
    several = [*shards, "--processes", str(processes)]
    return {
        "none": (["heedful"], [], 1),
        "strategy": (torchrun, [], 1),
        "threads": (["heedful"], shards, processes),
        "processes": (["heedful"], several, 1),
        "fast": (["heedful"], [*several, "--set", "training.exact_reduction=false"], 1),
    }


def ratios(speeds: dict[str, list[float]]) -> dict[str, Any]:
    """Ratios of rounds."""
    pairs = {"strategy": "none", "processes": "threads", "fast": "processes"}
    return {
        f"{name} ÷ {base}": summarised(speeds[name], speeds[base])["ratio"]
        for name, base in pairs.items()
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    size = SIZES[asked.size]
    speeds: dict[str, list[float]] = {name: [] for name in variants(asked.processes)}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_texts(folder, asked.pairs)
        recipe = RECIPE.format(
            vocabulary=asked.vocabulary,
            layers=size.layers,
            width=size.hidden_size,
            inner=size.ffn_size,
            heads=size.heads,
            batch=asked.batch_tokens,
            steps=asked.steps,
        )
        (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
        for _ in range(asked.repetitions):
            for name, (launcher, options, threads) in variants(asked.processes).items():
                speeds[name].append(speed(folder, launcher, options, threads=threads))
    found = {name: summarised(own, speeds["none"]) for name, own in speeds.items()}
    if asked.json:
        facts = machine(asked.processes)
        print(json.dumps({"machine": facts, "speeds": found, "ratios": ratios(speeds)}))
        return
    print(said(machine(asked.processes)))
    print(speed_table("target tokens/s", found))
    for name, ratio in ratios(speeds).items():
        print(f"{name}: {ratio:.3f}×")


if __name__ == "__main__":
    main()
