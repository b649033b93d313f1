"""The table ``[model.attention]`` of models that consist of layers with attention.

Settings of some layers take precedence over those of a part of the model, those of a part over
those of the table, and those of the table over the model's own: ``heads``, ``attention_dropout``
and ``positions``.
"""

from collections.abc import Iterable
from typing import Any

import torch
from pydantic import Field, model_validator

from heedful.attention.normalizers import Normalizer, NormalizerSettings, Softmax
from heedful.attention.positions.settings import PositionSettings
from heedful.attention.settings import AttentionSettings, Role
from heedful.basics.limits import MOST_LAYERS
from heedful.basics.settings import Settings


class LayerAttentionSettings(AttentionSettings):
    """The attention of some layers of a model, or of one part of it."""

    every: int | None = Field(None, ge=1, le=MOST_LAYERS)
    """Layers n, 2 · n, …, counted from 1."""
    numbers: tuple[int, ...] | None = None
    """The numbers of the layers, counted from 1."""

    @model_validator(mode="after")
    def _says_which(self) -> "LayerAttentionSettings":
        if (self.every is None) == (self.numbers is None):
            raise ValueError("give either every or numbers, to say which layers")
        return self

    def concerns(self, number: int) -> bool:
        """Whether these are settings of layer ``number``, counted from 1."""
        return number % self.every == 0 if self.every else number in (self.numbers or ())


class PartAttentionSettings(AttentionSettings):
    """The attention of all layers of a model, or of one part of it."""

    layers: tuple[LayerAttentionSettings, ...] | None = None
    """Settings of some layers; later ones take precedence."""

    def of_layers(self, base: Iterable[AttentionSettings]) -> list[AttentionSettings]:
        """The settings of each layer, over ``base``.

        Raises:
            ValueError: a layer does not exist.
        """
        found = [self.over(one) for one in base]
        for some in self.layers or ():
            beyond = [number for number in some.numbers or () if not 1 <= number <= len(found)]
            if beyond:
                raise ValueError(f"there is no layer {beyond[0]}; the layers are 1 to {len(found)}")
            found = [
                some.over(one) if some.concerns(number) else one
                for number, one in enumerate(found, 1)
            ]
        return found


class PairAttentionSettings(PartAttentionSettings):
    """The attention of an encoder–decoder."""

    encoder: PartAttentionSettings | None = None
    decoder: PartAttentionSettings | None = None
    """Self-attention of the decoder."""
    cross: PartAttentionSettings | None = None
    """Attention of the decoder to the source."""

    @model_validator(mode="after")
    def _same_text(self) -> "PairAttentionSettings":
        for one in [] if self.cross is None else [self.cross, *(self.cross.layers or ())]:
            one.require_standard()
            for key in ("positions", "mask", "rotary_size"):
                if getattr(one, key) is not None:
                    raise ValueError(
                        f"attention.cross has no {key}: its queries and keys are positions of two "
                        "different texts"
                    )
        return self

    def of_part(self, part: str, base: Iterable[AttentionSettings]) -> list[AttentionSettings]:
        """The settings of each layer of a part: "encoder", "decoder" or "cross"."""
        own: PartAttentionSettings | None = getattr(self, part)
        found = self.of_layers(base)
        if part == "cross":
            found = [one.model_copy(update={"kind": None}) for one in found]
        return found if own is None else own.of_layers(found)


class PoolingAttentionSettings(Settings):
    """The attention of poolings, whose queries are parameters and whose score is fixed."""

    normalizer: NormalizerSettings = Softmax.Settings()

    @model_validator(mode="after")
    def _without_queries(self) -> "PoolingAttentionSettings":
        reason = self.normalizer.not_for_heads
        if reason:
            raise ValueError(f"'{self.normalizer.name}' {reason}")
        if self.normalizer.name == "plain-sum":
            raise ValueError("plain-sum needs scores that are not negative; choose another one")
        return self

    def build(self) -> Normalizer:
        """The normalizer of one head."""
        return self.normalizer.build(1, 1)


def without_added(given: Any) -> Any:
    """A table ``[model]`` whose positions are "none" if only its attention has positions."""
    attention = given.get("attention") if isinstance(given, dict) else None
    named = attention.get("positions") if isinstance(attention, dict) else None
    return given if named is None or "positions" in given else {**given, "positions": "none"}


def check_added(positions: PositionSettings, dim: int, length: int) -> None:
    """Raise ValueError if the positions cannot be added to embeddings of width ``dim``."""
    with torch.device("meta"):
        positions.build_added(dim, length)


def check_layers(
    layers: Iterable[AttentionSettings], dim: int, role: Role, max_length: int
) -> None:
    """Raise ValueError if the settings of a layer, or of all layers, do not fit together."""
    layers = list(layers)
    turned = layers[0].positions if layers else None
    if turned is not None and turned.relative and not any(one.is_standard for one in layers):
        raise ValueError(
            f"the positions '{turned.name}' act within standard attention, and no layer has "
            "it; set model.positions = 'sinusoidal' or 'learned'"
        )
    for one in dict.fromkeys(layers):
        if one.positions is not None and not one.positions.relative and role != "cross":
            _check_added(one)
        one.check(dim, role, max_length=max_length)


def _check_added(one: AttentionSettings) -> None:
    """Raise ValueError if positions that are added to embeddings are settings of an attention."""
    assert one.positions is not None
    if one.positions.name != "none":
        raise ValueError(
            f"the positions '{one.positions.name}' are added to the embeddings, not part of an "
            f"attention; set model.positions = '{one.positions.name}' instead"
        )
