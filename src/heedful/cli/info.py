"""``heedful info``: the model, the training data and the scores of a run; a size on paper."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_command, refuse_given, refuse_unused

if TYPE_CHECKING:
    from heedful.tasks.cluster_on_paper import Cluster

_ON_PAPER = "Size on paper"
_LARGEST = 1e18
_POSITIVE = ("batch", "length", "tokens", "flops_per_second", "cards", "price",
             "cards_per_machine", "link", "network")  # fmt: skip


def _option(name: str, text: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(name, help=text, rich_help_panel=_ON_PAPER)
    return found


@dataclass(frozen=True)
class Info:
    """Show the model, the training data and the scores of a run, or a size on paper.

    --size computes, without allocating a model: parameters, memory, FLOPs, and the time and cost
    of a training.

    Example:

        heedful info runs/en-de

        heedful info --size gpt3-175b --card a100 --cards 1024 --mfu 0.45 --price 2

        heedful info --size llama3-8b --card h100 --cards 64 --strategy fsdp
    """

    run: Annotated[Path | None, typer.Argument(help="The run.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Accept the run's files as they are now: record new hashes.",
        ),
    ] = False
    size: Annotated[
        str | None, _option("--size", "A size of the literature, such as gpt2-small, or a recipe.")
    ] = None
    batch: Annotated[
        int, _option("--batch", "Sequences, images or the like, computed at once.")
    ] = 1
    length: Annotated[
        int | None, _option("--length", "Tokens of a sequence, frames of a recording or the like.")
    ] = None
    tokens: Annotated[
        float | None, _option("--tokens", "Tokens of the training, images or the like.")
    ] = None
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"],
        _option("--precision", "Precision of products and activations."),
    ] = "bfloat16"
    checkpointing: Annotated[
        bool, _option("--checkpointing", "Layers keep their inputs only and are computed twice.")
    ] = False
    mfu: Annotated[float, _option("--mfu", "Model FLOPs utilisation, above 0, at most 1.")] = 0.4
    card: Annotated[
        str | None, _option("--card", "The card, for the time, such as a100 or h100.")
    ] = None
    flops_per_second: Annotated[
        float | None, _option("--flops-per-second", "Its FLOP/s at most, instead of --card.")
    ] = None
    cards: Annotated[int, _option("--cards", "The number of cards.")] = 1
    price: Annotated[
        float | None, _option("--price", "Price of a card for an hour, for the cost.")
    ] = None
    strategy: Annotated[
        Literal["ddp", "ddp-exact", "fsdp"] | None,
        _option(
            "--strategy", "Predict a step of all cards: ddp, ddp-exact (exact_reduction) or fsdp."
        ),
    ] = None
    cards_per_machine: Annotated[
        int, _option("--cards-per-machine", "Cards of a machine, for --strategy.")
    ] = 8
    link: Annotated[
        float | None,
        _option("--link", "GB/s that a card sends inside its machine; default: the card's."),
    ] = None
    network: Annotated[
        float | None,
        _option("--network", "GB/s that a card sends between machines; default: the card's."),
    ] = None
    spread: Annotated[
        float,
        _option("--spread", "Standard deviation of the cards' computing times ÷ their mean."),
    ] = 0.0


def _run(options: Info) -> None:
    """Run the command."""
    if (options.run is None) == (options.size is None):
        raise UserError("give either a run or --size NAME")
    if options.size is not None:
        refuse_given(options, {"accept_changes"}, "--size")
        _print_size(options, options.size)
        return
    refuse_unused(options, {"run", "as_json", "accept_changes"}, "a run")
    from heedful.runs.opening import accept_changes as accept
    from heedful.runs.summary import describe_run, summarise_run

    assert options.run is not None
    if options.accept_changes:
        accept(options.run)
    summary = summarise_run(options.run)
    print(
        json.dumps(summary, ensure_ascii=False, indent=1)
        if options.as_json
        else describe_run(summary)
    )


def _print_size(options: Info, name: str) -> None:
    from heedful.tasks.size_description import describe_size
    from heedful.tasks.size_on_paper import Assumptions, size_on_paper

    for option in _POSITIVE:
        value = getattr(options, option)
        if value is not None and not 0 < value <= _LARGEST:
            raise UserError(
                f"--{option.replace('_', '-')} {value:g}: expected a number above 0, at most "
                f"{_LARGEST:g}"
            )
    if options.tokens is not None and options.tokens < 1:
        raise UserError(f"--tokens {options.tokens:g}: expected a number of at least 1")
    if not 0 <= options.spread < 1:
        raise UserError(f"--spread {options.spread:g}: expected a number from 0, below 1")
    if not 0 < options.mfu <= 1:
        raise UserError(f"--mfu {options.mfu:g}: expected a number above 0, at most 1")
    found = size_on_paper(
        name,
        Assumptions(
            batch=options.batch,
            length=options.length,
            tokens=None if options.tokens is None else round(options.tokens),
            precision=options.precision,
            checkpointing=options.checkpointing,
            mfu=options.mfu,
            speed=_speed(options),
            cards=options.cards,
            price=options.price,
            cluster=_cluster(options),
        ),
    )
    print(
        json.dumps(found, ensure_ascii=False, indent=1) if options.as_json else describe_size(found)
    )


def _speed(options: Info) -> float | None:
    """The FLOP/s of a card at most, if given."""
    from heedful.tasks.size_on_paper import CARDS

    if options.card is None:
        return options.flops_per_second
    if options.flops_per_second is not None:
        raise UserError("give either --card or --flops-per-second")
    if options.card not in CARDS:
        raise UserError(f"--card {options.card}: known are {', '.join(CARDS)}")
    return CARDS[options.card]


def _cluster(options: Info) -> "Cluster | None":
    """The cards that train together, if a strategy is given."""
    from heedful.tasks.cluster_on_paper import Cluster, links_of

    if options.strategy is None:
        if options.link is not None or options.network is not None:
            raise UserError("--link and --network need --strategy; add it, or leave them out")
        refuse_given(options, {"spread", "cards_per_machine"}, "a size without --strategy")
        return None
    link, network = (None if one is None else one * 1e9 for one in (options.link, options.network))
    links = links_of(options.card, link, network, options.cards_per_machine)
    return Cluster(options.strategy, links, options.spread)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "info", Info, _run)
