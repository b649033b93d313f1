"""The settings of a Perceiver's latents, which are the same for every kind of input."""

from pydantic import Field, model_validator

from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.settings import Settings
from heedful.layers.latents import LatentArray
from heedful.layers.transformer import Activation, BlockOptions
from heedful.models.attention_settings import PartAttentionSettings, check_layers


class LatentAttentionSettings(PartAttentionSettings):
    """The attention of a Perceiver: that of the latents, and that between them and the inputs."""

    cross: AttentionSettings | None = None
    """Of the latents to the inputs, and of outputs to the latents."""

    @model_validator(mode="after")
    def _without_order(self) -> "LatentAttentionSettings":
        for one in (self, self.cross, *(self.layers or ())):
            if one is not None and (one.positions is not None or one.mask is not None):
                raise ValueError(
                    "latents have no order, so that their attention has neither positions nor a "
                    "mask; positions of tokens are model.positions"
                )
        if self.cross is not None:
            self.cross.require_standard()
        return self


class LatentSettings(Settings):
    """Sizes and options of latents."""

    latents: int = Field(32, ge=1, le=MOST_POSITIONS)
    """Number of latent vectors."""
    latent_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of a latent vector."""
    reads: int = Field(1, ge=1, le=MOST_LAYERS)
    """How often the latents read the inputs, each time followed by all layers. All reads after the
    first one have the same weights, and so have all repetitions of the layers."""
    layers: int = Field(4, ge=1, le=MOST_LAYERS)
    """Layers of self-attention of the latents, after each read."""
    heads: int = Field(4, ge=1, le=MOST_WIDTH)
    """Heads of the self-attention of the latents."""
    cross_heads: int = Field(1, ge=1, le=MOST_WIDTH)
    """Heads of the attention between latents and inputs."""
    ffn_size: int = Field(256, ge=1, le=MOST_WIDTH)
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the inputs' vectors and on each sublayer's output."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation: Activation = "gelu"
    norm_epsilon: float = Field(1e-5, gt=0)
    attention: LatentAttentionSettings = LatentAttentionSettings()

    def check_attention(self, *widths: int, max_length: int | None = None) -> None:
        """Raise ValueError if the parts of an attention do not fit together.

        Args:
            widths: of the states that attend to something else.
            max_length: the most inputs, if there is a limit.
        """
        check_layers(self.attention_of_layers(), self.latent_size, "self", self.latents)
        for width in widths:
            self.attention_to_inputs().check(width, "cross", max_length=max_length)

    def attention_of_layers(self) -> list[AttentionSettings]:
        """The attention of each layer of the latents."""
        own = AttentionSettings(heads=self.heads, dropout=self.attention_dropout)
        return self.attention.of_layers([own] * self.layers)

    def attention_to_inputs(self) -> AttentionSettings:
        """The attention between latents and inputs, in both directions."""
        own = AttentionSettings(heads=self.cross_heads, dropout=self.attention_dropout)
        return own if self.attention.cross is None else self.attention.cross.over(own)

    def blocks(self, width: int) -> BlockOptions:
        """The options of blocks for states of a width."""
        return BlockOptions(
            width,
            self.ffn_size,
            self.dropout,
            pre_norm=True,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
        )

    def build_latents(self, input_dim: int) -> LatentArray:
        """The latents that read inputs of a width."""
        return LatentArray(
            self.blocks(self.latent_size),
            input_dim,
            count=self.latents,
            reads=self.reads,
            cross=self.attention_to_inputs(),
            layers=self.attention_of_layers(),
        )
