"""Models that describe images on paper."""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import END
from heedful.models import CaptionModel, Scenes, build_caption_model
from heedful.tasks.captioning.recipe import CaptionRecipe
from heedful.tasks.captioning.terms import terms_of
from heedful.tasks.image_sketch import (
    black_images,
    described,
    images_of_batch,
    noun_of,
    shape_of,
)
from heedful.tasks.sketch import Sketch
from heedful.training.protocol import Loss
from heedful.training.terms import TeacherForced, modules_of, with_terms

_LENGTH = 16
"""Tokens of a caption, unless a length is given."""


def sketch_caption_model(recipe: CaptionRecipe) -> Sketch:
    """The model of a recipe with the largest vocabulary that it allows, and one caption for each
    image.

    Raises:
        ValueError: the settings do not fit.
        UserError: the recipe asks for a loss that the model cannot have.
    """
    form, training, vocabulary = recipe.data.form, recipe.training, recipe.data.vocabulary_size
    longest = recipe.model.max_length

    def build() -> CaptionModel:
        return build_caption_model(recipe.model, shape_of(form), vocabulary)

    def loss(model: CaptionModel, rows: int, length: int) -> Tensor:
        tokens = torch.full((rows, length), END + 1)
        scenes = Scenes(black_images(rows, form), torch.arange(rows))
        terms = terms_of(model, training)
        with watch(model, modules_of(terms), keep_gradients=True) as seen:
            logits = model.logits(model.states(scenes, tokens))
        exact = F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")
        own, forced = Loss(exact.sum(), {}), TeacherForced(tokens, seen, exact.detach())
        return with_terms(own, terms, forced).total

    return Sketch(
        build,
        loss,
        vocabulary,
        min(_LENGTH, longest),
        row=f"{described(form)} with a caption",
        unit=noun_of(form),
        of_rows=True,
        longest=longest,
        rows_of_batch=lambda _: images_of_batch(form, training.batch_tokens),
    )
