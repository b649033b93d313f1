"""The published comparisons: ``make results DATA=FOLDER``.

    python benchmarks/results.py --data FOLDER [--only RECIPE …] [--jobs 2] [--threads 1]

Runs ``heedful compare`` for each recipe of ``results.toml``, and scores its runs on a further test
set if there is one. All runs and reports are kept in ``--out``: rerun the command to resume;
nothing is trained or scored twice. At the end, ``results.md`` in this folder has all reports.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import associative_recall
import tatoeba_joined
from character_model import cut_text
from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import write_text
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, without_searches
from heedful.viewing.comparison.markdown import to_markdown

HERE = Path(__file__).resolve().parent
INTERRUPTED = 130
"""The exit code of a command that was interrupted."""
LONG_TEXTS = 1000
REPORT = "report.json"


@dataclass(frozen=True)
class Comparison:
    """A recipe with a table ``[compare]``, and its data."""

    recipe: str
    data: str
    made_from: str | None = None
    test: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its folder."""
        return Path(self.recipe).stem


def read_comparisons(path: Path) -> list[Comparison]:
    """The comparisons of a file.

    Raises:
        UserError: one has an unknown key or lacks one.
    """
    found = []
    for recipe, given in tomllib.loads(path.read_text(encoding="utf-8")).items():
        try:
            found.append(Comparison(recipe, **{**given, "test": tuple(given.get("test", ()))}))
        except TypeError as error:
            what = str(error).replace("Comparison.__init__() ", "")
            raise UserError(f"{path}: {recipe}: {what}") from error
    return found


def choose(comparisons: Sequence[Comparison], only: Sequence[str] | None) -> list[Comparison]:
    """The selected comparisons.

    Raises:
        UserError: one is unknown.
    """
    known = [one.key for one in comparisons]
    for name in only or []:
        if name not in known:
            raise UserError(f"--only {name}: unknown; choose from {', '.join(known)}")
    return [one for one in comparisons if not only or one.key in only]


def find_folder(one: Comparison, places: Sequence[Path]) -> Path:
    """The folder of a comparison's data.

    Raises:
        UserError: it does not exist, or a file is missing there.
    """
    recipe = check_recipe(without_searches(read_recipe(find_recipe(one.recipe))), one.recipe)
    listed = (recipe.data.train, recipe.data.validation, recipe.data.test, one.test)
    files = [file for part in listed for file in ([part] if isinstance(part, str) else part or [])]
    for folder in [place / one.data for place in places]:
        missing = [file for file in files if not (folder / file).is_file()]
        if not missing:
            return folder
        if folder.is_dir():
            raise UserError(f"{one.recipe}: {folder} has no {missing[0]}")
    raise UserError(
        f"{one.recipe}: no folder {one.data} in {' or '.join(map(str, places))}; it holds "
        f"{', '.join(files)}"
    )


def make_data(one: Comparison, data: Path, out: Path) -> None:
    """Generate a comparison's data, most from a source corpus, if they do not exist yet.

    Raises:
        UserError: they cannot be generated.
    """
    source, made = data / (one.made_from or ""), out / "data" / one.data
    if one.data == "associative-recall" and not (made / "test.tsv").exists():
        with contextlib.redirect_stdout(sys.stderr):
            associative_recall.main(["--out", str(made)])
    if one.made_from is None or (data / one.data).exists() or not source.exists():
        return
    if one.data == "tinyshakespeare-cut":
        cut_text(source, made)
    elif not (made / "ATTRIBUTION.txt").exists():  # the last file to be written
        print(f"== generating {made} from {source}", file=sys.stderr, flush=True)
        with contextlib.redirect_stdout(sys.stderr):
            if tatoeba_joined.main([str(source), "--out", str(made), "--long", str(LONG_TEXTS)]):
                raise UserError(f"{made} could not be generated")


def heedful(*arguments: object) -> None:
    """Run a command.

    Raises:
        UserError: it failed; its messages are printed above.
        KeyboardInterrupt: it was interrupted.
    """
    command = list(map(str, arguments))
    code = run_command(command)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise UserError(f"heedful {' '.join(command)} ended with code {code}")


def run_command(arguments: list[str]) -> int:
    """Run ``heedful`` in a separate process; returns its exit code."""
    return subprocess.run([sys.executable, "-m", "heedful", *arguments], check=False).returncode


def make(one: Comparison, folder: Path, options: argparse.Namespace) -> None:
    """Train and score what is left of a comparison, and write its reports."""
    out = options.out / one.key
    speed = ["--jobs", options.jobs, "--threads", options.threads]
    heedful("compare", one.recipe, "--data", folder, "--out", out, *speed)
    if one.test:
        files = [part for file in one.test for part in ("--test", folder / file)]
        heedful("compare", "--report", out, *files, "--out", other_of(out))


def other_of(out: Path) -> Path:
    """The folder of the scores on the further test set."""
    return out.with_name(f"{out.name}-test")


def collected(comparisons: Sequence[Comparison], out: Path) -> str:
    """The reports as one text."""
    parts, missing = [], []
    for one in comparisons:
        places = [out / one.key, *([other_of(out / one.key)] if one.test else [])]
        there = [place for place in places if (place / REPORT).exists()]
        missing += [place.name for place in places if place not in there]
        for place in there:
            pictures = {path.stem: f"{place.name}/{path.name}" for path in place.glob("*.svg")}
            parts.append(to_markdown(read_json(place / REPORT), pictures))
    if missing:
        parts.append(f"Missing: {', '.join(missing)}.\n")
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all comparisons; returns 1 if one failed, 130 if interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with a folder for each data set")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--table", type=Path, default=HERE / "results.toml")
    parser.add_argument("--only", nargs="+", metavar="RECIPE", help="some comparisons")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time; default 1")
    parser.add_argument("--threads", type=int, default=1, help="threads of each; default 1")
    options = parser.parse_args(arguments)
    # Libraries outside PyTorch must not use the cores of other trainings.
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    errors: list[str] = []
    try:
        comparisons = read_comparisons(options.table)
        chosen = choose(comparisons, options.only)
        if options.data is None:
            needed = sorted({one.made_from or one.data for one in chosen})
            raise UserError(
                f"--data FOLDER is missing (make results DATA=FOLDER): it holds {', '.join(needed)}"
            )
        for one in chosen:
            make_data(one, options.data, options.out)
        places = [options.data, options.out / "data"]
        folders = [find_folder(one, places) for one in chosen]  # fail before hours are spent
        for one, folder in zip(chosen, folders, strict=True):
            print(f"== {one.recipe}", file=sys.stderr, flush=True)
            try:
                make(one, folder, options)
            except UserError as error:
                errors.append(f"{one.recipe}: {error}")
        write_text(options.out / "results.md", collected(comparisons, options.out))
    except UserError as error:
        errors.append(str(error))
    except KeyboardInterrupt:
        print("interrupted: rerun the command to resume", file=sys.stderr)
        return INTERRUPTED
    for error in errors:
        print(f"results: {error}", file=sys.stderr)
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
