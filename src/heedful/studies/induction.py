"""``heedful study induction``: induction heads and in-context learning over training.

Olsson et al. 2022, "In-context Learning and Induction Heads": a head of the second layer attends to
the token after an earlier occurrence of the current one and copies it. Measured at checkpoints:
prefix matching on repeated random words, copying (Elhage et al. 2021), the in-context learning
score, and what the removal of heads costs.
Shapes: N texts, T words, L layers, H heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from heedful.runs.run import Run
from heedful.studies.circuits import copying_score, prefix_matching, previous_token, value_output
from heedful.studies.drawing import draw_lines, panels
from heedful.studies.language import (
    Budget,
    Head,
    Reader,
    head_name,
    losses,
    train_language,
)
from heedful.studies.study import Cell, Picture, Study, StudyOptions, StudyResult, Table

LENGTH = 64
WORDS = tuple(f"w{number}" for number in range(64))
PERIODS = (8, 24)
"""Shortest and longest segment that a training text repeats."""
EARLY, LATE = slice(4, 8), slice(LENGTH - 8, LENGTH)
"""Words whose losses the in-context learning score compares: the 5th to 8th, the last 8."""
PERIOD = 25
"""Random words that are repeated once in the test of prefix matching."""
MODELS: dict[str, dict[str, int]] = {
    "1 layer, attention only": {"layers": 1, "ffn_size": 0},
    "1 layer, full": {"layers": 1, "ffn_size": 256},
    "2 layers, attention only": {"layers": 2, "ffn_size": 0},
    "2 layers, full": {"layers": 2, "ffn_size": 256},
}
SIZES = {"hidden_size": 64, "heads": 4, "positions": "rotary", "bias": False}


def repeated_segments(seed: int, count: int) -> list[list[str]]:
    """Texts of 64 words: a segment of a Markov chain, 8 to 24 words long, again and again."""
    chances = np.random.default_rng(0).dirichlet([0.1] * len(WORDS), len(WORDS)).cumsum(1)
    rng = np.random.default_rng([1, seed])
    segments = np.zeros((count, PERIODS[1]), np.int64)
    segments[:, 0] = rng.integers(len(WORDS), size=count)
    for place in range(1, PERIODS[1]):
        drawn = rng.random((count, 1)) > chances[segments[:, place - 1]]
        segments[:, place] = drawn.sum(1).clip(max=len(WORDS) - 1)
    periods = rng.integers(PERIODS[0], PERIODS[1] + 1, count)
    places = np.arange(LENGTH) % periods[:, None]
    texts = np.take_along_axis(segments, places, 1)
    return [[WORDS[index] for index in row] for row in texts]


def repeated_random(seed: int, count: int) -> list[list[str]]:
    """Texts of 50 words: 25 different words in random order, twice."""
    rng = np.random.default_rng([2, seed])
    drawn = (rng.permutation(len(WORDS))[:PERIOD] for _ in range(count))
    return [[WORDS[index] for index in row] * 2 for row in drawn]


def in_context_score(loss: Tensor) -> float:
    """The mean loss of the last 8 words less that of the 5th to 8th: the more negative, the more
    is learned from the text itself.

    Args:
        loss: ``[N, T]`` of each word.

    Source: Olsson et al. 2022, "In-context learning score" (500th less 50th token).
    """
    return float(loss[:, LATE].double().mean() - loss[:, EARLY].double().mean())


@dataclass(frozen=True)
class Point:
    """A model at one step of its training.

    Attributes:
        step: number of steps.
        prefix: prefix matching of each head, layer by layer.
        score: the in-context learning score.
        repeated: mean loss of the words that repeat random ones.
    """

    step: int
    prefix: list[float]
    score: float
    repeated: float


@dataclass(frozen=True)
class Texts:
    """Texts for measuring, as tokens: like the training's, and repeated random words twice."""

    like: Tensor
    chosen: Tensor
    """The repeated random words by which heads are chosen."""
    test: Tensor
    """Other ones, on which heads are removed."""

    @classmethod
    def of(cls, reader: Reader, count: int) -> "Texts":
        """The tokens for a model's vocabulary."""
        return cls(
            reader.tokens(repeated_segments(3, count)),
            reader.tokens(repeated_random(1, count)),
            reader.tokens(repeated_random(2, count)),
        )


def point_of(reader: Reader, step: int, texts: Texts) -> Point:
    """Measure a model at one step."""
    loss = losses(reader.read(texts.like), texts.like)
    prefix = prefix_matching(reader.weights(texts.chosen), PERIOD).double().mean(0)
    return Point(
        step, prefix.flatten().tolist(), in_context_score(loss), repeated_loss(reader, texts.test)
    )


def repeated_loss(reader: Reader, tokens: Tensor, removed: Sequence[Head] = ()) -> float:
    """The mean loss of the second half of repeated random words, without some heads."""
    return float(losses(reader.read(tokens, removed), tokens)[:, PERIOD:].double().mean())


def heads_of(reader: Reader, texts: Texts) -> list[tuple[Cell, ...]]:
    """A row a head: prefix matching, previous token, copying, and the loss without the head."""
    weights = reader.weights(texts.chosen)
    prefix = prefix_matching(weights, PERIOD).double().mean(0).flatten().tolist()
    previous = previous_token(weights).double().mean(0).flatten().tolist()
    whole = repeated_loss(reader, texts.test)
    words = torch.tensor(reader.words(WORDS))
    rows: list[tuple[Cell, ...]] = []
    for place, head in enumerate(reader.heads):
        copying = copying_score(value_output(reader.model, *head), words)
        rise = repeated_loss(reader, texts.test, [head]) - whole
        rows.append((head_name(head), prefix[place], previous[place], copying, rise))
    return rows


def run(options: StudyOptions) -> StudyResult:
    """Train the four models for each seed, and measure them at their checkpoints."""
    quick = options.quick
    count, measured = (64, 8) if quick else (40_000, 256)
    budget = Budget(4, 8, 3e-3, 2) if quick else Budget(6000, 64, 2e-3, 40)
    texts = {"train": repeated_segments(0, count), "validation": repeated_segments(1, count // 20)}
    curves: dict[str, list[list[Point]]] = {name: [] for name in MODELS}
    heads: dict[str, list[list[tuple[Cell, ...]]]] = {name: [] for name in MODELS}
    for seed in options.seeds:
        for name, sizes in MODELS.items():
            folder = f"{name.replace(',', '').replace(' ', '-')}-seed-{seed}"
            trained = train_language(options, folder, seed, texts, {**SIZES, **sizes}, budget)
            curves[name].append(_curve(trained, options.device, measured))
            reader = Reader.of(trained, options.device)
            heads[name].append(heads_of(reader, Texts.of(reader, measured)))
    return _result(options.seeds, curves, heads)


def _curve(trained: Run, device: str, count: int) -> list[Point]:
    """The points of all checkpoints of a run, without those of interruptions."""
    points = []
    regular = {one.step for one in trained.checkpoints() if not one.state.get("extra")}
    for step in sorted(regular):
        reader = Reader.of(trained, device, step)
        points.append(point_of(reader, step, Texts.of(reader, count)))
    return points


def steepest(points: Sequence[Point]) -> tuple[int, int] | None:
    """The two checkpoints between which the in-context learning score falls most: the phase
    change; None if it never falls."""
    falls = [after.score - before.score for before, after in pairwise(points)]
    if not falls or min(falls) >= 0:
        return None
    place = int(np.argmin(falls))
    return points[place].step, points[place + 1].step


def _result(
    seeds: Sequence[int],
    curves: Mapping[str, list[list[Point]]],
    heads: Mapping[str, list[list[tuple[Cell, ...]]]],
) -> StudyResult:
    rows: list[tuple[Cell, ...]] = []
    for name, runs in curves.items():
        for seed, points in zip(seeds, runs, strict=True):
            last, fall = points[-1], steepest(points)
            change = None if fall is None else f"{fall[0]:,}–{fall[1]:,}"
            rows.append((name, seed, max(last.prefix), last.score, last.repeated, change))
    columns = ("model", "seed", "best prefix matching", "in-context learning score")
    models = Table(
        "models",
        "Models at the end of their training",
        (*columns, "loss of repeated random words", "steepest fall of the score, steps"),
        tuple(rows),
    )
    own = [
        (name, seed, *row)
        for name, runs in heads.items()
        for seed, some in zip(seeds, runs, strict=True)
        for row in some
    ]
    names = ("prefix matching", "previous token", "copying", "rise of the loss without it")
    table = Table("heads", "Heads", ("model", "seed", "head", *names), tuple(own))
    pictures = (_phase(curves), _over_training(curves))
    return StudyResult(_sentences(curves, heads), (models, table), pictures)


def _sentences(
    curves: Mapping[str, list[list[Point]]], heads: Mapping[str, list[list[tuple[Cell, ...]]]]
) -> tuple[str, ...]:
    parts = []
    for name, runs in curves.items():
        prefix = np.mean([max(points[-1].prefix) for points in runs])
        score = np.mean([points[-1].score for points in runs])
        repeated = np.mean([points[-1].repeated for points in runs])
        fall = steepest(runs[0])
        phase = (
            "the score never falls"
            if fall is None
            else f"the score falls most between steps {fall[0]:,} and {fall[1]:,}"
        )
        parts.append(
            f"{name}: the best head's prefix matching is {prefix:.2f}, the in-context learning "
            f"score {score:.2f} nats, the loss of repeated random words {repeated:.2f} nats; with "
            f"the first seed {phase}."
        )
    for name, seeds in heads.items():
        rows = seeds[0]
        if MODELS[name]["layers"] < 2:
            continue
        best = max(rows, key=lambda row: _number(row[1]))
        worst = max(rows, key=lambda row: abs(_number(row[4])))
        parts.append(
            f"{name}, first seed: head {best[0]} has the best prefix matching "
            f"({_number(best[1]):.2f}) and a copying score of {_number(best[3]):.2f}; without it "
            f"the loss of repeated random words changes by {_number(best[4]):+.2f} nats. Of all "
            f"heads, the removal of {worst[0]} changes it most, by {_number(worst[4]):+.2f} nats; "
            f"its weight on the previous token is {_number(worst[2]):.2f}."
        )
    return tuple(parts)


def _number(cell: Cell) -> float:
    assert isinstance(cell, float)
    return cell


def _phase(curves: Mapping[str, list[list[Point]]]) -> Picture:
    """The in-context learning score and the best head's prefix matching over steps."""
    figure, axes = panels(2)
    steps = {name: [point.step for point in runs[0]] for name, runs in curves.items()}
    draw_lines(
        axes[0],
        {
            name: (steps[name], np.mean([[p.score for p in run] for run in runs], 0).tolist())
            for name, runs in curves.items()
        },
        marked=False,
    )
    draw_lines(
        axes[1],
        {
            name: (
                steps[name],
                np.mean([[max(p.prefix) for p in run] for run in runs], 0).tolist(),
            )
            for name, runs in curves.items()
        },
        marked=False,
    )
    axes[0].set_ylabel("in-context learning score, nats")
    axes[1].set_ylabel("prefix matching of the best head")
    axes[1].set_ylim(-0.02, 1.02)
    for panel in axes:
        panel.set_xlabel("step")
    return Picture(
        "phase-change",
        "In-context learning and prefix matching over training (means over seeds).",
        figure,
    )


def _over_training(curves: Mapping[str, list[list[Point]]]) -> Picture:
    """Prefix matching of every head of the models with two layers, for the first seed."""
    names = [name for name in curves if MODELS[name]["layers"] == 2]
    figure, axes = panels(len(names))
    for panel, name in zip(axes, names, strict=True):
        points = curves[name][0]
        count = len(points[0].prefix) // 2
        lines = {
            head_name((place // count, place % count)): (
                [point.step for point in points],
                [point.prefix[place] for point in points],
            )
            for place in range(2 * count)
        }
        draw_lines(panel, lines, marked=False)
        panel.set_title(name, loc="left", fontsize=10)
        panel.set_xlabel("step")
        panel.set_ylabel("prefix matching")
        panel.set_ylim(-0.02, 1.02)
    return Picture(
        "prefix-matching", "Prefix matching of each head (layer.head), first seed.", figure
    )


METHOD = """\
Olsson et al. 2022. A training text has 64 words: a segment of 8 to 24 words from a Markov chain
over 64 words (rows Dirichlet(0.1)), repeated until the text is full. 40,000 texts for training,
2,000 for validation. Models: one and two layers, four heads, width 64, rotary positions, with
feed-forward networks (full) and without (attention only). At 40 checkpoints: *prefix matching*,
the mean weight on the word after the previous occurrence of the current one, on 25 different
random words that are repeated once, which training texts do not resemble; the *in-context
learning score*, the loss of the last 8 words less that of the 5th to 8th on new texts like the
training's (the paper's 500th less 50th token); and the loss of the repeated random words.
*Copying* is Σλ / Σ|λ| over the eigenvalues of the head's value–output circuit (Elhage et al.
2021). Heads are ranked on 256 texts, and removed (their results set to zero) on 256 others."""

STUDY = Study(
    "induction",
    "Induction heads and in-context learning",
    "When do heads that repeat what followed an earlier occurrence form, and what do they carry?",
    METHOD,
    run,
    takes=(),
)
