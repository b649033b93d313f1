"""A training step on many cards on paper: time, efficiency and memory of a card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from heedful.basics.errors import UserError
from heedful.basics.memory import readable_size
from heedful.training.collectives import LINKS, PCIE, Links, machines
from heedful.training.on_paper import StepCost
from heedful.training.step_time import (
    CardMemory,
    Computing,
    StepTime,
    Units,
    ddp_memory,
    ddp_step,
    exact_step,
    fsdp_memory,
    fsdp_step,
    slowest,
)

Strategy = Literal["ddp", "ddp-exact", "fsdp"]


@dataclass(frozen=True)
class Cluster:
    """Cards that train one model.

    Attributes:
        strategy: ``ddp``, ``ddp-exact`` or ``fsdp``.
        links: how the cards are connected.
        spread: standard deviation of the cards' computing times ÷ their mean. All cards wait for
            the slowest one.
    """

    strategy: Strategy
    links: Links
    spread: float = 0.0


class CardStep(NamedTuple):
    """What a card computes in a step."""

    units: Units
    """Of the model."""
    cost: StepCost
    speed: float
    """FLOP/s that one card alone reaches."""
    weight: int
    """Bytes of a weight in products."""
    moments: int
    """Numbers that the optimiser keeps for each parameter."""
    activations: int
    """Bytes."""
    checkpointing: bool


def links_of(
    card: str | None, link: float | None, network: float | None, per_machine: int
) -> Links:
    """Connections of cards.

    Args:
        card: a card of :data:`heedful.training.collectives.LINKS`; others have PCIe and a network
            of 100 Gb/s.
        link: bytes per second inside of a machine, instead of the card's.
        network: bytes per second of a card between machines, instead of the card's.
        per_machine: cards of a machine.
    """
    known = LINKS.get(card or "", PCIE)
    return Links(link or known.link, network or known.network, per_machine)


def on_cluster(step: CardStep, cluster: Cluster, cards: int, tokens: int) -> dict[str, Any]:
    """The numbers as plain values.

    Args:
        step: what a card computes.
        cluster: the cards.
        cards: their number.
        tokens: tokens of a card's batch, or other units.

    Raises:
        UserError: the cards do not fill their machines.
    """
    links = cluster.links
    if cards > links.per_machine and cards % links.per_machine:
        raise UserError(
            f"--cards {cards}: give a multiple of the {links.per_machine} cards of a machine, or "
            "another --cards-per-machine"
        )
    time = step_time(step, cluster, cards)
    uneven = time.computing * cluster.spread * slowest(cards)
    seconds = time.step + uneven
    return {
        "strategy": cluster.strategy,
        "cards": cards,
        "machines": machines(cards, links),
        "link_bytes_per_second": links.link,
        "network_bytes_per_second": links.network,
        "computing_seconds": time.computing,
        "communicating_seconds": time.communicating,
        "exposed_seconds": time.exposed,
        "uneven_seconds": uneven,
        "step_seconds": seconds,
        "efficiency": time.computing / seconds,
        "batch_tokens": tokens * cards,
        "tokens_per_second": tokens * cards / seconds,
        "memory": card_memory(step, cluster, cards)._asdict(),
    }


def step_time(step: CardStep, cluster: Cluster, cards: int) -> StepTime:
    """The time of a step. A card's operations take what they take on one card alone."""
    cost = step.cost
    whole = (cost.forward + cost.backward) / step.speed
    forward, backward = cost.forward, cost.backward
    if step.checkpointing:  # the speed is that of the model's own operations
        backward += cost.repeated
    computing = Computing(
        whole * forward / (forward + backward), whole * backward / (forward + backward)
    )
    if cluster.strategy == "ddp":
        return ddp_step(step.units, computing, cards, cluster.links)
    if cluster.strategy == "ddp-exact":
        return exact_step(step.units, computing, cards, cluster.links)
    return fsdp_step(step.units, computing, cards, cluster.links, weight=step.weight)


def card_memory(step: CardStep, cluster: Cluster, cards: int) -> CardMemory:
    """The memory of a card."""
    if cluster.strategy != "fsdp":
        return ddp_memory(step.units, step.moments, step.activations)
    return fsdp_memory(step.units, step.moments, step.activations, cards, weight=step.weight)


def cluster_lines(found: Mapping[str, Any], unit: str) -> list[tuple[str, str]]:
    """The numbers of :func:`on_cluster` as text; ``unit`` is what a batch consists of."""
    cards, count = found["cards"], found["machines"]
    where = "1 machine" if count == 1 else f"{count:,} machines"
    parts = ", ".join(
        f"{readable_size(value)} {name}" for name, value in found["memory"].items() if value
    )
    late = found["uneven_seconds"]
    uneven = f", {_seconds(late)} waiting for the slowest card" if late else ""
    return [
        (
            "a step",
            f"{_seconds(found['step_seconds'])} for {found['batch_tokens']:,} {unit}s with "
            f"{found['strategy']} on {cards:,} card{'s' if cards > 1 else ''} in {where}: "
            f"{_seconds(found['computing_seconds'])} computing, "
            f"{_seconds(found['communicating_seconds'])} communicating, of which "
            f"{_seconds(found['exposed_seconds'])} are not overlapped{uneven}",
        ),
        (
            "efficiency",
            f"{found['efficiency']:.1%} of {cards:,} times one card; "
            f"{found['tokens_per_second']:,.0f} {unit}s/s",
        ),
        ("on a card", f"{readable_size(sum(found['memory'].values()))}: {parts}"),
    ]


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
