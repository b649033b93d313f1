"""Models that synthesise speech on paper."""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import END
from heedful.models import Source, SynthesisModel, build_synthesis_model
from heedful.tasks.sketch import Sketch
from heedful.tasks.sound_sketch import (
    CHARACTERS,
    SYMBOLS,
    described,
    frames_in,
    tokens_in,
    usual_frames,
)
from heedful.tasks.synthesis.guided_attention import guided_losses
from heedful.tasks.synthesis.recipe import SynthesisRecipe
from heedful.tasks.synthesis.speaking import alignment_of


def sketch_synthesis_model(recipe: SynthesisRecipe) -> Sketch:
    """The model of a recipe with 46 characters.

    Raises:
        ValueError: the settings do not fit.
    """
    features, training = recipe.data.features, recipe.training
    vocabulary = min(SYMBOLS, recipe.data.vocabulary_size)

    def build() -> SynthesisModel:
        return build_synthesis_model(recipe.model, features.width, vocabulary)

    def loss(model: SynthesisModel, rows: int, length: int) -> Tensor:
        module, heads, _ = model.alignment
        watched = [module] if training.guided_attention else []
        count = tokens_in(length, features, CHARACTERS, model.max_length - 1)
        source = Source(
            torch.full((rows, count + 1), END + 1), torch.full((rows,), count + 1)
        )  # with END
        number = next(model.parameters()).dtype
        frames = torch.zeros(rows, length, features.width, dtype=number)
        with watch(model, watched, keep_gradients=True) as seen:
            found = model.teacher_force(source, frames, torch.full((rows,), length))
        ended = F.binary_cross_entropy_with_logits(found.stops, torch.zeros_like(found.stops))
        errors = sum((one[:, :length] - frames).abs().mean() for one in (found.coarse, found.fine))
        if not watched:
            return errors + ended
        steps = torch.full((rows,), found.stops.shape[1])
        weights, characters = alignment_of(seen[module], heads), torch.full((rows,), count)
        return errors + ended + guided_losses(weights, steps, characters, 1.0).sum()

    return Sketch(
        build,
        loss,
        vocabulary,
        usual_frames(recipe.data.longest, features),
        described(features, CHARACTERS, "characters"),
        row="recording",
        unit="frame",
        longest=frames_in(recipe.data.longest, features),
    )
