"""Masked language model: predicts masked tokens, and whether a sentence follows another."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Command, Opening, Panel, register
from heedful.tasks.texts.spec import EncoderSpec

if TYPE_CHECKING:
    from torch import nn

    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.texts.evaluation_options import TextEvaluation
    from heedful.tasks.texts.examples import Examples
    from heedful.tasks.texts.part import Training
    from heedful.tasks.texts.recipe import MaskedRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import TextScore
    from heedful.training.protocol import Task


class Masked(EncoderSpec):
    """Predicts the masked tokens of a text."""

    name = "masked"
    place = 6
    has_outputs = False
    command = "fill"
    falling = frozenset({"loss", "masked_loss", "next_loss"})
    does = "fills in masked words"
    panel = Panel("fill", "Fill in")

    def recipe_type(self) -> "type[MaskedRecipe]":
        from heedful.tasks.texts.recipe import MaskedRecipe

        return MaskedRecipe

    def encode(
        self, folder: Path, settings: Any, examples: "Examples", vocabulary: Any, recipe: Any
    ) -> dict[str, Any]:
        """Write the encoded training examples; returns facts about them."""
        from heedful.tasks.masked.head import encode

        return encode(folder, settings, examples, vocabulary, recipe.max_tokens)

    def layers(
        self, name: str, settings: Any, encoder: Any, labels: int, recipe: Any
    ) -> "dict[str, nn.Module]":
        """The modules of the head."""
        from heedful.tasks.masked.head import layers

        return layers(name, settings, encoder)

    def build_part(self, name: str, settings: Any, training: "Training") -> "Task":
        """The task for the training loop."""
        from heedful.tasks.masked.head import build_part

        return build_part(name, settings, training)

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

    def score(
        self,
        run: "TextRun",
        name: str,
        examples: Sequence[Any],
        options: "TextEvaluation",
        opening: Opening,
    ) -> "TextScore":
        from heedful.tasks.masked.evaluation import score_hidden

        predictor = opening.load(run.path, head=name)
        recipe: Any = run.recipe
        return score_hidden(name, predictor, examples, recipe, self.falling)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.masked.command import Fill, run

        return [Command(self.command, Fill, run)]

    def write_result(self, result: Any) -> str:
        return str(result.text)


register(Masked())
