"""Replaced-token detection (ELECTRA): an encoder learns which tokens a generator replaced."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Command, Panel, register
from heedful.tasks.texts.spec import HeadSpec

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.tasks.replaced.recipe import ReplacedHead, ReplacedRecipe
    from heedful.tasks.texts.score import ScoredHead, TextScore
    from heedful.tasks.texts.sketch import SketchedHead


class Replaced(HeadSpec):
    """Says of each token of a text whether it was replaced."""

    name = "replaced"
    place = 9
    has_outputs = False
    command = "detect"
    panel = Panel("detect", "Detect", takes_second=False)
    falling = frozenset({"loss", "masked_loss", "replaced_loss"})
    does = "detects replaced tokens"

    def recipe_type(self) -> "type[ReplacedRecipe]":
        from heedful.tasks.replaced.recipe import ReplacedRecipe

        return ReplacedRecipe

    def head_type(self) -> "type[ReplacedHead]":
        from heedful.tasks.replaced.recipe import ReplacedHead

        return ReplacedHead

    def paper_loss(self, sketch: "SketchedHead") -> "Tensor":
        from heedful.tasks.replaced.sketch import paper_loss

        return paper_loss(sketch)

    def head_module(self) -> Any:
        from heedful.tasks.replaced import head

        return head

    def require_usable(self, recipe: Any) -> None:
        """Raise UserError if the discriminator and its generator cannot be trained here."""
        from heedful.models import build_encoder
        from heedful.models.encoders import HeadedEncoder
        from heedful.runs.model_size import require_trainable
        from heedful.tasks.replaced.head import layers
        from heedful.tasks.texts.spec import LEAST_SYMBOLS

        def build() -> HeadedEncoder:
            encoder = build_encoder(recipe.model, LEAST_SYMBOLS)
            ((name, head),) = recipe.heads().items()
            return HeadedEncoder(encoder, layers(name, head, encoder, 0, recipe))

        require_trainable(recipe, build)

    def inner_heads(self, recipe: Any) -> dict[str, str]:
        return {"generator": "masked"}

    def model_of_head(self, model: Any, recipe: Any, head: str) -> Any:
        """For ``generator``, the generator as an encoder with a head for masked tokens."""
        if head not in self.inner_heads(recipe):
            return model
        ((_, layer),) = model.heads.items()
        return self.inner_model(layer, head, head)

    def inner_model(self, layer: Any, inner: str, name: str) -> Any:
        from heedful.models.encoders import HeadedEncoder

        return HeadedEncoder(layer.generator, {name: layer.generator.head})

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.replaced.loading import load_detector

        return load_detector(run, **how)

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.replaced.evaluation import score_replaced

        recipe: Any = head.run.recipe
        return score_replaced(head.name, head.predictor(), head.examples, recipe, self.falling)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.replaced.command import Detect, run

        return [Command(self.command, Detect, run)]

    def write_result(self, result: Any) -> str:
        return str(result.text)


register(Replaced())
