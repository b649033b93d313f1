"""Summaries: ROUGE-1/2/L of baselines and of trained systems on SciTLDR-A and AESLC.

    python benchmarks/summaries.py --data FOLDER --out FOLDER --baselines
    python benchmarks/summaries.py --data FOLDER --out FOLDER [--recipes NAME …] [--seeds 1 2 3]
                                   [--rates 5e-4 1e-3 2e-3] [--steps N] [--threads 1]
    python benchmarks/summaries.py --out FOLDER --collect
    python benchmarks/summaries.py --data FOLDER --memory RUN [--inputs 10000]

FOLDER has the folders ``scitldr-a`` and ``aeslc`` with train, dev and test (docs/summaries.md).
Every system is tuned alike: with the first seed it is trained with each learning rate, and the rate
with the best validation is used for all seeds; a rate whose loss diverges is not. The checkpoint is
chosen in validation; only the chosen rate is scored on the test set, once for each seed. Each
result is written as JSON when it is complete, and is not computed again; rerun the command to
resume. Baselines have intervals of 95 %, from 1,000 bootstrap resamples of the test texts; systems
the mean and the standard deviation of the seeds.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.data.readers.labelled import json_objects
from heedful.data.readers.opening import open_input
from heedful.evaluation.rouge import NAMES, rouge_figures, rouge_values
from heedful.runs.recipe import find_recipe, read_recipe
from heedful.tasks.spec import NoOptions, Opening, spec_of_run
from heedful.training.loop import DivergedError
from heedful.training.train import train
from reporting import machine, said, table
from resident import peak_resident, reset_peak

CORPORA = {"scitldr": "scitldr-a", "aeslc": "aeslc"}
RECIPES = (
    "scitldr-pointer-generator",
    "scitldr-no-copy",
    "scitldr-transformer-copy",
    "aeslc-pointer-generator",
    "aeslc-no-copy",
    "aeslc-transformer-copy",
    "aeslc-transformer",
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")

Row = dict[str, Any]
"""An example: ``source``, a list of sentences, and ``targets``."""


def examples(folder: Path, corpus: str, part: str) -> list[Row]:
    """The examples of a corpus; the references of AESLC are the subjects themselves."""
    found = []
    with open_input(folder / CORPORA[corpus] / f"{part}.jsonl.xz") as file:
        for _, one in json_objects(file, None):
            if one is None:
                continue
            source, targets = one["source"], one["target"]
            sentences = source if isinstance(source, list) else [source]
            used = targets if corpus == "scitldr" else targets[:1]
            others = [] if corpus == "scitldr" else targets[1:]
            found.append({"source": sentences, "targets": used, "people": others})
    return found


def first_sentence(row: Row) -> str:
    """The first sentence of the text."""
    sentences = row["source"] if len(row["source"]) > 1 else _SENTENCE.split(row["source"][0])
    return str(sentences[0])


def first_words(row: Row, count: int = 8) -> str:
    """The first words of the text."""
    return " ".join(" ".join(row["source"]).split()[:count])


def oracle(row: Row) -> str:
    """The sentence of the text with the highest ROUGE-1."""
    sentences = row["source"] if len(row["source"]) > 1 else _SENTENCE.split(row["source"][0])
    values = rouge_values(sentences, [row["targets"]] * len(sentences))
    return str(sentences[int(values[:, 0].argmax())])


def person(row: Row) -> str:
    """The first summary that another person wrote."""
    return str(row["people"][0])


BASELINES: dict[str, dict[str, Callable[[Row], str]]] = {
    "scitldr": {"first sentence": first_sentence, "oracle sentence": oracle},
    "aeslc": {
        "first 8 words": first_words,
        "first sentence": first_sentence,
        "oracle sentence": oracle,
        "a person": person,
    },
}


def baseline(corpus: str, name: str, options: argparse.Namespace) -> Row:
    """The figures of a baseline on the test texts."""
    path: Path = options.out / f"{corpus}-{name.replace(' ', '-')}.json"
    if path.exists():
        return read_json(path)
    rows = examples(options.data, corpus, "test")
    outputs = [BASELINES[corpus][name](row) for row in rows]
    figures = rouge_figures(rouge_values(outputs, [row["targets"] for row in rows]))
    made = {"corpus": corpus, "system": name, "seed": None, "figures": recorded(figures)}
    write_json(path, made)
    return made


def recorded(figures: Any) -> dict[str, list[float]]:
    """Figure → value and bounds."""
    return {name: [one.value, one.low, one.high] for name, one in figures.items()}


def trained(name: str, seed: int, rate: float | None, options: argparse.Namespace) -> Path:
    """The run of one system; with its recipe's learning rate if ``rate`` is None.

    Raises:
        DivergedError: the loss diverged.
    """
    suffix = f"{name}-{seed}" if rate is None else f"{name}-{seed}-{rate:g}"
    if options.steps is not None:
        suffix += f"-{options.steps}-steps"
    recipe = read_recipe(find_recipe(name))
    corpus = name.partition("-")[0]
    training = {**recipe["training"], "threads": options.threads}
    if rate is not None:
        training["learning_rate"] = rate
    if options.steps is not None:
        training |= {"max_steps": options.steps, "validate_every": options.steps}
        training["checkpoint_every"] = options.steps
    recipe |= {"seed": seed, "training": training}
    run: Path = options.out / suffix
    if not train(recipe, run, data=options.data / CORPORA[corpus]):
        sys.exit(130)
    return run


def result(name: str, seed: int, rate: float | None, options: argparse.Namespace) -> Row:
    """Train one system, and score it on the test set."""
    run = trained(name, seed, rate, options)
    path: Path = run.with_name(f"{run.name}.json")
    if path.exists():
        return read_json(path)
    opened, spec = spec_of_run(run)
    found = spec.evaluate(opened, None, NoOptions(), Opening(device="cpu"))
    chosen = opened.chosen()
    made = {
        "corpus": name.partition("-")[0],
        "system": name,
        "seed": seed,
        "rate": opened.recipe.training.learning_rate,
        "max_steps": options.steps,
        "figures": recorded(found.figures),
        "validation": chosen.state["validation"],
        "steps": chosen.step,
        "machine": machine(options.threads),
    }
    write_json(path, made)
    return made


def tuned(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """The results of a system with all seeds, at the learning rate that is best in validation.

    Raises:
        UserError: the data or settings are invalid, or the loss diverged with all learning rates,
            or at the best one with another seed.
    """
    first, *others = options.seeds
    if not options.rates:
        yield from (result(name, seed, None, options) for seed in options.seeds)
        return
    figures: dict[float, float] = {}
    for rate in options.rates:
        try:
            run = trained(name, first, rate, options)
        except DivergedError as error:
            print(f"{name}, learning rate {rate:g}: {error}", file=sys.stderr)
            continue
        figures[rate] = spec_of_run(run)[0].chosen().state["validation"]["rouge1"]
    if not figures:
        raise UserError("the loss diverged with all learning rates")
    best = max(figures, key=lambda rate: figures[rate])
    yield from (result(name, seed, best, options) for seed in (first, *others))


def report(found: Sequence[Row]) -> str:
    """One row for each system and learning rate: the mean of its seeds, or its interval."""
    rows: dict[tuple[str, str, float | None], dict[int | None, Row]] = {}
    for one in found:
        key = one["corpus"], one["system"], one.get("rate")
        rows.setdefault(key, {})[one["seed"]] = one
    lines, order = [], list(CORPORA)
    for corpus, system, rate in sorted(
        rows, key=lambda key: (order.index(key[0]), key[1], key[2] or 0)
    ):
        runs = rows[corpus, system, rate]
        cells = [_cell([one["figures"][name] for one in runs.values()]) for name in NAMES.values()]
        told = ["–", "–"] if rate is None else [f"{rate:g}", str(len(runs))]
        lines.append([corpus, system, *told, *cells])
    header = ["corpus", "system", "rate", "seeds", *NAMES.values()]
    return "\n".join([table(header, lines), "", said(machine(1))])


def kept(options: argparse.Namespace) -> list[Row]:
    """The results in the folder, without those of other ``--steps``."""
    paths = sorted(options.out.glob("*.json"))
    found: list[Row] = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [one for one in found if one.get("max_steps", options.steps) == options.steps]


def _cell(figures: Sequence[Sequence[float]]) -> str:
    values = [value for value, _, _ in figures]
    if len(values) > 1:
        return f"{mean(values):.1f} ± {stdev(values):.1f}"
    value, low, high = figures[0]
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def memory(options: argparse.Namespace) -> str:
    """The peak of the resident memory in each tenth of many inputs, in MiB."""
    run, spec = spec_of_run(options.memory)
    corpus = str(options.memory.name).partition("-")[0]
    name = corpus if corpus in CORPORA else "aeslc"
    texts = [{"source": " ".join(one["source"])} for one in examples(options.data, name, "test")]
    predictor = spec.load(run.path, device="cpu")
    each, lines = max(1, options.inputs // 10), []
    every = (texts[place % len(texts)] for place in range(options.inputs))
    done = 0
    while some := list(islice(every, each)):
        reset_peak()
        predictor.predict(some)
        done += len(some)
        peak = peak_resident()
        lines.append([f"{done:,}", "–" if peak is None else f"{peak / 2**20:.0f}"])
    return table(["inputs", "peak MiB"], lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with scitldr-a and aeslc")
    parser.add_argument("--out", type=Path, default=Path("summaries"))
    parser.add_argument("--baselines", action="store_true", help="train nothing")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rates", type=float, nargs="*", default=[5e-4, 1e-3, 2e-3])
    parser.add_argument("--steps", type=int, help="fewer steps, to try the script")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--collect", action="store_true", help="print the results so far")
    parser.add_argument("--memory", type=Path, help="a run whose memory is measured")
    parser.add_argument("--inputs", type=int, default=10_000)
    found = parser.parse_args(arguments)
    if found.data is None and not found.collect:
        parser.error("--data is needed: the folder with scitldr-a and aeslc")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute what is missing, and print the table."""
    options = parse(arguments)
    if options.memory is not None:
        print(memory(options))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    failed = False
    if not options.collect:
        for corpus, names in BASELINES.items():
            for name in names:
                baseline(corpus, name, options)
    if not options.collect and not options.baselines:
        for name in options.recipes:
            try:
                list(tuned(name, options))
            except UserError as error:
                failed = True
                print(f"summaries: {name}: {error}", file=sys.stderr)
    print(report(kept(options)))
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
