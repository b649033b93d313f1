"""Compares a translator's outputs over implementations, numbers of threads and precisions.

    python benchmarks/same_output.py RUN --source test.en --reference test.de [--threads 2]

Translates the texts with greedy search and with beam 5: with PyTorch modules on one thread, without
a compiler; in C on one thread and on all threads; with bfloat16 and with int8. Reports for each:
BLEU; the number of outputs with the same tokens as the first variant; the largest difference of
their scores; and the smallest difference of the others' scores, which shows how close they were to
a tie.
"""

import argparse
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import sacrebleu
import torch

import heedful
from heedful.decoding import SearchOptions
from reporting import table

BEAMS = {"greedy": 1, "beam 5": 5}
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
"""How processes start: as forks of one that has imported everything, where the system has forks."""
Output = tuple[list[str], float, str]
"""Tokens, score and text."""


def ways(threads: int) -> dict[str, tuple[int, str, dict[str, str]]]:
    """Threads, precision and environment variables by name."""
    return {
        "modules": (1, "float32", {"CC": "none"}),
        "C, 1 thread": (1, "float32", {}),
        f"C, {threads} threads": (threads, "float32", {}),
        "bfloat16": (threads, "bfloat16", {}),
        "int8": (threads, "int8", {}),
    }


def translated(
    run: Path, texts: list[str], threads: int, precision: str, environment: dict[str, str]
) -> dict[str, list[Output]]:
    """The outputs of each search, in a process that has computed nothing before."""
    os.environ |= environment
    torch.set_num_threads(threads)
    translator = heedful.load(run, device="cpu", precision=precision)
    found = {}
    for name, beam in BEAMS.items():
        outputs = translator.translate(texts, options=SearchOptions(beam=beam))
        found[name] = [(one.tokens, one.score, one.text) for one in outputs]
    return found


def compared(outputs: list[Output], first: list[Output], references: list[str]) -> dict[str, Any]:
    """Compare outputs with those of the first variant."""
    both = list(zip(outputs, first, strict=True))
    differences = [(own[0] == other[0], abs(own[1] - other[1])) for own, other in both]
    return {
        "bleu": sacrebleu.corpus_bleu([text for *_, text in outputs], [references]).score,
        "same": sum(same for same, _ in differences),
        "of": len(outputs),
        "of_same": max((by for same, by in differences if same), default=None),
        "of_others": min((by for same, by in differences if not same), default=None),
    }


def report(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """A table for each search."""
    parts = []
    for search, rows in found.items():
        cells = [
            [
                name,
                f"{row['bleu']:.2f}",
                f"{row['same']:,} of {row['of']:,}",
                *(
                    "–" if row[key] is None else f"{row[key]:.1e}"
                    for key in ("of_same", "of_others")
                ),
            ]
            for name, row in rows.items()
        ]
        head = [search, "BLEU", "same tokens", "scores differ by at most", "others by at least"]
        parts += [table(head, cells), ""]
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    """Run each variant in a separate process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True, help="one text per line")
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--json", action="store_true", help="print all figures as JSON instead of a report"
    )
    options = parser.parse_args(arguments)
    sources = options.source.read_text(encoding="utf-8").splitlines()
    references = options.reference.read_text(encoding="utf-8").splitlines()
    outputs: dict[str, Any] = {}
    for name, way in ways(options.threads).items():
        print(name, file=sys.stderr, flush=True)
        with multiprocessing.get_context(START).Pool(1) as pool:
            outputs[name] = pool.apply(translated, (options.run, sources, *way))
    found = {
        search: {
            name: compared(own[search], outputs["modules"][search], references)
            for name, own in outputs.items()
        }
        for search in BEAMS
    }
    print(json.dumps(found) if options.json else report(found))


if __name__ == "__main__":
    sys.exit(main())
