"""What a study is: its question, its options and its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from heedful.basics.errors import UserError
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.runs.run import Run
from heedful.training import train

Cell = str | int | float | None
"""A value of a table; None for a value that does not exist."""


@dataclass(frozen=True)
class StudyOptions:
    """What a user gives to a study.

    Attributes:
        out: the folder of the study; its runs are in folders of their own inside it.
        data: the folder of data that are not generated.
        runs: trained runs.
        seeds: the seeds of trainings, at least one; studies that generate their data give
            means over them, studies of runs list each.
        threads: number of CPU threads of trainings; None for PyTorch's default.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        quick: seconds instead of minutes: tiny budgets to try the study, whose figures mean
            nothing.
        echo: called with each line that tells how far the study is.
    """

    out: Path
    data: Path | None = None
    runs: tuple[Path, ...] = ()
    seeds: tuple[int, ...] = (1,)
    threads: int | None = None
    device: str = "auto"
    quick: bool = False
    echo: Callable[[str], None] = print

    def train(self, name: str, recipe: Mapping[str, Any], data: Path | None = None) -> Run:
        """Train a recipe in ``out/NAME``, or resume it there; a finished run is opened only.

        Args:
            name: the folder of the run in ``out``.
            recipe: the tables of the recipe; device and threads are added.
            data: the base folder of its relative data paths.

        Raises:
            UserError: the recipe is invalid, or the folder is a run of another recipe.
            KeyboardInterrupt: training was interrupted.
        """
        machine: dict[str, Any] = {"device": self.device}
        if self.threads is not None:
            machine["threads"] = self.threads
        tables = {**recipe, "training": {**recipe.get("training", {}), **machine}}
        if not train(check_recipe(tables, f"the recipe of {name}"), self.out / name, data=data):
            raise KeyboardInterrupt
        return open_run(self.out / name)

    def data_folder(self) -> Path:
        """``data``.

        Raises:
            UserError: it is not given, or is not a folder.
        """
        if self.data is None:
            raise UserError("this study needs --data FOLDER; `heedful study` lists what it needs")
        if not self.data.is_dir():
            raise UserError(f"--data {self.data}: no such folder")
        return self.data


@dataclass(frozen=True)
class Table:
    """A table of figures: columns by name, and rows of as many cells."""

    name: str
    """Letters, digits and hyphens; unique in the result."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: {len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True)
class Picture:
    """A figure of matplotlib, as `heedful.viewing.figures.new_figure` makes it."""

    name: str
    """Letters, digits and hyphens; unique in the result. The file is ``STUDY-NAME.svg``."""
    caption: str
    figure: Figure


@dataclass(frozen=True)
class StudyResult:
    """What a study found."""

    found: tuple[str, ...]
    """Sentences computed from the figures, one paragraph each."""
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = ()


def as_options(key: str) -> str:
    """A key of :attr:`Study.needs` as options.

    Example:
        >>> as_options("data or run")
        '--data or --run'
    """
    return " or ".join(f"--{one}" for one in key.split(" or "))


@dataclass(frozen=True)
class Study:
    """A study. Its module has it as ``STUDY``; a plug-in registers it (`catalogue.register`).

    Attributes:
        name: the file name of the module, with hyphens for underscores.
        title: a few words.
        question: the question that it answers, a sentence.
        method: data, split, training, and what is measured, with the paper; Markdown.
        run: trains what it needs and measures.
        needs: what ``--data`` or ``--run`` must name, by "data", "run", or "data or run" if one of
            them is enough; empty if neither has to be given.
        takes: which of "data" and "run" may be given; empty if the study generates its data.
    """

    name: str
    title: str
    question: str
    method: str
    run: Callable[[StudyOptions], StudyResult]
    needs: Mapping[str, str] = field(default_factory=dict)
    takes: tuple[str, ...] = ("data", "run")

    def require_usable(self, options: StudyOptions) -> None:
        """Raise UserError if something that the study needs is not given, or has no effect."""
        given = {"data": options.data is not None, "run": bool(options.runs)}
        for key, what in self.needs.items():
            if not any(given[one] for one in key.split(" or ")):
                raise UserError(f"heedful study {self.name} needs {as_options(key)}: {what}")
        for key, is_given in given.items():
            if is_given and key not in self.takes:
                raise UserError(f"heedful study {self.name} generates its data; leave out --{key}")
