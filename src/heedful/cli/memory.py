"""``heedful memory``: the translation memory that a run keeps."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from heedful.data.memory import Memory

HELP = """Search, extend and export the translation memory that a run keeps.

Examples:

    heedful memory search runs/en-de "Open the file"

    heedful memory import runs/en-de messages.de.po

    heedful memory export runs/en-de memory.tsv
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

Run = Annotated[Path, typer.Argument(help="The folder of a translation run.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@app.command(no_args_is_help=True)
def search(
    run: Run,
    text: Annotated[str, typer.Argument(help="Part of a source or a translation, in any case.")],
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of units to show.")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show units that contain a text.

    Example:

        heedful memory search runs/en-de "Open the file"
    """
    for entry in _open_memory(run).search(text, limit):
        if as_json:
            print(json.dumps(entry._asdict(), ensure_ascii=False))
        else:
            print(f"{_line(entry.source)}\t{_line(entry.target)}")


@app.command(no_args_is_help=True)
def add(
    run: Run,
    source: Annotated[str, typer.Argument(help="The source.")],
    target: Annotated[str, typer.Argument(help="Its translation.")],
    context: Annotated[
        str | None, typer.Option("--context", help="A message's context, or a unit's id.")
    ] = None,
) -> None:
    """Add one unit.

    Example:

        heedful memory add runs/en-de "Open" "Öffnen"
    """
    from heedful.data.memory import Entry

    if not source.strip() or not target.strip():
        raise UserError("a unit needs a source and a translation; one of them is empty")
    with _changed_memory(run) as memory:
        memory.add(Entry(source, target, context))


@app.command("import", no_args_is_help=True)
def import_file(
    run: Run,
    file: Annotated[str, typer.Argument(help="A PO, XLIFF, TMX or TSV file with translations.")],
    source: Annotated[
        str | None, typer.Option("--from", help="Source language; the run's unless given.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help="Target language; the run's unless given.")
    ] = None,
) -> None:
    """Add the units of a file. Untranslated ones and those marked for review are left out.

    Example:

        heedful memory import runs/en-de messages.de.po
    """
    from heedful.data.memory import Entry
    from heedful.data.units import read_units
    from heedful.tasks.pairs.run import open_pair_run

    data = open_pair_run(run).recipe.data
    units = list(read_units(file, source=source or data.source, target=target or data.target))
    done = [unit for unit in units if unit.is_done and unit.target.strip()]
    with _changed_memory(run) as memory:
        for unit in done:
            memory.add(Entry(unit.source, unit.target, unit.context))
    print(f"{len(done):,} of {len(units):,} units of {file} added; {len(memory):,} units in all")


@app.command(no_args_is_help=True)
def export(
    run: Run,
    output: Annotated[Path, typer.Argument(help="A TSV file to write.")],
) -> None:
    """Write the units as TSV: source, TAB, translation. Line breaks and TABs become spaces.

    Example:

        heedful memory export runs/en-de memory.tsv
    """
    from heedful.basics.files import atomic_file

    memory = _open_memory(run)
    with atomic_file(output) as file:
        for entry in memory:
            file.write(f"{_line(entry.source)}\t{_line(entry.target)}\n".encode())
    print(f"{output}: {len(memory):,} units")


@app.command(no_args_is_help=True)
def stats(run: Run, as_json: Json = False) -> None:
    """Show the size of the memory.

    Example:

        heedful memory stats runs/en-de
    """
    found = _open_memory(run).statistics()
    if as_json:
        print(json.dumps(found))
        return
    for name, count in found.items():
        print(f"{name.replace('_', ' ')}\t{count:,}")


def _open_memory(run: Path, make: bool = False) -> "Memory":
    from heedful.data.memory import Memory
    from heedful.tasks.pairs.run import open_pair_run

    memory = open_pair_run(run).memory()
    if memory is None and not make:
        raise UserError(
            f"{run} keeps no translation memory; add units with heedful memory import {run} FILE"
        )
    return memory or Memory()


@contextmanager
def _changed_memory(run: Path) -> Iterator["Memory"]:
    """The memory, which is saved after the block; other commands that change it wait."""
    from heedful.basics.locking import waiting
    from heedful.tasks.pairs.run import MEMORY, open_pair_run

    open_pair_run(run)  # says what is wrong if this is no run
    with waiting(run):
        memory = _open_memory(run, make=True)
        yield memory
        memory.save(run / MEMORY)


def _line(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.add_typer(app, name="memory")
