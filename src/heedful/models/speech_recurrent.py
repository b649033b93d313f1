"""Listen, attend and spell: a pyramidal recurrent encoder and a recurrent decoder with attention.

Chan et al. 2016, "Listen, Attend and Spell"; with the score ``location-aware`` it is the model of
Chorowski et al. 2015, "Attention-Based Models for Speech Recognition". With ``outputs = "both"``,
the annotations also predict the text by CTC (Kim, Hori, Watanabe 2017, "Joint CTC-Attention Based
End-to-End Speech Recognition Using Multi-Task Learning"). The decoder is Bahdanau's or Luong's of
the recurrent encoder–decoder, so that every score and normalizer can be chosen.
Shapes: B sounds, T frames, F features, S positions, A width of an annotation, L target tokens.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.listening import PyramidalEncoder, Subsampling
from heedful.models.pairs import AlignmentSource, State
from heedful.models.recurrent_decoders import RecurrentState, recurrent_decoder
from heedful.models.recurrent_rows import SourceRows
from heedful.models.recurrent_settings import RecurrentDecoderSettings
from heedful.models.registry import SpeechSettings, register_model
from heedful.models.speech import Annotations, Sounds, SpeechModel


class RecurrentSpeechSettings(RecurrentDecoderSettings, SpeechSettings):
    """Sizes and options of a recurrent recogniser."""

    reads_any_length = True
    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    convolutions: int = Field(0, ge=0, le=4)
    """Convolutions before the encoder, each of which halves the time."""
    channels: int = Field(32, ge=1, le=MOST_WIDTH)
    """Channels of a convolution."""
    encoder_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of a direction of the encoder."""
    encoder_layers: int = Field(3, ge=1, le=MOST_LAYERS)
    pyramid_layers: int = Field(2, ge=0, le=MOST_LAYERS)
    """How many of the encoder's layers, the upper ones, halve the time."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest text in tokens, END included."""

    @property
    def reduction(self) -> int:
        return 1 << (self.convolutions + self.pyramid_layers)

    @model_validator(mode="after")
    def _fits(self) -> "RecurrentSpeechSettings":
        if self.pyramid_layers >= self.encoder_layers:
            raise ValueError(
                f"pyramid_layers = {self.pyramid_layers} must be smaller than encoder_layers = "
                f"{self.encoder_layers}"
            )
        if self.has_decoder:
            self.check_reading(2 * self.encoder_size)
            if self.attention.name != "none":
                _, normalizer = self.mechanism.score_and_normalizer()
                with torch.device("meta"):
                    if normalizer.build(1, self.hidden_size).learns_by_reward:
                        raise ValueError(
                            "attention that learns by reward is not available for sounds; use "
                            "another normalizer, such as hard-gumbel"
                        )
        return self


class RecurrentSpeech(SpeechModel):
    """A pyramidal encoder and a recurrent decoder, an output for CTC, or all of them.

    The decoder starts from zeros: all that it knows of a sound is what it attends to; without
    attention, it reads the encoder's final state at each step.

    Args:
        settings: sizes and options.
        features: width of a frame F.
        vocabulary: number of symbols.

    Example:
        >>> settings = RecurrentSpeechSettings(encoder_size=8, embedding_size=8, hidden_size=8)
        >>> model = RecurrentSpeech(settings, 40, 30)
        >>> sounds = Sounds(torch.zeros(1, 100, 40), torch.tensor([100]))
        >>> model.teacher_force(sounds, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 30])
    """

    def __init__(self, settings: RecurrentSpeechSettings, features: int, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.features, self.max_length = settings, features, settings.max_length
        self.reduction, self.has_decoder = settings.reduction, settings.has_decoder
        self.drop = Dropout(settings.dropout)
        width = features
        self.front: Subsampling | None = None
        if settings.convolutions:
            width = 2 * settings.encoder_size
            self.front = Subsampling(
                features,
                channels=settings.channels,
                width=width,
                count=settings.convolutions,
            )
        self.encoder = PyramidalEncoder(
            settings.cell,
            width,
            settings.encoder_size,
            layers=settings.encoder_layers,
            pyramid=settings.pyramid_layers,
            dropout=settings.dropout,
        )
        annotation_dim = self.encoder.output_dim
        self.ctc = nn.Linear(annotation_dim, vocabulary) if settings.has_ctc else None
        if settings.has_decoder:
            hidden = settings.hidden_size
            self.target_embedding = token_embedding(vocabulary, settings.embedding_size)
            self.decoder = recurrent_decoder(settings, annotation_dim)
            self.output = nn.Linear(hidden, vocabulary)
            nn.init.normal_(self.output.weight, std=hidden**-0.5)

    def listen(self, sounds: Sounds) -> Annotations:
        vectors, lengths = sounds
        if self.front is not None:
            vectors, lengths = self.front(vectors, lengths)
        vectors, lengths, final = self.encoder(vectors, lengths)
        return Annotations(self.drop(vectors), lengths, final)

    def _begin(self, heard: Annotations) -> RecurrentState:
        count, vectors = len(heard.lengths), heard.vectors
        zeros = vectors.new_zeros(count, self.settings.hidden_size)
        parts = 2 if self.settings.cell == "lstm" else 1
        hidden = ((zeros,) * parts,) * self.settings.decoder_layers
        memory = self.decoder.remember(vectors, heard.final, heard.lengths)
        rows = SourceRows.one_each(count, vectors.device)
        feed = zeros if self.decoder.feeding else None
        return RecurrentState(hidden, memory, rows, feed, self.decoder.attending(memory))

    def spell(self, heard: Annotations, target_in: Tensor) -> Tensor:
        embedded = self.drop(self.target_embedding(target_in))
        states: Tensor = self.drop(self.decoder.unroll(embedded, self._begin(heard)))
        return states

    def begin(self, heard: Annotations) -> RecurrentState:
        state = self._begin(heard)
        return replace(state, memory=self.decoder.prepare(state.memory))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, RecurrentState]:
        assert isinstance(state, RecurrentState)
        embedded = self.drop(self.target_embedding(tokens))
        readouts, after = self.decoder.step(embedded, state)
        return self.logits(self.drop(readouts)), after

    @property
    def output_table(self) -> Tensor:
        return self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        return self.output.bias

    @property
    def alignment(self) -> AlignmentSource | None:
        attends = bool(self.attention_axes())
        return AlignmentSource("decoder.attention", heads=None, shift=0) if attends else None

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        attends = self.has_decoder and self.settings.attention.name != "none"
        return {"decoder.attention": ("target", "time")} if attends else {}


register_model(RecurrentSpeechSettings, RecurrentSpeech)
