"""Figures of vectors on examples, for validation and evaluation.

Shapes: N examples.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.examples import Similar
from heedful.evaluation.correlation import correlations
from heedful.evaluation.retrieval import ranks, retrieval_figures
from heedful.layers.contrastive import comparable, contrastive_losses
from heedful.tasks.embedding.predictor import Embedder

_BLOCK = 1024


class Measured(NamedTuple):
    """The figures of vectors."""

    figures: dict[str, float]
    """``loss``; correlations for rated pairs; recalls and the mean reciprocal rank for similar
    texts without ratings."""
    cosines: list[float]
    """The cosine of each example's first two texts; empty for single texts."""
    ranks: list[int]
    """The rank of each example's second text; empty for rated pairs and for single texts."""


def measure(
    embedder: Embedder,
    examples: Sequence[Similar],
    temperature: float,
    scale: tuple[float, float],
) -> Measured:
    """Embed the texts of examples and score their vectors.

    The loss of rated pairs is the mean squared error of the cosine. Otherwise it is the mean
    contrastive loss of the examples, where all of them are one batch. A text alone is its own
    positive, without dropout.

    Args:
        embedder: makes the vectors.
        examples: one or more.
        temperature: τ of the contrastive loss.
        scale: the ratings that stand for the cosines 0 and 1.
    """
    texts, different = numbered(embedder, examples)
    every = torch.from_numpy(embedder.embed(different)).double()
    anchors = every[texts[0]]
    if examples[0].rating is not None:
        cosines = F.cosine_similarity(anchors, every[texts[1]], dim=-1).tolist()
        gold = [float(one.rating or 0.0) for one in examples]
        wanted = [cosine_of(rating, scale) for rating in gold]
        squares = [(one - other) ** 2 for one, other in zip(cosines, wanted, strict=True)]
        return Measured(
            {"loss": sum(squares) / len(squares), **correlations(gold, cosines)}, cosines, []
        )
    single = len(texts) == 1
    texts = texts.repeat(2, 1) if single else texts
    candidates = every[texts[1:].flatten()]
    loss = 0.0
    for first in range(0, len(anchors), _BLOCK):
        own, allowed = anchors[first : first + _BLOCK], comparable(texts, first, first + _BLOCK)
        loss += float(contrastive_losses(own, candidates, allowed, temperature, first).sum())
    figures: dict[str, Any] = {"loss": loss / len(anchors)}
    if single:
        return Measured(figures, [], [])
    places = ranks(anchors, candidates, texts)
    cosines = F.cosine_similarity(anchors, candidates[: len(anchors)], dim=-1).tolist()
    return Measured({**figures, **retrieval_figures(places)}, cosines, places)


def numbered(embedder: Embedder, examples: Sequence[Similar]) -> tuple[Tensor, list[str]]:
    """The numbers ``[n, N]`` of the texts of examples, and a text of each number.

    As in training, texts are equal if their tokens are.
    """
    numbers: dict[tuple[int, ...], int] = {}
    different: list[str] = []
    keys = []
    for text in (text for one in examples for text in one.texts):
        number = numbers.setdefault(tuple(embedder.vocabulary.encode(text)), len(numbers))
        if number == len(different):
            different.append(text)
        keys.append(number)
    return torch.tensor(keys).view(len(examples), -1).mT, different


def cosine_of(rating: float, scale: tuple[float, float]) -> float:
    """The cosine from 0 to 1 that a rating stands for.

    Example:
        >>> cosine_of(4.0, (0.0, 5.0))
        0.8
    """
    lowest, highest = scale
    return (rating - lowest) / (highest - lowest)
