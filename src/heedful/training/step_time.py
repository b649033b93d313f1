"""Predicted time and memory of a training step on many cards, with DDP and FSDP2.

Both are simulated unit by unit. Units are the layers of a Transformer, and one for the other
parameters, such as tables. Every card computes a batch of its own. A card computes and communicates
at the same time, one operation of each kind at a time; neither slows the other. What the
communication adds to the time of the computation is *exposed*. There are no pipeline stages, and
therefore no bubbles.

- DDP (Li et al. 2020, "PyTorch distributed", section 3.2): gradients are all-reduced in buckets of
  25 MiB, in the order in which the backward pass finishes them.
- DDP with exact sums (``training.exact_reduction``): after the backward pass, each card gets a part
  of the gradients of all others, adds them in a fixed order, and sends the sum to all.
- FSDP2, as ZeRO stage 3 (Rajbhandari et al. 2020, sections 5.3 and 7; Zhao et al. 2023, "PyTorch
  FSDP"): each card keeps 1/p of weights, gradients and moments. A unit's weights are all-gathered
  before its forward and its backward pass, one unit ahead, and its gradients are reduce-scattered
  after its backward pass. The tables are gathered once.
"""

from statistics import NormalDist
from typing import NamedTuple

from torch import nn

from heedful.layers.transformer import DecoderLayer, EncoderLayer
from heedful.training.collectives import (
    Links,
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
)

BUCKET = 25 * 2**20
"""Bytes of a bucket of DDP."""
PIECE = 32 * 2**20
"""Bytes of gradients that are exchanged at once for an exact sum."""
_NUMBER = 4
"""Bytes of a weight, a gradient and a moment in float32."""


class Units(NamedTuple):
    """Parameters of the parts that are exchanged at once."""

    root: int
    """Parameters outside of the layers: tables, the output layer, last norms."""
    layers: tuple[int, ...]
    """Parameters of each layer, in the order of the forward pass."""

    @property
    def total(self) -> int:
        """All parameters."""
        return self.root + sum(self.layers)


class Computing(NamedTuple):
    """Seconds that one card computes for its own batch; a unit's share is that of its parameters,
    as in the estimate of 6 FLOPs for each parameter and token."""

    forward: float
    backward: float
    """With what checkpointing computes again."""


class StepTime(NamedTuple):
    """Seconds of a step."""

    computing: float
    communicating: float
    """Of all collective operations, one after the other."""
    step: float

    @property
    def exposed(self) -> float:
        """Seconds in which a card waits."""
        return self.step - self.computing


class CardMemory(NamedTuple):
    """Bytes of a training step on a card."""

    weights: int
    gradients: int
    optimiser: int
    gathered: int
    """Weights and gradients of the units that are whole for the moment."""
    activations: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def units_of(model: nn.Module) -> Units:
    """The units of a model on any device; a model without layers of a Transformer has only a root.

    Layers that share their parameters count once.
    """
    seen: set[int] = set()
    layers = []
    for part in model.modules():
        if isinstance(part, EncoderLayer | DecoderLayer):
            own = {id(one): one.numel() for one in part.parameters() if id(one) not in seen}
            seen |= own.keys()
            if own:
                layers.append(sum(own.values()))
    rest = sum(one.numel() for one in model.parameters() if id(one) not in seen)
    return Units(rest, tuple(layers))


def ddp_step(
    units: Units, computing: Computing, cards: int, links: Links, *, number: int = _NUMBER
) -> StepTime:
    """A step with DDP.

    Args:
        units: the model.
        computing: of one card.
        cards: number of cards, from 1.
        links: how they are connected.
        number: bytes of a gradient in the all-reduce.
    """
    whole = sum(computing)
    total, done, free, used = units.total * number, units.root * number, 0.0, 0.0
    ready = []
    sizes = _buckets(sum(units.layers) * number)
    for size in sizes:  # the output layer is the first in the backward pass
        done += size
        ready.append(computing.forward + computing.backward * done / total)
    tables = _buckets(units.root * number)  # complete when the backward pass ends
    ready += [whole] * len(tables)
    for size, when in zip([*sizes, *tables], ready, strict=True):
        seconds = all_reduce(size, cards, links)
        free, used = max(free, when) + seconds, used + seconds
    return StepTime(whole, used, max(whole, free))


def exact_step(units: Units, computing: Computing, cards: int, links: Links) -> StepTime:
    """A step with DDP and exact sums, which nothing overlaps.

    Args:
        units: the model.
        computing: of one card.
        cards: number of cards, from 1.
        links: how they are connected.
    """
    used = 0.0
    for size in _buckets(units.total * _NUMBER, PIECE):
        used += all_to_all(size, cards, links) + all_gather(size, cards, links)
    whole = sum(computing)
    return StepTime(whole, used, whole + used)


def _buckets(size: int, most: int = BUCKET) -> list[int]:
    """Bytes of the buckets."""
    whole, rest = divmod(size, most)
    return [most] * whole + ([rest] if rest else [])


def fsdp_step(
    units: Units,
    computing: Computing,
    cards: int,
    links: Links,
    *,
    weight: int = 2,
    gradient: int = _NUMBER,
) -> StepTime:
    """A step with FSDP2.

    Args:
        units: the model.
        computing: of one card.
        cards: number of cards, from 1.
        links: how they are connected.
        weight: bytes of a weight in the all-gather.
        gradient: bytes of a gradient in the reduce-scatter.
    """
    gathers = [all_gather(one * weight, cards, links) for one in units.layers]
    scatters = [reduce_scatter(one * gradient, cards, links) for one in units.layers]
    shares = [one / units.total for one in units.layers]
    share = units.root / units.total
    free = now = all_gather(units.root * weight, cards, links)
    first, last = free, reduce_scatter(units.root * gradient, cards, links)
    free = ready = free + (gathers[0] if gathers else 0.0)
    for place in range(len(shares)):
        now = max(now, ready)
        if place + 1 < len(shares):  # the next unit's weights, while this one is computed
            free = ready = max(free, now) + gathers[place + 1]
        now += computing.forward * shares[place]
    now += computing.forward * share
    if gathers:
        free = ready = max(free, now) + gathers[-1]
    now += computing.backward * share
    for place in reversed(range(len(shares))):
        now = max(now, ready)
        if place:
            free = ready = max(free, now) + gathers[place - 1]
        now += computing.backward * shares[place]
        free = max(free, now) + scatters[place]
    free = max(free, now) + last
    used = first + last + 2 * sum(gathers) + sum(scatters)
    return StepTime(sum(computing), used, max(now, free))


def slowest(cards: int) -> float:
    """Expected maximum of independent normal numbers, in standard deviations above their mean.

    Blom's approximation (1958, "Statistical estimates and transformed beta-variables"), which is
    5 % too large for two and accurate to 1 % from eight.

    Args:
        cards: their number, from 1.

    Example:
        >>> round(slowest(8), 2), round(slowest(512), 2)
        (1.43, 3.03)
    """
    return NormalDist().inv_cdf((cards - 0.375) / (cards + 0.25)) if cards > 1 else 0.0


def ddp_memory(units: Units, moments: int, activations: int) -> CardMemory:
    """Memory of a card with DDP, whose buckets are the gradients themselves.

    Args:
        units: the model.
        moments: numbers that the optimiser keeps for each parameter.
        activations: bytes for the batch of a card.
    """
    whole = units.total * _NUMBER
    return CardMemory(whole, whole, moments * whole, 0, activations)


def fsdp_memory(
    units: Units, moments: int, activations: int, cards: int, *, weight: int = 2
) -> CardMemory:
    """Memory of a card with FSDP2: parts of all, the whole root, two layers' weights and the
    gradients of the largest unit.

    Args:
        units: the model.
        moments: numbers that the optimiser keeps for each parameter.
        activations: bytes for the batch of a card.
        cards: number of cards, from 1.
        weight: bytes of a weight in products.
    """
    if cards == 1:
        return ddp_memory(units, moments, activations)
    part = -(-units.total // cards) * _NUMBER
    layers = sorted(units.layers, reverse=True)
    gathered = (units.root + sum(layers[:2])) * weight + max(units.root, *layers, 0) * _NUMBER
    return CardMemory(part, part, moments * part, gathered, activations)
