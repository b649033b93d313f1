"""The mechanisms of docs/attention.md's table: on the toy sentence, and at a size that costs.

A key names a row by its picture, ``docs/images/attention-KEY.svg``. The page has the rest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import attention_toy as toy
import torch
from attention_costs import LENGTH, WIDTH, Forward
from attention_toy import Toy
from torch import Tensor, nn

from heedful.attention import (
    AxialAttention,
    DifferentialAttention,
    LatentAttention,
    LearnedQueries,
    LinearAttention,
    MultiHeadAttention,
    Pointer,
    RecurrentAttention,
    StructuredSelfAttention,
    attend,
    delta_attend,
    feature_maps,
    heads,
    linear_attend,
    masks,
    normalizers,
    positions,
    scores,
    use_kernel,
)
from heedful.attention.masks import Mask

D, T = WIDTH, LENGTH


@dataclass(frozen=True)
class Mechanism:
    """One row of the table."""

    toy: Callable[[], Toy]
    forward: Forward
    parts: nn.Module
    """What holds its parameters."""


def _attend(small: Callable[[], Toy], **given: object) -> Mechanism:
    parts = nn.ModuleList([part for part in given.values() if isinstance(part, nn.Module)])

    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, **given)  # type: ignore[arg-type]

    return Mechanism(small, forward, parts)


def _score(small: scores.Score, whole: scores.Score) -> Mechanism:
    return _attend(lambda: toy.by_score(small), score=whole)


def _normalizer(small: normalizers.Normalizer, whole: normalizers.Normalizer) -> Mechanism:
    return _attend(lambda: toy.by_normalizer(small), normalize=whole)


def _mask(small: Mask | Tensor, whole: Mask | Tensor) -> Mechanism:
    return _attend(lambda: toy.by_mask(small), mask=whole)


def _within(small: positions.RelativePositions, whole: positions.RelativePositions) -> Mechanism:
    return _attend(lambda: toy.by_positions(small), positions=whole)


def _added(small: nn.Module, whole: nn.Module) -> Mechanism:
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(whole(query), whole(key), value)

    return Mechanism(lambda: toy.by_added_positions(small), forward, whole)


def _heads(
    small: Callable[[], Toy], whole: MultiHeadAttention | LinearAttention | AxialAttention
) -> Mechanism:
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if isinstance(whole, AxialAttention):
            lines: Tensor = whole(query[0])
            return lines
        of_keys = isinstance(whole, LatentAttention)
        joined: Tensor = whole(query[0], key[0], None if of_keys else value[0])
        return joined

    return Mechanism(small, forward, whole)


def _plainly(small: scores.Score, whole: scores.Score) -> Mechanism:
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with use_kernel("plain"):
            return attend(query, key, value, score=whole)

    return Mechanism(lambda: toy.by_score(small), forward, whole)


def _linear(feature_map: feature_maps.FeatureMap, mask: Mask | None = None) -> Mechanism:
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return linear_attend(query, key, value, feature_map=feature_map, mask=mask)

    return Mechanism(lambda: toy.linear(feature_map, mask), forward, nn.Module())


def _delta(decay: float | None = None) -> Mechanism:
    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ones = key.new_ones(key.shape[:-1])
        rate = None if decay is None else ones * math.log(decay)
        return delta_attend(query, key, value, ones, log_decay=rate)

    return Mechanism(lambda: toy.delta(decay), forward, nn.Module())


def _structured() -> Mechanism:
    layer = StructuredSelfAttention(D, hidden_dim=D, hops=8)
    return Mechanism(toy.structured, lambda query, key, value: layer(key), layer)


def _recurrent(
    small: Callable[[], Toy], score: scores.Score, normalize: normalizers.Normalizer | None = None
) -> Mechanism:
    whole = RecurrentAttention(score, normalize)

    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        of_keys = isinstance(whole, LatentAttention)
        joined: Tensor = whole(query[0], key[0], None if of_keys else value[0])
        return joined

    return Mechanism(small, forward, whole)


def _learned_queries() -> Mechanism:
    layer = LearnedQueries(MultiHeadAttention(D, heads=8), count=8, dim=D)
    return Mechanism(toy.learned_queries, lambda query, key, value: layer(key[0]), layer)


def _pointer() -> Mechanism:
    layer = Pointer(scores.Additive(D, D, D))
    return Mechanism(toy.pointer, lambda query, key, value: layer(query[0], key[0]), layer)


def _scores() -> dict[str, Mechanism]:
    exp_dot = scores.ExpDot()
    return {
        "dot": _score(scores.Dot(), scores.Dot()),
        "scaled-dot": _score(scores.ScaledDot(), scores.ScaledDot()),
        "exp-dot": _attend(
            lambda: toy.by_score(exp_dot, normalizers.PlainSum()),
            score=exp_dot,
            normalize=normalizers.PlainSum(),
        ),
        "general": _score(toy.general(), scores.General(D, D)),
        "trilinear": _score(toy.trilinear(), scores.Trilinear(D)),
        "additive": _score(toy.additive(), scores.Additive(D, D, D)),
        "additive-plain": _plainly(toy.additive(), scores.Additive(D, D, D)),
        "additive-sum": _score(toy.additive(vector=False), scores.Additive(D, D, D, vector=False)),
        "concat": _score(toy.concat(), scores.Concat(D, D, D)),
        "cosine": _score(scores.Cosine(3.0), scores.Cosine(3.0)),
        "gaussian": _score(scores.Gaussian(), scores.Gaussian()),
        "location": _score(toy.location(), scores.Location(D, positions=T)),
        "soft-capped": _score(scores.SoftCapped(cap=1.0), scores.SoftCapped()),
        "energy": _score(toy.energy(), scores.Energy(D, D, D)),
        "location-aware": _recurrent(
            lambda: toy.recurrent(toy.location_aware()), scores.LocationAware(D, D, D)
        ),
        "coverage": _recurrent(lambda: toy.recurrent(toy.coverage()), scores.Coverage(D, D, D)),
    }


def _normalizers() -> dict[str, Mechanism]:
    n = normalizers
    return {
        "softmax": _normalizer(n.Softmax(), n.Softmax()),
        "temperature": _normalizer(n.Softmax(0.3), n.Softmax(0.3)),
        "off-by-one": _normalizer(n.SoftmaxOffByOne(), n.SoftmaxOffByOne()),
        "sink": _normalizer(toy.sinks(), n.SinkSoftmax()),
        "smoothed": _normalizer(n.Smoothed(), n.Smoothed()),
        "plain-sum": _normalizer(n.PlainSum(), n.PlainSum()),
        "sparsemax": _normalizer(n.Sparsemax(), n.Sparsemax()),
        "entmax15": _normalizer(n.Entmax15(), n.Entmax15()),
        "entmax": _normalizer(n.Entmax(1.2), n.Entmax(1.2)),
        "hard": _normalizer(n.Hard(), n.Hard()),
        "sampled": _normalizer(n.SampledHard(), n.SampledHard()),
        "gumbel": _normalizer(n.GumbelStraightThrough(), n.GumbelStraightThrough()),
        "local-m": _normalizer(n.LocalMonotonic(1), n.LocalMonotonic(32)),
        "monotonic": _recurrent(
            lambda: toy.recurrent(scores.ScaledDot(), n.Monotonic(noise=0.0)),
            scores.ScaledDot(),
            n.Monotonic(noise=0.0),
        ),
        "windowed": _recurrent(
            lambda: toy.recurrent(scores.ScaledDot(), n.Windowed(1, in_training=True)),
            scores.ScaledDot(),
            n.Windowed(32, in_training=True),
        ),
        "local-p": _normalizer(toy.local_predictive(), n.LocalPredictive(D, D, window=32)),
    }


def _top_blocks() -> Mechanism:
    chosen = masks.top_blocks(toy.QUERIES, toy.KEYS, size=2, count=1, causal=False)

    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = masks.causal() & masks.top_blocks(query, key, size=64, count=4)
        return attend(query, key, value, mask=mask)

    return Mechanism(lambda: toy.by_mask(chosen), forward, nn.Module())


def _masks() -> dict[str, Mechanism]:
    return {
        "padding": _mask(masks.padding(torch.tensor([3])), masks.padding(torch.tensor([1000]))),
        "causal": _mask(masks.causal(), masks.causal()),
        "window": _mask(masks.window(1), masks.window(32)),
        "block": _mask(masks.block(2), masks.block(64)),
        "document": _mask(
            masks.document(torch.tensor([0, 1, 1, 1])), masks.document(torch.arange(T) // 100)
        ),
        "prefix": _mask(masks.prefix(torch.tensor([2])), masks.prefix(torch.tensor([100]))),
        "sinks": _mask(
            masks.window(0) | masks.sinks(1), masks.causal() & (masks.window(32) | masks.sinks(4))
        ),
        "axial": _mask(masks.axial((2, 2), 1), masks.axial((32, 32), 1)),
        "neighbourhood": _mask(masks.neighbourhood((1, 4), 1), masks.neighbourhood((32, 32), 3)),
        "top-blocks": _top_blocks(),
        "function": _mask(masks.function(_even), masks.function(_even)),
        "numbers": _mask(_numbers(4), _numbers(T)),
    }


def _even(query: Tensor, key: Tensor) -> Tensor:
    return (query - key) % 2 == 0


def _numbers(length: int) -> Tensor:
    """Half a point more for each place further on; nothing for the last word."""
    numbers = 0.5 * torch.arange(float(length)).repeat(length, 1)
    numbers[:, -1] = float("-inf")
    return numbers


def _positions() -> dict[str, Mechanism]:
    p = positions
    return {
        "sinusoidal": _added(p.Sinusoidal(2), p.Sinusoidal(D, length=T)),
        "learned": _added(toy.learned(), p.Learned(D, length=T)),
        "shaw": _within(toy.shaw(), p.Shaw(D, clip=16)),
        "t5": _within(toy.t5_buckets(), p.T5Buckets(heads=1)),
        "alibi": _within(p.ALiBi(heads=8), p.ALiBi(heads=1)),
        "rotary": _within(p.Rotary(2), p.Rotary(D)),
        "grid": _within(p.GridRotary(2, (2, 2), sections=(1, 0)), p.GridRotary(D, (32, 32))),
        "quadratic": _within(toy.quadratic(), p.Quadratic(1, (32, 32))),
        "xl": _within(toy.transformer_xl(), p.TransformerXL(D, heads=1)),
    }


def _others() -> dict[str, Mechanism]:
    return {
        "heads": _heads(toy.two_heads, MultiHeadAttention(D, heads=8)),
        "grouped": _heads(
            lambda: toy.two_heads(key_heads=1), MultiHeadAttention(D, heads=8, key_heads=2)
        ),
        "talking": _heads(
            lambda: toy.two_heads(mixing=toy.talking()),
            MultiHeadAttention(D, heads=8, mixing=heads.TalkingHeads(8)),
        ),
        "differential": _heads(toy.differential, DifferentialAttention(D, heads=4)),
        "latent": _heads(toy.latent, LatentAttention(D, heads=8, latent_size=16)),
        "norm": _heads(
            toy.normed, MultiHeadAttention(D, heads=8, query_key_norm=heads.QueryKeyNorm(D // 8))
        ),
        "axial-lines": _heads(
            toy.lines, AxialAttention(MultiHeadAttention(D, heads=8), (4, 256), 1)
        ),
        "gate": _heads(
            lambda: toy.two_heads(gate=heads.OutputGate(2, heads=2, head_dim=1)),
            MultiHeadAttention(D, heads=8, gate=heads.OutputGate(D, heads=8, head_dim=D // 8)),
        ),
        "linear-elu": _linear(feature_maps.EluPlusOne()),
        "linear-relu": _linear(feature_maps.ReluFeatures()),
        "linear-causal": _linear(feature_maps.EluPlusOne(), masks.causal()),
        "delta": _delta(),
        "delta-gated": _delta(decay=0.5),
        "structured": _structured(),
        "learned-queries": _learned_queries(),
        "pointer": _pointer(),
    }


def mechanisms() -> dict[str, Mechanism]:
    """All rows, by key."""
    groups = {
        "score": _scores(),
        "normalizer": _normalizers(),
        "mask": _masks(),
        "positions": _positions(),
        "other": _others(),
    }
    return {
        f"{group}-{key}": mechanism
        for group, rows in groups.items()
        for key, mechanism in rows.items()
    }
