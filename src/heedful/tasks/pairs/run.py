"""Runs for pairs of texts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.settings import check
from heedful.data.examples import Pair
from heedful.data.memory import Memory
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.tokeniser import Tokenisers
from heedful.decoding import SearchOptions
from heedful.runs.opening import open_run
from heedful.runs.registry import kind_of
from heedful.runs.run import Run, no_examples, other_vocabulary
from heedful.tasks.pairs.recipe import PairRecipe

MEMORY = "memory.jsonl"
"""The file of a run's translation memory. It may grow, so that it is not sealed."""
_EXAMPLES = 3


@dataclass(frozen=True)
class PairRun(Run):
    """A run for pairs of texts."""

    recipe: PairRecipe

    def tokenisers(self) -> Tokenisers:
        """The run's own tokenisers.

        Raises:
            UserError: the tokenisers are missing, damaged or changed.
        """
        self.require_unchanged("tokeniser/")
        found = load_tokenisers(self.path / "tokeniser")
        known = self.facts["vocabulary"]
        if (found.source.size, found.target.size) != (known["source"], known["target"]):
            raise other_vocabulary(self.path)
        return found

    def memory(self) -> Memory | None:
        """The run's translation memory; None if it keeps none.

        Raises:
            UserError: the file is damaged.
        """
        return load_memory(self.path)

    def pairs(self, part: str) -> list[Pair]:
        """The ``validation`` or ``test`` pairs stored in the run; empty if there are none."""
        name = f"data/{part}.jsonl"
        self.require_unchanged(name)
        try:
            pairs = [Pair(*pair) for pair in read_json_lines(self.path / name)]
        except TypeError as error:
            raise no_examples(self.path / name) from error
        if not all(isinstance(text, str) for pair in pairs for text in pair):
            raise no_examples(self.path / name)
        return pairs


def examples_of(folder: Path) -> tuple[str, ...]:
    """Up to three short sources of the validation pairs, as examples; none without such pairs."""
    try:
        pairs = open_pair_run(folder).pairs("validation")
    except UserError:
        return ()
    short = [source for source, _ in pairs if 20 <= len(source) <= 90 and "\n" not in source]
    step = max(1, len(short) // _EXAMPLES)
    return tuple(dict.fromkeys(short[::step]))[:_EXAMPLES]


def load_memory(folder: Path) -> Memory | None:
    """The translation memory in the folder of a run; None if there is none.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / MEMORY
    return Memory.load(path) if path.exists() else None


def open_pair_run(path: str | Path) -> PairRun:
    """Like :func:`open_run`, for a run for pairs of texts.

    Raises:
        UserError: also for a run of another task.
    """
    run = open_run(path)
    if kind_of(run.recipe).family != "pairs":
        raise UserError(f"{path} is a run for {run.recipe.task}, not for pairs of texts")
    return cast(PairRun, run)


def search_of(run: Path, beam: int | None, where: str) -> SearchOptions:
    """The search options of a run's recipe, with another beam if one is given.

    Raises:
        UserError: the folder is not a run, or the beam is out of range.
    """
    recipe = open_pair_run(run).recipe.evaluation
    width = recipe.beam if beam is None else beam
    given = {"beam": width, "length_penalty": recipe.length_penalty}
    return check(SearchOptions, given, where)


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    """Write pairs as JSON lines, atomically."""
    with atomic_file(path) as file:
        for pair in pairs:
            file.write((json.dumps(list(pair), ensure_ascii=False) + "\n").encode("utf-8"))
