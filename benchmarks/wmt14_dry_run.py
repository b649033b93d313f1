"""A dry run of WMT14's base recipe on generated text: does it run, and what does it take?

    python benchmarks/wmt14_dry_run.py --out FOLDER [--steps 2] [--parts 1] [--threads 1]
        [--recipe wmt14-en-de-transformer-base] [--device cpu] [--precision float32]

Generates pairs of random words whose lengths and vocabulary are like WMT14's, prepares the recipe's
run with them, and trains a few steps with the recipe's model, vocabulary and number of tokens a
step. The same training is done twice: once without interruption, and once with a process that is
killed (``kill -9``) after half of the steps and resumed. Reports memory, seconds a step, the size
of a checkpoint, and whether both trainings end with identical weights and states of the optimiser.

``--parts N`` divides a step into N batches of 1/N of its tokens (``training.accumulation_steps``),
for machines with less memory. Generated words teach nothing: the losses are meaningless.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from heedful.basics.errors import UserError
from heedful.basics.files import write_text
from heedful.data.examples import Pair
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, with_overrides
from heedful.training.train import prepare, train
from reporting import machine, said, table
from resident import peak_resident, reset_peak

RECIPE = "wmt14-en-de-transformer-base"
WORDS = 60_000
"""Different words of each side. WMT14 has more, but 20,000 pairs of it have fewer."""
MEAN, SHAPE, RATIO = 24.0, 2.2, 0.95
"""Words of a source sentence: a gamma distribution with this mean; its standard deviation is
mean / √shape, 16. Words of the target for each word of the source."""
MOST = 120
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", ("a", "e", "i", "o", "u", "ei", "au", "er", "en")
TESTED = 20
"""Pairs of each test set: translating them is not what is measured."""
_WAIT = 0.2


def generated_pairs(count: int, seed: int) -> Iterator[Pair]:
    """Pairs of random words with Zipf's frequencies.

    Example:
        >>> [len(pair.source.split()) for pair in generated_pairs(3, seed=1)]
        [9, 12, 57]
    """
    sides = [_words(side) for side in (1, 2)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(WORDS)))
    rng = random.Random(seed)
    for _ in range(count):
        length = min(MOST, max(1, round(rng.gammavariate(SHAPE, MEAN / SHAPE))))
        other = min(MOST, max(1, round(RATIO * length + rng.gauss(0, 2))))
        texts = (
            " ".join(rng.choices(words, cum_weights=weights, k=size)) + "."
            for words, size in zip(sides, (length, other), strict=True)
        )
        yield Pair(*texts)


def _words(seed: int) -> list[str]:
    """Different words, of one to five syllables."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < WORDS:
        syllables = (
            rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 5))
        )
        found["".join(syllables)] = None
    return list(found)


def write_corpus(folder: Path, recipe: Any, pairs: int) -> None:
    """Write the files that the recipe names."""
    data = recipe.data
    for seed, (files, count) in enumerate(
        ((data.validation, TESTED), (data.test, TESTED), (data.train, pairs)), start=2
    ):
        made = list(generated_pairs(count, seed))
        for side, name in enumerate(files):
            write_text(folder / name, "".join(f"{pair[side]}\n" for pair in made))


def recipe_tables(options: argparse.Namespace) -> dict[str, Any]:
    """The recipe with a few steps, each of which is recorded and has a checkpoint."""
    tables = read_recipe(find_recipe(options.recipe))
    tokens = check_recipe(tables, options.recipe).training.batch_tokens
    given = {
        "max_steps": options.steps,
        "batch_tokens": max(1, tokens // options.parts),
        "accumulation_steps": options.parts,
        "log_every": 1,
        "checkpoint_every": 1,
        "validate_every": options.steps,
        "threads": options.threads,
        "device": options.device,
        "precision": options.precision,
        "average_checkpoints": 0,
    }
    settings = [f"training.{key}={json.dumps(value)}" for key, value in given.items()]
    settings += [f"tokeniser.vocabulary_size={options.vocabulary}"] if options.vocabulary else []
    return with_overrides(
        tables, [*settings, *options.set, "evaluation.validation_pairs=1", "evaluation.beam=1"]
    )


def work(run: Path, data: Path) -> None:
    """Train in this process, and print its peak memory as JSON."""
    reset_peak()
    train(read_recipe(run / "recipe.toml"), run, data=data)
    on_card = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    print(json.dumps({"resident": peak_resident(), "card": on_card}))


def start(run: Path, data: Path) -> "subprocess.Popen[str]":
    """Start a process that trains a run."""
    command = [sys.executable, __file__, "--worker", str(run), str(data)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What a process measured.

    Raises:
        UserError: it failed.
    """
    out, _ = process.communicate()
    if process.returncode:
        raise UserError(f"the training ended with {process.returncode}; see above")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def kill_after(process: "subprocess.Popen[str]", run: Path, step: int) -> None:
    """Kill a process once it has written the checkpoint of a step.

    Raises:
        UserError: it ended before.
    """
    while not (run / "checkpoints" / f"step-{step:08}").exists():
        if process.poll() is not None:
            raise UserError(f"the training ended with {process.returncode} before step {step}")
        time.sleep(_WAIT)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def steps_of(run: Path) -> list[dict[str, Any]]:
    """The records of training steps."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


def difference(one: Path, other: Path) -> float:
    """The largest difference of two checkpoints' weights and states of the optimiser."""
    found = 0.0
    for name in ("model.safetensors", "training.safetensors"):
        ours, theirs = load_file(one / name), load_file(other / name)
        if ours.keys() != theirs.keys():
            return float("inf")
        for key, tensor in ours.items():
            if not torch.equal(tensor, theirs[key]):
                apart = (tensor.double() - theirs[key].double()).abs().max().item()
                found = max(found, apart, torch.finfo(torch.float64).tiny)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Prepare, train twice, compare."""
    out: Path = options.out
    tables = recipe_tables(options)
    recipe = check_recipe(tables, options.recipe)
    data, prepared = out / "data", out / "prepared"
    for name in ("data", "prepared", "resumed", "whole"):
        shutil.rmtree(out / name, ignore_errors=True)
    write_corpus(data, recipe, options.pairs)
    began = time.perf_counter()
    prepare(recipe, prepared, data=data)
    seconds = time.perf_counter() - began
    for name in ("resumed", "whole"):
        shutil.copytree(prepared, out / name)
    half = max(1, options.steps // 2)
    kill_after(start(out / "resumed", data), out / "resumed", half)
    resumed = finish(start(out / "resumed", data))
    whole = finish(start(out / "whole", data))
    last = f"checkpoints/step-{options.steps:08}"
    records = steps_of(out / "whole")
    facts = json.loads((prepared / "run.json").read_text(encoding="utf-8"))
    size = sum(file.stat().st_size for file in (out / "whole" / last).iterdir())
    return {
        "prepared_in": seconds,
        "facts": facts["data"],
        "vocabulary": facts["vocabulary"],
        "records": records,
        "killed_after": half,
        "memory": {"whole": whole, "resumed": resumed},
        "checkpoint": size,
        "difference": difference(out / "whole" / last, out / "resumed" / last),
    }


def report(found: dict[str, Any], options: argparse.Namespace) -> str:
    """The figures as Markdown."""
    gib = 2**30
    memory = found["memory"]["whole"]
    card = memory["card"]
    equal = found["difference"] == 0
    rows = [
        ["pairs", f"{found['facts']['train_pairs']:,}"],
        ["symbols", f"{found['vocabulary']['target']:,}"],
        ["prepared in", f"{found['prepared_in']:.0f} s"],
        ["batches a step", str(options.parts)],
        ["peak memory of the process", f"{(memory['resident'] or 0) / gib:.2f} GiB"],
        ["peak memory of the card", "–" if card is None else f"{card / gib:.2f} GiB"],
        ["a checkpoint", f"{found['checkpoint'] / 1e9:.3f} GB"],
        [
            f"killed after step {found['killed_after']} and resumed",
            "identical" if equal else f"differs by {found['difference']:.3g}",
        ],
    ]
    own = [json.dumps(record) for record in found["records"]]
    return "\n".join([table(["dry run", options.recipe], rows), "", *own])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for data and runs")
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--steps", type=int, default=2, help="at least 2; default 2")
    parser.add_argument("--parts", type=int, default=1, help="batches of a step; default 1")
    parser.add_argument("--pairs", type=int, default=20_000, help="default 20,000")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    # Not "auto", which measures and can choose another one for the second training.
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--vocabulary", type=int, help="symbols; the recipe's by default")
    parser.add_argument("--set", action="append", default=[], help="a setting, as heedful train")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--worker", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(*options.worker)
        return 0
    if options.out is None or options.steps < 2:
        parser.error("give --out FOLDER, and at least 2 steps")
    try:
        found = measure(options)
    except UserError as error:
        print(f"wmt14_dry_run: {error}", file=sys.stderr)
        return 2
    print(said(machine(options.threads)))
    print(json.dumps(found) if options.json else report(found, options))
    return 0 if found["difference"] == 0 or options.device != "cpu" else 1


if __name__ == "__main__":
    sys.exit(main())
