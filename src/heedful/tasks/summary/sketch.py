"""Models that summarise on paper."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import END
from heedful.models import PairModel, Source, build_model
from heedful.models.copy_mixture import CopyingModel
from heedful.tasks.sketch import Sketch
from heedful.tasks.summary.recipe import SummaryRecipe
from heedful.tasks.summary.training import check_coverage

_LENGTH = 400
"""Words of a text if the recipe has no limit."""


def sketch_summary_model(recipe: SummaryRecipe) -> Sketch:
    """The model of a recipe with the largest vocabulary that it allows. A summary is as much
    shorter than its text as the recipe's longest summary is than its longest text.

    Raises:
        ValueError: the settings do not fit.
        UserError: the recipe asks for a coverage loss, and the model has none.
    """
    data, vocabulary, most = recipe.data, recipe.data.vocabulary_size, recipe.model.max_length
    longest = min(most, (data.longest_source or _LENGTH) + 1)  # with END
    share = min(1.0, (data.longest_summary + 1) / longest)

    def build() -> PairModel:
        model = build_model(recipe.model, vocabulary, vocabulary)
        check_coverage(model, recipe.training)
        return model

    def loss(model: PairModel, rows: int, length: int) -> Tensor:
        tokens = torch.full((rows, length), END + 1)
        source = Source(tokens, torch.full((rows,), length))
        return _loss(model, source, tokens[:, : max(1, round(share * length))], recipe)

    counted = f"source tokens, with {share:.2g} target tokens for each"
    return Sketch(build, loss, vocabulary, longest, counted, longest=most)


def _loss(model: PairModel, source: Source, target: Tensor, recipe: SummaryRecipe) -> Tensor:
    """The loss of training; that of a model without copies in a form that ``meta`` computes."""
    given = source, target, target, torch.ones_like(target, dtype=torch.bool)
    smoothing, weight = recipe.training.label_smoothing, recipe.training.coverage
    if weight:
        covering: Any = model
        losses = covering.covered_losses(*given, smoothing)
        found: Tensor = losses[0] + weight * losses[2]
        return found
    if isinstance(model, CopyingModel):
        return model.losses(*given, smoothing)[0]
    logits = model.logits(model.states(source, target))
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
