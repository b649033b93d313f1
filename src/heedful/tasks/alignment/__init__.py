"""Alignment: links between the words of a text and its translation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.tasks.pairs.spec import PairSpec
from heedful.tasks.spec import Command, Pair, register

if TYPE_CHECKING:
    import torch

    from heedful.tasks.alignment.recipe import AlignmentRecipe
    from heedful.tasks.pairs.run import PairRun
    from heedful.training.protocol import Task


class Alignment(PairSpec):
    """Aligns the words of pairs."""

    name = "alignment"
    place = 3
    command = "align"
    train_option = "align"
    train_about = "trains two runs in one folder, one per direction, for heedful align"
    does = "aligns words"
    takes_recipe = False

    def recipe_type(self) -> "type[AlignmentRecipe]":
        from heedful.tasks.alignment.recipe import AlignmentRecipe

        return AlignmentRecipe

    def train_corpus(
        self, train: Callable[..., bool], out: Path, files: list[str], **how: Any
    ) -> bool:
        """Train aligners of both directions into ``out/forward`` and ``out/reverse``.

        Raises:
            UserError: no corpus is given, ``out`` is a run, or the corpus cannot be used.
        """
        from heedful.basics.notices import notice
        from heedful.tasks.pairs.aligners import DIRECTIONS
        from heedful.tasks.pairs.default_recipe import choose_aligning_recipe

        if (out / "run.json").exists():
            raise UserError(
                f"{out} is a run; --task align writes a folder with two runs: use another --out"
            )
        if how.pop("start_from", None) is not None:
            raise UserError("--task align cannot start from another run: leave out --start-from")
        given: Mapping[str, Any] = how.pop("given")
        languages = (given.get("source"), given.get("target"))
        how = {name: value for name, value in how.items() if name not in ("choose", "task")}
        for name, is_reversed in DIRECTIONS.items():
            source, target = languages if not is_reversed else languages[::-1]
            finished = super().train_corpus(
                train,
                out / name,
                files,
                given={"source": source, "target": target},
                start_from=None,
                choose=partial(choose_aligning_recipe, reversed=is_reversed),
                **how,
            )
            if not finished:
                return False
        notice(f"trained; heedful align {out} FILE aligns with both directions")
        return True

    def read_input(self, line: str) -> Any:
        from heedful.data import examples

        source, tab, target = line.partition("\t")
        if not tab and line.strip():
            raise UserError("a line must contain two texts, separated by a TAB")
        return examples.Pair(source, target)

    def build_task(
        self, run: "PairRun", model: Any, training: Any, device: "torch.device", precision: str
    ) -> "Task":
        from heedful.tasks.alignment.building import build_task

        return build_task(run, model, training, device, precision)

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.alignment.predictor import AlignmentPredictor
        from heedful.tasks.pairs.building import load_translator

        self.refuse_head(run, how.pop("head", None))
        return load_translator([run], make=AlignmentPredictor, **how)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.alignment.command import Align, run

        return [Command(self.command, Align, run)]

    def input_type(self) -> Any:
        return Pair

    def write_result(self, result: Any) -> str:
        return str(result.pharaoh())


register(Alignment())
