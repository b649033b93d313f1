"""Runs all benchmarks and writes one report: ``make bench``.

    python benchmarks/install_peers.py
    python benchmarks/run.py [--only train_speed attention …] [--quick]

Prints a Markdown table for each benchmark, then the required and the measured speeds, and writes
all figures to ``benchmarks/results.json``. A missing peer is skipped, and the report shows the
command to install it. Run nothing else at the same time. On two cores it takes a few hours, most of
them for the peers at the base size.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attention
import beside_busy
import cost_growth
import goals
import one_sentence
import profile_step
import recurrent_speed
import train_speed
import translate_speed

HERE = Path(__file__).resolve().parent
REPORTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "translate_speed": translate_speed.report,
    "one_sentence": one_sentence.report,
    "recurrent_speed": recurrent_speed.report,
    "train_speed": train_speed.report,
    "cost_growth": cost_growth.report,
    "profile_step": profile_step.report,
    "beside_busy": beside_busy.report,
    "attention": attention.report,
}
"""Benchmarks that print figures as JSON, and the functions that format their reports."""
MEMORY = "corpus_memory"
_SMALL = ["--pairs", "300", "--vocabulary", "800"]
_SMALLEST = ["--sizes", "smallest"]
_SHORT = ["--repetitions", "2", "--steps", "2", "--warm-up", "1", "--batch-tokens", "512"]
_FEW = ["--batch", "1", "8", "--beam", "1", "4", "--source", "8", "64", "--vocabulary", "500"]
QUICK = {
    "translate_speed": [*_SMALL, *_SMALLEST, "--repetitions", "1", "--batch-tokens", "1024"],
    "one_sentence": [*_SMALL, *_SMALLEST, "--repetitions", "1", "--every", "50"],
    "recurrent_speed": [*_SMALL, "--repetitions", "1", "--batch-tokens", "1024", "--width", "16"],
    "train_speed": [*_SMALL, *_SMALLEST, *_SHORT],
    "cost_growth": [*_SMALLEST, "--repetitions", "1", *_FEW],
    "profile_step": [*_SMALL, *_SMALLEST, "--batch-tokens", "512"],
    "beside_busy": ["--rows", "translating tiny, beam 5", "--rounds", "1"],
    "attention": ["--sizes", "16,64", "--rounds", "2", "--width", "64"],
    MEMORY: ["--pairs", "20000", "50000", "--batches", "50"],
}


def run(name: str, arguments: list[str]) -> str:
    """The output of a benchmark."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    print(f"running {' '.join(command[1:])}", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return done.stdout


def benchmark(name: str, options: argparse.Namespace) -> tuple[Any, str]:
    """Run a benchmark; returns its figures and its report."""
    arguments = list(QUICK[name]) if options.quick else []
    if name == MEMORY:
        printed = run(name, arguments).rstrip()
        text = f"## Private memory while training reads a corpus\n\n```text\n{printed}\n```"
        return printed.splitlines(), text
    if name == "cost_growth" and options.figure:
        arguments += ["--figure", str(options.figure)]
    arguments += ["--json", "--threads", str(options.threads)]
    found = json.loads(run(name, arguments))
    return found, REPORTS[name](found)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*REPORTS, MEMORY]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="only check that all benchmarks run; figures are meaningless",
    )
    parser.add_argument("--threads", type=int, default=2, help="default 2")
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    parser.add_argument("--figure", type=Path, help="file for the figure of cost_growth (.svg)")
    return parser.parse_args(arguments)


def main() -> int:
    """Run, print and write after each benchmark; returns 1 if one failed."""
    options = parse()
    results: dict[str, Any] = {}
    failed = False
    for name in options.only:
        try:
            results[name], text = benchmark(name, options)
        except subprocess.CalledProcessError as error:
            failed = True
            text = f"## {name}\n\nfailed with exit code {error.returncode}; see its messages above"
        print(f"{text}\n", flush=True)
        options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(goals.report(results), flush=True)
    print(f"all figures: {options.results}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
