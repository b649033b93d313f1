"""The examples of the files of a recipe whose task has columns, by the part they belong to."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.basics.notices import notice

if TYPE_CHECKING:
    from heedful.data.readers.folders import FilesOf


def notice_left(part: str, left: Mapping[str, int], count: int) -> None:
    """Count the examples that were left out.

    Raises:
        UserError: none is left for training.
    """
    for reason, number in left.items():
        notice(f"{number:,} of {count + sum(left.values()):,} {part} examples left out: {reason}")
    if left and not count and part == "train":
        raise UserError(f"all training examples are left out: {next(iter(left))}")


class ColumnCorpus(NamedTuple):
    """The examples of a recipe's files, and which part each belongs to."""

    files: dict[str, list[str]]
    shares: dict[str, float]
    recipe: Any

    @classmethod
    def of(
        cls, path: Path, recipe: Any, data_folder: Path | None, files_of: "FilesOf | None"
    ) -> "ColumnCorpus":
        from heedful.tasks.preparation import find_files, held_out_shares

        spooled = path / "data" / "input.jsonl"
        files = find_files(recipe.data.files, data_folder, spooled, files_of=files_of)
        return cls(files, held_out_shares(files, recipe.data), recipe)

    def examples(self, part: str) -> Iterator[Any]:
        """The examples of a part, in the order of the files."""
        from heedful.runs.held_out import part_of

        shared = part == "train" or self.shares[part] > 0
        data = self.recipe.data
        for example in data.read(self.files["train" if shared else part], data.encoding):
            own = part_of(example.model_dump_json(), self.recipe.seed, self.shares)
            if not shared or own == part:
                yield example
