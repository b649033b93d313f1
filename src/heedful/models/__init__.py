"""Models: one file an architecture, built from layers and attention; no I/O."""

from collections.abc import Sequence

from heedful.models.aligner import AlignerSettings, WordAligner
from heedful.models.bert import Bert, BertSettings
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.decomposable import DecomposableEncoder, DecomposableSettings
from heedful.models.encoders import TextEncoder
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.hierarchical import HierarchicalEncoder, HierarchicalSettings
from heedful.models.language import LanguageModel
from heedful.models.language_encoder import LanguageEncoder, LanguageEncoderSettings
from heedful.models.pairs import AlignmentSource, PairModel, Source
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.recurrent_encoder import RecurrentEncoderSettings, RecurrentTextEncoder
from heedful.models.recurrent_language import RecurrentLanguageModel, RecurrentLanguageSettings
from heedful.models.transformer import Transformer, TransformerSettings

ModelSettings = TransformerSettings | RecurrentSettings | ConvolutionalSettings | AlignerSettings
EncoderSettings = (
    BertSettings
    | RecurrentEncoderSettings
    | HierarchicalSettings
    | DecomposableSettings
    | LanguageEncoderSettings
)
LanguageSettings = GptSettings | RecurrentLanguageSettings


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


def build_encoder(
    settings: EncoderSettings, vocabulary: int, sentence_ends: Sequence[int] = ()
) -> TextEncoder:
    """The encoder that the settings describe, with fresh weights from PyTorch's random numbers.

    Args:
        settings: its kind, sizes and options.
        vocabulary: number of symbols.
        sentence_ends: the tokens that end sentences, for a model that reads sentence by sentence.
    """
    if isinstance(settings, BertSettings):
        return Bert(settings, vocabulary)
    if isinstance(settings, HierarchicalSettings):
        return HierarchicalEncoder(settings, vocabulary, sentence_ends)
    if isinstance(settings, DecomposableSettings):
        return DecomposableEncoder(settings, vocabulary)
    if isinstance(settings, LanguageEncoderSettings):
        return LanguageEncoder(
            build_language_model(settings.language_model, vocabulary),
            settings.language_model.hidden_size,
        )
    return RecurrentTextEncoder(settings, vocabulary)


def build_language_model(settings: LanguageSettings, vocabulary: int) -> LanguageModel:
    """The language model that the settings describe, with fresh weights.

    Args:
        settings: its kind, sizes and options.
        vocabulary: number of symbols.
    """
    if isinstance(settings, GptSettings):
        return Gpt(settings, vocabulary)
    return RecurrentLanguageModel(settings, vocabulary)


def learns_by_reward(settings: ModelSettings) -> bool:
    """Whether some of the model's attention passes no gradient and learns by reward alone."""
    return isinstance(settings, RecurrentSettings) and settings.attention == "hard-reinforce"


__all__ = [
    "AlignmentSource",
    "EncoderSettings",
    "LanguageModel",
    "LanguageSettings",
    "ModelSettings",
    "PairModel",
    "Source",
    "TextEncoder",
    "build_encoder",
    "build_language_model",
    "build_model",
    "learns_by_reward",
]
