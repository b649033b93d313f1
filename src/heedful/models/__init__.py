"""Models, built from layers and attention: one file per architecture, without I/O.

Each module, and each plug-in, registers its models when it is imported.
"""

from heedful.models import (
    aligner,
    bert,
    convolutional,
    copying,
    decomposable,
    gpt,
    hierarchical,
    image_convolutional,
    image_perceiver,
    image_residual,
    image_transformer,
    language_encoder,
    memory_language,
    memory_network,
    neural_computer,
    perceiver,
    recurrent,
    recurrent_encoder,
    recurrent_language,
    recurrent_sequences,
    story_machine,
    story_transformer,
    turing_machine,
)
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.images import ImageModel, ImageShape
from heedful.models.language import LanguageModel
from heedful.models.pairs import AlignmentSource, PairModel, Source, TensorState
from heedful.models.registry import (
    EncoderSettings,
    ImageSettings,
    LanguageSettings,
    ModelSettings,
    PairSettings,
    SequenceSettings,
    StorySettings,
    build_encoder,
    build_image_model,
    build_language_model,
    build_model,
    build_sequence_model,
    build_story_model,
    register_model,
    registered,
)
from heedful.models.sequences import SequenceModel
from heedful.models.stories import StoryModel, StoryOutput

MODULES = (
    copying,
    recurrent,
    convolutional,
    aligner,
    bert,
    recurrent_encoder,
    hierarchical,
    decomposable,
    language_encoder,
    perceiver,
    gpt,
    recurrent_language,
    memory_language,
    turing_machine,
    neural_computer,
    recurrent_sequences,
    memory_network,
    story_transformer,
    story_machine,
    image_convolutional,
    image_perceiver,
    image_residual,
    image_transformer,
)
"""The modules that register the built-in models."""

__all__ = [
    "AlignmentSource",
    "Encoded",
    "EncoderSettings",
    "ImageModel",
    "ImageSettings",
    "ImageShape",
    "LanguageModel",
    "LanguageSettings",
    "ModelSettings",
    "PairModel",
    "PairSettings",
    "SequenceModel",
    "SequenceSettings",
    "Sequences",
    "Source",
    "StoryModel",
    "StoryOutput",
    "StorySettings",
    "TensorState",
    "TextEncoder",
    "build_encoder",
    "build_image_model",
    "build_language_model",
    "build_model",
    "build_sequence_model",
    "build_story_model",
    "register_model",
    "registered",
]
