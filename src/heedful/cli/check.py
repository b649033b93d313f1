"""``heedful check``: find errors in the translations of a file."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.cli.commands import add_command
from heedful.tasks.options import SourceColumn, TargetColumn, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heedful.data.protected.pairs import Rules
    from heedful.data.units import Unit
    from heedful.evaluation.checks import Finding

_NAMED = (".ts", ".xcstrings", ".csv")
"""Endings of files that are checked only if they are named: ``.ts`` and ``.csv`` are also those of
other files."""
LONGEST_SHOWN = 70
"""Maximum number of characters of a translation in a line of output."""


@dataclass(frozen=True)
class Check:
    """Check translations: placeholders, tags, numbers, white space, doubled words and more.

    Examples:

        heedful check messages.de.po

        heedful check messages.de.po --strict --only placeholders --only tags

        heedful check job.xlf --run runs/en-de --json

        heedful check catalogues/ --terms terms.tsv

        heedful check app.de.json --original app.en.json

        heedful check texts.csv --source-column English --target-column German
    """

    file: Annotated[
        str,
        typer.Argument(
            help="A file with sources and translations (PO, XLIFF, TMX, Qt TS, string catalog, "
            "CSV, TSV), a folder of them, or a translated document and its --original.",
            metavar="FILE",
        ),
    ]
    original: Annotated[
        str | None, typer.Option("--original", help="The document that FILE is a translation of.")
    ] = None
    source_column: SourceColumn = None
    target_column: TargetColumn = None
    source: Annotated[
        str | None, typer.Option("--from", help="Source language; en takes en-US.")
    ] = None
    target: Annotated[str | None, typer.Option("--to", help="Target language.")] = None
    run: Annotated[
        Path | None, typer.Option("--run", help="Use the rules and languages of this run.")
    ] = None
    protect: Annotated[
        list[str] | None,
        typer.Option(
            "--protect",
            help="A rule for protected spans (printf, tags, …), or a regular expression between "
            "slashes; repeatable. Default: the rules that match both sides of the file.",
        ),
    ] = None
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=1, help="Maximum number of characters in a translation."),
    ] = None
    terms: Annotated[
        str | None,
        typer.Option("--terms", help="Terms with their translations, one pair per line (TSV)."),
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Run this check only; repeatable. Default: all checks."),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", help="Encoding of the file, if it is not UTF-8 and declares none."
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="One JSON object per finding.")] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if there is a serious finding.")
    ] = False


def _check(options: Check) -> None:
    from heedful.data.readers import read_pairs
    from heedful.evaluation.checks import CHECKS, check_units

    unknown = [one for one in options.only or [] if one not in CHECKS]
    if unknown:
        raise UserError(f"unknown check {unknown[0]!r}; the checks are {', '.join(CHECKS)}")
    files = {name: list(_units(options, name)) for name in _names(options)}
    units = [unit for own in files.values() for unit in own]
    rules = _rules(options, units)
    terms = list(read_pairs([options.terms])) if options.terms else []
    counts: Counter[str] = Counter()
    serious = with_findings = 0
    for name, own in files.items():
        for _, findings in check_units(own, rules, options.max_length, terms):
            shown = [one for one in findings if not options.only or one.check in options.only]
            with_findings += bool(shown)
            counts.update(one.check for one in shown)
            serious += sum(one.serious for one in shown)
            for one in shown:
                _show(name, one, as_json=options.json)
    if not options.json:
        by_check = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
        total = f"{len(units):,} segments, {with_findings:,} with findings"
        print(f"{total}: {by_check}" if by_check else total)
    if options.strict and serious:
        raise typer.Exit(1)


def _names(options: Check) -> list[str]:
    """The file, or the bilingual files of the folder."""
    from heedful.data.readers.folders import bilingual_files, is_folder

    if not is_folder(options.file):
        return [options.file]
    if options.original is not None:
        raise UserError(f"--original is for one file, and {options.file} is a folder")
    found = [str(path) for path in bilingual_files(options.file)]
    others = Path(options.file).rglob("*") if Path(options.file).is_dir() else ()
    if left := sum(path.suffix.lower() in _NAMED for path in others):
        notice(
            f"files not checked in {options.file}: {left:,} with the ending "
            f"{' or '.join(_NAMED)}; check each of them by its name"
        )
    return found


def _units(options: Check, name: str) -> "Iterator[Unit]":
    from heedful.data.units import read_translations

    return read_translations(
        name,
        original=options.original,
        columns=columns_of(options.source_column, options.target_column),
        source=options.source,
        target=options.target,
        encoding=options.encoding,
    )


def _show(name: str, finding: "Finding", *, as_json: bool) -> None:
    if as_json:
        found = {"file": name, **vars(finding), "serious": finding.serious}
        print(json.dumps(found, ensure_ascii=False))
    else:
        line = f"{name}: {finding.unit}: {finding.check}: {finding.detail}"
        print(f"{line}\t{_short(finding.target)}")


def _rules(options: Check, units: list["Unit"]) -> "Rules":
    """The rules given, those of the run, or those that match the file."""
    from heedful.data.protected.choosing import usual_rules
    from heedful.data.protected.pairs import Rules
    from heedful.data.protected.rules import check_rules
    from heedful.runs.opening import open_run

    check_rules(options.protect or [])
    if options.run is None:
        names = options.protect or usual_rules((unit.source, unit.target) for unit in units)
        return Rules(tuple(names), options.source, options.target)
    if options.protect:
        raise UserError("--run and --protect both set the rules; use one of them")
    data = getattr(open_run(options.run).recipe, "data", None)
    rules: Rules | None = getattr(data, "rules", None)
    if rules is None:
        raise UserError(f"{options.run} has no protected spans (data.protect); omit --run")
    return rules


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SHOWN else line[: LONGEST_SHOWN - 1] + "…"


def register(parent: typer.Typer) -> None:
    """Add the command."""
    add_command(parent, "check", Check, _check)
