"""Captions by a recurrent decoder that attends to convolutional features of cells, or of frames.

Xu et al. 2015, "Show, Attend and Tell: Neural Image Caption Generation with Visual Attention",
section 3.1. The features are those of a residual network that is trained with the decoder. The
decoder is Bahdanau's or Luong's of the recurrent encoder–decoder, so that every score and
normalizer can be chosen; without attention, it reads the mean of the features at each step.
Shapes: A images, B captions, K cells, F width of a cell's features, H hidden, T target tokens.
"""

from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.models.captions import CaptionModel, Scenes
from heedful.models.image_features import ImageFeatures
from heedful.models.images import ImageShape
from heedful.models.pairs import State
from heedful.models.recurrent_decoders import RecurrentState, recurrent_decoder
from heedful.models.recurrent_rows import SourceRows
from heedful.models.recurrent_settings import RecurrentDecoderSettings, require_tieable
from heedful.models.registry import CaptionSettings, register_model
from heedful.models.residual_settings import ResidualSettings


class RecurrentCaptionSettings(RecurrentDecoderSettings, CaptionSettings):
    """Sizes and options of a recurrent captioner."""

    reads_any_length = True
    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    encoder: ResidualSettings = ResidualSettings(widths=(32, 64, 128), blocks=2, stem="large")
    """The network whose features are attended to."""
    initial_state: Literal["mean", "zeros"] = "mean"
    """Whether the decoder starts from the mean of the features, or from zeros, so that it knows of
    the image only what it attends to."""
    tied_embeddings: Literal["output", "none"] = "none"
    """Whether the embedding and the output matrix are one."""
    max_length: int = Field(64, ge=2)

    @property
    def learns_by_reward(self) -> bool:
        """Whether the attention passes no gradient and learns by reward only."""
        if self.attention.name == "none":
            return False
        _, normalizer = self.mechanism.score_and_normalizer()
        with torch.device("meta"):
            return normalizer.build(1, self.hidden_size).learns_by_reward

    @field_validator("tied_embeddings")
    @classmethod
    def _tieable(cls, tied: str, info: ValidationInfo) -> str:
        if tied != "none":
            require_tieable(info)
        return tied


class RecurrentCaptioner(CaptionModel):
    """Convolutions, and a recurrent decoder that attends to their features.

    The decoder starts from ``tanh(W mean + b)`` of the mean of the features, one matrix for each
    part of its state (section 3.1.2, where it is a perceptron), or from zeros.

    Args:
        settings: sizes and options.
        shape: of all images.
        vocabulary: number of symbols.

    Raises:
        ValueError: the parts do not fit together.

    Example:
        >>> settings = RecurrentCaptionSettings(embedding_size=8, hidden_size=8)
        >>> model = RecurrentCaptioner(settings, ImageShape(96, 96, 3), 50)
        >>> images = torch.zeros(1, 96, 96, 3, dtype=torch.uint8)
        >>> model.teacher_force(Scenes(images), torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 50])
    """

    def __init__(
        self, settings: RecurrentCaptionSettings, shape: ImageShape, vocabulary: int
    ) -> None:
        super().__init__()
        self.settings, self.shape, self.max_length = settings, shape, settings.max_length
        self.look = ImageFeatures(settings.encoder, shape)
        width, self.grids = self.look.width, self.look.grids
        settings.check_reading(width)
        self.drop = Dropout(settings.dropout)
        self.norm = nn.LayerNorm(width)
        self.target_embedding = token_embedding(vocabulary, settings.embedding_size)
        parts = settings.decoder_layers * (2 if settings.cell == "lstm" else 1)
        self.state_size = parts * settings.hidden_size
        self.initial: nn.Linear | None = None
        if settings.initial_state == "mean":
            self.initial = nn.Linear(width, self.state_size)
        self.decoder = recurrent_decoder(settings, width)
        self.output = None
        if settings.tied_embeddings == "none":
            self.output = nn.Linear(settings.hidden_size, vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=settings.hidden_size**-0.5)

    def features(self, images: Tensor) -> Tensor:
        """The features of each cell, row by row, or of each frame, ``[A, K, F]``."""
        found: Tensor = self.norm(self.look(images, self.norm.weight.dtype))
        return found

    def _begin(self, scenes: Scenes) -> RecurrentState:
        features = self.drop(self.features(scenes.images))
        mean = features.mean(1)
        states = mean.new_zeros(len(mean), self.state_size)
        if self.initial is not None:
            states = torch.tanh(self.initial(mean))
        states = states.unflatten(1, (self.settings.decoder_layers, -1))
        hidden = tuple(layer.split(self.settings.hidden_size, 1) for layer in states.unbind(1))
        lengths = torch.full((len(features),), features.shape[1], device=features.device)
        memory = self.decoder.remember(features, ((mean,),), lengths)
        memory = tuple(scenes.of_captions(part) for part in memory)
        hidden = tuple(tuple(scenes.of_captions(part) for part in layer) for layer in hidden)
        top = hidden[-1][0]
        rows = SourceRows.one_each(len(top), top.device)
        feed = torch.zeros_like(top) if self.decoder.feeding else None
        return RecurrentState(hidden, memory, rows, feed, self.decoder.attending(memory))

    def states(self, source: Any, target_in: Tensor) -> Tensor:
        embedded = self.drop(self.target_embedding(target_in))
        states: Tensor = self.drop(self.decoder.unroll(embedded, self._begin(source)))
        return states

    def start(self, source: Any) -> RecurrentState:
        state = self._begin(source)
        return replace(state, memory=self.decoder.prepare(state.memory))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, RecurrentState]:
        assert isinstance(state, RecurrentState)
        embedded = self.drop(self.target_embedding(tokens))
        readouts, after = self.decoder.step(embedded, state)
        return self.logits(self.drop(readouts)), after

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight if self.output is None else self.output.weight

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        axes = self.look.gates("look")
        if self.settings.attention.name != "none":
            axes["decoder.attention"] = ("target", self.look.axis)
        return axes


register_model(RecurrentCaptionSettings, RecurrentCaptioner)
