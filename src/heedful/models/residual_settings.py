"""The settings of a residual network of convolutions."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from heedful.basics.limits import MOST_LAYERS, MOST_WIDTH
from heedful.basics.settings import Settings
from heedful.layers.channel_attention import ChannelAttention
from heedful.layers.residual import Norm, ResidualNetwork, ResidualOptions, Scaling

Width = Annotated[int, Field(ge=1, le=MOST_WIDTH)]
Count = Annotated[int, Field(ge=1, le=MOST_LAYERS)]


class ResidualSettings(Settings):
    """Sizes and options of a residual network."""

    widths: tuple[Width, ...] = Field((16, 32, 64), min_length=1)
    """Channels of each stage."""
    blocks: tuple[Count, ...] = (3, 3, 3)
    """Blocks of each stage; one number for all stages."""
    stem: Literal["small", "large"] = "small"
    """The first layer: a 3 × 3 convolution, or 7 × 7 with stride 2 and a pooling."""
    bottleneck: bool = False
    """Whether blocks have convolutions of 1 × 1, 3 × 3 and 1 × 1."""
    norm: Norm = "group"
    """Normalization over groups of channels; "fixed" with stored means and variances."""
    channel_attention: ChannelAttention = "none"
    """Attention after the convolutions of each block."""
    reduction: int = Field(16, ge=1, le=MOST_WIDTH)
    """By how much the hidden layer of ``se`` and ``cbam`` is narrower than the channels."""

    scaling: Scaling = "centred"
    """Pixels from −1 to 1; "imagenet" with the mean and variance of ImageNet, for weights in
    torchvision's layout."""

    @model_validator(mode="before")
    @classmethod
    def _for_each_stage(cls, given: Any) -> Any:
        """One number of blocks, for all stages."""
        if not isinstance(given, dict):
            return given
        widths, blocks = given.get("widths", (16, 32, 64)), given.get("blocks", 3)
        if isinstance(blocks, int) and isinstance(widths, list | tuple):
            return {**given, "blocks": (blocks,) * len(widths)}
        return given

    @model_validator(mode="after")
    def _agree(self) -> "ResidualSettings":
        if len(self.blocks) != len(self.widths):
            raise ValueError(
                f"{len(self.blocks)} numbers of blocks for {len(self.widths)} widths; give one for "
                "each stage, or one number"
            )
        return self

    def build_network(self, channels: int) -> ResidualNetwork:
        """The network for images of so many channels.

        Raises:
            ValueError: grey images are scaled as ImageNet's.
        """
        options = ResidualOptions(
            self.widths,
            self.blocks,
            self.stem,
            self.bottleneck,
            self.norm,
            self.channel_attention,
            self.reduction,
            self.scaling,
        )
        return ResidualNetwork(channels, options)
