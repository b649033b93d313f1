"""Tacotron 2 without WaveNet: a recurrent model that reads characters and predicts frames.

    h_1 … h_L = BiLSTM(convolutions(embedding(characters)))
    p_s = prenet(y_{s−1}),  d_s = LSTM([p_s; c_{s−1}], d_{s−1})
    α_s = attention(d_s, h, α_1 … α_{s−1}),  c_s = Σ_j α_sj h_j
    y_s = W [d_s; c_s] + b,  stop_s = σ(w · [d_s; c_s] + b'),  y ← y + postnet(y)

Shen et al. 2018, "Natural TTS Synthesis by Conditioning WaveNet on Mel Spectrogram Predictions",
section 2.2; y_s has r frames (Wang et al. 2017, "Tacotron: Towards End-to-End Speech Synthesis",
section 3.3). Differences: dropout instead of zoneout, layer normalization instead of batch
normalization, and every score and normalizer can be chosen.
Shapes: B texts, N rows, L tokens, S steps, M bands, r frames of a step, H width of a state, A width
of an annotation.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Memory, RecurrentAttention
from heedful.attention.recurrent import AttentionState
from heedful.attention.scores.location_aware import LocationAware
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import Hidden, RecurrentEncoder, RecurrentStack
from heedful.layers.speaking import Prenet, TimeConvolutions, postnet
from heedful.models.pairs import AlignmentSource, Source
from heedful.models.recurrent_attention import keys_and_values, read_rows
from heedful.models.recurrent_mechanism import Reading, RecurrentAttentionSettings
from heedful.models.recurrent_rows import SourceRows
from heedful.models.registry import SynthesisSettings, register_model
from heedful.models.synthesis import SynthesisModel


class RecurrentSynthesisSettings(SynthesisSettings):
    """Sizes and options of a recurrent synthesiser."""

    reads_any_length = True
    kind: Literal["recurrent"] = "recurrent"
    embedding_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of the characters' embeddings, and of the convolutions over them."""
    encoder_convolutions: int = Field(3, ge=0, le=MOST_LAYERS)
    """Convolutions over the characters, of width 5."""
    encoder_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of a direction of the encoder."""
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of a layer of the decoder."""
    decoder_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    attention: RecurrentAttentionSettings = RecurrentAttentionSettings()
    """By default, the location-aware score with accumulated weights."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest sentence in characters, END included."""

    @property
    def mechanism(self) -> RecurrentAttentionSettings:
        """The attention, with the location-aware score unless another one is named."""
        own = self.attention
        if own.score is None and own.name == "bahdanau":
            score = LocationAware.Settings(filters=32, accumulated=True)
            own = own.model_copy(update={"score": score})
        return own

    def reading(self) -> Reading:
        """The attention of the decoder."""
        annotation_dim = 2 * self.encoder_size
        return self.mechanism.build_reading(self.hidden_size, annotation_dim, self.max_length)

    @model_validator(mode="after")
    def _fits(self) -> "RecurrentSynthesisSettings":
        if self.attention.name == "none":
            raise ValueError("attention = 'none': speech needs attention to its text")
        with torch.device("meta"):
            self.reading()
            _, normalizer = self.mechanism.score_and_normalizer()
            if normalizer.build(1, self.hidden_size).learns_by_reward:
                raise ValueError(
                    "attention that learns by reward is not available for speech; use another "
                    "normalizer, such as hard-gumbel"
                )
        return self


@dataclass(frozen=True)
class SynthesisState:
    """The state of synthesis between two steps, for N rows."""

    hidden: Hidden
    """Each decoder layer's state."""
    context: Tensor
    """c of the step before ``[N, A]``."""
    memory: tuple[Tensor, ...]
    """Keys, values and mask of the texts."""
    rows: SourceRows
    """The text of each row."""
    attending: AttentionState | None
    """What an attention carries that reads the weights of earlier steps."""
    seed: int
    """Of the pre-net's dropout."""
    step: int = 0
    """Number of steps so far."""


class SpeechDecoder(nn.Module):
    """The decoder of the model; :meth:`unroll` and :meth:`step` compute the same."""

    def __init__(self, settings: RecurrentSynthesisSettings, bands: int) -> None:
        super().__init__()
        hidden, layers = settings.hidden_size, settings.decoder_layers
        self.prenet = Prenet(
            bands,
            settings.prenet_size,
            dropout=settings.prenet_dropout,
            always=settings.prenet_always,
        )
        self.attention, self.width, _ = settings.reading()
        self.stack = RecurrentStack(
            "lstm", settings.prenet_size + self.width, hidden, layers, dropout=settings.dropout
        )
        self.layers, self.drop = layers, Dropout(settings.dropout)
        self.frames = nn.Linear(hidden + self.width, settings.frames_per_step * bands)
        self.stop = nn.Linear(hidden + self.width, 1)

    def begin(self, annotations: Tensor, lengths: Tensor, seed: int) -> SynthesisState:
        """The state before the first step, for ``annotations [B, L, A]``."""
        count, memory = len(lengths), keys_and_values(self.attention, annotations, lengths)
        zeros = annotations.new_zeros(count, self.stack.network.hidden_size)
        attending = None
        if isinstance(self.attention, RecurrentAttention):
            attending = self.attention.start(Memory(*memory[:2]))
        return SynthesisState(
            ((zeros, zeros),) * self.layers,
            annotations.new_zeros(count, self.width),
            memory,
            SourceRows.one_each(count, annotations.device),
            attending,
            seed,
        )

    def unroll(self, inputs: Tensor, state: SynthesisState) -> tuple[Tensor, Tensor]:
        """Frames ``[B, S, r · M]`` and logits of the stop ``[B, S]`` of ``inputs [B, S, M]``."""
        steps = self.stack.steps(self.prenet(inputs, seed=state.seed))
        hidden, context, attending = state.hidden, state.context, state.attending
        outputs = []
        for _ in range(inputs.shape[1]):
            hidden = steps(context, hidden)
            top = hidden[-1][0]
            context, attending = self._read(top, state, attending)
            outputs.append(torch.cat([top, context], -1))
        return self._predict(torch.stack(outputs, 1))

    def step(self, frame: Tensor, state: SynthesisState) -> tuple[Tensor, Tensor, SynthesisState]:
        """Frames ``[N, r · M]``, logits of the stop ``[N]`` and the next state, after ``frame
        [N, M]``."""
        seen = self.prenet(frame.unsqueeze(1), seed=state.seed, first=state.step)
        hidden = self.stack.steps(seen)(state.context, state.hidden)
        top = hidden[-1][0]
        context, attending = self._read(top, state, state.attending)
        frames, stops = self._predict(torch.cat([top, context], -1))
        after = replace(
            state, hidden=hidden, context=context, attending=attending, step=state.step + 1
        )
        return frames, stops, after

    def _read(
        self, query: Tensor, state: SynthesisState, attending: AttentionState | None
    ) -> tuple[Tensor, AttentionState | None]:
        """Contexts ``[N, A]`` of one query per row ``[N, H]``, and the attention's next state."""
        if not isinstance(self.attention, RecurrentAttention):
            return read_rows(self.attention, query, state.rows, state.memory), None
        assert attending is not None
        key, value, allowed = state.memory
        return self.attention.step(query, Memory(key, value), attending, allowed)

    def _predict(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Frames ``[.., r · M]`` and logits of the stop ``[..]`` of ``[d_s; c_s]``."""
        outputs = self.drop(outputs)
        return self.frames(outputs), self.stop(outputs).squeeze(-1)


class RecurrentSynthesis(SynthesisModel):
    """The model.

    Args:
        settings: sizes and options.
        bands: width of a frame M.
        vocabulary: number of symbols.

    Example:
        >>> settings = RecurrentSynthesisSettings(embedding_size=8, encoder_size=4, hidden_size=8)
        >>> model = RecurrentSynthesis(settings, 40, 30)
        >>> source = Source(torch.tensor([[9, 8, 3]]), torch.tensor([3]))
        >>> found = model.teacher_force(source, torch.zeros(1, 7, 40), torch.tensor([7]))
        >>> found.fine.shape, found.stops.shape
        (torch.Size([1, 9, 40]), torch.Size([1, 3]))
    """

    def __init__(self, settings: RecurrentSynthesisSettings, bands: int, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.bands, self.max_length = settings, bands, settings.max_length
        self.frames_per_step = settings.frames_per_step
        width = settings.embedding_size
        self.embedding = token_embedding(vocabulary, width)
        self.convolutions = TimeConvolutions(
            [width] * (settings.encoder_convolutions + 1),
            5,
            activation="relu",
            dropout=settings.convolution_dropout,
        )
        self.encoder = RecurrentEncoder(
            "lstm", width, settings.encoder_size, 1, bidirectional=True, dropout=0.0
        )
        self.drop = Dropout(settings.dropout)
        self.decoder = SpeechDecoder(settings, bands)
        self.postnet = postnet(
            bands,
            layers=settings.postnet_layers,
            channels=settings.postnet_channels,
            dropout=settings.convolution_dropout,
        )

    def encode(self, source: Source) -> Tensor:
        """Annotations ``[B, L, A]`` of the tokens."""
        vectors = self.convolutions(self.embedding(source.tokens), source.lengths)
        annotations: Tensor = self.drop(self.encoder(vectors, source.lengths)[0])
        return annotations

    def unroll(self, source: Source, inputs: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        frames, stops = self.decoder.unroll(inputs, self.start(source, seed))
        return frames.unflatten(-1, (-1, self.bands)).flatten(1, 2), stops

    def start(self, source: Source, seed: int = 0) -> SynthesisState:
        return self.decoder.begin(self.encode(source), source.lengths, seed)

    def step(self, frame: Tensor, state: SynthesisState) -> tuple[Tensor, Tensor, SynthesisState]:
        frames, stops, after = self.decoder.step(frame, state)
        return frames.unflatten(-1, (-1, self.bands)), stops, after

    @property
    def alignment(self) -> AlignmentSource:
        return AlignmentSource("decoder.attention", heads=None, shift=0)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {"decoder.attention": ("time", "source")}


register_model(RecurrentSynthesisSettings, RecurrentSynthesis)
