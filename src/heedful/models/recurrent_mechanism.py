"""The attention of recurrent decoders: named mechanisms, and parts in their place.

A name such as ``luong-general`` stands for the decoder that reads (Bahdanau's with its previous
state, Luong's with its current one), a score and a normalizer. Each of the two can be replaced, and
there can be several heads.
"""

from typing import Literal, NamedTuple

from pydantic import model_validator

from heedful.attention import Attention, MultiHeadAttention, RecurrentAttention
from heedful.attention.normalizers.base import NormalizerSettings
from heedful.attention.normalizers.gumbel import GumbelStraightThrough
from heedful.attention.normalizers.local_predictive import LocalPredictive
from heedful.attention.normalizers.sampled_hard import SampledHard
from heedful.attention.normalizers.softmax import Softmax
from heedful.attention.scores.additive import Additive
from heedful.attention.scores.base import ScoreSettings
from heedful.attention.scores.concat import Concat
from heedful.attention.scores.dot import Dot
from heedful.attention.scores.general import General
from heedful.attention.settings import AttentionSettings
from heedful.basics.parts import PartSettings

AttentionName = Literal[
    "none",
    "bahdanau",
    "luong-dot",
    "luong-general",
    "luong-concat",
    "luong-local-p",
    "hard-reinforce",
    "hard-gumbel",
]
_SCORES: dict[str, ScoreSettings] = {
    "luong-dot": Dot.Settings(),
    "luong-general": General.Settings(),
    "luong-local-p": General.Settings(),
    "luong-concat": Concat.Settings(),
}
_NORMALIZERS: dict[str, NormalizerSettings] = {
    "luong-local-p": LocalPredictive.Settings(),
    "hard-reinforce": SampledHard.Settings(),
    "hard-gumbel": GumbelStraightThrough.Settings(),
}
_OF_HEADS = (
    *("heads", "key_value_heads", "latent_size", "join"),
    *("query_key_norm", "mixing", "gate"),
)
"""Settings of several heads; with any of them, queries, keys and values are projected."""


AnyAttention = Attention | MultiHeadAttention | RecurrentAttention


class Reading(NamedTuple):
    """The attention of a decoder."""

    attention: AnyAttention
    width: int
    """Width of the contexts."""
    linear: bool
    """Whether contexts are weighted sums of the annotations themselves."""


class RecurrentAttentionSettings(AttentionSettings, PartSettings):
    """The table ``[model.attention]`` of a recurrent encoder–decoder, or its name alone."""

    name: AttentionName = "bahdanau"

    @model_validator(mode="after")
    def _between_two_texts(self) -> "RecurrentAttentionSettings":
        self.require_standard()
        for key in ("positions", "mask", "rotary_size"):
            if getattr(self, key) is not None:
                raise ValueError(
                    f"this attention has no {key}: its queries and keys are positions of two "
                    "different texts"
                )
        if self.name == "none" and self.given():
            raise ValueError(f"without attention, {self.given()[0]} has no meaning; remove it")
        for key in ("head_size", "bias"):
            if getattr(self, key) is not None and not self.has_heads:
                raise ValueError(
                    f"{key} is a setting of projected heads, and this attention projects nothing; "
                    "set heads, too, or remove it"
                )
        return self

    @property
    def has_heads(self) -> bool:
        """Whether queries, keys and values are projected to those of heads."""
        return any(getattr(self, key) is not None for key in _OF_HEADS)

    @property
    def after_the_cell(self) -> bool:
        """Whether the decoder reads with its current state, as Luong's do."""
        return self.name.startswith("luong")

    def score_and_normalizer(self) -> tuple[ScoreSettings, NormalizerSettings]:
        """The score and the normalizer."""
        return (
            self.score or _SCORES.get(self.name, Additive.Settings()),
            self.normalizer or _NORMALIZERS.get(self.name, Softmax.Settings()),
        )

    def with_default(self, normalizer: NormalizerSettings) -> "RecurrentAttentionSettings":
        """These settings, with this normalizer unless another one is given."""
        if self.normalizer is not None:
            return self
        return self.model_copy(update={"normalizer": normalizer})

    def build_reading(self, hidden_size: int, annotation_dim: int, max_length: int) -> Reading:
        """The attention with queries of width ``hidden_size`` over annotations.

        Raises:
            ValueError: the parts do not fit together; the message has the reason.
        """
        score, normalizer = self.score_and_normalizer()
        if self.has_heads:
            if score.reads_past or normalizer.reads_past:
                raise ValueError(
                    "a score or normalizer that reads the weights of earlier steps has one head; "
                    "remove heads and its like"
                )
            whole = self.model_copy(update={"score": score, "normalizer": normalizer})
            heads = whole.build(hidden_size, "cross", key_dim=annotation_dim, max_length=max_length)
            width = heads.head_dim if heads.aggregate == "mean" else hidden_size
            return Reading(heads, width, linear=False)
        chosen = AttentionSettings(score=score, normalizer=normalizer, dropout=self.dropout)
        if chosen.reads_past:
            past = chosen.build_past(hidden_size, annotation_dim, max_length=max_length)
            return Reading(past, annotation_dim, linear=True)
        one = chosen.build_one(hidden_size, annotation_dim, max_length=max_length)
        return Reading(one, annotation_dim, linear=True)
