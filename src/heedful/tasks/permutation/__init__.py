"""Permutation language model: predicts some tokens in a random order, each from those before it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heedful.tasks.masked import Masked
from heedful.tasks.sketch import PaperSize
from heedful.tasks.spec import Command, register

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.runs.run import Run
    from heedful.tasks.permutation.recipe import PermutationHead, PermutationRecipe
    from heedful.tasks.texts.score import ScoredHead, TextScore
    from heedful.tasks.texts.sketch import SketchedHead


class Permutation(Masked):
    """Predicts tokens of a text in a random order; its runs fill in masked words likewise."""

    name = "permutation"
    paper_sizes: Mapping[str, PaperSize] = MappingProxyType({})
    falling = frozenset({"loss", "left_to_right_loss", "left_to_right_perplexity"})

    def recipe_type(self) -> "type[PermutationRecipe]":  # type: ignore[override]
        from heedful.tasks.permutation.recipe import PermutationRecipe

        return PermutationRecipe

    def compile_name(self, run: "Run") -> str:
        return "encoder.streams"

    def head_type(self) -> "type[PermutationHead]":  # type: ignore[override]
        from heedful.tasks.permutation.recipe import PermutationHead

        return PermutationHead

    def paper_loss(self, sketch: "SketchedHead") -> "Tensor":
        from heedful.tasks.permutation.sketch import paper_loss

        return paper_loss(sketch)

    def head_module(self) -> Any:
        from heedful.tasks.permutation import head

        return head

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.permutation.evaluation import score_permutation

        return score_permutation(head.name, head.predictor(), head.examples, head.run, self.falling)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        return []  # ``heedful fill`` is already a command of the masked task.


register(Permutation())
