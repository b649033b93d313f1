"""The toy sentence of docs/attention.md, and what each mechanism makes of it.

Four words, two numbers each: the first stands for a person, the second for an act. A key says what
a word is, a query what it looks for, a value what it has to give.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from heedful.attention import (
    DifferentialAttention,
    LatentAttention,
    LearnedQueries,
    MultiHeadAttention,
    Pointer,
    RecurrentAttention,
    StructuredSelfAttention,
    attention_weights,
    delta_weights,
    feature_maps,
    heads,
    linear_weights,
    masks,
    normalizers,
    positions,
    scores,
    watch,
)
from heedful.attention.masks import Mask

Module = TypeVar("Module", bound=torch.nn.Module)

WORDS = ["see", "that", "girl", "run"]
QUERIES = torch.tensor([[2.0, 1.0], [2.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
KEYS = torch.tensor([[-0.5, 0.0], [0.5, 0.0], [1.0, 0.0], [0.0, 1.0]])
VALUES = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


@dataclass(frozen=True)
class Toy:
    """Weights on the sentence, ``[maps, rows, 4]``, and which of them a mask took away."""

    weights: Tensor
    allowed: Tensor | None = None
    rows: Sequence[str] = tuple(WORDS)
    drawn: bool = False
    """Whether they are drawn at random, from a seed."""


def by_score(score: scores.Score, normalize: normalizers.Normalizer | None = None) -> Toy:
    return Toy(_weights(score=score, normalize=normalize))


def by_normalizer(normalize: normalizers.Normalizer) -> Toy:
    torch.manual_seed(4)  # the ones that draw
    return Toy(_weights(normalize=normalize), drawn=normalize.draws)


def by_mask(mask: Mask | Tensor) -> Toy:
    if isinstance(mask, Mask):
        allowed = mask.dense((1, 4, 4)).expand(1, 4, 4)
    else:
        allowed = mask.isfinite().expand(1, 4, 4)
    shaped = (part.unsqueeze(0) for part in (QUERIES, KEYS))
    return Toy(attention_weights(*shaped, mask=mask), allowed)


def by_positions(part: positions.RelativePositions) -> Toy:
    heads = getattr(part, "heads", 1)
    shaped = (part.expand(1, heads, 4, 2) for part in (QUERIES, KEYS))
    return Toy(attention_weights(*shaped, positions=part)[0, :1].detach())


def by_added_positions(added: torch.nn.Module) -> Toy:
    """Positions added to the words themselves: to what they look for and to what they are."""
    query, key = (added(part.unsqueeze(0)).squeeze(0) for part in (QUERIES, KEYS))
    return Toy(attention_weights(query, key).detach().unsqueeze(0))


def _weights(**parts: object) -> Tensor:
    weights = attention_weights(QUERIES, KEYS, **parts)  # type: ignore[arg-type]
    return weights.detach().unsqueeze(0)


# Parts with numbers of their own, which are chosen by hand as well.


def general() -> scores.General:
    return _set(scores.General(2, 2), weight=[[1.0, 0.5], [0.0, 1.0]])


def trilinear() -> scores.Trilinear:
    """Products of which the first counts double, and a liking for keys with a second component."""
    return _set(scores.Trilinear(2), weight=[[0.0, 0.0], [0.0, 0.5], [2.0, 1.0]])


def additive(*, vector: bool = True) -> scores.Additive:
    """Two units: who looks for an act holds the first one down, who for a person the other."""
    score = scores.Additive(2, 2, hidden_dim=2, vector=vector)
    _set(score.query_projection, weight=[[0.0, -2.0], [-2.0, 0.0]])
    _set(score.key_projection, weight=[[2.0, 0.0], [0.0, 2.0]])
    return _set(score, v=[2.0, 2.0]) if vector else score


def concat() -> scores.Concat:
    """The numbers of :func:`additive`, in one matrix."""
    weight = [[0.0, -2.0, 2.0, 0.0], [-2.0, 0.0, 0.0, 2.0]]
    return _set(scores.Concat(2, 2, hidden_dim=2), weight=weight, v=[2.0, 2.0])


def location() -> scores.Location:
    """The third place for those who look for a person, the fourth for those who look for an act."""
    weight = [[0.0, 0.0], [0.0, 0.0], [0.7, 0.0], [0.0, 0.7]]
    return _set(scores.Location(2, positions=4), weight=weight)


def recurrent(score: scores.Score, normalize: normalizers.Normalizer | None = None) -> Toy:
    """Word after word: each sees the weights of those before."""
    layer = RecurrentAttention(score, normalize)
    with watch(layer) as seen:
        layer(QUERIES.unsqueeze(0), KEYS.unsqueeze(0))
    return Toy(seen[""][0][0])


def _like_additive(score: Module) -> Module:
    _set(score.query_projection, weight=[[0.0, -2.0], [-2.0, 0.0]])
    _set(score.key_projection, weight=[[2.0, 0.0], [0.0, 2.0]], bias=[0.0, 0.0])
    return _set(score, v=[2.0, 2.0])


def location_aware() -> scores.LocationAware:
    """The word after the one attended to is liked."""
    score = _like_additive(scores.LocationAware(2, 2, 2, filters=1, width=3))
    _set(score.feature_projection, weight=[[3.0], [3.0]])
    return _set(score, filters=[[[1.0, 0.0, 0.0]]])


def coverage() -> scores.Coverage:
    """Words that were attended to are avoided."""
    return _set(_like_additive(scores.Coverage(2, 2, 2)), w_c=[-2.0, -2.0])


def energy() -> scores.Energy:
    """The additive score's numbers, with an offset."""
    score = _set(_like_additive(scores.Energy(2, 2, 2)), scale=8.0**0.5)
    return _set(score, offset=-1.0)


def local_predictive() -> normalizers.LocalPredictive:
    """Who looks for an act looks further along the sentence."""
    normalize = normalizers.LocalPredictive(query_dim=2, hidden_dim=1, window=1)
    _set(normalize.query_projection, weight=[[0.0, 1.0]])
    _set(normalize.position_projection, weight=[[1.1]])
    return normalize


def shaw() -> positions.Shaw:
    """The next word is liked, the word itself is not."""
    table = [[0.0, 0.0], [-0.5, -0.5], [0.5, 0.5]]
    return _set(positions.Shaw(2, clip=1, values=False), key_table=table)


def t5_buckets() -> positions.T5Buckets:
    """Buckets: the word itself, before it, (none), after it."""
    part = positions.T5Buckets(heads=1, buckets=4, max_distance=2)
    _set(part.table, weight=[[-2.0], [0.0], [0.0], [1.0]])
    return part


def quadratic() -> positions.Quadratic:
    """A row of words: the next one is liked."""
    return _set(positions.Quadratic(1, (1, 4)), centres=[[0.0, 1.0]], sharpness=[1.0])


def transformer_xl() -> positions.TransformerXL:
    """The next word is liked: the sine of the distance i − t, times the number of persons."""
    part = positions.TransformerXL(2, heads=1)
    return _set(part, projection=[[[-1.0, 0.0], [0.0, 0.0]]], position_bias=[[1.0, 0.0]])


def learned() -> positions.Learned:
    part = positions.Learned(2, length=4)
    _set(part.table, weight=[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]])
    return part


def sinks() -> normalizers.SinkSoftmax:
    return _set(normalizers.SinkSoftmax(), sink=[0.5])


def talking() -> heads.TalkingHeads:
    """Each head listens a little to the other."""
    mixing = heads.TalkingHeads(2)
    return _set(
        mixing, score_mixing=[[1.0, 0.3], [0.3, 1.0]], weight_mixing=[[0.8, 0.2], [0.2, 0.8]]
    )


def differential() -> Toy:
    """The map of persons, less half of that of acts."""
    layer = DifferentialAttention(2, heads=1)
    assert layer.value_projection is not None
    mixing = layer.mixing
    assert isinstance(mixing, heads.Differential)
    for part in (layer.query_projection, layer.key_projection):
        _set(part, weight=[[1.0, 0.0], [0.0, 1.0]])
    _set(mixing, lambda_q1=[0.0], lambda_k1=[0.0], lambda_q2=[0.0], lambda_k2=[0.0])
    mixing.initial = 0.5
    return _watched(layer)


def two_heads(
    key_heads: int = 2,
    mixing: heads.HeadMixing | None = None,
    gate: heads.OutputGate | None = None,
) -> Toy:
    """A head for each of the two numbers; with one head of keys, that is the first number."""
    layer = MultiHeadAttention(2, heads=2, key_heads=key_heads, mixing=mixing, gate=gate)
    _set(layer.query_projection, weight=[[1.0, 0.0], [0.0, 1.0]])
    _set(layer.key_projection, weight=[[1.0, 0.0], [0.0, 1.0]][:key_heads])
    return _watched(layer)


def latent() -> Toy:
    """Two heads whose keys are projected from a normalized latent vector of both numbers."""
    layer = LatentAttention(2, heads=2, latent_size=2)
    for part in (layer.query_projection, layer.key_projection, layer.key_expansion):
        _set(part, weight=[[1.0, 0.0], [0.0, 1.0]])
    with watch(layer) as seen:
        layer(QUERIES.unsqueeze(0), KEYS.unsqueeze(0))
    return Toy(seen[""][0][0])


def normed() -> Toy:
    """One head, whose queries and keys have directions only."""
    layer = MultiHeadAttention(
        2, heads=1, score=scores.Dot(), query_key_norm=heads.QueryKeyNorm(2, "l2", factor=3.0)
    )
    for part in (layer.query_projection, layer.key_projection):
        _set(part, weight=[[1.0, 0.0], [0.0, 1.0]])
    return _watched(layer)


def lines() -> Toy:
    """Two lines of two words; what is in the other line is no key at all."""
    layer = MultiHeadAttention(2, heads=1)
    for part in (layer.query_projection, layer.key_projection):
        _set(part, weight=[[1.0, 0.0], [0.0, 1.0]])
    mask = masks.axial((2, 2), 1)
    with watch(layer) as seen:
        layer(QUERIES.unsqueeze(0), KEYS.unsqueeze(0), mask=mask)
    return Toy(seen[""][0][0], mask.dense((1, 4, 4)).expand(1, 4, 4))


def _watched(layer: MultiHeadAttention) -> Toy:
    with watch(layer) as seen:
        layer(QUERIES.unsqueeze(0), KEYS.unsqueeze(0), VALUES.unsqueeze(0))
    return Toy(seen[""][0][0])


def linear(feature_map: feature_maps.FeatureMap, mask: Mask | None) -> Toy:
    weights = linear_weights(QUERIES, KEYS, feature_map=feature_map, mask=mask)
    return Toy(
        weights.unsqueeze(0), None if mask is None else mask.dense((1, 4, 4)).expand(1, 4, 4)
    )


def delta(decay: float | None) -> Toy:
    """Each word writes with all strength; queries and keys have directions only."""
    query, key = normalize(QUERIES), normalize(KEYS)
    rate = None if decay is None else torch.full((4,), math.log(decay))
    weights = delta_weights(query, key, torch.ones(4), log_decay=rate)
    return Toy(weights.unsqueeze(0), masks.causal().dense((1, 4, 4)).expand(1, 4, 4))


def learned_queries() -> Toy:
    """A query for persons and one for acts."""
    heads_ = MultiHeadAttention(2, heads=1)
    for part in (heads_.query_projection, heads_.key_projection):
        _set(part, weight=[[1.0, 0.0], [0.0, 1.0]])
    layer = _set(LearnedQueries(heads_, 2, 2), latents=[[3.0, 0.0], [0.0, 3.0]])
    with watch(layer) as seen:
        layer(KEYS.unsqueeze(0))
    return Toy(seen["attention"][0][0], rows=["query 1", "query 2"])


def pointer() -> Toy:
    layer = Pointer(additive())
    with watch(layer) as seen:
        layer(QUERIES.unsqueeze(0), KEYS.unsqueeze(0))
    return Toy(seen[""][0][0])


def structured() -> Toy:
    """A hop for persons and one for acts."""
    layer = StructuredSelfAttention(2, hidden_dim=2, hops=2)
    _set(layer, W_s1=[[2.0, 0.0], [0.0, 2.0]], W_s2=[[2.0, 0.0], [0.0, 2.0]])
    with watch(layer) as seen:
        layer(KEYS.unsqueeze(0))
    return Toy(seen[""][0][0], rows=["hop 1", "hop 2"])


def _set(
    module: Module, **numbers: float | list[float] | list[list[float]] | list[list[list[float]]]
) -> Module:
    with torch.no_grad():
        for name, values in numbers.items():
            getattr(module, name).copy_(torch.tensor(values))
    return module
