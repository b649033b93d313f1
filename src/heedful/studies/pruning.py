"""How many heads does a model need, and which?"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.basics.progress import progress
from heedful.data.positions import Position
from heedful.evaluation.head_importance import (
    Head,
    head_importance,
    normalized_by_layer,
)
from heedful.inference.removal import removable_heads, removed_heads
from heedful.studies.drawing import draw_lines, panels
from heedful.studies.study import Picture, Study, StudyOptions, StudyResult, Table
from heedful.studies.trained_runs import (
    MULTI30K,
    TREC,
    WIKITEXT,
    Recipe,
    Trained,
    trained_runs,
)
from heedful.viewing.heatmap import head_figure

RECIPES = (
    Recipe("trec-bert-tiny", TREC),
    Recipe("multi30k-transformer-tiny-raw", MULTI30K),
    Recipe("wikitext2-bert-tiny", WIKITEXT),
)
_BATCHES, _ORDERS, _POINTS = 20, 3, 10
_TOLERATED = 0.05

METHOD = """The importance of a head is the mean over examples of |∂L(x)/∂ξ|, where ξ = 1 is a gate
on the head's result and L(x) the loss of example x, summed over its tokens; within a layer,
importances are divided by their ℓ2 norm. It is computed with 20 training batches, without dropout.
Then heads are removed (their results are set to zero; nothing is trained again), a tenth of all
heads at a time: the least important first, and, as a baseline, in 3 random orders. The figure is
the one by which the run chose its checkpoint, on its validation data. The knock-out table has the
figure without one head at a time; the correlation of importance and loss of the figure is
Spearman's. Michel et al. 2019, "Are Sixteen Heads Really Better than One?", equation 2 and
sections 3.2 and 4; Voita et al. 2019."""


class Measured(NamedTuple):
    """The figures of one run."""

    name: str
    """The name of the figure."""
    falls: bool
    """Whether less is better."""
    whole: float
    """The figure of the whole model."""
    importance: dict[Head, float]
    """Divided by the norm of the layer."""
    without: dict[Head, float]
    """The figure without each head."""
    counts: list[int]
    """Numbers of heads removed."""
    by_importance: list[float]
    """The figure for each of ``counts``."""
    at_random: list[list[float]]
    """The same for each random order."""


def run(options: StudyOptions) -> StudyResult:
    """Prune each run."""
    found: list[str] = []
    tables: list[Table] = []
    pictures: list[Picture] = []
    for number, trained in enumerate(trained_runs(options, RECIPES, _check), start=1):
        measured = _measure(options, trained)
        found.append(_summary(trained.label, measured))
        tables += _tables(trained.label, number, measured)
        pictures.append(_curve(trained.label, number, measured))
        pictures.append(_heads(trained.label, number, measured))
    return StudyResult(tuple(found), tuple(tables), tuple(pictures))


def _check(trained: Trained) -> None:
    if not removable_heads(trained.predictor.model):
        raise UserError(f"{trained.run.path}: the model has no attention heads that can be removed")


def _measure(options: StudyOptions, trained: Trained) -> Measured:
    model, task, recipe = _task(trained)
    heads = removable_heads(model)
    batches = 2 if options.quick else _BATCHES
    options.echo(f"{trained.label}: computes the importance of {len(heads)} heads")
    importance = normalized_by_layer(head_importance(model, _losses(task, recipe.seed, batches)))
    name = recipe.training.choose_by
    figures = _Figures(options, trained, model, lambda: _figure(task, name, trained.run.path))
    tenths = {round(len(heads) * part / _POINTS) for part in range(_POINTS + 1)}
    counts = sorted({0, len(heads)} if options.quick else tenths)
    options.echo(f"{trained.label}: {name} without each head, then without more and more")
    order = sorted(heads, key=lambda head: importance[head])
    others = [_shuffled(heads, seed) for seed in range(1 if options.quick else _ORDERS)]
    curves = [[one[:count] for count in counts] for one in (order, *others)]
    removed = [[], *([head] for head in heads), *(some for curve in curves for some in curve)]
    found = figures.without(removed)
    whole, alone, rest = found[0], found[1 : 1 + len(heads)], found[1 + len(heads) :]
    first, *shuffled = (rest[at : at + len(counts)] for at in range(0, len(rest), len(counts)))
    return Measured(
        name,
        trained.spec.falls(recipe, name),
        whole,
        importance,
        dict(zip(heads, alone, strict=True)),
        counts,
        first,
        shuffled,
    )


class _Figures:
    """The figure of a model without some heads. Figures are stored in the study's folder, so that
    an interrupted study does not compute them again.

    Args:
        options: of the study.
        trained: the run.
        model: its model.
        figure: validates the model.
    """

    def __init__(
        self,
        options: StudyOptions,
        trained: Trained,
        model: nn.Module,
        figure: Callable[[], float],
    ) -> None:
        self.model, self.figure, self.label = model, figure, trained.label
        weights = trained.run.chosen().state["hashes"]
        settings = trained.run.recipe.model_dump(mode="json")
        key = json.dumps([weights, settings, str(trained.predictor.device)], sort_keys=True)
        self.path = options.out / f"figures-{sha256(key.encode()).hexdigest()[:16]}.json"
        self.known: dict[str, float] = read_json(self.path) if self.path.exists() else {}

    def without(self, removed: Sequence[Sequence[Head]]) -> list[float]:
        """The figures without each of several sets of heads."""
        found = []
        with progress(f"{self.label}: removing heads", len(removed), "figures") as advance:
            for heads in removed:
                name = ", ".join(f"{module} {head + 1}" for module, head in sorted(heads))
                if name not in self.known:
                    with removed_heads(self.model, heads):
                        self.known[name] = self.figure()
                    write_json(self.path, self.known)
                found.append(self.known[name])
                advance(1)
        return found


def _figure(task: Any, name: str, where: Path) -> float:
    """The figure ``name`` of a validation."""
    figures: Mapping[str, float] = task.validate().figures
    if name not in figures:
        raise UserError(f"{where} has no validation data; set data.validation")
    return float(figures[name])


def _task(trained: Trained) -> tuple[nn.Module, Any, Any]:
    """The model of a run, its training task and its recipe."""
    recipe, predictor = trained.run.recipe, trained.predictor
    model: nn.Module = predictor.model
    device: torch.device = predictor.device
    task = trained.spec.build_task(trained.run, model, recipe.training, device, "float32")
    return model, task, recipe


def _losses(task: Any, seed: int, count: int) -> Iterator[Callable[[], Tensor]]:
    """The losses of the first training batches."""
    device = next(task.model.parameters()).device
    for _, batch in islice(task.batches(Position(seed, 0, 0)), count):
        yield partial(_total, task, batch.to(device))


def _total(task: Any, batch: Any) -> Tensor:
    """The sum of the losses of a batch."""
    total: Tensor = task.loss(batch).total
    return total


def _shuffled(heads: Sequence[Head], seed: int) -> list[Head]:
    order = list(heads)
    random.Random(seed).shuffle(order)
    return order


def _mean(measured: Measured, point: int) -> float:
    return sum(order[point] for order in measured.at_random) / len(measured.at_random)


def _loss_of(measured: Measured, figure: float) -> float:
    """How much worse a figure is than that of the whole model."""
    return (figure - measured.whole) * (1 if measured.falls else -1)


def _summary(label: str, measured: Measured) -> str:
    total = len(measured.importance)
    better = sum(_loss_of(measured, one) <= 0 for one in measured.without.values())
    half = min(range(len(measured.counts)), key=lambda at: abs(measured.counts[at] - total / 2))
    text = (
        f"{label}: {measured.name} is {measured.whole:.3f} with all {total} heads. Without one "
        f"head, it is as good or better for {better} of them. With the least important heads "
        f"removed first, {_tolerated(measured)}; with {measured.counts[half]} removed it is "
        f"{measured.by_importance[half]:.3f}, in random orders {_mean(measured, half):.3f}."
    )
    correlation = _correlation(measured)
    if correlation is not None:
        text += f" Spearman's correlation of importance and knock-out is {correlation:.2f}."
    return text


def _tolerated(measured: Measured) -> str:
    """With how many heads removed the figure is at most 5 % worse."""
    most = _TOLERATED * abs(measured.whole)
    worse = [_loss_of(measured, figure) > most for figure in measured.by_importance]
    if not any(worse):
        return f"it is at most {_TOLERATED:.0%} worse even without all heads"
    at = worse.index(True)
    tolerated, too_many = measured.counts[at - 1 : at + 1]
    return (
        f"it is at most {_TOLERATED:.0%} worse with {tolerated} of them removed, and worse than "
        f"that with {too_many}"
    )


def _correlation(measured: Measured) -> float | None:
    """Of the importance of heads and how much worse the figure is without them."""
    importance = list(measured.importance.values())
    losses = [_loss_of(measured, measured.without[head]) for head in measured.importance]
    if len(set(importance)) < 2 or len(set(losses)) < 2:
        return None
    return float(spearmanr(importance, losses).statistic)


def _tables(label: str, number: int, measured: Measured) -> list[Table]:
    name, total = measured.name, len(measured.importance)
    curve = tuple(
        (count, count / total, by_importance, _mean(measured, point))
        for point, (count, by_importance) in enumerate(
            zip(measured.counts, measured.by_importance, strict=True)
        )
    )
    columns = ("heads removed", "share", f"{name}, least important first", f"{name}, random")
    heads = tuple(
        (module, head + 1, value, measured.without[module, head])
        for (module, head), value in measured.importance.items()
    )
    return [
        Table(f"run-{number}", f"{label}: heads removed", columns, curve),
        Table(
            f"run-{number}-heads",
            f"{label}: knock-out of one head ({name} {measured.whole:.3f} with all)",
            ("module", "head", "importance", f"{name} without it"),
            heads,
        ),
    ]


def _curve(label: str, number: int, measured: Measured) -> Picture:
    figure, (axes,) = panels(1, width=6.0, height=3.6)
    total = len(measured.importance)
    shares = [100 * count / total for count in measured.counts]
    for order in measured.at_random:
        axes.plot(shares, order, color="#b0b0b0", linewidth=1)
    means = [_mean(measured, point) for point in range(len(shares))]
    draw_lines(
        axes,
        {
            "least important first": (shares, measured.by_importance),
            "random, mean of orders": (shares, means),
        },
    )
    axes.set_xlabel("heads removed (%)")
    axes.set_ylabel(measured.name)
    axes.set_title(label, fontsize=10, parse_math=False)
    caption = f"{label}: {measured.name} against the share of heads that are removed."
    return Picture(f"run-{number}", caption, figure)


def _heads(label: str, number: int, measured: Measured) -> Picture:
    modules = list(dict.fromkeys(module for module, _ in measured.importance))
    most = 1 + max(head for _, head in measured.importance)
    worse = torch.zeros(len(modules), most)
    for (module, head), figure in measured.without.items():
        worse[modules.index(module), head] = _loss_of(measured, figure)
    columns = [str(head) for head in range(1, most + 1)]
    labels = [module.replace("_attention", "") for module in modules]
    drawn = head_figure(worse[None], labels, columns, label, names=["head"])
    caption = (
        f"{label}: how much worse {measured.name} is without each head (rows: modules; negative: "
        "better)."
    )
    return Picture(f"run-{number}-heads", caption, drawn)


STUDY = Study(
    "pruning",
    "Pruned heads",
    "How many heads can be removed from a trained model, and does the gradient tell which?",
    METHOD,
    run,
    {"data or run": "a folder with multi30k, trec-sst-mr-subj or wikitext-2, or a trained run"},
)
