"""Writes the tables and the picture of docs/scaling.md from the predictor.

python docs/scripts/scaling_page.py
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from heedful.tasks.cluster_on_paper import CardStep, Cluster, on_cluster
from heedful.tasks.size_on_paper import CARDS, Assumptions, card_step
from heedful.training.collectives import LINKS
from heedful.training.step_time import slowest

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "scaling.md"
PICTURE = DOCS / "images" / "scaling.svg"
NUMBERS = (1, 8, 64, 512)
STRATEGIES = ("ddp", "ddp-exact", "fsdp")
SPREAD = 0.1
# Model FLOPs utilisation of one H100: measured (docs/performance.md, "On a card"), or assumed.
MODELS = {"transformer-base": 0.066, "transformer-big": 0.150, "transformer-1b": 0.3}
SEQUENCES, LENGTH = 1000, 25


class Published(NamedTuple):
    """Published speeds of one model and one batch for each card, by number of cards."""

    where: str
    size: str
    card: str
    strategy: Any
    batch: int
    length: int
    speeds: dict[int, int]
    """Tokens per second of all cards."""
    known: int
    """The number of cards whose speed is given to the predictor."""
    spread_from: int | None = None
    """The number of cards whose speed is given, too, for the spread."""


_TITAN = "torchtitan, Llama 3.1 8B"
_NVIDIA = "NVIDIA, big Transformer"
PUBLISHED = (
    Published(_TITAN, "llama3-8b", "h100", "fsdp", 2, 8192, {8: 8 * 5762, 128: 128 * 5605}, 8),
    Published(
        f"{_TITAN}, compiled", "llama3-8b", "h100", "fsdp", 2, 8192,
        {8: 8 * 6667, 128: 128 * 6514}, 8,
    ),
    Published(
        f"{_NVIDIA}, DGX-1", "transformer-big", "v100", "ddp", 205, 25,
        {1: 32_942, 4: 109_726, 8: 214_656}, 1, 4,
    ),
    Published(
        f"{_NVIDIA}, DGX-2", "transformer-big", "v100", "ddp", 410, 25,
        {1: 39_911, 4: 137_703, 8: 267_815, 16: 517_227}, 1, 4,
    ),
    Published(
        f"{_NVIDIA}, DGX A100", "transformer-big", "a100", "ddp", 410, 25,
        {1: 82_059, 4: 286_081, 8: 551_599}, 1, 4,
    ),
)  # fmt: skip


@cache
def _card(size: str, batch: int, length: int) -> CardStep:
    return card_step(size, Assumptions(batch=batch, length=length))


def cluster_of(
    size: str, card: str, strategy: Any, cards: int, batch: int, length: int, mfu: float
) -> dict[str, Any]:
    """The predicted step, all cards being equally fast."""
    per_machine = 16 if cards == 16 and card == "v100" else 8  # DGX-2
    links = LINKS[card]._replace(per_machine=per_machine)
    step = _card(size, batch, length)._replace(speed=mfu * CARDS[card])
    return on_cluster(step, Cluster(strategy, links), cards, batch * length)


def speed_with_spread(found: dict[str, Any], spread: float) -> float:
    """Tokens per second if the cards' computing times differ."""
    late = found["computing_seconds"] * spread * slowest(found["cards"])
    return float(found["batch_tokens"] / (found["step_seconds"] + late))


def checked(one: Published) -> tuple[float | None, dict[int, float]]:
    """The fitted spread, and the predicted speed of each number of cards that was not given."""
    where = (one.batch, one.length)
    cost = _card(one.size, *where).cost
    a_token = (cost.forward + cost.backward) / (one.batch * one.length)
    mfu = one.speeds[one.known] / one.known * a_token / CARDS[one.card]

    def found(cards: int) -> dict[str, Any]:
        return cluster_of(one.size, one.card, one.strategy, cards, *where, mfu)

    if one.known > 1:  # its own step is not only computing
        mfu *= one.speeds[one.known] / speed_with_spread(found(one.known), 0.0)
    spread = None
    if one.spread_from is not None:
        step = found(one.spread_from)
        measured = step["batch_tokens"] / one.speeds[one.spread_from]
        late = measured - step["step_seconds"]
        spread = late / step["computing_seconds"] / slowest(one.spread_from)
    given = (one.known, one.spread_from)
    return spread, {
        cards: speed_with_spread(found(cards), spread or 0.0)
        for cards in one.speeds
        if cards not in given
    }


def _table(titles: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(titles) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (titles, rule, *rows))


def check_table() -> str:
    """Predicted against published speeds."""
    rows = []
    for one in PUBLISHED:
        spread, predicted = checked(one)
        given = f"{one.known} card{'s' if one.known > 1 else ''}"
        if spread is not None:
            given += f" and {one.spread_from} cards (spread {spread:.0%})"
        for cards, speed in predicted.items():
            measured = one.speeds[cards]
            rows.append(
                [one.where, given, f"{cards}", f"{measured:,}", f"{speed:,.0f}",
                 f"{speed / measured - 1:+.1%}"]
            )  # fmt: skip
    titles = ["system", "given", "cards", "published tokens/s", "predicted", "deviation"]
    return _table(titles, rows)


def step_table() -> str:
    """Steps of the models on H100."""
    rows = []
    for size, mfu in MODELS.items():
        for strategy in STRATEGIES:
            for cards in NUMBERS:
                if cards == 1 and strategy != "ddp":
                    continue
                found = cluster_of(size, "h100", strategy, cards, SEQUENCES, LENGTH, mfu)
                late = speed_with_spread(found, SPREAD)
                alone = SEQUENCES * LENGTH / found["computing_seconds"]
                rows.append(
                    [
                        f"`{size}`",
                        f"{cards:,}",
                        "–" if cards == 1 else strategy,
                        f"{1000 * found['step_seconds']:,.0f} ms",
                        f"{1000 * found['exposed_seconds']:,.1f} ms",
                        f"{found['efficiency']:.1%}",
                        f"{late / cards / alone:.1%}",
                        f"{found['tokens_per_second']:,.0f}",
                        f"{sum(found['memory'].values()) / 2**30:.1f} GiB",
                    ]
                )
    titles = ["model", "cards", "strategy", "step", "not overlapped", "efficiency",
              f"with a spread of {SPREAD:.0%}", "target tokens/s", "memory of a card"]  # fmt: skip
    return _table(titles, rows)


def with_tables(page: str) -> str:
    """The page with its tables as they are now."""
    for name, table in (("steps", step_table()), ("check", check_table())):
        pattern = rf"(<!-- {name} -->\n)(?:\|.*\n)*"
        page, count = re.subn(pattern, lambda found: f"{found[1]}{table}\n", page)  # noqa: B023
        if count != 1:
            raise SystemExit(f"{PAGE} has {count} places for the table '{name}'")
    return page


def draw() -> None:
    """Draw efficiency by the number of cards, and what a card holds."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "heedful"
    from matplotlib import pyplot as plt

    cards = [1, 2, 4, *(2**power for power in range(3, 10))]
    colours = {"ddp": "#1b6ca8", "ddp-exact": "#8a4fbf", "fsdp": "#c2571a"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for size, style in (("transformer-big", "--"), ("transformer-1b", "-")):
        for strategy in STRATEGIES:
            steps = [
                cluster_of(size, "h100", strategy, one, SEQUENCES, LENGTH, MODELS[size])
                for one in cards
            ]
            label = f"{size.removeprefix('transformer-')}, {strategy}"
            shares = [100 * one["efficiency"] for one in steps]
            left.plot(cards, shares, style, color=colours[strategy], label=label)
            if strategy == "ddp-exact":
                continue
            memory = [sum(one["memory"].values()) / 2**30 for one in steps]
            right.plot(cards, memory, style, color=colours[strategy], label=label)
    for axes, title in (
        (left, "Speed of a card, % of one alone"),
        (right, "Memory of a card, GiB"),
    ):
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 8, 64, 512], ["1", "8", "64", "512"])
        axes.set(xlabel="H100 cards, 8 in a machine", ylim=(0, None))
        axes.set_title(title, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    draw()
