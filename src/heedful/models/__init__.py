"""Models: one file an architecture, built from layers and attention; no I/O."""

from heedful.models.aligner import AlignerSettings, WordAligner
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.pairs import AlignmentSource, PairModel, Source
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.transformer import Transformer, TransformerSettings

ModelSettings = TransformerSettings | RecurrentSettings | ConvolutionalSettings | AlignerSettings


def build_model(
    settings: ModelSettings, source_vocabulary: int, target_vocabulary: int
) -> PairModel:
    """The model that the settings describe, with fresh weights from PyTorch's random numbers.

    Raises:
        ValueError: the settings do not fit the vocabularies.
    """
    if isinstance(settings, TransformerSettings):
        return Transformer(settings, source_vocabulary, target_vocabulary)
    if isinstance(settings, AlignerSettings):
        return WordAligner(settings, source_vocabulary, target_vocabulary)
    if isinstance(settings, ConvolutionalSettings):
        return ConvolutionalEncoderDecoder(settings, source_vocabulary, target_vocabulary)
    return RecurrentEncoderDecoder(settings, source_vocabulary, target_vocabulary)


def learns_by_reward(settings: ModelSettings) -> bool:
    """Whether some of the model's attention passes no gradient and learns by reward alone."""
    return isinstance(settings, RecurrentSettings) and settings.attention == "hard-reinforce"


__all__ = [
    "AlignmentSource",
    "ModelSettings",
    "PairModel",
    "Source",
    "build_model",
    "learns_by_reward",
]
