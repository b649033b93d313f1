"""Masked language model: predicts masked tokens, and how two segments are related."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.sketch import PaperSize
from heedful.tasks.spec import Command, Panel, register
from heedful.tasks.texts.spec import HeadSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from heedful.runs.run import Run
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.texts.heads import MaskedHead
    from heedful.tasks.texts.recipe import MaskedRecipe
    from heedful.tasks.texts.score import ScoredHead, TextScore
    from heedful.tasks.texts.sketch import SketchedHead


class Masked(HeadSpec):
    """Predicts the masked tokens of a text."""

    name = "masked"
    place = 6
    has_outputs = False
    paper_sizes: Mapping[str, PaperSize] = {
        f"bert-{size}": PaperSize(
            {
                "model": {"kind": "bert", "size": size},
                "tokeniser": {"vocabulary_size": 30_522, "mask": True},
                "max_tokens": 512,
            },
            512,
            "Devlin et al. 2019, section 3 and appendix A.2: 1,000,000 steps of 256 sequences",
            1_000_000 * 256 * 512,
        )
        for size in ("base", "large")
    }
    command = "fill"
    falling = frozenset({"loss", "masked_loss", "next_loss", "order_loss"})
    does = "fills in masked words"
    panel = Panel("fill", "Fill in")

    def recipe_type(self) -> "type[MaskedRecipe]":
        from heedful.tasks.texts.recipe import MaskedRecipe

        return MaskedRecipe

    def head_type(self) -> "type[MaskedHead]":
        from heedful.tasks.texts.heads import MaskedHead

        return MaskedHead

    def paper_loss(self, sketch: "SketchedHead") -> "Tensor":
        from heedful.tasks.masked.sketch import paper_loss

        return paper_loss(sketch)

    def head_module(self) -> Any:
        from heedful.tasks.masked import head

        return head

    def compile_name(self, run: "Run") -> str:
        recipe: Any = run.recipe
        return "encoder.packed_states" if recipe.windows == "packed" else "encoder.encode"

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.texts.loading import load_filler

        return load_filler(run, **how)

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.masked.endpoints import ENDPOINTS

        return ENDPOINTS

    def facts(self, predictor: Any) -> dict[str, Any]:
        from heedful.inference.fill_mask import MASK

        masks = [MASK, *predictor.vocabulary.pieces([predictor.mask])]
        return {**super().facts(predictor), "masks": list(dict.fromkeys(masks))}

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.masked.evaluation import score_masked

        recipe: Any = head.run.recipe
        return score_masked(head.name, head.predictor(), head.examples, recipe, self.falling)

    def outputs(self, head: "nn.Module", encoded: Any) -> "Tensor":
        found: Tensor = head(encoded.states)
        return found

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.masked.command import Fill, run

        return [Command(self.command, Fill, run)]

    def write_result(self, result: Any) -> str:
        return str(result.text)


register(Masked())
