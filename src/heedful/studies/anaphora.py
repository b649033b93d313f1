"""``heedful study anaphora``: heads for agreement over a distance and for pronouns.

A small GPT learns generated sentences (:mod:`heedful.studies.sentences`). A decision is the
prediction of the verb or the pronoun; its query is the word before it. Heads for distant
dependencies and for anaphora: Vaswani et al. 2017, figures 3 and 4; agreement with attractors:
Linzen et al. 2016, "Assessing the Ability of LSTMs to Learn Syntax-Sensitive Dependencies".
Shapes: N sentences, L layers, H heads, T tokens.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.studies.drawing import draw_lines, draw_matrix, panels
from heedful.studies.language import Budget, Reader, head_name, train_language
from heedful.studies.sentences import PRONOUNS, VERBS, Sentence, dependent, sentences
from heedful.studies.study import Cell, Picture, Study, StudyOptions, StudyResult, Table
from heedful.viewing.heatmap import head_figure

DEPENDENCIES = {"verb": tuple(dict.fromkeys(VERBS.values())), "pronoun": tuple(PRONOUNS)}
"""What depends on the subject → the words that are compared."""
MODEL = {"layers": 2, "hidden_size": 64, "heads": 4, "positions": "rotary"}
BINS = ((1, 3), (4, 6), (7, 9), (10, 12), (13, 30))
"""Distances in words, first and last."""

Bools = NDArray[np.bool_]


class Decisions(NamedTuple):
    """The decisions of a model on sentences, for one dependency."""

    right: Bools
    """``[N]``: whether the right one of the compared words is the most probable one."""
    nearest: Bools
    """``[N]``: whether the last person before the decision has the right word."""
    first: Bools
    """``[N]``: whether the first person of the sentence has the right word."""
    strongest: Bools
    """``[N, L · H]``: whether a head's largest weight is on the subject."""
    weight: NDArray[np.float64]
    """``[N, L · H]``: a head's weight on the subject."""
    distance: NDArray[np.int64]
    """``[N]``"""
    place: NDArray[np.int64]
    """``[N]``: the subject's place in the sentence."""


def decisions(reader: Reader, some: Sequence[Sentence], dependency: str) -> Decisions:
    """Read sentences and compare."""
    words = DEPENDENCIES[dependency]
    tokens = reader.tokens([one.words for one in some])
    rows = torch.arange(len(some))
    queries = torch.tensor([one.place_of(dependency) for one in some])  # END shifts by one
    scores = reader.read(tokens)[rows, queries][:, reader.words(words)]
    expected = [dependent(one.words[one.subject], dependency) for one in some]
    right = [words[best] == word for best, word in zip(scores.argmax(1), expected, strict=True)]
    own = reader.weights(tokens)[rows, :, :, queries].flatten(1, 2)  # [N, L · H, T]
    subjects = torch.tensor([one.subject + 1 for one in some])
    return Decisions(
        np.array(right),
        np.array([_nearest(one, dependency) for one in some]) == np.array(expected),
        np.array([dependent(one.words[one.nouns[0]], dependency) for one in some])
        == np.array(expected),
        *on_subject(own, subjects),
        np.array([one.distance(dependency) for one in some]),
        np.array([one.subject for one in some]),
    )


def on_subject(weights: Tensor, subjects: Tensor) -> tuple[Bools, NDArray[np.float64]]:
    """Whether a head's largest weight is on the subject, and that weight, both ``[N, H]``.

    Args:
        weights: of one query ``[N, H, T]``.
        subjects: the subject's key ``[N]``.

    Example:
        >>> weights = torch.tensor([[[0.2, 0.8], [0.7, 0.3]]])
        >>> on_subject(weights, torch.tensor([1]))[0].tolist()
        [[True, False]]
    """
    strongest = weights.argmax(-1) == subjects.unsqueeze(1)
    weight = weights.gather(2, subjects.view(-1, 1, 1).expand(-1, weights.shape[1], 1))
    return strongest.numpy(), weight.squeeze(2).double().numpy()


def _nearest(one: Sentence, dependency: str) -> str:
    place = max(noun for noun in one.nouns if noun < one.place_of(dependency))
    return dependent(one.words[place], dependency)


class Found(NamedTuple):
    """The decisions of one model for one dependency."""

    chosen: int
    """The head whose largest weight is most often on the subject, in validation sentences."""
    validation: Decisions
    test: Decisions


def run(options: StudyOptions) -> StudyResult:
    """Train a model for each seed, choose heads on validation sentences, score test sentences."""
    quick = options.quick
    count, held_out = (60, 20) if quick else (30_000, 1000)
    budget = Budget(4, 8, 3e-3) if quick else Budget(600, 64, 3e-3)
    texts = {
        "train": [one.words for one in sentences("train", 0, count)],
        "validation": [one.words for one in sentences("validation", 0, held_out)],
    }
    parts = {part: list(sentences(part, 1, held_out)) for part in ("validation", "test")}
    found: dict[str, list[Found]] = {dependency: [] for dependency in DEPENDENCIES}
    readers = []
    for seed in options.seeds:
        trained = train_language(options, f"gpt-seed-{seed}", seed, texts, MODEL, budget)
        reader = Reader.of(trained, options.device)
        readers.append(reader)
        for dependency, own in found.items():
            validation, test = (
                decisions(reader, parts[part], dependency) for part in ("validation", "test")
            )
            chosen = int(validation.strongest.mean(0).argmax())
            own.append(Found(chosen, validation, test))
    return _result(options.seeds, found, readers[0], parts["test"])


def in_bins(distance: NDArray[np.int64]) -> dict[str, Bools]:
    """Name of each range of distances that occurs → which sentences are in it."""
    found = {}
    for low, high in BINS:
        inside = (distance >= low) & (distance <= high)
        if inside.any():
            found[f"{low}–{min(high, int(distance.max()))}"] = inside
    return found


def _result(
    seeds: Sequence[int],
    found: Mapping[str, list[Found]],
    reader: Reader,
    test: Sequence[Sentence],
) -> StudyResult:
    names = [head_name(head) for head in reader.heads]
    tables = [_by_distance(found)]
    rows: list[tuple[Cell, ...]] = []
    for dependency, own in found.items():
        for seed, one in zip(seeds, own, strict=True):
            for place, name in enumerate(names):
                shares = [float(d.strongest[:, place].mean()) for d in (one.validation, one.test)]
                mark = "chosen" if place == one.chosen else None
                weight = float(one.test.weight[:, place].mean())
                rows.append((dependency, seed, name, mark, *shares, weight))
    columns = ("decision", "seed", "head", "", "on the subject (validation)")
    more = ("on the subject (test)", "mean weight (test)")
    tables.append(
        Table("heads", "Share of the strongest weights on the subject", columns + more, tuple(rows))
    )
    pictures = [_picture(dependency, own, names) for dependency, own in found.items()]
    pictures.append(_example(found, reader, names, test))
    return StudyResult(_sentences(found, names), tuple(tables), tuple(pictures))


def _by_distance(found: Mapping[str, list[Found]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for dependency, own in found.items():
        first = own[0].test
        everything = {"all": np.ones(len(first.distance), np.bool_)}
        for name, inside in {**in_bins(first.distance), **everything}.items():
            right = float(np.mean([one.test.right[inside].mean() for one in own]))
            head = float(np.mean([one.test.strongest[inside, one.chosen].mean() for one in own]))
            others = float(first.nearest[inside].mean()), float(first.first[inside].mean())
            rows.append((dependency, name, int(inside.sum()), right, head, *others))
    columns = ("decision", "distance", "sentences", "accuracy", "chosen head on the subject")
    return Table(
        "distance",
        "Test sentences by the distance of subject and decision (means over seeds)",
        (*columns, "as the nearest person", "as the first person"),
        tuple(rows),
    )


def _sentences(found: Mapping[str, list[Found]], names: Sequence[str]) -> tuple[str, ...]:
    parts = []
    for dependency, own in found.items():
        accuracy = np.mean([one.test.right.mean() for one in own])
        lured = ~own[0].test.nearest
        hard = np.mean([one.test.right[lured].mean() for one in own]) if lured.any() else np.nan
        head = np.mean([one.test.strongest[:, one.chosen].mean() for one in own])
        chosen = ", ".join(names[one.chosen] for one in own)
        parts.append(
            f"The {dependency} is predicted right in {100 * accuracy:.1f} % of the test sentences, "
            f"and in {100 * hard:.1f} % of those where the nearest person calls for another word. "
            f"The head that was chosen on validation sentences (by seed: {chosen}) has its "
            f"strongest weight on the subject in {100 * head:.1f} % of the test sentences; a head "
            f"that always looked at the same place would have {100 * _mode(own[0].test.place):.1f} "
            f"%, one that always looked as far back {100 * _mode(own[0].test.distance):.1f} %."
        )
    return tuple(parts)


def _mode(values: NDArray[np.int64]) -> float:
    """The share of the most frequent value."""
    return float(np.bincount(values).max() / len(values))


def _picture(dependency: str, own: Sequence[Found], names: Sequence[str]) -> Picture:
    """Accuracy by distance, and where the strongest weights of each head are."""
    first = own[0].test
    bins = in_bins(first.distance)
    places = list(range(len(bins)))
    lines = {
        "model": [float(np.mean([one.test.right[i].mean() for one in own])) for i in bins.values()],
        "chosen head on the subject": [
            float(np.mean([one.test.strongest[i, one.chosen].mean() for one in own]))
            for i in bins.values()
        ],
        "as the nearest person": [float(first.nearest[i].mean()) for i in bins.values()],
        "as the first person": [float(first.first[i].mean()) for i in bins.values()],
    }
    figure, axes = panels(2)
    draw_lines(axes[0], {name: (places, values) for name, values in lines.items()})
    axes[0].set_xticks(places, list(bins))
    axes[0].set_xlabel("distance in words")
    axes[0].set_ylabel("share of test sentences")
    axes[0].set_ylim(-0.02, 1.02)
    rows = [
        [float(first.strongest[inside, place].mean()) for inside in bins.values()]
        for place in range(len(names))
    ]
    draw_matrix(axes[1], rows, names, list(bins))
    axes[1].set_xlabel("distance in words")
    axes[1].set_ylabel("head (layer.head)")
    axes[1].set_title("strongest weight on the subject", loc="left", fontsize=10)
    caption = f"The {dependency}: accuracy by distance (means over seeds), and heads (first seed)."
    return Picture(dependency, caption, figure)


def _example(
    found: Mapping[str, list[Found]], reader: Reader, names: Sequence[str], test: Sequence[Sentence]
) -> Picture:
    """The chosen heads in the test sentence whose pronoun is farthest from its antecedent."""
    one = max(test, key=lambda each: (each.distance("pronoun"), len(each.nouns)))
    length = one.pronoun + 1
    weights = reader.weights(reader.tokens([one.words]))[0].flatten(0, 1)
    labels = ["<s>", *one.words[: length - 1]]
    stack, queries = [], []
    for dependency, own in found.items():
        place = one.place_of(dependency)
        stack.append(weights[own[0].chosen, place, :length])
        queries.append(f"{one.words[place]} (head {names[own[0].chosen]})")
    figure = head_figure(torch.stack(stack)[None], queries, labels, names=[""])
    return Picture("example", "Weights of the chosen heads for both decisions.", figure)


METHOD = """\
Sentences of 32 words from a grammar with 40 persons (10 he, 10 she, 20 they), up to 6 of them
in a sentence, one of them the subject; another one may have the same noun. All pairs of subject
and attractor, and all pairs of adjective and lost thing, are divided into training (80 %),
validation (10 %) and test (10 %) by a hash: a test sentence has no such pair of a training
sentence. 30,000 sentences for training, 1,000 each for validation and test. A GPT with two
layers, four heads and width 64 learns to predict the next word. A decision is right if the
right one of *was, were* or of *he, she, they* is the most probable of them. Heads are judged at
the word before, from which the model predicts: whether the largest weight is on the subject.
The head is chosen on validation sentences and scored on test sentences. Baselines: the word
that the nearest person, or the first person, calls for."""

STUDY = Study(
    "anaphora",
    "Heads for distant agreement and for pronouns",
    "Do heads find the subject that a distant verb or pronoun depends on?",
    METHOD,
    run,
    takes=(),
)
