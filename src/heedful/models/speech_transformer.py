"""A Transformer that transcribes sounds, with convolutions before its encoder.

Dong, Xu, Xu 2018, "Speech-Transformer: A No-Recurrence Sequence-to-Sequence Model for Speech
Recognition"; with ``outputs = "both"``, the encoder's outputs also predict the text by CTC (Kim,
Hori, Watanabe 2017; Karita et al. 2019, "Improving Transformer-Based End-to-End Speech Recognition
with Connectionist Temporal Classification and Language Model Integration"). The encoder's layers
can be those of the Conformer (Gulati et al. 2020).
Shapes: B sounds, T frames, F features, S positions, L target tokens, D width.
"""

from typing import Any, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.masks import padding
from heedful.attention.positions import PositionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.conformer import ConformerLayer
from heedful.layers.listening import Subsampling
from heedful.layers.transformer import Activation, BlockOptions
from heedful.models.attention_settings import PairAttentionSettings, without_added
from heedful.models.pairs import AlignmentSource
from heedful.models.registry import SpeechSettings, register_model
from heedful.models.speech import Annotations, Sounds, SpeechModel
from heedful.models.transformer import Transformer, TransformerSettings, TransformerState


class TransformerSpeechSettings(SpeechSettings):
    """Sizes and options of a Transformer that transcribes sounds."""

    kind: Literal["transformer"] = "transformer"
    convolutions: int = Field(2, ge=1, le=4)
    """Convolutions before the encoder, each of which halves the time."""
    channels: int = Field(32, ge=1, le=MOST_WIDTH)
    """Channels of a convolution."""
    encoder: Literal["transformer", "conformer"] = "transformer"
    """The layers of the encoder. Those of the Conformer have positions of Transformer-XL, unless
    ``positions`` or ``attention.encoder`` names other relative ones."""
    kernel_size: int = Field(31, ge=1, le=MOST_WIDTH)
    """Positions that a convolution of the Conformer reads, odd."""
    layers: int = Field(4, ge=1, le=MOST_LAYERS)
    """Of the encoder."""
    decoder_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(144, ge=2, le=MOST_WIDTH, multiple_of=2)
    ffn_size: int = Field(512, ge=1, le=MOST_WIDTH)
    heads: int = Field(4, ge=1, le=MOST_WIDTH)
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation: Activation = "relu"
    pre_norm: bool = True
    positions: PositionSettings = PositionSettings.model_validate("sinusoidal")
    tied_embeddings: Literal["output", "none"] = "output"
    """Whether the embedding and the output matrix are one."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest text in tokens, END included; with learned positions, also the most positions of a
    sound."""
    attention: PairAttentionSettings = PairAttentionSettings()

    @property
    def reduction(self) -> int:
        return 1 << self.convolutions

    @model_validator(mode="before")
    @classmethod
    def _relative_only(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("encoder") == "conformer":
            given = {"activation": "silu", **given}
        return without_added(given)

    @model_validator(mode="after")
    def _fits(self) -> "TransformerSpeechSettings":
        self.of_transformer()
        if self.encoder == "conformer":
            if self.kernel_size % 2 == 0:
                raise ValueError(f"kernel_size must be odd, not {self.kernel_size}")
            if not self.pre_norm:
                raise ValueError("encoder = 'conformer' needs pre_norm = true")
        return self

    def of_transformer(self) -> TransformerSettings:
        """The settings of the Transformer."""
        named = ["layers", "decoder_layers", "hidden_size", "ffn_size", "heads", "dropout"]
        named += ["attention_dropout", "activation", "pre_norm", "positions", "attention"]
        return TransformerSettings(
            **{name: getattr(self, name) for name in named},
            tied_embeddings="all" if self.tied_embeddings == "output" else "none",
            max_length=self.max_length,
        )


class TransformerSpeech(SpeechModel):
    """Convolutions and a Transformer, an output for CTC, or all of them.

    Args:
        settings: sizes and options.
        features: width of a frame F.
        vocabulary: number of symbols.

    Raises:
        ValueError: the parts do not fit together.

    Example:
        >>> import torch
        >>> settings = TransformerSpeechSettings(hidden_size=8, heads=2, ffn_size=8)
        >>> model = TransformerSpeech(settings, 40, 30)
        >>> sounds = Sounds(torch.zeros(1, 100, 40), torch.tensor([100]))
        >>> model.teacher_force(sounds, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 30])
    """

    def __init__(self, settings: TransformerSpeechSettings, features: int, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.features, self.max_length = settings, features, settings.max_length
        self.reduction, self.has_decoder = settings.reduction, settings.has_decoder
        width = settings.hidden_size
        self.front = Subsampling(
            features, channels=settings.channels, width=width, count=settings.convolutions
        )
        self.transformer = Transformer(settings.of_transformer(), vocabulary, vocabulary)
        if settings.tied_embeddings == "none":
            del self.transformer.source_embedding
        if settings.encoder == "conformer":
            self._use_conformer()
        self.ctc = nn.Linear(width, vocabulary) if settings.has_ctc else None
        if not settings.has_decoder:
            # The encoder alone.
            for part in ("decoder", "decoder_norm", "target_embedding", "source_embedding"):
                if hasattr(self.transformer, part):
                    delattr(self.transformer, part)
            self.transformer.output = None

    def _use_conformer(self) -> None:
        """Make the encoder's layers those of the Conformer."""
        settings, transformer = self.settings, self.transformer
        options = BlockOptions(
            settings.hidden_size,
            settings.ffn_size,
            settings.dropout,
            activation=settings.activation,
        )
        relative = PositionSettings.model_validate("transformer-xl")
        layers = [
            own if own.positions is not None else own.model_copy(update={"positions": relative})
            for own in transformer.settings.attention_of("encoder")
        ]
        transformer.encoder = nn.ModuleList(
            ConformerLayer(options, own, kernel=settings.kernel_size, number=number)
            for number, own in enumerate(layers, 1)
        )
        # The blocks end with a norm, and their attention has the positions.
        transformer.encoder_norm = nn.Identity()
        transformer.source_positions = relative.build_added(options.dim, settings.max_length)

    def listen(self, sounds: Sounds) -> Annotations:
        vectors, lengths = self.front(*sounds)
        transformer = self.transformer
        hidden = transformer.dropout(transformer.source_positions(vectors))
        mask = padding(lengths).dense((len(vectors), 1, 1, vectors.shape[1]), vectors.device)
        return Annotations(transformer.encode_vectors(hidden, mask), lengths)

    def spell(self, heard: Annotations, target_in: Tensor) -> Tensor:
        vectors, lengths = heard.vectors, heard.lengths
        mask = padding(lengths).dense((len(vectors), 1, 1, vectors.shape[1]), vectors.device)
        return self.transformer.decode(vectors, mask, target_in)

    def begin(self, heard: Annotations) -> TransformerState:
        return self.transformer.begin(heard.vectors, heard.lengths)

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        states, after = self.transformer.advance(tokens, state)
        return self.logits(states), after

    @property
    def output_table(self) -> Tensor:
        return self.transformer.output_table

    def layer_states(self) -> list[str]:
        if not self.has_decoder:
            return []
        return [f"transformer.{name}" for name in self.transformer.layer_states()]

    def read_layer(self, states: Tensor) -> Tensor:
        return self.logits(self.transformer.decoder_norm(states))

    @property
    def alignment(self) -> AlignmentSource | None:
        if not self.has_decoder:
            return None
        own = self.transformer.alignment
        return own._replace(module=f"transformer.{own.module}")

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        named = {"source": "time", "target": "target"}
        axes = {}
        for name, (queries, keys) in self._own_axes().items():
            axes[f"transformer.{name}"] = (named[queries], named[keys])
        return axes

    def _own_axes(self) -> dict[str, tuple[str, str]]:
        if self.has_decoder:
            return self.transformer.attention_axes()
        layers = range(self.settings.layers)
        return {f"encoder.{layer}.self_attention": ("source", "source") for layer in layers}


register_model(TransformerSpeechSettings, TransformerSpeech)
