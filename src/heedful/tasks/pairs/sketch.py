"""Models for pairs of texts on paper."""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import END
from heedful.models import PairModel, Source, build_model
from heedful.tasks.pairs.recipe import PairRecipe
from heedful.tasks.sketch import Sketch

_LENGTH = 32
"""Tokens of a sentence, unless a length is given."""


def sketch_pair_model(recipe: PairRecipe) -> Sketch:
    """The model of a recipe; source and target are equally long."""
    vocabulary = recipe.tokeniser.vocabulary_size

    def build() -> PairModel:
        return build_model(recipe.model, vocabulary, vocabulary)

    def loss(model: PairModel, rows: int, length: int) -> Tensor:
        tokens = torch.full((rows, length), END + 1)
        source = Source(tokens, torch.full((rows,), length))
        logits = model.logits(model.states(source, tokens))
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    longest, counted = recipe.model.max_length, "target tokens, with as many source tokens"
    return Sketch(build, loss, vocabulary, min(_LENGTH, longest), counted, longest=longest)
