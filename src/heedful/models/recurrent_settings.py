"""The settings of recurrent decoders, and of the recurrent encoder–decoder."""

from typing import ClassVar, Literal, TypeVar

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator

from heedful.attention.normalizers.base import NormalizerSettings
from heedful.attention.normalizers.gumbel import GumbelStraightThrough
from heedful.attention.normalizers.local_predictive import LocalPredictive
from heedful.attention.normalizers.sampled_hard import SampledHard
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.settings import WRITTEN, Settings
from heedful.models.recurrent_mechanism import RecurrentAttentionSettings
from heedful.models.registry import PairSettings


class RecurrentDecoderSettings(Settings):
    """Sizes and options of a recurrent decoder, which reads vectors of any source."""

    cell: Literal["rnn", "gru", "lstm"] = "gru"
    embedding_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of the embeddings."""
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of a layer's state."""
    decoder_layers: int = Field(1, ge=1, le=MOST_LAYERS)
    attention: RecurrentAttentionSettings = RecurrentAttentionSettings()
    input_feeding: bool | None = None
    """Luong only: whether the attentional vector is part of the next step's input; true by default.
    None with any other attention."""
    window: int | None = Field(None, ge=1, le=MOST_POSITIONS)
    """Luong's local-p only: D, positions on either side of the predicted one; 10 by default."""
    temperature: float | None = Field(None, gt=0)
    """Hard by Gumbel only: temperature of the softmax for the gradient; 1 by default."""
    expected: float | None = Field(None, ge=0, lt=1)
    """Hard by REINFORCE only: share of training steps that use the expectation instead of a sample;
    0.5 by default."""
    context_gate: bool = False
    """Bahdanau's decoder only: whether contexts are multiplied by a number between 0 and 1 that is
    computed from the previous state."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest sequence in tokens, END included."""

    @property
    def mechanism(self) -> RecurrentAttentionSettings:
        """The attention, with the window, temperature or expectation of its name."""
        given: dict[str, NormalizerSettings] = {}
        if self.window is not None:
            given["luong-local-p"] = LocalPredictive.Settings(window=self.window)
        if self.temperature is not None:
            given["hard-gumbel"] = GumbelStraightThrough.Settings(temperature=self.temperature)
        if self.expected is not None:
            given["hard-reinforce"] = SampledHard.Settings(expected=self.expected)
        own = given.get(self.attention.name)
        return self.attention if own is None else self.attention.with_default(own)

    def check_reading(self, width: int) -> None:
        """Raise ValueError if the attention cannot read vectors of this width."""
        if self.attention.name != "none":
            with torch.device("meta"):
                self.mechanism.build_reading(self.hidden_size, width, self.max_length)

    @property
    def learns_by_reward(self) -> bool:
        _, normalizer = self.mechanism.score_and_normalizer()
        with torch.device("meta"):
            return normalizer.build(1, self.hidden_size).learns_by_reward

    @field_validator("input_feeding")
    @classmethod
    def _feedable(cls, input_feeding: bool | None, info: ValidationInfo) -> bool | None:
        attention = info.data.get("attention")
        if attention is None or attention.after_the_cell:
            return input_feeding is not False
        if input_feeding is not None:
            raise ValueError(
                f"input_feeding is only valid for Luong's attention, not for "
                f"attention = '{attention.name}'; remove it"
            )
        return None

    @field_validator("window")
    @classmethod
    def _has_window(cls, window: int | None, info: ValidationInfo) -> int | None:
        return _part_of("luong-local-p", "window", window, 10, info)

    @field_validator("temperature")
    @classmethod
    def _has_temperature(cls, temperature: float | None, info: ValidationInfo) -> float | None:
        return _part_of("hard-gumbel", "temperature", temperature, 1.0, info)

    @field_validator("expected")
    @classmethod
    def _has_expectation(cls, expected: float | None, info: ValidationInfo) -> float | None:
        return _part_of("hard-reinforce", "expected", expected, 0.5, info)

    @field_validator("context_gate")
    @classmethod
    def _gateable(cls, context_gate: bool, info: ValidationInfo) -> bool:
        attention = info.data.get("attention")
        named = "bahdanau" if attention is None else attention.name
        if context_gate and (named == "none" or named.startswith("luong")):
            raise ValueError(
                "context_gate is only valid for a decoder that reads before its cell, not for "
                f"attention = '{named}'; remove it"
            )
        return context_gate


class RecurrentSettings(RecurrentDecoderSettings, PairSettings):
    """Sizes and options of a recurrent encoder–decoder."""

    renamed: ClassVar[dict[str, str]] = {
        "embedding": "embedding_size",
        "hidden": "hidden_size",
        "tied": "tied_embeddings",
    }
    reads_any_length = True
    kind: Literal["recurrent"] = "recurrent"
    encoder_layers: int = Field(1, ge=1, le=MOST_LAYERS)
    bidirectional: bool = True
    """Whether the encoder reads in both directions."""
    tied_embeddings: Literal["all", "output", "none"] = "none"
    """Which matrices are tied: source embedding, target embedding and output ("all"), the last two
    ("output"), or none."""

    @model_validator(mode="after")
    def _readable(self) -> "RecurrentSettings":
        width = self.hidden_size * (2 if self.bidirectional else 1)
        own = self.attention
        dot = own.name == "luong-dot" and not own.score and not own.has_heads
        if dot and self.bidirectional:
            raise ValueError(
                "luong-dot needs states of equal width, but a bidirectional encoder's are twice as "
                "wide as the decoder's; use luong-general or bidirectional = false"
            )
        self.check_reading(width)
        return self

    @field_validator("tied_embeddings")
    @classmethod
    def _tieable(cls, tied: str, info: ValidationInfo) -> str:
        if tied != "none":
            require_tieable(info)
        return tied


def require_tieable(info: ValidationInfo) -> None:
    """Raise ValueError if the embedding and the output cannot be one matrix."""
    embedding, hidden = info.data.get("embedding_size"), info.data.get("hidden_size")
    if embedding != hidden:
        raise ValueError(
            "tied embeddings need equal embedding_size and hidden_size, "
            f"not {embedding} and {hidden}; make them equal, or set tied_embeddings = 'none'"
        )


Number = TypeVar("Number", int, float)


def _part_of(
    owner: str, what: str, given: Number | None, default: Number, info: ValidationInfo
) -> Number | None:
    """The value of a setting that only one kind of attention has; None for other kinds, and with a
    normalizer of the attention, which has it instead."""
    attention = info.data.get("attention")
    name = owner if attention is None else attention.name
    if name == owner:
        if attention is None or attention.normalizer is None:
            return default if given is None else given
        # Heedful wrote it, without effect, into recipes of runs before it was refused.
        if given is not None and not (info.context or {}).get(WRITTEN):
            raise ValueError(
                f"{what} has no effect beside attention.normalizer; remove it, or set it there if "
                f"'{attention.normalizer.name}' has it"
            )
        return None
    if given is not None:
        raise ValueError(
            f"{what} is only valid with attention = '{owner}', not '{name}'; remove it"
        )
    return None
