"""The table of "What attention buys": ``make results DATA=FOLDER``.

    python benchmarks/results_table.py --data FOLDER [--only RECIPE …] [--jobs 2] [--threads 1]

Each row of ``results_table.toml`` is a search with ``heedful tune``. Its best run and further seeds
are then scored once on the test set. All results are kept in ``--out``: rerun the command to
resume; runs are not scored twice. At the end, ``results.json`` and ``results.md`` in this folder
contain the tables of the finished rows; ``--collect`` only writes these tables.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tatoeba_joined
from heedful.basics.errors import UserError
from heedful.basics.files import write_json, write_text
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from results_collect import collect, markdown

HERE = Path(__file__).resolve().parent
INTERRUPTED = 130
"""The exit code of a command that was interrupted."""


@dataclass(frozen=True)
class Row:
    """A row: a recipe and its training budget."""

    table: str
    title: str
    name: str
    recipe: str
    data: str
    made_from: str | None
    against: str | None
    trials: int
    minutes: float | None
    seeds: int

    @property
    def key(self) -> str:
        """The name of its folder."""
        return Path(self.recipe).stem


def read_rows(path: Path) -> list[Row]:
    """The rows of a table file.

    Raises:
        UserError: a row has an unknown key or lacks one, or two rows have the same recipe.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = []
    for name, table in tables["tables"].items():
        about = {key: value for key, value in table.items() if key != "rows"}
        for row in table["rows"]:
            values = {
                "against": None,
                "made_from": None,
                "minutes": None,
                **tables["budget"],
                **about,
                **row,
                "table": name,
            }
            try:
                rows.append(Row(**values))
            except TypeError as error:
                what = str(error).replace("Row.__init__() ", "")
                raise UserError(f"{path}: row {row.get('name', row)}: {what}") from error
    keys = [row.key for row in rows]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"{path}: two rows have the recipe {key}")
    return rows


def choose(rows: Sequence[Row], only: Sequence[str] | None) -> list[Row]:
    """The selected rows, by recipe."""
    known = {row.key: row for row in rows}
    for name in only or []:
        if name not in known:
            raise UserError(f"--only {name}: unknown row; choose from {', '.join(known)}")
    return [row for row in rows if not only or row.key in only]


def find_folder(row: Row, places: Sequence[Path]) -> Path:
    """The folder of a row's data.

    Raises:
        UserError: it does not exist, or a file of the recipe is missing there.
    """
    recipe = check_recipe(read_recipe(find_recipe(row.recipe)), row.recipe)
    files = [*recipe.data.train, *recipe.data.validation, *recipe.data.test]
    for folder in [place / row.data for place in places]:
        missing = [file for file in files if not (folder / file).is_file()]
        if not missing:
            return folder
        if folder.is_dir():
            raise UserError(f"{row.recipe}: {folder} has no {missing[0]}")
    raise UserError(
        f"{row.recipe}: no folder {row.data} in {' or '.join(map(str, places))}; it holds "
        f"{', '.join(files)}"
    )


def make_data(row: Row, data: Path, out: Path) -> None:
    """Generate a row's data from its source corpus if they do not exist yet.

    Raises:
        UserError: they cannot be generated.
    """
    source, made = data / (row.made_from or ""), out / "data" / row.data
    if row.made_from is None or (data / row.data).exists() or not source.exists():
        return
    if not (made / "ATTRIBUTION.txt").exists():  # the last file to be written
        print(f"== generating {made} from {source}", file=sys.stderr, flush=True)
        with contextlib.redirect_stdout(sys.stderr):
            if tatoeba_joined.main([str(source), "--out", str(made)]):
                raise UserError(f"{made} could not be generated")


def heedful(*arguments: object, into: Path | None = None) -> None:
    """Run a command and write its complete output to a file; nothing is written if it fails.

    Raises:
        UserError: the command failed; its messages are printed above.
        KeyboardInterrupt: it was interrupted.
    """
    command = list(map(str, arguments))
    code, printed = run_command(command)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise UserError(f"heedful {' '.join(command)} ended with code {code}")
    if into is not None:
        write_text(into, printed)


def run_command(arguments: list[str]) -> tuple[int, str]:
    """Run ``heedful`` in a separate process; returns its exit code and output."""
    command = [sys.executable, "-m", "heedful", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout


def make_row(row: Row, folder: Path, out: Path, threads: int) -> None:
    """Search, then score the best run and its further seeds. Skips what is done."""
    search = out / row.key
    budget = ["--trials", row.trials, "--seeds", row.seeds]
    budget += [] if row.minutes is None else ["--minutes", row.minutes]
    places = ["--data", folder, "--out", search, "--threads", threads]
    heedful("tune", row.recipe, *budget, *places, "--json", into=out / f"{row.key}.tuning.json")
    found = json.loads((search / "tuning.json").read_text(encoding="utf-8"))
    winner = found["trials"][found["winner"]]
    for trial in [winner, *found["further"][: row.seeds]]:
        score(search / trial["folder"], threads)


def score(run: Path, threads: int) -> None:
    """Score a run on its test set, unless it has been scored.

    Raises:
        UserError: the run was scored with another checkpoint than the current one.
    """
    path = run / "test.json"
    chosen = open_run(run).chosen().path.name
    if path.exists():
        scored = json.loads(path.read_text(encoding="utf-8"))["checkpoint"]
        if scored != chosen:
            raise UserError(
                f"{run} was scored with checkpoint {scored}, but now uses {chosen}: its test set "
                f"has been used; delete {path} to score it again"
            )
        return
    how = ["--by-length", "--attention", "--sentences", 0, "--metrics", "bleu,chrf", "--json"]
    heedful("evaluate", run, *how, "--threads", threads, "--output", run / "test.txt", into=path)


def make_rows(rows: Sequence[Row], options: argparse.Namespace) -> list[str]:
    """Run all rows, several in parallel; returns the errors of those that failed."""
    out: Path = options.out
    for row in rows:
        make_data(row, options.data, out)
    places = [options.data, out / "data"]
    folders = [find_folder(row, places) for row in rows]  # fail before hours are spent
    errors: list[str] = []
    stopped = False

    def one(row: Row, folder: Path) -> None:
        nonlocal stopped
        if stopped:
            return
        print(f"== {row.name}: {row.recipe}", file=sys.stderr, flush=True)
        try:
            make_row(row, folder, out, options.threads)
        except UserError as error:
            errors.append(f"{row.recipe}: {error}")
        except KeyboardInterrupt:
            stopped = True

    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            list(pool.map(one, rows, folders))
        except KeyboardInterrupt:
            stopped = True  # the commands were also interrupted; wait until they have saved
    if stopped:
        raise KeyboardInterrupt
    return errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows, then write the tables; returns 1 if a row failed, 130 if interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with a folder for each table's data")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--table", type=Path, default=HERE / "results_table.toml")
    parser.add_argument("--only", nargs="+", metavar="RECIPE", help="some rows")
    parser.add_argument("--jobs", type=int, default=1, help="rows to run in parallel; default 1")
    parser.add_argument("--threads", type=int, default=1, help="threads per row; default 1")
    parser.add_argument("--collect", action="store_true", help="write the tables only")
    options = parser.parse_args(arguments)
    # Libraries outside PyTorch must not use the cores of other rows.
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    errors: list[str] = []
    try:
        rows = read_rows(options.table)
        if not options.collect:
            if options.data is None:
                raise UserError(
                    "--data FOLDER is missing (make results DATA=FOLDER): it holds "
                    f"{', '.join(sorted({row.made_from or row.data for row in rows}))}"
                )
            errors = make_rows(choose(rows, options.only), options)
        found = collect(rows, options.out, options.threads)
        text = markdown(found)
        write_json(options.out / "results.json", found)
        write_text(options.out / "results.md", text)
    except UserError as error:
        errors.append(str(error))
    except KeyboardInterrupt:
        print("interrupted: rerun the command to resume", file=sys.stderr)
        return INTERRUPTED
    else:
        print(text)
    for error in errors:
        print(f"results: {error}", file=sys.stderr)
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
