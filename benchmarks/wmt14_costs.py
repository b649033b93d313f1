"""What WMT14's recipes cost: counted FLOPs beside the paper's, and times from measured speeds.

    python benchmarks/wmt14_costs.py [--only transformer-base …] [--json]

Prints two Markdown tables. The first has each recipe's parameters and the FLOPs of its training,
counted as ``heedful info --size`` counts them, beside table 2 of Vaswani et al. 2017. The second
projects speeds that were measured to the time of a whole training:

    seconds = T · r / (s · n · e)
    T  target tokens of the training: max_steps × batch_tokens of the recipe
    r  FLOPs of a token with the recipe's vocabulary ÷ with the vocabulary of the measurement, 8,000
    s  target tokens per second of one card, or of one computer
    n  number of cards
    e  share of n times the speed that n cards reach, assumed: 1 for one card

A model that was not measured there is projected by the FLOPs of a token, at the same FLOP/s.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from heedful.models.transformer_settings import SIZES as NAMED
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from heedful.tasks.size_on_paper import Assumptions, size_on_paper
from reporting import table
from sizes import Size

MODELS = ("transformer-base", "transformer-big", "gnmt", "convs2s")
LANGUAGES = ("de", "fr")
PUBLISHED = {
    ("transformer-base", "de"): (27.3, 3.3e18),
    ("transformer-base", "fr"): (38.1, 3.3e18),
    ("transformer-big", "de"): (28.4, 2.3e19),
    ("transformer-big", "fr"): (41.8, 2.3e19),
    ("gnmt", "de"): (24.6, 2.3e19),
    ("gnmt", "fr"): (39.92, 1.4e20),
    ("convs2s", "de"): (25.16, 9.6e18),
    ("convs2s", "fr"): (40.46, 1.5e20),
}
"""BLEU and FLOPs of training, as table 2 of Vaswani et al. 2017 has them; GNMT with RL."""
MEASURED_VOCABULARY = 8000
ON_A_CARD = {"transformer-base": 220_365, "transformer-big": 129_836}
"""Target tokens per second of heedful on one H100 80GB, from ``benchmarks/card.py --sizes base big
--pairs 12000 --vocabulary 8000``: PyTorch 2.11, bfloat16 by autocast, 25,000 tokens a batch."""
ON_TWO_CORES = {"transformer-base": 406}
"""The same on 2 cores in float32, from docs/performance.md."""
CARDS = 8
EFFICIENCY = (0.4, 0.9)
_HOUR, _DAY = 3600, 86_400


class Projection(NamedTuple):
    """The time of a training."""

    model: str
    language: str
    where: str
    tokens: float
    correction: float
    """r: FLOPs of a token, compared with those of the measurement."""
    speed: float
    shortest: float
    longest: float
    """Seconds."""


def counted(model: str, language: str) -> dict[str, Any]:
    """The size of a recipe's model, and the FLOPs of its training."""
    name = f"wmt14-en-{language}-{model}"
    found = size_on_paper(name, Assumptions())
    bleu, operations = PUBLISHED[model, language]
    own = found["training"]["operations"]
    return {
        "recipe": name,
        "bleu": bleu,
        "published": operations,
        "parameters": found["parameters"],
        "tokens": found["training"]["tokens"],
        "per_token": found["operations_per_token"]["training"],
        "counted": own,
        "share": own / operations,
    }


def operations(model: str, vocabulary: int) -> float:
    """FLOPs of a target token in training, with as many source tokens."""
    return Size(**NAMED[model.removeprefix("transformer-")]).training(1, vocabulary)


def project(model: str, language: str) -> list[Projection]:
    """The times of a Transformer's training."""
    name = f"wmt14-en-{language}-{model}"
    recipe: Any = check_recipe(read_recipe(find_recipe(name)), name)
    tokens = recipe.training.max_steps * recipe.training.batch_tokens
    whole = operations(model, recipe.tokeniser.vocabulary_size)
    correction = whole / operations(model, MEASURED_VOCABULARY)
    single = tokens * correction / ON_A_CARD[model]
    slow, fast = (single / (CARDS * share) for share in EFFICIENCY)
    base = "transformer-base"
    own = whole / operations(base, MEASURED_VOCABULARY)
    on_cores = tokens * own / ON_TWO_CORES[base]
    return [
        Projection(model, language, "1 H100", tokens, correction, ON_A_CARD[model], single, single),
        Projection(
            model, language, f"{CARDS} H100", tokens, correction, ON_A_CARD[model], fast, slow
        ),
        Projection(model, language, "2 cores", tokens, own, ON_TWO_CORES[base], on_cores, on_cores),
    ]


def duration(seconds: float) -> str:
    """A time with its unit.

    Example:
        >>> duration(9000), duration(300_000)
        ('2.5 hours', '3.5 days')
    """
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} hours"
    return f"{seconds / _DAY:.1f} days" if seconds < 20 * _DAY else f"{seconds / _DAY:,.0f} days"


def span(one: Projection) -> str:
    """The shortest and the longest time."""
    if one.shortest == one.longest:
        return duration(one.shortest)
    return f"{duration(one.shortest)} to {duration(one.longest)}"


def report(rows: Sequence[dict[str, Any]], projections: Sequence[Projection]) -> str:
    """Both tables."""
    first = [
        [
            f"`{row['recipe']}`",
            f"{row['bleu']}",
            f"{row['published']:.1e}",
            f"{row['parameters']:,}",
            f"{row['tokens'] / 1e9:.2f} billion",
            f"{row['per_token'] / 1e6:,.0f} MFLOP",
            f"{row['counted']:.2e}",
            f"{row['share']:.0%}",
        ]
        for row in rows
    ]
    second = [
        [
            f"`wmt14-en-{one.language}-{one.model}`",
            one.where,
            f"{one.speed:,.0f}",
            f"{one.correction:.2f}",
            span(one),
        ]
        for one in projections
    ]
    head = ["recipe", "BLEU", "FLOPs", "parameters", "target tokens", "a token", "counted", "share"]
    return "\n\n".join(
        [table(head, first), table(["recipe", "on", "tokens/s", "r", "time"], second)]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(arguments)
    pairs = [(model, language) for language in LANGUAGES for model in options.only]
    rows = [counted(*pair) for pair in pairs]
    projections = [one for pair in pairs if pair[0] in ON_A_CARD for one in project(*pair)]
    if options.json:
        print(json.dumps({"counted": rows, "projected": [one._asdict() for one in projections]}))
    else:
        print(report(rows, projections))
    return 0


if __name__ == "__main__":
    sys.exit(main())
