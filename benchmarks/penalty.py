"""Draws the effect of the penalty on hops: overlap of the hops and validation accuracy.

    python benchmarks/penalty.py --data FOLDER --out FOLDER [--picture PICTURE.svg]

Trains ``trec-structured`` with several seeds and weights of the penalty ``‖AAᵀ − I‖²`` (Lin et al.
2017, equation 8). On the validation texts, it measures the mean of ‖AAᵀ − I‖² and of the overlap of
two hops, ``Σ min(a_i, a_j)``, which is 1 if all hops attend to the same words. Rerun the command to
resume.
"""

import argparse
import sys
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from heedful.attention import disagreement, watch
from heedful.basics.files import write_json
from heedful.runs.opening import open_run
from heedful.runs.recipe import find_recipe, read_recipe, with_overrides
from heedful.tasks.texts.loading import load_classifier
from heedful.tasks.texts.run import TextRun
from heedful.tasks.texts.training import read
from heedful.training.train import train
from heedful.viewing.figures import new_figure, save_figure

RECIPE = "trec-structured"
PENALTIES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SEEDS = (1, 2, 3)


def main(arguments: list[str] | None = None) -> int:
    """Train missing runs, measure all runs and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--penalties", type=float, nargs="*", default=PENALTIES)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    options = parser.parse_args(arguments)
    found = []
    for penalty in options.penalties:
        for seed in options.seeds:
            out = options.out / f"penalty-{penalty:g}-seed-{seed}"
            settings = {"training.penalty": penalty, "training.max_steps": options.steps}
            settings |= {"seed": seed, "training.threads": options.threads}
            overrides = [f"{key}={value}" for key, value in settings.items()]
            tables = with_overrides(read_recipe(find_recipe(RECIPE)), overrides)
            if not train(tables, out, data=options.data):
                return 130
            found.append({"penalty": penalty, "seed": seed, **measure(out)})
            print(found[-1], flush=True)
    write_json(options.out / "penalty.json", found)
    if options.picture is not None:
        draw(found, options.picture)
    return 0


def measure(path: Path) -> dict[str, float]:
    """Disagreement and overlap of the hops on the validation texts, and the accuracy there."""
    run = open_run(path)
    if not isinstance(run, TextRun):
        raise TypeError(f"{path} is not a classifier's run")
    classifier = load_classifier(path)
    examples = run.labelled("classification", "validation")
    different, overlaps = [], []
    with torch.no_grad(), watch(classifier.model, ["encoder.pooling"]) as seen:
        for example in examples:
            for row in classifier.rows(read(example)):
                classifier.logits(classifier.encode([row]))
        for weights in seen["encoder.pooling"]:  # [1, 1, hops, K]
            different.append(float(disagreement(weights)))
            hops = weights[0, 0]
            pairs = combinations(range(len(hops)), 2)
            overlaps.append(mean(float(torch.minimum(hops[i], hops[j]).sum()) for i, j in pairs))
    accuracy = run.chosen().state["validation"]["accuracy"]
    return {"disagreement": mean(different), "overlap": mean(overlaps), "accuracy": accuracy}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Plot overlap and accuracy against the penalty's weight: a point per seed, a line for the
    means."""
    penalties = sorted({one["penalty"] for one in found})
    places = range(len(penalties))
    figure = new_figure(7.5, 2.8)
    figure.set_layout_engine("constrained")
    for axes, key, title in zip(
        figure.subplots(1, 2),
        ("overlap", "accuracy"),
        ("overlap of two hops", "accuracy on validation"),
        strict=True,
    ):
        means = []
        for place, penalty in zip(places, penalties, strict=True):
            values = [one[key] for one in found if one["penalty"] == penalty]
            axes.plot([place] * len(values), values, "o", color="#888888", markersize=3)
            means.append(mean(values))
        axes.plot(places, means, color="#1f4e79")
        axes.set_xticks(list(places), [f"{penalty:g}" for penalty in penalties])
        axes.set_xlabel("weight of the penalty")
        axes.set_title(title, fontsize=10)
    save_figure(figure, path)


if __name__ == "__main__":
    sys.exit(main())
