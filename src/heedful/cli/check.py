"""``heedful check``: what is wrong with the translations of a file."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from heedful.data.protected.pairs import Rules

LONGEST_SHOWN = 70


def check(
    file: Annotated[
        str, typer.Argument(help="A PO, XLIFF, TMX or TSV file with translations.", metavar="FILE")
    ],
    source: Annotated[
        str | None, typer.Option("--from", help="Source language; en takes en-US.")
    ] = None,
    target: Annotated[str | None, typer.Option("--to", help="Target language.")] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="A run, whose rules and languages are used."),
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            "--protect",
            help="A rule for what must stay (printf, tags, …), or a regular expression between "
            "slashes; repeatable. Default: all that the file has on both sides.",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=1, help="The most characters of a translation."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A check to run; repeatable. Default: all.")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", help="The text's encoding, if not UTF-8 or declared in the file."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a finding.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 where a serious finding remains.")
    ] = False,
) -> None:
    """Check translations: placeholders, tags, numbers, white space, doubled words and more.

    Examples:

        heedful check messages.de.po

        heedful check messages.de.po --strict --only placeholders --only tags

        heedful check job.xlf --run runs/en-de --json
    """
    from heedful.data.protected.choosing import usual_rules
    from heedful.data.protected.pairs import Rules
    from heedful.data.protected.rules import check_rules
    from heedful.data.units import read_units
    from heedful.evaluation.checks import CHECKS, check_units

    unknown = [one for one in only or [] if one not in CHECKS]
    if unknown:
        raise UserError(f"no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    check_rules(protect or [])
    units = list(read_units(file, source=source, target=target, encoding=encoding))
    if run is not None:
        rules = _rules_of(run)
    else:
        names = protect or usual_rules((unit.source, unit.target) for unit in units)
        rules = Rules(tuple(names), source, target)
    counts: Counter[str] = Counter()
    serious = with_findings = 0
    for _, findings in check_units(units, rules, max_length):
        kept = [one for one in findings if not only or one.check in only]
        with_findings += bool(kept)
        for one in kept:
            counts[one.check] += 1
            serious += one.serious
            if as_json:
                print(json.dumps({**vars(one), "serious": one.serious}, ensure_ascii=False))
            else:
                print(f"{file}: {one.unit}: {one.check}: {one.detail}\t{_short(one.target)}")
    if not as_json:
        told = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
        print(
            f"{len(units):,} segments, {with_findings:,} with findings{': ' + told if told else ''}"
        )
    if strict and serious:
        raise typer.Exit(1)


def _rules_of(path: Path) -> "Rules":
    from heedful.data.protected.pairs import Rules
    from heedful.runs.opening import open_run

    recipe = open_run(path).recipe
    rules = getattr(getattr(recipe, "data", None), "rules", None)
    if not isinstance(rules, Rules):
        raise UserError(f"{path} protects nothing (data.protect); leave --run out")
    return rules


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 1] + "…"


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command(no_args_is_help=True)(check)
