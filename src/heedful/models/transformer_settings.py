"""The settings of an encoder–decoder Transformer."""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from heedful.attention.positions import PositionSettings
from heedful.attention.settings import AttentionSettings, Role
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.transformer import Activation, BlockOptions, Norm
from heedful.models.attention_settings import (
    PairAttentionSettings,
    check_layers,
    without_added,
)
from heedful.models.registry import PairSettings

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "hidden_size": 128, "ffn_size": 256, "heads": 4},
    "base": {"layers": 6, "hidden_size": 512, "ffn_size": 2048, "heads": 8},
    "big": {"layers": 6, "hidden_size": 1024, "ffn_size": 4096, "heads": 16},
}


_ROLES: dict[Literal["encoder", "decoder", "cross"], Role] = {
    "encoder": "self",
    "decoder": "causal",
    "cross": "cross",
}


class TransformerSettings(PairSettings):
    """Sizes and options of a Transformer; ``size`` sets the other defaults."""

    renamed: ClassVar[dict[str, str]] = {
        "dim": "hidden_size",
        "inner": "ffn_size",
        "inner_dropout": "ffn_dropout",
        "decoder_inner": "decoder_ffn_size",
        "scaled": "scale_embeddings",
        "tied": "tied_embeddings",
    }
    kind: Literal["transformer"] = "transformer"
    size: Literal["tiny", "base", "big"] | None = None
    layers: int = Field(ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(ge=2, le=MOST_WIDTH, multiple_of=2)
    ffn_size: int = Field(ge=1, le=MOST_WIDTH)
    heads: int = Field(ge=1, le=MOST_WIDTH)
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    ffn_dropout: float = Field(0.0, ge=0, lt=1)
    pre_norm: bool = False
    positions: PositionSettings = PositionSettings.model_validate("sinusoidal")
    tied_embeddings: Literal["all", "inputs", "output", "none"] = "all"
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    activation: Activation = "relu"
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by √hidden_size, as in the paper."""
    norm: Norm = "layer"
    """``rms`` divides by the root mean square, without a mean and a bias, as T5 does."""
    norm_epsilon: float = Field(1e-5, gt=0, lt=1)
    bias: bool = True
    """Whether the linear maps and norms of the layers have biases."""
    gated: bool = False
    """Whether the feed-forward network has a gate."""
    embedding_norm: bool = False
    """Whether embeddings with their positions are normalized, as in BART."""
    share_positions: bool = False
    """Whether the layers of a stack (encoder or decoder) share their relative positions."""
    scale_output: bool = False
    """Whether states are divided by √hidden_size before the output matrix, as in T5."""
    initialisation: Literal["xavier", "t5"] = "xavier"
    """The scale of initial weights; ``t5`` is for scores that are not scaled."""
    output_bias: bool = False
    """Whether logits have a fixed bias that is not trained; zeros unless loaded."""
    decoder_layers: int | None = Field(None, ge=1, le=MOST_LAYERS)
    """``layers`` by default; the next two settings likewise."""
    decoder_ffn_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
    decoder_heads: int | None = Field(None, ge=1, le=MOST_WIDTH)
    attention: PairAttentionSettings = PairAttentionSettings()
    copy_source: Literal[False, True, "only"] = False
    """Whether tokens of the source can be copied (:mod:`heedful.models.copying`), or are the only
    outputs (:mod:`heedful.models.pointing`)."""

    @property
    def needs_one_vocabulary(self) -> bool:
        return bool(self.copy_source) or super().needs_one_vocabulary

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, given: Any) -> Any:
        if isinstance(given, dict):
            given = without_added(given)
            size = given.get("size") or ("tiny" if "layers" not in given else None)
            if size in SIZES:
                return {**SIZES[size], **given, "size": _size_if_true(size, given)}
        return given

    @model_validator(mode="after")
    def _parts_fit(self) -> "TransformerSettings":
        if self.share_positions and not self.positions.relative:
            raise ValueError(
                f"share_positions is for relative positions, and '{self.positions.name}' are added "
                "to the embeddings: set positions = 't5', or share_positions = false"
            )
        if self.copy_source == "only" and self.tied_embeddings in ("none", "inputs"):
            raise ValueError(
                "copy_source = 'only' has no output matrix that could be of its own: set "
                "tied_embeddings = 'all' or 'output'"
            )
        for part, role in _ROLES.items():
            check_layers(self.attention_of(part), self.hidden_size, role, self.max_length)
        return self

    def attention_of(self, part: Literal["encoder", "decoder", "cross"]) -> list[AttentionSettings]:
        """The attention of each layer of a part."""
        own = AttentionSettings(
            heads=self.heads if part == "encoder" else self.decoder_heads or self.heads,
            dropout=self.attention_dropout,
            positions=self.positions if self.positions.relative else None,
        )
        layers = self.layers if part == "encoder" else self.decoder_layers or self.layers
        return self.attention.of_part(part, [own] * layers)

    def block_options(self) -> BlockOptions:
        """The options of the encoder's layers."""
        return BlockOptions(
            self.hidden_size,
            self.ffn_size,
            self.dropout,
            self.ffn_dropout,
            self.pre_norm,
            self.activation,
            self.norm_epsilon,
            self.bias,
            self.norm,
            self.gated,
        )


def _size_if_true(size: str, given: dict[str, Any]) -> str | None:
    """The name of the size, or None if some of its values are overridden.

    Raises:
        ValueError: all of its values are given and one contradicts it.
    """
    other = [key for key, number in SIZES[size].items() if given.get(key, number) != number]
    if other and SIZES[size].keys() <= given.keys():
        raise ValueError(
            f"size '{size}' and {other[0]} = {given[other[0]]} contradict each other; leave one "
            "of them out"
        )
    return None if other else size
