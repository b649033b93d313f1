"""``heedful compare``: train variants of a recipe and report on their differences."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.cli.commands import (
    DataFolder,
    TrainingDevice,
    TrainingPrecision,
    add_command,
    machine_settings,
    refuse_unused,
)

if TYPE_CHECKING:
    from heedful.tasks.scoring import OtherTest
    from heedful.training.comparing import Plan


@dataclass(frozen=True)
class Compare:
    """Train variants of a recipe with equal budgets, and report on their differences.

    Every combination of the values of --vary is trained with every seed; rerun the command to
    resume. At the end, each run is scored once on the test set, if the recipe has one. The report
    has intervals, paired tests, learning curves, figures by length, costs, attention statistics
    and outputs side by side.

    Examples:

        heedful compare recipe.toml --vary model.dropout=0.0,0.1,0.3 --budget 2000 --out runs/new

        heedful compare --report runs/dropout

        heedful compare --report runs/dropout --test long.en --test long.de --out runs/long

    Several keys before the equals sign are varied together: --vary
    "model.heads,model.layers=4:2,8:1". Values are TOML, or text: --vary 'model.attention="a,b",c'.
    """

    recipe: Annotated[
        str | None,
        typer.Argument(help="A TOML recipe, or the name of a built-in recipe.", metavar="RECIPE"),
    ] = None
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary", metavar="KEY=VALUE,VALUE,…", help="Values to compare; repeat for products."
        ),
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", help="The comparison's folder; resumed if unfinished.")
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", help="Seeds per variant, from the recipe's own on; default: 3."),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="Limit of each training: steps (2000), time (10m), or operations (1e15flops); "
            "default: the recipe's.",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="VARIANT", help="Compare with this variant; default: the first."
        ),
    ] = None
    data: DataFolder = None
    jobs: Annotated[
        int, typer.Option("--jobs", help="Trainings at a time, each in its own process.")
    ] = 1
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out invalid combinations of values.")
    ] = False
    only_list: Annotated[
        bool, typer.Option("--list", help="List the variants without training.")
    ] = False
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write the report of this folder again, without training."),
    ] = None
    test: Annotated[
        list[str] | None,
        typer.Option(
            "--test",
            metavar="FILE",
            help="With --report: score the runs on this test set instead of their own, and write "
            "scores and report to --out; repeatable.",
        ),
    ] = None
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from", help="Start each training from this run's weights and vocabulary."
        ),
    ] = None
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting of all variants: key=value; repeatable."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False
    device: TrainingDevice = None
    threads: Annotated[
        int | None, typer.Option("--threads", help="Number of CPU threads of each training.")
    ] = None
    precision: TrainingPrecision = None


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "compare", Compare, _run)


def _run(options: Compare) -> None:
    """Run the command."""
    if options.report is not None:
        if options.recipe is not None or options.vary:
            raise UserError("--report FOLDER trains nothing: leave out the recipe and --vary")
        used = {"report", "as_json", *(("test", "out") if options.test else ())}
        refuse_unused(options, used, "--report" if options.test else "--report without --test")
        _report(options.report, options)
        return
    if options.test:
        raise UserError("--test is for --report: give the folder of a comparison there")
    if options.recipe is None:
        raise UserError("give a recipe, or --report FOLDER")
    plan = _plan(options)
    if options.only_list:
        _list(plan, options)
        return
    if options.out is None:
        raise UserError("--out FOLDER is missing: give the folder of the comparison")
    from heedful.tasks.scoring import score_trainings
    from heedful.training.comparing import train_variants
    from heedful.training.comparison_record import read_comparison
    from heedful.training.process_environment import require_single

    require_single("compare")
    finished = train_variants(
        plan, options.out, skip_invalid=options.skip_invalid, jobs=options.jobs
    )
    if not finished:
        notice("interrupted; rerun the command to resume")
        raise typer.Exit(130)
    found = read_comparison(options.out)
    assert found is not None
    score_trainings(options.out, found)
    _finish(options.out, options.as_json)


def _plan(options: Compare) -> "Plan":
    import os

    from heedful.runs.opening import open_run
    from heedful.runs.recipe import (
        compare_settings,
        find_recipe,
        read_recipe,
        with_overrides,
        without_searches,
    )
    from heedful.training.budget import read_budget
    from heedful.training.comparing import Plan
    from heedful.training.variants import bases_of, read_vary, vary_of
    from heedful.training.warm_start import with_start

    path = find_recipe(options.recipe or "")
    settings = [*(options.overrides or []), *machine_settings(options)]
    start = None if options.start_from is None else open_run(options.start_from).path

    def tables_over(base: str | None = None) -> dict[str, Any]:
        tables = dict(with_start(with_overrides(read_recipe(path, base), settings), start))
        if options.jobs > 1 and "threads" not in tables.get("training", {}):
            share = max(1, (os.cpu_count() or 1) // options.jobs)
            tables = with_overrides(tables, [f"training.threads={share}"])
        return tables

    tables = tables_over()
    own = compare_settings(tables, str(path))
    groups = read_vary(options.vary) if options.vary else vary_of(own.vary, str(path))
    return Plan(
        without_searches(tables),
        str(path),
        groups,
        bases={base: without_searches(tables_over(base)) for base in bases_of(groups)},
        seeds=own.seeds if options.seeds is None else options.seeds,
        budget=read_budget(own.budget if options.budget is None else options.budget),
        baseline=options.baseline or (None if options.vary else own.baseline),
        data=options.data,
        start_from=start,
    )


def _list(plan: "Plan", options: Compare) -> None:
    """Print the variants, what is trained of them, and the estimated time."""
    from heedful.evaluation.outcome import ReportTable
    from heedful.evaluation.tables import draw
    from heedful.training.comparing import check_refused, estimate
    from heedful.training.comparison_record import read_comparison
    from heedful.training.report import duration

    variants, refused = plan.checked()
    known = None if options.out is None else read_comparison(options.out)
    trained = [each for each in known.trainings if each.state == "complete"] if known else []
    rows = [
        (
            variant.name,
            variant.folder,
            f"{sum(each.variant == variant.name for each in trained)} of {plan.seeds} trained",
        )
        for variant in variants
    ]
    rows += [(one.name, "", f"invalid: {one.reason}") for one in refused]
    count = len(variants) * plan.seeds
    title = f"{len(variants)} variants, {count} trainings of {plan.budget.text}"
    draw([ReportTable(title, ("variant", "folder", "state"), rows)])
    left = estimate(known) if known else None
    if left is None:
        notice("the time is estimated after the first training")
    else:
        notice(f"about {duration(left)} left for the trainings that were started")
    check_refused(variants, refused, skip=options.skip_invalid)
    plan.baseline_of(variants)


def _report(folder: Path, options: Compare) -> None:
    """Write the report of a comparison again, or the one for another test set."""
    from heedful.tasks.scoring import OtherTest, score_trainings
    from heedful.training.comparison_record import read_comparison

    other = None
    if options.test:
        if options.out is None:
            raise UserError(
                "--out FOLDER is missing: give the folder for the scores and the report"
            )
        found = read_comparison(folder)
        if found is not None:
            other = OtherTest(options.test, options.out)
            score_trainings(folder, found, other)
    _finish(folder, options.as_json, other)


def _finish(folder: Path, as_json: bool, other: "OtherTest | None" = None) -> None:
    """Write the report and print it."""
    from heedful.evaluation.tables import draw
    from heedful.viewing.comparison.report import write_report
    from heedful.viewing.comparison.sections import main_table

    found: dict[str, Any] = write_report(folder, other)
    place = folder if other is None else other.folder
    notice(f"report written to {place}: report.html, report.md, report.tex, report.json")
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        table = main_table(found)
        if table is None:
            notice("no training is complete yet")
        else:
            draw([table.table()])
    if found["failed"]:
        notice(f"failed trainings: {len(found['failed'])}; the report lists them")
        raise typer.Exit(1)
