"""Pre-training tasks compared at equal cost: the same small network, then fine-tuned.

    python benchmarks/pretraining.py --data FOLDER --out FOLDER [--budget 3e14] [--seeds 3]
        [--only bert electra …] [--tasks cola rte …] [--threads 1] [--collect]

FOLDER has ``wikitext-2``, ``glue``, ``trec-sst-mr-subj`` and ``ud-english-ewt``. Each system is
pre-trained on WikiText-2 with the same number of floating-point operations, those of the generator
of ELECTRA included. It is then fine-tuned on each task with each of ``LEARNING_RATES`` and one
seed; the learning rate with the best validation figure is used for the other seeds. Each of these
runs is scored once on the test set. ``scratch`` is BERT without pre-training, with its own search.

An interval has 95 % of 1,000 resamples of the test examples; the figure of a resample is the mean
over the seeds. Rerun the command to resume; ``--collect`` only writes the table. ``--tasks``
without a name only pre-trains; several processes may then fine-tune, each with other tasks.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import matthews_corrcoef

from heedful.basics.errors import UserError
from heedful.basics.files import write_json, write_text
from heedful.evaluation.correlation import correlations
from heedful.evaluation.statistics import draw_with_replacement, percentile_interval
from heedful.runs.manifest import write_recipe
from heedful.runs.opening import open_run
from heedful.runs.recipe import (
    check_recipe,
    find_recipe,
    read_recipe,
    with_overrides,
    write_toml,
)
from heedful.tasks.spec import Opening
from heedful.tasks.texts.evaluation import score_text_run
from heedful.tasks.texts.evaluation_options import TextEvaluation
from heedful.tasks.texts.run import as_text_run
from heedful.training.budget import steps_of
from heedful.training.loop import DivergedError
from heedful.training.train import prepare, train
from reporting import machine, said, table

SYSTEMS = {
    "scratch": "",
    "bert": "wikitext2-bert-tiny",
    "electra": "wikitext2-electra-tiny",
    "xlnet": "wikitext2-xlnet-tiny",
    "elmo": "wikitext2-elmo-tiny",
    "gpt": "wikitext2-gpt-tiny",
}
"""System → the recipe of its pre-training."""
LEARNING_RATES = (3e-4, 1e-3, 3e-3)
FLOAT32 = "training.precision=float32"
"""Otherwise the precision depends on what else the machine does."""
FINE_TUNING = (FLOAT32, "training.keep_last=1")
"""Settings of all fine-tunings."""
RESAMPLES = 1000
Texts = NDArray[np.str_]
"""An answer for each example ``[N]``."""


def accuracy(gold: Texts, given: Texts) -> float:
    """The share of right answers, in per cent."""
    return 100 * float(np.count_nonzero(gold == given)) / len(gold)


def word_accuracy(gold: Texts, given: Texts) -> float:
    """The share of words with the right tag, in per cent; each line has the tags of a sentence."""
    both = [(one.split(), other.split()) for one, other in zip(gold, given, strict=True)]
    right = sum(a == b for one, other in both for a, b in zip(one, other, strict=True))
    return float(100 * right) / sum(len(one) for one, _ in both)


def matthews(gold: Texts, given: Texts) -> float:
    """Matthews' correlation coefficient, times 100."""
    return 100 * float(matthews_corrcoef(gold, given))


def pearson(gold: Texts, given: Texts) -> float:
    """Pearson's correlation coefficient, times 100."""
    return 100 * correlations(*([float(one) for one in side] for side in (gold, given)))["pearson"]


TASKS: dict[str, tuple[str, str, Callable[[Texts, Texts], float]]] = {
    "cola": ("cola-bert-tiny", "glue/CoLA", matthews),
    "rte": ("rte-bert-tiny", "glue/RTE", accuracy),
    "mrpc": ("mrpc-bert-tiny", "glue/MRPC", accuracy),
    "stsb": ("stsb-bert-tiny", "glue/STS-B", pearson),
    "sst2": ("sst2-bert-tiny", "trec-sst-mr-subj", accuracy),
    "trec": ("trec-bert-tiny", "trec-sst-mr-subj", accuracy),
    "ewt": ("ewt-bert-tiny", "ud-english-ewt", word_accuracy),
}
"""Task → its recipe, its folder, its figure."""


def pretrain(system: str, options: argparse.Namespace) -> Path | None:
    """The run of a system's pre-training; None without one.

    Raises:
        KeyboardInterrupt: the training was interrupted.
    """
    if not SYSTEMS[system]:
        return None
    out: Path = options.out / system / "pretraining"
    kept = out.parent / "steps.json"
    if kept.exists():
        check_options(kept, options)
    if (out / "result.json").exists():
        return out
    data = options.data / "wikitext-2"
    changes = [FLOAT32, *options.set, f"training.threads={options.threads}"]
    tables = with_overrides(read_recipe(find_recipe(SYSTEMS[system])), changes)
    tables.pop("tune", None)
    if not kept.exists():
        recipe = check_recipe(tables, SYSTEMS[system])
        prepare(recipe, out, data=data)
        steps = steps_of(open_run(out), recipe, options.budget)
        tables = with_steps(tables, steps)
        write_recipe(out, write_toml(check_recipe(tables, SYSTEMS[system])))
        write_json(kept, {"steps": steps, "options": asked(options)})
    else:
        tables = with_steps(tables, json.loads(kept.read_text(encoding="utf-8"))["steps"])
    if not train(tables, out, data=data):
        raise KeyboardInterrupt
    return out


def with_steps(tables: dict[str, Any], steps: int) -> dict[str, Any]:
    """A recipe with so many steps, a twentieth of them as warm-up, and five validations."""
    every = max(1, steps // 5)
    values = {
        "max_steps": steps,
        "validate_every": every,
        "checkpoint_every": every,
        "warmup_steps": max(1, steps // 20),
    }
    found = with_overrides(tables, [f"training.{key}={value}" for key, value in values.items()])
    return dict(found)


def fine_tune(
    system: str, task: str, start: Path | None, rate: float, seed: int, options: argparse.Namespace
) -> Path:
    """A run of a task, which starts from a pre-trained run.

    Raises:
        KeyboardInterrupt: the training was interrupted.
    """
    recipe, folder, _ = TASKS[task]
    tables = read_recipe(find_recipe(recipe))
    for part in ["tune"] if start is None else ["tune", "model", "tokeniser"]:
        tables.pop(part, None)
    changes = [f"seed={seed}", f"training.learning_rate={rate}", *FINE_TUNING]
    changes += [f"training.threads={options.threads}", *options.set_fine_tuning]
    out: Path = options.out / system / task / f"rate-{rate:g}-seed-{seed}"
    data = options.data / folder
    if not train(with_overrides(tables, changes), out, data=data, start_from=start):
        raise KeyboardInterrupt
    return out


def validated(run: Path) -> tuple[float, float]:
    """The validation figure of the chosen checkpoint, by which rates are chosen, and −loss."""
    chosen = json.loads((run / "result.json").read_text(encoding="utf-8"))
    figures = chosen["validation"]
    return float(figures[chosen["chosen_by"]]), -float(figures["loss"])


def search(trained: Callable[[float], Path]) -> tuple[dict[float, Path], float]:
    """The run of each of ``LEARNING_RATES``, and the rate that is best in validation.

    Raises:
        UserError: the loss diverged with all of them.
    """
    runs: dict[float, Path] = {}
    for rate in LEARNING_RATES:
        try:
            runs[rate] = trained(rate)
        except DivergedError as error:
            print(f"learning rate {rate:g}: {error}", file=sys.stderr)
    if not runs:
        raise UserError("the loss diverged with all learning rates")
    return runs, max(runs, key=lambda rate: validated(runs[rate]))


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """The options that a result depends on."""
    names = ("budget", "set", "set_fine_tuning")
    return {"seeds": len(options.seeds) + 1, **{name: getattr(options, name) for name in names}}


def check_options(kept: Path, options: argparse.Namespace) -> None:
    """Raise UserError if what was kept was made with other options."""
    before = json.loads(kept.read_text(encoding="utf-8"))["options"]
    for name, value in asked(options).items():
        seeds_of_a_start = name == "seeds" and kept.name == "steps.json"
        if before[name] != value and not seeds_of_a_start:
            raise UserError(
                f"{kept} was made with {name} = {before[name]}, not {value}; choose another --out"
            )


def done(kept: Path, options: argparse.Namespace) -> bool:
    """Whether a figure is kept.

    Raises:
        UserError: it was made with other options.
    """
    if kept.exists():
        check_options(kept, options)
    return kept.exists()


def answers(run: Path) -> tuple[Texts, Texts]:
    """The right answers of the test set and those of a run."""
    kept = run / "answers.json"
    if not kept.exists():
        opened = as_text_run(open_run(run))
        (score,) = score_text_run(
            opened, options=TextEvaluation(sentences=0), opening=Opening(device="cpu")
        )
        if score.one_by_one is None:
            raise UserError(f"{run} has no outputs to compare")
        gold, given = score.one_by_one.references, score.one_by_one.outputs
        write_json(kept, {"gold": list(gold), "given": list(given)})
    found = json.loads(kept.read_text(encoding="utf-8"))
    return np.array(found["gold"]), np.array(found["given"])


def figure(runs: Sequence[Path], task: str) -> dict[str, Any]:
    """The mean figure of several seeds, and its interval."""
    of = TASKS[task][2]
    both = [answers(run) for run in runs]
    values = [of(gold, given) for gold, given in both]
    resampled: list[float] = []
    for times in draw_with_replacement(len(both[0][0]), RESAMPLES, 1):
        rows = np.repeat(np.arange(len(times)), times)
        resampled.append(float(np.mean([of(gold[rows], given[rows]) for gold, given in both])))
    low, high = percentile_interval(np.array(resampled))
    return {"mean": float(np.mean(values)), "values": values, "low": low, "high": high}


def make(system: str, task: str, options: argparse.Namespace) -> None:
    """Search the learning rate, train the other seeds, and score them."""
    kept = options.out / system / task / "figure.json"
    if done(kept, options):
        return
    start = pretrain(system, options)
    first, best = search(lambda rate: fine_tune(system, task, start, rate, 1, options))
    runs = [first[best]]
    runs += [fine_tune(system, task, start, best, seed, options) for seed in options.seeds]
    write_json(kept, {**figure(runs, task), "learning_rate": best, "options": asked(options)})


def markdown(options: argparse.Namespace) -> str:
    """The table of what is finished."""
    rows = []
    for system in SYSTEMS:
        cells = []
        for task in TASKS:
            kept = options.out / system / task / "figure.json"
            if not kept.exists():
                cells.append("–")
                continue
            found = json.loads(kept.read_text(encoding="utf-8"))
            cells.append(f"{found['mean']:.1f} [{found['low']:.1f}, {found['high']:.1f}]")
        rows.append([system, *cells])
    return table(["pre-training", *TASKS], rows)


def read_options(
    description: str | None, systems: Collection[str], tasks: Collection[str]
) -> argparse.Namespace:
    """The options of the command line; ``seeds`` are those after the first."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=3e14, help="operations of a pre-training")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=systems, default=list(systems))
    parser.add_argument("--tasks", nargs="*", choices=tasks, default=list(tasks))
    parser.add_argument("--set", action="append", default=[], help="a setting of pre-trainings")
    parser.add_argument("--set-fine-tuning", action="append", default=[], help="of the others")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--collect", action="store_true", help="train nothing")
    options = parser.parse_args()
    options.seeds = range(2, options.seeds + 1)
    return options


def main() -> int:
    """Run what is asked for, then write the table."""
    options = read_options(__doc__, SYSTEMS, TASKS)
    try:
        for system in [] if options.collect else options.only:
            pretrain(system, options)
            for task in options.tasks:
                print(f"== {system}: {task}", file=sys.stderr, flush=True)
                make(system, task, options)
    except UserError as error:
        print(f"pretraining: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    text = f"Machine: {said(machine(options.threads))}.\n\n{markdown(options)}\n"
    write_text(options.out / "pretraining.md", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
