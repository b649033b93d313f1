"""Models that transcribe recordings on paper."""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import END
from heedful.models import Annotations, Sounds, SpeechModel, build_speech_model
from heedful.models.speech import BLANK
from heedful.tasks.sketch import Sketch
from heedful.tasks.sound_sketch import (
    CHARACTERS,
    SYMBOLS,
    described,
    frames_in,
    tokens_in,
    usual_frames,
)
from heedful.tasks.transcription.recipe import TranscriptionRecipe

_RATES = {"characters": CHARACTERS, "subwords": 5, "words": 3}
"""Units of a text → how many are said in a second."""


def sketch_speech_model(recipe: TranscriptionRecipe) -> Sketch:
    """The model of a recipe: with 46 characters, or the largest vocabulary of words or subwords
    that it allows.

    Raises:
        ValueError: the settings do not fit.
    """
    features, weight = recipe.data.features, recipe.training.ctc_weight
    units, vocabulary = _vocabulary(recipe)

    def build() -> SpeechModel:
        return build_speech_model(recipe.model, features.width, vocabulary)

    def loss(model: SpeechModel, rows: int, length: int) -> Tensor:
        count = tokens_in(length, features, _RATES[units], recipe.model.max_length - 1)
        number = next(model.parameters()).dtype
        frames = torch.zeros(rows, length, features.width, dtype=number)
        heard = model.listen(Sounds(frames, torch.full((rows,), length)))
        if not model.has_decoder:
            return _ctc(model, heard, count)
        tokens = torch.full((rows, count + 1), END + 1)  # with END
        logits = model.logits(model.spell(heard, tokens))
        found = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        if model.ctc is None:
            return found
        return (1 - weight) * found + weight * _ctc(model, heard, count)

    return Sketch(
        build,
        loss,
        vocabulary,
        usual_frames(recipe.data.longest, features),
        described(features, _RATES[units], units),
        row="recording",
        unit="frame",
        longest=frames_in(recipe.data.longest, features),
    )


def _vocabulary(recipe: TranscriptionRecipe) -> tuple[str, int]:
    """What texts consist of, and the number of symbols."""
    data = recipe.data
    if recipe.tokeniser is not None:
        return "subwords", recipe.tokeniser.vocabulary_size
    most = data.vocabulary_size
    return data.units, min(SYMBOLS, most) if data.units == "characters" else most


def _ctc(model: SpeechModel, heard: Annotations, count: int) -> Tensor:
    """The loss of CTC for texts of ``count`` tokens."""
    rows = len(heard.lengths)
    emissions = model.emissions(heard).transpose(0, 1)
    tokens, counts = torch.full((rows, count), END + 1), torch.full((rows,), count)
    return F.ctc_loss(
        emissions, tokens, heard.lengths, counts, BLANK, reduction="sum", zero_infinity=True
    )
