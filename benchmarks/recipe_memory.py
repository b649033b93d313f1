"""Peak memory of training a recipe over epochs, on random texts.

    python benchmarks/recipe_memory.py [RECIPE …] [--words 30000] [--epochs 4] [--parts 2]

RECIPE is a built-in recipe for plain text or for pairs of texts; by default, XLNet, ELMo, ELECTRA,
T5, BART and ByteNet. Texts consist of random words, the frequent ones short, in sentences of 3 to
40 words. Training is forward, backward and a step of Adam, with the batches of heedful's training.
Each recipe is measured in a process of its own. The peak is that of the whole process in each part
of an epoch: if memory is flat, it does not grow from part to part. One thread, float32, Linux.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from heedful.runs.registry import kind_of
from reporting import machine, said, table
from resident import reset_peak
from speech_memory import batches, parts_of, peaks, training

RECIPES = (
    "wikitext2-xlnet-tiny",
    "wikitext2-elmo-tiny",
    "wikitext2-electra-tiny",
    "wikitext2-t5-tiny",
    "wikitext2-bart-tiny",
    "multi30k-bytenet",
)
LETTERS = "etaoinshrdlu"
WORDS = 20_000


def sentences(words: int, rng: random.Random) -> Iterator[list[int]]:
    """The ranks of the words of sentences, about so many words in all."""
    while words > 0:
        # As by Zipf's law, the word of rank r has a probability of about 1 / r.
        ranks = [int(WORDS ** rng.random()) for _ in range(rng.randint(3, 40))]
        yield ranks
        words -= len(ranks)


def spelled(rank: int) -> str:
    """A word."""
    letters = ""
    while rank:
        rank, place = divmod(rank, len(LETTERS))
        letters += LETTERS[place]
    return letters


def data_of(folder: Path, given: dict[str, Any], words: int) -> dict[str, Any]:
    """The table ``[data]``, of plain text or of pairs, with random texts in place of files."""
    files = ["train.en", "train.de"] if isinstance(given["train"], list) else ["train.txt"]
    for seed, name in enumerate(files):
        rng = random.Random(7)  # both sides of a pair have the same number of words
        lines = [
            " ".join(spelled(rank + seed) for rank in ranks) for ranks in sentences(words, rng)
        ]
        if len(files) == 1:
            lines = [line + "\n" * (number % 20 == 0) for number, line in enumerate(lines)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    kept = {key: given[key] for key in ("source", "target", "max_tokens") if key in given}
    return {**kept, "train": files if len(files) > 1 else files[0]}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Peaks in MiB in each part of an epoch, and before the run is prepared."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        before = (reset_peak() or 0) / 2**20
        tables = read_recipe(find_recipe(name))
        tables["data"] = data_of(folder, tables["data"], options.words)
        tables["training"] = {"batch_tokens": tables["training"]["batch_tokens"]}
        recipe = check_recipe(tables, name)
        kind: Any = kind_of(recipe)
        run = kind.prepare(folder / "run", recipe, folder, None)
        device = torch.device("cpu")
        task = kind.build_task(run, kind.build_model(run), recipe.training, device, "float32")
        steps = sum(1 for _ in batches(task, options.epochs))
        ends = parts_of(steps, options.epochs * options.parts)
        return {
            "before": before,
            "steps": steps,
            "peaks": peaks(training(task, options.epochs), ends),
        }


def report(found: dict[str, Any]) -> str:
    """The peaks as a table."""
    rows = [
        [
            name,
            f"{own['steps']:,}",
            f"{own['before']:,.0f}",
            *(f"{one:,.0f}" for one in own["peaks"]),
        ]
        for name, own in found["recipes"].items()
    ]
    titles = [
        "MiB, by part",
        "steps",
        "before",
        *(str(part) for part in range(1, len(rows[0]) - 2)),
    ]
    return "\n".join([table(titles, rows), "", said(found["machine"])])


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", default=list(RECIPES), metavar="RECIPE")
    for name, value in {"words": 30_000, "epochs": 4, "parts": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.recipes[0], options)))
        return 0
    sizes = [f"--{name}={getattr(options, name)}" for name in ("words", "epochs", "parts")]
    recipes = {}
    for name in options.recipes:
        command = [sys.executable, __file__, name, "--one", *sizes]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        recipes[name] = json.loads(done.stdout)
        print(f"{name} is measured", file=sys.stderr, flush=True)
    found = {"machine": machine(1), "recipes": recipes}
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
