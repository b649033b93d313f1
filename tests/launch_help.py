"""Starts ``heedful train`` in several processes, and finds them."""

import random
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DRILL = Path(__file__).parents[1] / "benchmarks" / "kill_drill.py"
ranks_of: Callable[[int], dict[int, int]] = runpy.run_path(str(DRILL))["ranks_of"]

RECIPE = """
[data]
train = "pairs.tsv"
source = "en"
target = "de"
max_tokens = 60
filters = {duplicates = false}
[tokeniser]
vocabulary_size = 350
[model]
layers = 1
hidden_size = 16
ffn_size = 16
heads = 2
max_length = 64
dropout = 0.1
[training]
max_steps = 40
checkpoint_every = 5
log_every = 1
batch_tokens = 200
precision = "float32"
schedule = "constant"
"""


def write_pairs(folder: Path) -> None:
    """A recipe and 200 different pairs."""
    rng = random.Random(1)
    words = ["red", "dog", "sees", "the", "old", "cat", "and", "a", "bird", "near", "my", "house"]
    lines = {" ".join(rng.choices(words, k=rng.randint(2, 6))) for _ in range(230)}
    pairs = [f"{line}\t{line[::-1]}\n" for line in sorted(lines)]
    (folder / "pairs.tsv").write_text("".join(pairs[:200]))
    (folder / "recipe.toml").write_text(RECIPE)


def command(
    folder: Path, out: Path, *options: str, settings: Sequence[str] = (), launcher: str = "heedful"
) -> list[str]:
    """``heedful train`` with the recipe of a folder."""
    changes = [part for setting in settings for part in ("--set", setting)]
    arguments = ["train", str(folder / "recipe.toml"), "--data", str(folder), "--out", str(out)]
    return [sys.executable, "-m", launcher, *arguments, *changes, *options]


def metrics_lines(run: Path) -> int:
    """The number of lines of ``metrics.jsonl``."""
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for_lines(process: subprocess.Popen[str], run: Path, count: int) -> None:
    """Wait until a training has logged ``count`` times."""
    while process.poll() is None and metrics_lines(run) < count:
        time.sleep(0.02)
