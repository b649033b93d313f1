"""All benchmarks, one report: ``make bench``.

    python benchmarks/run.py [--only train_speed attention …] [--quick]

Prints the machine and a table a benchmark as Markdown, and writes all figures to
``benchmarks/results.json``. A peer that is not installed is left out, with the line that installs
it. Let nothing else run meanwhile; it takes about a quarter of an hour on two cores.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attention
import train_speed
import translate_speed

HERE = Path(__file__).resolve().parent
REPORTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "train_speed": train_speed.report,
    "translate_speed": translate_speed.report,
    "attention": attention.report,
}
"""Benchmarks that give figures as JSON, and what makes a report of them."""
MEMORY = "corpus_memory"
_SMALL = ["--pairs", "500", "--vocabulary", "800"]
_SHORT = ["--repetitions", "2", "--steps", "2", "--warm-up", "1", "--batch-tokens", "512"]
QUICK = {
    "train_speed": [*_SHORT, *_SMALL],
    "translate_speed": ["--repetitions", "1", *_SMALL],
    "attention": ["--sizes", "16,64", "--rounds", "2", "--width", "64"],
    MEMORY: ["--pairs", "20000", "50000", "--batches", "50"],
}


def run(name: str, arguments: list[str]) -> str:
    """What a benchmark prints."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    print(f"running {' '.join(command[1:])}", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return done.stdout


def benchmark(name: str, options: argparse.Namespace) -> tuple[Any, str]:
    """A benchmark's figures and its report."""
    arguments = list(QUICK[name]) if options.quick else []
    if name == MEMORY:
        printed = run(name, arguments).rstrip()
        text = f"## Private memory while training reads a corpus\n\n```text\n{printed}\n```"
        return printed.splitlines(), text
    arguments += ["--json", "--threads", str(options.threads)]
    found = json.loads(run(name, arguments))
    return found, REPORTS[name](found)


def main() -> int:
    """Run, print, write; 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*REPORTS, MEMORY]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--quick", action="store_true", help="small; figures mean nothing")
    parser.add_argument("--threads", type=int, default=2, help="default 2")
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    results, failed = {}, False
    for name in options.only:
        try:
            results[name], text = benchmark(name, options)
        except subprocess.CalledProcessError as error:
            failed = True
            text = f"## {name}\n\nfailed with exit code {error.returncode}; its words are above"
        print(f"{text}\n", flush=True)
    options.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"all figures: {options.results}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
