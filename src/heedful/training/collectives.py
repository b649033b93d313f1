"""Times of the collective operations that processes exchange gradients and weights with.

A message of S bytes takes a latency α and S/β seconds for each hop between two cards. All cards
send at the same time. p is the number of cards, g the number of cards of a machine.

- Ring: reduce-scatter and all-gather take p − 1 hops with S/p bytes each, and an all-reduce is one
  after the other: 2 (p − 1) hops, 2 (p − 1)/p · S bytes, which is optimal for bandwidth
  (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
- Tree: an all-reduce along chains inside machines and two binary trees between them takes
  2 (g − 1) + 2 log₂(machines) hops and 2 S bytes (Sanders, Speck and Träff 2009, "Two-tree
  algorithms for full bandwidth broadcast, reduction and scan").

Between machines, each card has its own share of the network. A ring crosses the border of each
machine once, with as many rings at the same time as there are network adapters, so that the
bandwidth is that of the slower of one card's links and the machine's whole network.
"""

from collections.abc import Mapping
from math import ceil, log2
from typing import NamedTuple

BASE_LATENCY = 8.4e-6
"""Seconds to start an operation. This and the hops are the constants of NCCL's cost model for its
"Simple" protocol (NVIDIA/nccl, src/graph/tuning.cc)."""
RING_HOP, TREE_HOP = 3.4e-6, 4.0e-6
"""Seconds of a hop between cards of a machine, over NVLink."""
NETWORK_HOP = 14e-6
"""Seconds of a hop between machines."""


class Links(NamedTuple):
    """How cards are connected."""

    link: float
    """Bytes per second that a card sends to others of its machine."""
    network: float
    """Bytes per second that a card sends to other machines: its share of the adapters."""
    per_machine: int = 8
    """Cards of a machine."""


_NVLINK = 20.0e9
LINKS: Mapping[str, Links] = {
    "p100": Links(4 * 18.0e9, 4 / 8 * 12.5e9),
    "v100": Links(6 * _NVLINK, 4 / 8 * 12.5e9),
    "a100": Links(12 * _NVLINK, 25e9),
    "h100": Links(18 * 20.6e9, 50e9),
    "h200": Links(18 * 20.6e9, 50e9),
}
"""Card → connections. Links: number × usable bandwidth of an NVLink (NVIDIA/nccl,
src/graph/topo.h). Network: four adapters of 100 Gb/s for 8 cards (DGX-1), one of 200 Gb/s for each
(DGX A100), and one of 400 Gb/s for each (DGX H100)."""
PCIE = Links(12e9, 12.5e9 / 8)
"""Other cards: PCIe 3 with 16 lanes, as in NCCL, and one adapter of 100 Gb/s for 8 cards."""


def machines(cards: int, links: Links) -> int:
    """Number of machines."""
    return ceil(cards / links.per_machine)


def bandwidth(cards: int, links: Links) -> float:
    """Bytes per second of a ring: NCCL's bus bandwidth."""
    if cards <= links.per_machine:
        return links.link
    return min(links.link, links.per_machine * links.network)


def _ring_latency(cards: int, links: Links) -> float:
    """Seconds of the p − 1 hops of a ring, of which machines − 1 leave a machine."""
    between = machines(cards, links) - 1
    return (cards - 1 - between) * RING_HOP + between * NETWORK_HOP


def reduce_scatter(size: float, cards: int, links: Links) -> float:
    """Seconds in which each card gets its part of a sum; an all-gather takes as long.

    Args:
        size: bytes of the whole sum.
        cards: number of cards, from 1.
        links: how they are connected.

    Example:
        >>> fast = Links(link=1e9, network=1e9)
        >>> round(reduce_scatter(8e9, 8, fast), 3)
        7.0
    """
    if cards == 1:
        return 0.0
    moved = (cards - 1) / cards * size / bandwidth(cards, links)
    return BASE_LATENCY + _ring_latency(cards, links) + moved


all_gather = reduce_scatter


def all_to_all(size: float, cards: int, links: Links) -> float:
    """Seconds in which each card sends 1/p of its ``size`` bytes to each other card.

    What leaves a machine has only the card's own share of the network.
    """
    if cards == 1:
        return 0.0
    inside = min(cards, links.per_machine)
    moved = (inside - 1) / cards * size / links.link + (
        (cards - inside) / cards * size / links.network
    )
    return BASE_LATENCY + (NETWORK_HOP if cards > inside else RING_HOP) + moved


def ring_all_reduce(size: float, cards: int, links: Links) -> float:
    """Seconds in which each card gets a whole sum of ``size`` bytes, along a ring."""
    if cards == 1:
        return 0.0
    moved = 2 * (cards - 1) / cards * size / bandwidth(cards, links)
    return BASE_LATENCY + 2 * _ring_latency(cards, links) + moved


def tree_all_reduce(size: float, cards: int, links: Links) -> float:
    """As :func:`ring_all_reduce`, along trees."""
    if cards == 1:
        return 0.0
    inside = (min(cards, links.per_machine) - 1) * TREE_HOP
    between = log2(machines(cards, links)) * NETWORK_HOP
    return BASE_LATENCY + 2 * (inside + between) + 2 * size / bandwidth(cards, links)


def all_reduce(size: float, cards: int, links: Links) -> float:
    """Seconds of the faster of both, which libraries choose by a cost model like this one.

    Example:
        >>> h100 = LINKS["h100"]
        >>> f"{all_reduce(1e9, 8, h100):.2e} {all_reduce(1e9, 512, h100):.2e}"
        '4.78e-03 5.63e-03'
    """
    return min(ring_all_reduce(size, cards, links), tree_all_reduce(size, cards, links))
