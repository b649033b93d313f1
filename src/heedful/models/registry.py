"""The models that recipes can name in ``model.kind``. Plug-ins add models with
:func:`register_model`.

Each family of models has a base class of settings, which is the type of the table ``[model]`` in
recipes. Validating a table with it returns the settings of the table's kind.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field
from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_FACTS, MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.models.captions import CaptionModel
from heedful.models.encoders import TextEncoder
from heedful.models.images import ImageModel, ImageShape
from heedful.models.language import LanguageModel
from heedful.models.model_settings import (
    ModelSettings,
    builders,
    default_kind,
    kind_of,
    registered,
)
from heedful.models.pairs import PairModel
from heedful.models.sequences import SequenceModel
from heedful.models.speech import SpeechModel
from heedful.models.stories import StoryModel
from heedful.models.synthesis import SynthesisModel

__all__ = [
    "CaptionSettings",
    "EncoderSettings",
    "ImageSettings",
    "LanguageSettings",
    "ModelSettings",
    "PairSettings",
    "SequenceSettings",
    "SpeechSettings",
    "StorySettings",
    "SynthesisSettings",
    "build_caption_model",
    "build_encoder",
    "build_image_model",
    "build_language_model",
    "build_model",
    "build_sequence_model",
    "build_speech_model",
    "build_story_model",
    "build_synthesis_model",
    "kind_of",
    "register_model",
    "registered",
]

M = TypeVar("M", bound=nn.Module)


class PairSettings(ModelSettings):
    """Base of the settings of models for pairs of texts; such a model is a :class:`PairModel`."""

    generates: ClassVar[bool] = True
    """Whether the model generates translations. Otherwise it is for ``task = "alignment"``."""

    @property
    def needs_one_vocabulary(self) -> bool:
        """Whether source and target must have the same vocabulary."""
        return getattr(self, "tied_embeddings", "none") in ("all", "inputs")

    @property
    def learns_by_reward(self) -> bool:
        """Whether an attention module of the model passes no gradient and learns by reward only."""
        return False


class EncoderSettings(ModelSettings):
    """Base of the settings of encoders of single texts; such a model is a :class:`TextEncoder`."""

    fills_masks: ClassVar[bool] = False
    """Whether the model can be pre-trained on masked tokens."""
    permutes: ClassVar[bool] = False
    """Whether the model can be pre-trained on tokens in random orders: it has two streams."""
    is_pretrained: ClassVar[bool] = False
    """Whether the embeddings come from another run, so that no word vectors are loaded."""
    reads_sentences: ClassVar[bool] = False
    """Whether the model is also built from the tokens that end sentences, its third argument."""
    reads_words: ClassVar[bool] = False
    """Whether tokens are characters, of which the model makes words: it is also built from the
    tokens of white space, its third argument."""
    reads_spellings: ClassVar[bool] = False
    """Whether the model is also built from the text of each symbol, its third argument."""
    has_directions: ClassVar[bool] = False
    """Whether it is a language model in each direction, which can be pre-trained as such."""

    def check_packing(self) -> None:
        """Raise ValueError unless the model can read several texts in a row, each as if it were
        alone (:meth:`TextEncoder.packed_states`)."""
        raise ValueError(f"model.kind = '{self.kind}' reads a row as one text")

    @property
    def needs_pairs(self) -> bool:
        """Whether the model reads pairs of texts only and therefore has no states of tokens."""
        return False

    @property
    def has_hops(self) -> bool:
        """Whether the text's vector consists of hops of structured self-attention."""
        return False


class LanguageSettings(ModelSettings):
    """Base of the settings of language models; such a model is a :class:`LanguageModel`."""

    def check_packing(self) -> None:
        """Raise ValueError unless the model can read several documents in a row, each as if it were
        alone (:meth:`LanguageModel.packed_states`)."""
        raise ValueError(f"model.kind = '{self.kind}' reads a row as one text")


class SequenceSettings(ModelSettings):
    """Base of the settings of models of sequences of vectors; such a model is a
    :class:`SequenceModel`, whose sequences have any length."""

    reads_any_length: ClassVar[bool] = True
    max_length: ClassVar[int] = MOST_POSITIONS


class StorySettings(ModelSettings):
    """Base of the settings of models that answer questions about stories; such a model is a
    :class:`StoryModel`. A story has at most ``memory`` facts; texts have any length."""

    reads_any_length: ClassVar[bool] = True
    max_length: ClassVar[int] = MOST_POSITIONS
    memory: int = Field(50, ge=1, le=MOST_FACTS)
    """The most facts of a story."""


class ImageSettings(ModelSettings):
    """Base of the settings of models that classify images; such a model is an
    :class:`ImageModel`."""

    reads_any_length: ClassVar[bool] = True
    max_length: ClassVar[int] = MOST_POSITIONS


class CaptionSettings(ModelSettings):
    """Base of the settings of models that describe images; such a model is a
    :class:`CaptionModel`."""

    @property
    def learns_by_reward(self) -> bool:
        """Whether an attention module of the model passes no gradient and learns by reward only."""
        return False


class SpeechSettings(ModelSettings):
    """Base of the settings of models that transcribe sounds; such a model is a
    :class:`SpeechModel`."""

    outputs: Literal["attention", "ctc", "both"] = "attention"
    """How texts are predicted: by a decoder with attention, by CTC at each position, or by both."""

    @property
    def has_decoder(self) -> bool:
        """Whether there is a decoder with attention."""
        return self.outputs != "ctc"

    @property
    def has_ctc(self) -> bool:
        """Whether there is an output for CTC."""
        return self.outputs != "attention"

    @property
    def reduction(self) -> int:
        """Frames of a position of the encoder."""
        raise NotImplementedError


class SynthesisSettings(ModelSettings):
    """Base of the settings of models that synthesise speech; such a model is a
    :class:`SynthesisModel`."""

    frames_per_step: int = Field(3, ge=1, le=100)
    """Frames that a step predicts, the reduction factor r."""
    prenet_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of the two layers through which the decoder reads its last frame."""
    prenet_dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout after each of them."""
    prenet_always: bool = True
    """Whether that dropout is on in inference, too; a seed determines what is dropped."""
    postnet_layers: int = Field(5, ge=0, le=MOST_LAYERS)
    """Convolutions whose output is added to the predicted frames; 0 for none."""
    postnet_channels: int = Field(256, ge=1, le=MOST_WIDTH)
    """Their channels."""
    convolution_dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout after each convolution of the encoder and the post-net."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the outputs of the encoder and the decoder."""


def register_model(settings: type[ModelSettings], build: Callable[..., nn.Module]) -> None:
    """Add a model that recipes can name.

    Args:
        settings: the class of the table ``[model]``, a subclass of :class:`PairSettings`,
            :class:`EncoderSettings`, :class:`LanguageSettings`, :class:`SequenceSettings`,
            :class:`StorySettings`, :class:`ImageSettings`, :class:`CaptionSettings`,
            :class:`SpeechSettings` or :class:`SynthesisSettings`.
        build: builds the model from the settings and the sizes of the source and target
            vocabularies; for encoders and language models, from the settings and the size of the
            vocabulary; for models of sequences, from the settings and the widths of inputs and
            outputs; for models of stories, from the settings, the size of the vocabulary and the
            symbols of the answers; for models of images, from the settings, the shape of the images
            and the number of classes; for captions, from the settings, the shape of the images and
            the size of the vocabulary; for transcription and synthesis, from the settings, the
            width of a frame and the size of the vocabulary. Usually the model's class.

    Raises:
        TypeError: the settings belong to no family, or lack ``kind`` or ``max_length``.
        UserError: the family already has a model of this kind.

    Example:
        >>> from typing import Literal
        >>> class TinySettings(PairSettings):
        ...     kind: Literal["tiny"] = "tiny"
        ...     max_length: int = 512
        >>> class Tiny(PairModel):
        ...     def __init__(self, settings, source_vocabulary, target_vocabulary):
        ...         super().__init__()
        >>> register_model(TinySettings, Tiny)
        >>> PairSettings.model_validate({"kind": "tiny"})
        TinySettings(kind='tiny', max_length=512)
        >>> del builders[TinySettings]
    """
    family = next((each for each in settings.__mro__ if ModelSettings in each.__bases__), settings)
    if family is settings:
        raise TypeError(
            f"{settings.__name__} must be a subclass of PairSettings, EncoderSettings, "
            "LanguageSettings, SequenceSettings, StorySettings, ImageSettings, CaptionSettings, "
            "SpeechSettings or SynthesisSettings"
        )
    if not isinstance(default_kind(settings), str):
        raise TypeError(f'{settings.__name__} needs a field such as kind: Literal["mine"] = "mine"')
    if "max_length" not in settings.model_fields and not hasattr(settings, "max_length"):
        raise TypeError(f"{settings.__name__} needs max_length, the longest sequence in tokens")
    kind = kind_of(settings)
    known: type[ModelSettings]
    for known in registered(family):
        if kind_of(known) == kind and known is not settings:
            raise UserError(
                f"the model '{kind}' of {settings.__module__} is already registered by "
                f"{known.__module__}; choose another name"
            )
    builders[settings] = build


def build_model(
    settings: PairSettings, source_vocabulary: int, target_vocabulary: int
) -> PairModel:
    """Build the model of the settings, with new weights from PyTorch's default generator.

    Raises:
        ValueError: the settings are incompatible with the vocabularies.
    """
    return _build(settings, PairModel, source_vocabulary, target_vocabulary)


def build_encoder(
    settings: EncoderSettings,
    vocabulary: int,
    sentence_ends: Sequence[int] = (),
    separators: Sequence[int] = (),
    spellings: Sequence[str] = (),
) -> TextEncoder:
    """Build the encoder of the settings, with new weights from PyTorch's default generator.

    Args:
        settings: kind, sizes and options.
        vocabulary: number of symbols.
        sentence_ends: the tokens that end sentences, for a model that encodes single sentences.
        separators: the tokens of white space, for a model that makes words of characters.
        spellings: the text of each symbol, for a model that reads the characters of tokens.
    """
    ends = (sentence_ends,) if settings.reads_sentences else ()
    between = (separators,) if settings.reads_words else ()
    spelled = (spellings,) if settings.reads_spellings else ()
    return _build(settings, TextEncoder, vocabulary, *ends, *between, *spelled)


def build_language_model(settings: LanguageSettings, vocabulary: int) -> LanguageModel:
    """Build the language model of the settings, with new weights.

    Args:
        settings: its kind, sizes and options.
        vocabulary: number of symbols.
    """
    return _build(settings, LanguageModel, vocabulary)


def build_sequence_model(settings: SequenceSettings, inputs: int, outputs: int) -> SequenceModel:
    """Build the model of the settings, with new weights.

    Args:
        settings: its kind, sizes and options.
        inputs: width of the inputs.
        outputs: width of the outputs.
    """
    return _build(settings, SequenceModel, inputs, outputs)


def build_story_model(settings: StorySettings, words: int, answers: Sequence[int]) -> StoryModel:
    """Build the model of the settings, with new weights.

    Args:
        settings: its kind, sizes and options.
        words: number of symbols of the vocabulary.
        answers: the symbol of each answer.
    """
    return _build(settings, StoryModel, words, answers)


def build_image_model(settings: ImageSettings, shape: ImageShape, classes: int) -> ImageModel:
    """Build the model of the settings, with new weights.

    Args:
        settings: its kind, sizes and options.
        shape: rows, columns and channels of the images.
        classes: number of classes.
    """
    return _build(settings, ImageModel, shape, classes)


def build_caption_model(
    settings: CaptionSettings, shape: ImageShape, vocabulary: int
) -> CaptionModel:
    """Build the model of the settings, with new weights.

    Args:
        settings: its kind, sizes and options.
        shape: rows, columns and channels of the images.
        vocabulary: number of symbols.
    """
    return _build(settings, CaptionModel, shape, vocabulary)


def build_speech_model(settings: SpeechSettings, features: int, vocabulary: int) -> SpeechModel:
    """Build the model of the settings, with new weights.

    Args:
        settings: its kind, sizes and options.
        features: width of a frame.
        vocabulary: number of symbols.
    """
    return _build(settings, SpeechModel, features, vocabulary)


def build_synthesis_model(
    settings: SynthesisSettings, bands: int, vocabulary: int
) -> SynthesisModel:
    """Build the model of the settings, with new weights.

    Args:
        settings: its kind, sizes and options.
        bands: width of a frame.
        vocabulary: number of symbols.
    """
    return _build(settings, SynthesisModel, bands, vocabulary)


def _build(settings: ModelSettings, family: type[M], *sizes: Any) -> M:
    model = builders[type(settings)](settings, *sizes)
    if not isinstance(model, family):
        raise TypeError(
            f"model.kind = '{settings.kind}' builds a {type(model).__name__}; it must be a "
            f"subclass of {family.__name__}"
        )
    return model
