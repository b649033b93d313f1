"""Bidirectional language model: predicts each word from the words before it, and from those after.

Peters et al. 2018, "Deep contextualized word representations", section 3.1.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Panel, register
from heedful.tasks.texts.spec import HeadSpec

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.tasks.bidirectional.recipe import BidirectionalHead, BidirectionalRecipe
    from heedful.tasks.texts.score import ScoredHead, TextScore
    from heedful.tasks.texts.sketch import SketchedHead


class Bidirectional(HeadSpec):
    """Predicts the words of a text in both directions."""

    name = "bidirectional"
    place = 6
    has_outputs = False
    falling = frozenset(
        {"loss", "forward_loss", "backward_loss", "forward_perplexity", "backward_perplexity"}
    )
    does = "predicts words in both directions"
    panel = Panel("words", "Words", takes_second=False)

    def recipe_type(self) -> "type[BidirectionalRecipe]":
        from heedful.tasks.bidirectional.recipe import BidirectionalRecipe

        return BidirectionalRecipe

    def head_type(self) -> "type[BidirectionalHead]":
        from heedful.tasks.bidirectional.recipe import BidirectionalHead

        return BidirectionalHead

    def paper_loss(self, sketch: "SketchedHead") -> "Tensor":
        from heedful.tasks.bidirectional.sketch import paper_loss

        return paper_loss(sketch)

    def head_module(self) -> Any:
        from heedful.tasks.bidirectional import head

        return head

    def load(self, run: str | Path, **how: Any) -> Any:
        from heedful.tasks.bidirectional.predictor import WordPredictor
        from heedful.tasks.texts.loading import load_reader

        return load_reader(WordPredictor, self.name, run, **how)

    def predictor_arguments(self, run: Any, head: str) -> dict[str, Any]:
        return {"head": head, "words": run.labels(head)}

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.bidirectional.evaluation import score_bidirectional

        return score_bidirectional(head, self.falling)

    def write_result(self, result: Any) -> str:
        from json import dumps

        return dumps(result.to_json(), ensure_ascii=False)


register(Bidirectional())
