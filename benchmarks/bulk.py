"""Measures lines per second of ``heedful translate --bulk`` with 1 worker and with more.

    python benchmarks/bulk.py RUN --texts FILE [--workers 2] [--repetitions 3] [--json]

Each worker has one thread. The numbers of workers take turns; ratios are computed within a
repetition. The time includes loading the model in every process, so use a file that takes minutes.
The outputs must be identical, otherwise the benchmark fails. Run nothing else at the same time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from reporting import machine, said, speed_table, summarised


def measure(asked: argparse.Namespace, workers: int, output: Path) -> float:
    """Lines per second of one job."""
    command = [sys.executable, "-m", "heedful", "translate", asked.run, asked.texts, "--bulk"]
    command += ["--output", output, "--workers", workers, "--threads", 1, "--json"]
    command += ["--shard-lines", asked.shard_lines]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout)["lines_per_second"])


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--shard-lines", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    speeds: dict[int, list[float]] = {1: [], asked.workers: []}
    for _ in range(asked.repetitions):
        outputs = []
        for workers, found in speeds.items():
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder, "out")
                found.append(measure(asked, workers, output))
                outputs.append((output / asked.texts.name).read_bytes())
        if len(set(outputs)) > 1:
            raise SystemExit("the outputs differ")
    figures = {
        f"{workers} worker{'s' if workers > 1 else ''}": summarised(
            found, None if workers == 1 else speeds[1]
        )
        for workers, found in speeds.items()
    }
    if asked.json:
        print(json.dumps({"machine": machine(1), "speeds": figures}))
        return
    print(said(machine(1)))
    print(speed_table("lines/s", figures))


if __name__ == "__main__":
    main()
