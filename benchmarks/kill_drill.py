"""Kills processes of a training at random moments until it ends, and checks the result.

    python benchmarks/kill_drill.py --processes 2 4 --kills 20

A small training on several gloo processes is started with ``heedful train --processes N
--restarts R``. At random steps, and at random times while the processes start again, one of them is
killed with SIGKILL. The drill then compares the run with one that a single process trained without
interruption: every example is used exactly once in every epoch, and the weights are identical to
the last bit. It exits with 1 if they are not.

The file is also the plug-in that records which examples every process used.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORD = "KILL_DRILL_RECORD"
"""Environment variable: the folder in which processes record the examples that they use."""
PAIRS = 300
RECIPE = """
[data]
train = "pairs.tsv"
source = "en"
target = "de"
max_tokens = 60
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
precision = "float32"
threads = 1
batch_tokens = 200
log_every = 1
checkpoint_every = 10
"""
_RESTARTS = 5
"""Restarts for each kill: one SIGKILL has been seen to cost up to three."""
_LONGEST = 8.0
"""Seconds after a kill in which the next one may hit processes that are starting."""


def record_examples(folder: Path) -> None:
    """Append the examples of each step to a file of this process, once its gradients are summed."""
    from heedful.basics.symbols import PAD
    from heedful.training.virtual_shards import VirtualShards

    usual = VirtualShards.gradients
    attempt = f"{time.time_ns()}"  # later attempts have larger numbers

    def gradients(self: VirtualShards, step: int, batches: Any, weight: float) -> Any:
        found = usual(self, step, batches, weight)
        used = [
            [str([token for token in row if token != PAD]) for row in batch.source.tolist()]
            for batch in batches
        ]
        line = {"attempt": attempt, "step": step, "rank": self.rank.index, "batches": used}
        with (folder / f"rank-{self.rank.index}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return found

    VirtualShards.gradients = gradients  # type: ignore[method-assign]


if RECORD in os.environ:
    record_examples(Path(os.environ[RECORD]))


def main() -> None:
    """Run the drill for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keep the runs in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder)
        passed = [drill(folder, count, options) for count in options.processes]
    sys.exit(0 if all(passed) else 1)


def write_data(folder: Path) -> None:
    """A recipe, and pairs whose sources all differ."""
    rng = random.Random(1)
    words = ["red", "dog", "sees", "the", "old", "cat", "and", "a", "bird", "near", "my", "house"]
    texts: dict[str, None] = {}
    while len(texts) < PAIRS:
        texts[" ".join(rng.choices(words, k=rng.randint(3, 6)))] = None
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts))
    (folder / "recipe.toml").write_text(RECIPE)


def drill(folder: Path, count: int, options: argparse.Namespace) -> bool:
    """Train with ``count`` processes that are killed, and without; returns whether both agree."""
    whole, killed, record = (folder / f"{name}-{count}" for name in ("whole", "killed", "record"))
    for old in (whole, killed, record):
        shutil.rmtree(old, ignore_errors=True)
    record.mkdir()
    settings = [f"training.max_steps={options.steps}", f"training.virtual_shards={count}"]
    changes = [part for setting in settings for part in ("--set", setting)]
    train = ["train", "recipe.toml", *changes, "--out"]
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "heedful", *train, whole.name],
        cwd=folder,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    alone = time.monotonic() - began
    began = time.monotonic()
    plugin = f"--plugin={Path(__file__).resolve()}"
    restarts = str(_RESTARTS * options.kills)
    command = [sys.executable, "-m", "heedful", plugin, *train, killed.name]
    command += ["--processes", str(count), "--restarts", restarts]
    log = folder / f"killed-{count}.log"
    kills = train_with_kills(command, killed, record, log, count, options)
    seconds = time.monotonic() - began
    epochs, repeated = check_examples(record, options.steps)
    same = weights_of(whole, options.steps) == weights_of(killed, options.steps)
    restarted = log.read_text().count("training is restarted")
    print(
        f"{count} processes: {kills} kills, {restarted} restarts, {repeated} steps computed again, "
        f"{seconds:.0f} s (one process without kills: {alone:.0f} s); "
        f"{options.steps} steps, each of {PAIRS} examples exactly once in each of {epochs:.1f} "
        f"epochs; weights {'identical' if same else 'DIFFERENT'}",
        flush=True,
    )
    return same


def train_with_kills(
    command: list[str],
    run: Path,
    record: Path,
    log: Path,
    count: int,
    options: argparse.Namespace,
) -> int:
    """Train until the end and kill processes meanwhile; returns the number of kills."""
    rng = random.Random(options.seed)
    steps = iter(sorted(rng.sample(range(1, options.steps - 10), options.kills)))
    kills, launches = 0, 0
    with log.open("wb") as file:
        while True:
            launches += 1
            process = subprocess.Popen(
                command, cwd=run.parent, stderr=file, env={**os.environ, RECORD: str(record)}
            )
            for rank in moments(rng, steps, process, run, options.kills - kills, count):
                found = ranks_of(process.pid)
                if rank in found:
                    os.kill(found[rank], signal.SIGKILL)
                    kills += 1
            code = process.wait()
            if code == 0:
                return kills
            if launches > options.kills:
                raise SystemExit(f"the training ended with exit code {code}; see {log}")


def moments(
    rng: random.Random,
    steps: Iterator[int],
    process: subprocess.Popen[bytes],
    run: Path,
    kills: int,
    count: int,
) -> Iterator[int]:
    """The ranks to kill, each at its moment: at a random step, or during a restart."""
    for number in range(kills):
        step = next(steps, 0)
        if number and rng.random() < 0.25:
            time.sleep(rng.uniform(0, _LONGEST))
        else:
            while process.poll() is None and last_step(run) < step:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.05))
        while process.poll() is None and len(ranks_of(process.pid)) < count:
            time.sleep(0.02)
        yield rng.randrange(count)


def last_step(run: Path) -> int:
    """The last step in the record of a run."""
    file = run / "metrics.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    try:
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except ValueError:  # the line is being written
        return 0


def ranks_of(launcher: int) -> dict[int, int]:
    """Rank → process, of the processes that a launcher has started (Linux)."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        rank = [one[5:] for one in variables if one.startswith(b"RANK=")]
        if int(fields[1]) == launcher and fields[0] != "Z" and rank:
            found[int(rank[0])] = int(folder.name)
    return found


def check_examples(record: Path, steps: int) -> tuple[float, int]:
    """The number of epochs, and of steps that were computed again after a kill.

    Of a step that was computed several times, the last one counts.

    Raises:
        SystemExit: an example was used twice or not at all in an epoch.
    """
    last: dict[tuple[int, int], dict[str, Any]] = {}
    lines = 0
    for file in sorted(record.glob("rank-*.jsonl")):
        for text in file.read_text().splitlines():
            line = json.loads(text)
            last[line["step"], line["rank"]] = line
            lines += line["rank"] == 0
    used = [
        row
        for step in range(1, steps + 1)
        for rank in range(len(list(record.glob("rank-*.jsonl"))))
        for batch in last[step, rank]["batches"]
        for row in batch
    ]
    for begin in range(0, len(used), PAIRS):
        epoch = used[begin : begin + PAIRS]
        if len(set(epoch)) != len(epoch):
            raise SystemExit(f"epoch {begin // PAIRS + 1} does not use each example exactly once")
    if len(set(used)) != PAIRS and len(used) >= PAIRS:
        raise SystemExit(f"{len(set(used))} of {PAIRS} examples were used")
    return len(used) / PAIRS, lines - steps


def weights_of(run: Path, step: int) -> bytes:
    """The weights of the last checkpoint, as bytes."""
    return (run / f"checkpoints/step-{step:08d}/model.safetensors").read_bytes()


if __name__ == "__main__":
    main()
