"""Times of collectives and steps on many cards: simulated exchanges, limits, published figures."""

import sys
from pathlib import Path

import numpy as np
import pytest

from heedful.training.collectives import (
    BASE_LATENCY,
    LINKS,
    NETWORK_HOP,
    RING_HOP,
    Links,
    all_gather,
    all_reduce,
    machines,
    reduce_scatter,
    ring_all_reduce,
    tree_all_reduce,
)
from heedful.training.step_time import (
    BUCKET,
    Computing,
    Units,
    ddp_memory,
    ddp_step,
    exact_step,
    fsdp_memory,
    fsdp_step,
    slowest,
)

DOCS = Path(__file__).parents[1] / "docs"
UNITS = Units(3_000_000, (7_000_000, 9_000_000, 5_000_000, 8_000_000))


@pytest.mark.parametrize("cards", [2, 3, 8])
def test_a_ring_that_is_simulated_takes_as_long(cards: int) -> None:
    """Each card adds a part to its own and passes it on: after p − 1 rounds it has a whole sum."""
    links, size = Links(1e8, 1e8), cards * 120_000
    parts = np.random.default_rng(cards).integers(0, 9, (cards, cards, size // cards // 8))
    wanted, seconds = parts.sum(axis=0), 0.0
    hop = RING_HOP + parts[0, 0].nbytes / links.link
    for turn in range(cards - 1):
        sent = [parts[card, (card - turn) % cards].copy() for card in range(cards)]
        for card in range(cards):
            parts[(card + 1) % cards, (card - turn) % cards] += sent[card]
        seconds += hop
    assert reduce_scatter(size, cards, links) == pytest.approx(BASE_LATENCY + seconds)
    for turn in range(cards - 1):
        sent = [parts[card, (card + 1 - turn) % cards].copy() for card in range(cards)]
        for card in range(cards):
            parts[(card + 1) % cards, (card + 1 - turn) % cards] = sent[card]
        seconds += hop
    assert all((parts[card] == wanted).all() for card in range(cards))
    assert ring_all_reduce(size, cards, links) == pytest.approx(BASE_LATENCY + seconds)


def test_the_slower_connection_and_the_hops_between_machines_count() -> None:
    links = Links(100e9, 5e9, per_machine=4)
    assert machines(16, links) == 4
    hops = 12 * RING_HOP + 3 * NETWORK_HOP
    expected = BASE_LATENCY + hops + 15 / 16 * 1e9 / 20e9
    assert all_gather(1e9, 16, links) == pytest.approx(expected)
    fast = links._replace(network=50e9)  # four adapters are faster than the links
    assert all_gather(1e9, 16, fast) == pytest.approx(expected + 15 / 16 * (1e9 / 100e9 - 1 / 20))
    assert all_gather(1e9, 1, links) == ring_all_reduce(1e9, 1, links) == 0


def test_trees_are_for_many_cards_and_small_messages() -> None:
    links = LINKS["h100"]
    for size, cards, best in (
        (1e4, 512, tree_all_reduce), (1e8, 512, tree_all_reduce), (1e9, 8, ring_all_reduce),
    ):  # fmt: skip
        assert all_reduce(size, cards, links) == best(size, cards, links)


def test_ddp_overlaps_all_but_the_last_layers_and_tables_if_there_is_time() -> None:
    links, computing = LINKS["a100"], Computing(1.0, 2.0)
    found = ddp_step(UNITS, computing, 64, links)
    last = (sum(UNITS.layers) * 4 % BUCKET, UNITS.root * 4)
    assert found.exposed == pytest.approx(sum(all_reduce(size, 64, links) for size in last))
    assert ddp_step(UNITS, computing, 1, links).step == 3.0


def test_ddp_waits_for_every_bucket_if_the_network_is_slow() -> None:
    links, computing = Links(1e6, 1e6), Computing(1.0, 2.0)
    layers = sum(UNITS.layers) * 4
    whole, rest = divmod(layers, BUCKET)
    sizes = [BUCKET] * whole + [rest, UNITS.root * 4]
    seconds = sum(all_reduce(size, 8, links) for size in sizes)
    found = ddp_step(UNITS, computing, 8, links)
    first = 1.0 + 2.0 * (UNITS.root * 4 + BUCKET) / (UNITS.total * 4)
    assert found.step == pytest.approx(first + seconds)
    assert found.communicating == pytest.approx(seconds)


def test_exact_sums_are_not_overlapped_and_cross_the_network_once_for_each_card() -> None:
    links, computing = Links(1e9, 1e7, per_machine=2), Computing(1.0, 2.0)
    found = exact_step(UNITS, computing, 4, links)
    size = UNITS.total * 4
    expected = 3.0 + size / 4 / 1e9 + 2 * size / 4 / 1e7 + 3 / 4 * size / 2e7
    assert found.step == pytest.approx(expected, rel=1e-3)  # and latencies
    assert found.step == 3.0 + found.communicating
    assert exact_step(UNITS, computing, 1, links).step == 3.0


def scheduled(operations: list[tuple[str, str, float, list[str]]]) -> dict[str, float]:
    """The ends of operations that each resource does in the given order: name, resource, seconds,
    and what must have ended before."""
    ends: dict[str, float] = {}
    free: dict[str, float] = {}
    for name, resource, seconds, needed in operations:
        start = max([free.get(resource, 0.0), *(ends[one] for one in needed)])
        ends[name] = free[resource] = start + seconds
    return ends


@pytest.mark.parametrize("scale", [1e-6, 0.01, 0.03, 10.0])
def test_fsdp_is_the_schedule_of_its_operations(scale: float) -> None:
    """The same step as a list of operations with what they need."""
    links, cards, last = LINKS["a100"], 16, len(UNITS.layers) - 1
    computing = Computing(scale, 2 * scale)
    gather = [all_gather(2 * one, cards, links) for one in (*UNITS.layers, UNITS.root)]
    scatter = [reduce_scatter(4 * one, cards, links) for one in (*UNITS.layers, UNITS.root)]
    share = [one / UNITS.total for one in (*UNITS.layers, UNITS.root)]
    plan = [("gather root", "link", gather[-1], []), ("gather 0", "link", gather[0], [])]
    for place in range(last + 1):
        needed = ["gather root", f"gather {place}"]
        if place:
            needed.append(f"forward {place - 1}")
        if place < last:  # starts together with this layer's forward pass
            plan.append((f"gather {place + 1}", "link", gather[place + 1], needed))
        plan.append((f"forward {place}", "card", scale * share[place], needed))
    plan.append(("forward root", "card", scale * share[-1], []))
    plan.append((f"regather {last}", "link", gather[last], ["forward root"]))
    plan.append(("backward root", "card", 2 * scale * share[-1], []))
    before = "backward root"
    for place in range(last, -1, -1):
        needed = [before, f"regather {place}"]
        if place:
            plan.append((f"regather {place - 1}", "link", gather[place - 1], needed))
        before = f"backward {place}"
        plan.append((before, "card", 2 * scale * share[place], needed))
        plan.append((f"scatter {place}", "link", scatter[place], [before]))
    plan.append(("scatter root", "link", scatter[-1], [before]))
    found = fsdp_step(UNITS, computing, cards, links)
    assert found.step == pytest.approx(scheduled(plan)["scatter root"], rel=1e-12)
    assert found.communicating == pytest.approx(sum(one[2] for one in plan if one[1] == "link"))


def test_a_card_alone_does_not_communicate() -> None:
    for units in (UNITS, Units(100, ())):
        found = fsdp_step(units, Computing(1.0, 2.0), 1, LINKS["h100"])
        assert (found.step, found.communicating) == (pytest.approx(3.0), 0)
        assert fsdp_memory(units, 2, 7, 1) == ddp_memory(units, 2, 7)


def test_memory_is_shared_by_the_cards() -> None:
    found = fsdp_memory(UNITS, 2, 1000, 8)
    assert found[:3] == (16_000_000, 16_000_000, 32_000_000)
    assert found.gathered == 2 * (3 + 9 + 8) * 10**6 + 4 * 9 * 10**6
    assert found.total == sum(found) == sum(found[:4]) + 1000
    assert ddp_memory(UNITS, 2, 1000).total == 16 * UNITS.total + 1000


def test_the_slowest_card_is_the_expected_maximum() -> None:
    numbers = np.random.default_rng(1).standard_normal((20_000, 64))
    for cards in (8, 64):
        assert slowest(cards) == pytest.approx(numbers[:, :cards].max(axis=1).mean(), rel=0.02)
    assert slowest(1) == 0


@pytest.mark.slow
def test_published_speeds_are_predicted_and_the_page_has_the_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [str(DOCS / "scripts"), *sys.path])
    import scaling_page

    text = scaling_page.PAGE.read_text(encoding="utf-8")
    assert scaling_page.with_tables(text) == text, "run python docs/scripts/scaling_page.py"
    for one in scaling_page.PUBLISHED:
        for cards, speed in scaling_page.checked(one)[1].items():
            assert speed == pytest.approx(one.speeds[cards], rel=0.04), (one.where, cards)


def test_memory_falls_with_the_cards_as_published() -> None:
    """torchtitan, Llama 3.1 8B: 82.4 GiB on 8 cards, 67.0 GiB on 128."""
    llama = Units(1_050_677_248, (218_112_000,) * 32)
    assert llama.total == pytest.approx(8_030_261_248, rel=1e-4)
    few, many = (fsdp_memory(llama, 2, 0, cards).total for cards in (8, 128))
    assert (few - many) / 2**30 == pytest.approx(82.4 - 67.0, rel=0.1)
