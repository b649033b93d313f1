"""One table of the tasks of GLUE and both SuperGLUEs that are at hand, for six systems.

    python benchmarks/glue_table.py --data FOLDER --out FOLDER [--seeds 3]
        [--set KEY=VALUE] [--set-fine-tuning KEY=VALUE]
        [--only majority bag …] [--tasks cola cb …] [--budget 3e14] [--threads 1] [--collect]

FOLDER has ``glue``, ``superglue``, ``russian-superglue`` and, for the pre-training of BERT and
ELECTRA, ``wikitext-2``. The systems: the most frequent training label; logistic regression on bags
of words (ridge regression for numbers); a BiLSTM with structured self-attention; Kim's
convolutional network; small BERT and ELECTRA, pre-trained as in ``benchmarks/pretraining.py``.

For the same seed, all systems hold out the same tenth of the training data (each seed has its own
part; of BoolQ's 32 examples 8, 14 and 19 with the seeds 1, 2 and 3). Bags of words are fitted to
all other rows; networks take 1,500 steps, which of MultiRC is an eighth of the windows. Each tries
three values of one setting (the learning rate, or the strength of the regularisation) with one
seed; the value with the best validation figure is used for the other seeds. The development set is
scored once for each seed by the official metrics; of MRPC, it is the labelled test set. BoolQ has
the 32 training examples of FewGLUE. There is no pre-training in Russian: on TERRa and RuCoLA, BERT
starts from random weights, and there is no ELECTRA.

Networks compute in float32. A learning rate whose loss diverges is not chosen. Results with other
options than before are refused.

An interval has 95 % of 1,000 resamples of the scored examples; the figure of a resample is the mean
over the seeds. Rerun the command to resume; ``--collect`` only writes the table.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from heedful.basics.errors import UserError
from heedful.basics.files import write_json, write_text
from heedful.data.suites.forms import Item
from heedful.data.suites.reading import read_items
from heedful.data.suites.tasks import SuiteTask
from heedful.evaluation.statistics import draw_with_replacement, percentile_interval
from heedful.evaluation.suites import (
    METRIC_TITLES,
    Answer,
    Outputs,
    answer_of,
    gold_of,
    score_answers,
    task_score,
)
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, with_overrides
from heedful.tasks.spec import Opening
from heedful.tasks.suites import Trained
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.run import as_text_run
from heedful.training.train import train
from pretraining import (
    FINE_TUNING,
    RESAMPLES,
    SYSTEMS,
    asked,
    done,
    pretrain,
    read_options,
    search,
)
from reporting import machine, said, table
from word_bags import STRENGTHS, fit_bags, validation_figure

NEURAL: dict[str, dict[str, Any]] = {
    "bilstm": {
        "kind": "recurrent-encoder",
        "hidden_size": 128,
        "embedding_size": 128,
        "hops": 4,
        "attention_size": 64,
        "dropout": 0.3,
    },
    "kim": {"kind": "convolutional-encoder", "embedding_size": 128, "feature_maps": 100},
    "bert": {},
    "electra": {},
}
"""System → its model, if it is not pre-trained."""
NAMES = {
    "majority": "majority",
    "bag": "bag of words",
    "bilstm": "BiLSTM with attention",
    "kim": "Kim's CNN",
    "bert": "small BERT",
    "electra": "small ELECTRA",
}
TASKS: dict[str, tuple[str, list[str]]] = {
    "cola": ("cola-bert-tiny", []),
    "sst2": ("glue-sst2-bert-tiny", []),
    "mrpc": ("mrpc-bert-tiny", []),
    "stsb": ("stsb-bert-tiny", []),
    "rte": ("rte-bert-tiny", []),
    "wnli": ("wnli-bert-tiny", []),
    "boolq": (
        "boolq-bert-tiny",
        [
            "data.train=train-32.jsonl",
            "data.validation_share=0.5",
            "tokeniser.vocabulary_size=4000",
        ],
    ),
    "cb": ("cb-bert-tiny", []),
    "copa": ("copa-bert-tiny", []),
    "multirc": ("multirc-bert-tiny", []),
    "wic": ("wic-bert-tiny", []),
    "wsc": ("wsc-bert-tiny", []),
    "terra": ("terra-bert-tiny", []),
    "rucola": ("rucola-bert-tiny", []),
}
"""Task → its recipe and settings of it."""


class Part(NamedTuple):
    """A scored file: its items and, for each seed, the answers."""

    items: list[Item]
    answers: list[list[Answer]]


def tables_of(name: str) -> dict[str, Any]:
    """The recipe of a task, without the settings of searches."""
    recipe, changes = TASKS[name]
    tables = with_overrides(read_recipe(find_recipe(recipe)), changes)
    tables.pop("tune", None)
    return tables


def is_russian(name: str) -> bool:
    """Whether a task is in Russian."""
    return official(name).suite == "russian-superglue"


@cache
def official(name: str) -> SuiteTask:
    """The task of a benchmark."""
    recipe: Any = check_recipe(tables_of(name), name)
    found: SuiteTask = recipe.data.official
    return found


def folder_of(name: str, options: argparse.Namespace) -> Path:
    """The folder of a task's files."""
    data: Path = options.data
    return data / official(name).suite / official(name).title


def examples_of(name: str, options: argparse.Namespace, folder: Path) -> Examples:
    """The training, validation and test data of a task."""
    recipe: Any = check_recipe(tables_of(name), name)
    found = Examples("data", recipe.data, recipe.seed, folder, folder_of(name, options))
    found.find_labels()
    return found


def scored_items(name: str, options: argparse.Namespace) -> list[list[Item]]:
    """The items of each scored file."""
    with TemporaryDirectory() as folder:
        files = examples_of(name, options, Path(folder)).files["test"]
    return [list(read_items(file, official(name))) for file in files]


def frequent(name: str, options: argparse.Namespace) -> list[list[Answer]]:
    """The most frequent right answer of the training items, or the mean number."""
    task = official(name)
    with TemporaryDirectory() as folder:
        files = examples_of(name, options, Path(folder)).files["train"]
    trained = [item for file in files for item in read_items(file, task)]
    gold = [gold_of(item, task) for item in trained]
    if task.form == "answers":
        label = Counter(label for labels in gold for label in labels).most_common(1)[0][0]
        return [
            [(label,) * len(item.rows) for item in items] for items in scored_items(name, options)
        ]
    value = fmean(gold) if task.is_numeric else Counter(gold).most_common(1)[0][0]
    return [[value] * len(items) for items in scored_items(name, options)]


def bags(name: str, options: argparse.Namespace) -> tuple[list[list[Answer]], float]:
    """The answers of a regression on bags of words, and the strength that validation chose."""
    task = official(name)
    with TemporaryDirectory() as folder:
        examples = examples_of(name, options, Path(folder))
        train_rows, held = list(examples.of("train")), list(examples.of("validation"))
    by = str(getattr(check_recipe(tables_of(name), name).training, "choose_by"))  # noqa: B009 - tasks type it
    models = {one: fit_bags(train_rows, one, task.is_numeric) for one in STRENGTHS}
    best = max(models, key=lambda one: validation_figure(models[one], held, by))
    return [answered(items, models[best], task) for items in scored_items(name, options)], best


def answered(items: Sequence[Item], model: Any, task: SuiteTask) -> list[Answer]:
    """The answers of a model with ``outputs``, which returns one output for each row."""
    found = iter(model.outputs([texts for item in items for texts in item.rows]))
    given: list[Outputs] = [[next(found) for _ in item.rows] for item in items]
    return [answer_of(item, own, task) for item, own in zip(items, given, strict=True)]


def fine_tune(
    system: str, name: str, start: Path | None, rate: float, seed: int, options: argparse.Namespace
) -> Path:
    """A run of a task.

    Raises:
        KeyboardInterrupt: the training was interrupted.
    """
    tables = tables_of(name)
    if start is not None:
        tables = {key: own for key, own in tables.items() if key not in ("model", "tokeniser")}
    elif NEURAL[system]:
        tables = {**tables, "model": {**NEURAL[system], "max_length": 128}, "head_dropout": 0.5}
    changes = [f"seed={seed}", f"training.learning_rate={rate}", *FINE_TUNING]
    changes += [f"training.threads={options.threads}", *options.set_fine_tuning]
    out: Path = options.out / system / name / f"rate-{rate:g}-seed-{seed}"
    changed = with_overrides(tables, changes)
    if not train(changed, out, data=folder_of(name, options), start_from=start):
        raise KeyboardInterrupt
    return out


def network(system: str, name: str, options: argparse.Namespace) -> tuple[list[Path], float]:
    """The runs of all seeds, and the learning rate that validation chose."""
    start = None
    if system in SYSTEMS and not is_russian(name):
        start = pretrain(system, options)
    first, best = search(lambda rate: fine_tune(system, name, start, rate, 1, options))
    more = [fine_tune(system, name, start, best, seed, options) for seed in options.seeds]
    return [first[best], *more], best


def predicted(run: Path, task: SuiteTask, parts: Sequence[Sequence[Item]]) -> list[list[Answer]]:
    """The answers of a run for each scored file."""
    opened = as_text_run(open_run(run))
    (head,) = opened.recipe.sets()
    trained = Trained(opened, head, Opening(device="cpu"))
    return [trained.answers(items, task) for items in parts]


def figures(parts: Sequence[Part], task: SuiteTask) -> dict[str, Any]:
    """The mean figures of the seeds, their mean score and its interval."""
    gold = [[gold_of(item, task) for item in part.items] for part in parts]
    seeds = range(len(parts[0].answers))
    each = [
        [score_answers(own, part.answers[seed], task) for seed in seeds]
        for own, part in zip(gold, parts, strict=True)
    ]
    scores = [fmean(task_score(files[seed]) for files in each) for seed in seeds]
    resampled = np.zeros(RESAMPLES)
    for number, (own, part) in enumerate(zip(gold, parts, strict=True)):
        for row, times in enumerate(draw_with_replacement(len(own), RESAMPLES, 1 + number)):
            places = np.repeat(np.arange(len(times)), times)
            drawn = [own[place] for place in places]
            values = [
                task_score(score_answers(drawn, [given[place] for place in places], task))
                for given in part.answers
            ]
            resampled[row] += fmean(values) / len(parts)
    low, high = percentile_interval(resampled)
    names = task.metrics
    means = [{name: fmean(one[name] for one in files) for name in names} for files in each]
    return {"figures": means, "score": fmean(scores), "seeds": scores, "low": low, "high": high}


def make(system: str, name: str, options: argparse.Namespace) -> None:
    """Train a system on a task and score it, unless this was done before."""
    kept = options.out / system / name / "figure.json"
    if done(kept, options) or (system == "electra" and is_russian(name)):
        return
    task, scored = official(name), scored_items(name, options)
    chosen: float | None = None
    if system == "majority":
        given = [[answers] for answers in frequent(name, options)]
    elif system == "bag":
        answers, chosen = bags(name, options)
        given = [[own] for own in answers]
    else:
        runs, chosen = network(system, name, options)
        by_run = [predicted(run, task, scored) for run in runs]
        given = [[own[place] for own in by_run] for place in range(len(scored))]
    parts = [Part(items, own) for items, own in zip(scored, given, strict=True)]
    write_json(kept, {**figures(parts, task), "chosen": chosen, "options": asked(options)})


def cell(path: Path) -> str:
    """Figures, and the interval of the score: "81.2 / 70.2 [73.1, 78.4]"."""
    if not path.exists():
        return "–"
    found = json.loads(path.read_text(encoding="utf-8"))
    shown = "; ".join(
        " / ".join(f"{value:.1f}" for value in one.values()) for one in found["figures"]
    )
    return f"{shown} [{found['low']:.1f}, {found['high']:.1f}]"


def markdown(options: argparse.Namespace) -> str:
    """The table of what is finished, a row for each task."""
    rows = []
    for name in TASKS:
        metrics = " / ".join(METRIC_TITLES.get(one, one) for one in official(name).metrics)
        cells = [cell(options.out / system / name / "figure.json") for system in NAMES]
        rows.append([f"{official(name).title} ({metrics})", *cells])
    return table(["task", *NAMES.values()], rows)


def main() -> int:
    """Run what is asked for, then write the table."""
    options = read_options(__doc__, NAMES, TASKS)
    failed = False
    for system in [] if options.collect else options.only:
        for name in options.tasks:
            print(f"== {system}: {name}", file=sys.stderr, flush=True)
            try:
                make(system, name, options)
            except UserError as error:
                failed = True
                print(f"glue_table: {system}, {name}: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                return 130
    text = f"Machine: {said(machine(options.threads))}.\n\n{markdown(options)}\n"
    write_text(options.out / "glue_table.md", text)
    print(text)
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
