"""Which heads differ, and which look at one token only?"""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.evaluation.head_shares import PLACES, HeadShares
from heedful.evaluation.scaling import Map, scaled_to
from heedful.studies.drawing import COLOURS
from heedful.studies.study import Cell, Picture, Study, StudyOptions, StudyResult, Table
from heedful.studies.trained_runs import (
    TREEBANK,
    WIKITEXT,
    Recipe,
    Trained,
    reader_of,
    texts_of,
    trained_runs,
)
from heedful.viewing.figures import new_figure
from heedful.viewing.heatmap import head_figure

RECIPES = (
    Recipe("ewt-bert-tiny", TREEBANK),
    Recipe("wikitext2-bert-tiny", WIKITEXT),
    Recipe("wikitext2-gpt-tiny", WIKITEXT),
)
_TEXTS = 1000
_ONE_PLACE = 0.5
_FEW = 48
"""The number of heads that fit into a small picture of points."""

METHOD = """The first 1,000 texts (sentences, or lines of documents) of the run's validation data
are read by the model; a text longer than the model's maximum is read in parts. For each head: the
mean share of the weights on the previous token, the next one, the token itself, the first one
(BEGIN, or the END before a document) and the separator (the last END), over the tokens that have
such a token; the mean of the largest weight; the entropy, also relative to that of even weights.
The distance of two heads is the Jensen–Shannon distance (bits) of their weights, from 0 to 1,
averaged over tokens. The map is classical multidimensional scaling of the distances; its stress
says how far it is from them. Clark et al. 2019, "What Does BERT Look At?", sections 3 and 6."""


def run(options: StudyOptions) -> StudyResult:
    """Measure all heads of each run."""
    found: list[str] = []
    tables: list[Table] = []
    pictures: list[Picture] = []
    for number, trained in enumerate(trained_runs(options, RECIPES, reader_of), start=1):
        options.echo(f"{trained.label}: reads its validation texts")
        shares, heads = _measure(trained, 20 if options.quick else _TEXTS)
        means, distances = shares.means(), shares.distances()
        found.append(_summary(trained.label, means, distances, heads))
        rows = zip(heads, *(own.tolist() for own in means.values()), strict=True)
        columns = ("head", *means)
        tables.append(Table(f"run-{number}", f"{trained.label}: heads", columns, tuple(rows)))
        tables.append(_distance_table(trained.label, number, distances, heads))
        pictures += _pictures(trained.label, number, means, distances, heads)
    return StudyResult(tuple(found), tuple(tables), tuple(pictures))


def _measure(trained: Trained, most: int) -> tuple[HeadShares, list[str]]:
    reader = reader_of(trained)
    heads = reader.heads()
    shares = HeadShares(len(heads), causal=reader.causal)
    texts = texts_of(trained)[:most]
    rows = reader.rows([part for text in texts for part in reader.parts(text.split())], "the study")
    if not rows:
        raise UserError(f"{trained.run.path}: no word of the validation texts fits into the model")
    for _, weights in reader.weights(rows):
        shares.add(weights)
    return shares, heads


def _summary(label: str, means: dict[str, Tensor], distances: Tensor, heads: Sequence[str]) -> str:
    parts = []
    for name in PLACES:
        own = [
            f"{head} ({share:.2f})"
            for head, share in zip(heads, means.get(name, torch.zeros(0)).tolist(), strict=False)
            if share >= _ONE_PLACE
        ]
        if own:
            parts.append(f"at least half of the weight is on the {name} token in {', '.join(own)}")
    told = "; ".join(parts) or "no head has half of its weight on one of the places"
    if len(heads) > 1:
        above = torch.triu(torch.ones_like(distances), 1).bool()
        near = distances.masked_fill(~above, 2.0).argmin()
        far = distances.masked_fill(~above, -1.0).argmax()
        one, other = (divmod(int(place), len(heads)) for place in (near, far))
        told += (
            f". The mean distance of two heads is {float(distances[above].mean()):.2f}; "
            f"{heads[one[0]]} and {heads[one[1]]} are nearest ({float(distances[one]):.2f}), "
            f"{heads[other[0]]} and {heads[other[1]]} farthest ({float(distances[other]):.2f})"
        )
    return f"{label}: {told}."


def _distance_table(label: str, number: int, distances: Tensor, heads: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for head, own in enumerate(distances):
        others = [other for other in range(len(heads)) if other != head]
        nearest = min(others, key=lambda other: float(own[other]), default=None)
        if nearest is not None:
            mean = sum(float(own[other]) for other in others) / len(others)
            rows.append((heads[head], heads[nearest], float(own[nearest]), mean))
    columns = ("head", "nearest head", "its distance", "mean distance of others")
    return Table(f"run-{number}-distances", f"{label}: distances", columns, tuple(rows))


def _pictures(
    label: str, number: int, means: dict[str, Tensor], distances: Tensor, heads: Sequence[str]
) -> list[Picture]:
    names = [name for name in means if "entropy" not in name]
    stacked = torch.stack([means[name] for name in names], dim=1)
    shares = head_figure(stacked[None], heads, names, label, names=[""])
    found = [
        Picture(
            f"run-{number}",
            f"{label}: the share of each head's weights (rows, layer.head) by place, and the mean "
            "of its largest weight.",
            shares,
        ),
        Picture(
            f"run-{number}-entropy",
            f"{label}: the mean entropy of each head's weights (layer.head), in nats.",
            head_points(
                [int(head.partition(".")[0]) for head in heads],
                means["entropy"].tolist(),
                heads,
                ("layer", "entropy"),
                label,
            ),
        ),
    ]
    if len(heads) > 2:
        placed = scaled_to(distances)
        found.append(
            Picture(
                f"run-{number}-map",
                f"{label}: heads (layer.head) whose weights are alike are near each other; stress "
                f"{placed.stress:.2f}.",
                map_figure(placed, heads, label),
            )
        )
    return found


def map_figure(placed: Map, heads: Sequence[str], title: str) -> Figure:
    """The map of heads, to scale.

    Args:
        placed: points ``[N, 2]``.
        heads: ``layer.head`` of each.
        title: the title.
    """
    x, y = placed.points.T.tolist()
    figure = head_points(x, y, heads, ("", ""), title)
    figure.axes[0].set_aspect("equal", adjustable="datalim")
    return figure


def head_points(
    x: Sequence[float],
    y: Sequence[float],
    heads: Sequence[str],
    names: tuple[str, str],
    title: str,
) -> Figure:
    """Heads as labelled points, one colour and marker for each layer.

    Args:
        x: one number for each head.
        y: the same.
        heads: ``layer.head`` of each.
        names: of the two axes.
        title: the title.
    """
    many = len(heads) > _FEW
    figure = new_figure(*(11, 8) if many else (6, 4.5))
    axes: Any = figure.subplots()
    layers = list(dict.fromkeys(head.partition(".")[0] for head in heads))
    for place, layer in enumerate(layers):
        own = [row for row, head in enumerate(heads) if head.partition(".")[0] == layer]
        colour, marker = COLOURS[place % len(COLOURS)], "osD^vP*X"[place % 8]
        columns = [x[row] for row in own], [y[row] for row in own]
        axes.scatter(*columns, color=colour, marker=marker, label=f"layer {layer}")
    for head, *point in zip(heads, x, y, strict=True):
        axes.annotate(
            head,
            point,
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=6 if many else 8,
            parse_math=False,
        )
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.margins(0.12)
    if names[0] == "layer":
        axes.set_xticks(sorted(set(x)))
        axes.set_ylim(0, 1.1 * max(y) or 1)
    elif len(layers) > 1:
        outside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        axes.legend(fontsize=8, **outside if many else {})
    figure.tight_layout()
    return figure


STUDY = Study(
    "differing-heads",
    "Heads that differ, and heads that look at one token",
    "Which heads attend alike, and which attend to one place whatever the text is?",
    METHOD,
    run,
    {"data or run": "a folder with ud-english-ewt or wikitext-2, or a trained run"},
)
