"""The settings of an attention module, as recipes have them.

A setting that is not given is inherited: from ``[model.attention]``, and otherwise from the
model. :meth:`AttentionSettings.over` is this rule.
"""

from typing import Any, Literal, Self

import torch
from pydantic import Field

from heedful.attention.delta_heads import DeltaAttention
from heedful.attention.differential import DifferentialAttention
from heedful.attention.feature_maps import EluPlusOne, FeatureMapSettings, SiluFeatures
from heedful.attention.fitting import Role, check_parts, check_selection, refuse_parts_of_keys
from heedful.attention.heads import OutputGate, QueryKeyNorm, TalkingHeads
from heedful.attention.latent import LatentAttention
from heedful.attention.linear_heads import LinearAttention
from heedful.attention.masks.settings import MaskSettings, NoMask
from heedful.attention.modules import Attention
from heedful.attention.multi_head import Aggregate, MultiHeadAttention
from heedful.attention.normalizers.base import NormalizerSettings
from heedful.attention.normalizers.softmax import Softmax
from heedful.attention.positions.registry import NoneSettings
from heedful.attention.positions.rotary import Rotary
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.attention.recurrent import RecurrentAttention
from heedful.attention.scores.base import ScoreSettings
from heedful.attention.scores.scaled_dot import ScaledDot
from heedful.attention.state_heads import StateAttention
from heedful.basics.limits import MOST_WIDTH
from heedful.basics.settings import Settings

__all__ = ["AttentionSettings", "Bias", "Role"]

Bias = Literal["all", "query-key-value", "none"]

_OF_STATE = ("kind", "feature_map", "convolution", "heads", "bias")
"""The settings of linear attention and of the delta rule."""

_NAMES = {"linear": "linear attention", "delta": "the delta rule", "gated-delta": "the delta rule"}

_FOR_SELF = "is for self-attention of a Transformer, a BERT or a GPT"

_USUAL = ("none", "projection", "0", "0.0")
"""Values that change nothing, which every kind accepts."""


class AttentionSettings(Settings):
    """The parts and sizes of an attention module."""

    kind: Literal["standard", "linear", "delta", "gated-delta"] | None = None
    """``linear`` sums keys and values before a query reads them; ``delta`` and ``gated-delta``
    replace the value of a key, without and with decay. These have a feature map, and no score,
    normalizer, mask or positions of their own. ``linear`` is for self-attention, the delta rule for
    causal self-attention."""
    feature_map: FeatureMapSettings | None = None
    """Of linear attention and the delta rule."""
    convolution: int | None = Field(None, ge=0, le=16)
    """Of linear attention and the delta rule: over how many positions queries, keys and values are
    convolved; 0 for none."""
    score: ScoreSettings | None = None
    normalizer: NormalizerSettings | None = None
    positions: PositionSettings | None = None
    """Relative positions; for self-attention only."""
    mask: MaskSettings | None = None
    """Combined with the model's own mask; for self-attention only."""
    heads: int | None = Field(None, ge=1, le=MOST_WIDTH)
    key_value_heads: int | None = Field(None, ge=1, le=MOST_WIDTH)
    """Heads of keys and values, each read by several heads of queries; by default as many."""
    head_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
    """Width of a head; by default, the width of the states divided by ``heads``."""
    latent_size: int | None = Field(None, ge=0, le=MOST_WIDTH)
    """Width of the latent vectors from which all keys and values are projected; 0 for none."""
    rotary_size: int | None = Field(None, ge=2, le=MOST_WIDTH, multiple_of=2)
    """With latent vectors and rotary positions: width of the rotated part of a head."""
    join: Aggregate | None = None
    """How the heads' contexts are combined."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on the weights."""
    query_key_norm: Literal["none", "rms", "layer", "l2"] | None = None
    """The norm of queries and keys."""
    mixing: Literal["none", "talking-heads", "differential"] | None = None
    """How the scores or weights of the heads are combined."""
    gate: Literal["none", "element", "head"] | None = None
    """Whether each element of a head's context, or each head, has a gate."""
    bias: Bias | None = None
    """Which projections have a bias: those of queries, keys, values and the result, all but the
    last, or none; by default, as the model's linear maps."""

    def over(self, base: "AttentionSettings") -> "AttentionSettings":
        """These settings, and those of ``base`` where they are not given.

        Linear attention and the delta rule may be given only settings that they have. They keep
        the others of ``base``, which they do not use, for layers that are standard again.

        Raises:
            ValueError: a setting has no meaning for this kind of attention.
        """
        self._refuse_other_kind(self.kind or base.kind or "standard")
        mine = {key: getattr(self, key) for key in AttentionSettings.model_fields}
        known = {key: getattr(base, key) for key in AttentionSettings.model_fields}
        return AttentionSettings(
            **{key: known[key] if own is None else own for key, own in mine.items()}
        )

    def given(self) -> list[str]:
        """The names of the settings that are given."""
        return [key for key in AttentionSettings.model_fields if getattr(self, key) is not None]

    def _refuse_other_kind(self, kind: str) -> None:
        """Raise ValueError if a given setting has no meaning for attention of this kind."""
        if kind == "standard":
            for key in ("feature_map", "convolution"):
                if getattr(self, key):
                    raise ValueError(
                        f"{key} is a setting of linear attention and the delta rule; set it where "
                        "kind = 'linear' or 'delta'"
                    )
            return
        for key in self.given():
            own = str(getattr(self, key))
            if key not in _OF_STATE and own not in _USUAL:
                raise ValueError(
                    f"{_NAMES[kind]} sums keys and values before it sees a query, so it has no "
                    f"{key}: leave out {key} = '{own}', or set it for the layers with "
                    "kind = 'standard'"
                )

    def require_standard(self) -> None:
        """Raise ValueError if a setting of other kinds of attention is given."""
        for key in ("kind", "feature_map", "convolution"):
            if getattr(self, key) is not None:
                raise ValueError(f"attention.{key} {_FOR_SELF}")

    @property
    def is_standard(self) -> bool:
        """Whether this compares queries with keys, instead of summing keys and values first."""
        return self.kind in (None, "standard")

    def build_self(
        self, dim: int, role: Role, *, bias: bool = True, layer: int = 1
    ) -> MultiHeadAttention | StateAttention:
        """The module of self-attention for states of width ``dim``; see :meth:`build`."""
        if self.is_standard:
            return self.build(dim, role, bias=bias, layer=layer)
        heads = self.heads or 1
        if dim % heads:
            raise ValueError(f"hidden_size {dim} is not a multiple of heads {heads}")
        chosen, width = self.feature_map, dim // heads
        sizes: dict[str, Any] = {"convolution": self.convolution or 0, "bias": self._all(bias)}
        if self.kind == "linear":
            chosen = chosen or EluPlusOne.Settings()
            if chosen.may_be_negative:
                raise ValueError(
                    f"the features of '{chosen.name}' may be negative, so that weights would not "
                    "be shares; linear attention has elu-plus-one, relu or dpfp"
                )
            return LinearAttention(dim, heads, feature_map=chosen.build(width), **sizes)
        if role != "causal":
            raise ValueError(
                f"kind = '{self.kind}' writes one position after another: it is for attention that "
                "is causal, as in a decoder or a GPT"
            )
        features = (chosen or SiluFeatures.Settings()).build(width)
        decay = self.kind == "gated-delta"
        return DeltaAttention(dim, heads, feature_map=features, decay=decay, **sizes)

    def build(
        self,
        dim: int,
        role: Role,
        *,
        key_dim: int | None = None,
        bias: bool = True,
        layer: int = 1,
        max_length: int | None = None,
    ) -> MultiHeadAttention:
        """The module for states of width ``dim``, of standard attention.

        Args:
            dim: width of queries, keys and results.
            role: what the module attends to. Cross-attention has neither positions nor a mask.
            key_dim: width of the keys and values; ``dim`` by default.
            bias: whether the projections have a bias.
            layer: number of the layer, counted from 1.
            max_length: the largest number of keys, if the model has a limit.

        Raises:
            ValueError: the settings do not fit together; the message has the reason.
        """
        if not self.is_standard:
            raise ValueError(f"kind = '{self.kind}' {_FOR_SELF}")
        self._refuse_past()
        if self.latent_size:
            self._refuse_head_size()
            return self._latent(dim, role, key_dim=key_dim, bias=bias, max_length=max_length)
        if self.rotary_size is not None and self.latent_size is None:
            raise ValueError("rotary_size is a setting of latent attention: set latent_size, too")
        heads = self.heads or 1
        maps = 2 * heads if self.mixing == "differential" else heads
        width, of_self = self._width(dim, maps), role != "cross"
        score, normalizer = self._score_and_normalizer(max_length)
        positions = self.positions if of_self and self.positions else NoneSettings()
        values = self.head_size or dim // heads
        sizes = HeadSizes(width, maps, role == "causal", score.compared(width), values)
        parts: dict[str, Any] = {
            "score": score.build(width, width),
            "normalize": normalizer.build(maps, width),
            "positions": positions.build_relative(sizes),
            "key_dim": key_dim,
            "mask": (self.mask or NoMask()).build() if of_self else None,
            "query_key_norm": self._norm(width),
            "gate": self._gate(dim, heads),
            "dropout": self.dropout or 0.0,
        }
        if not score.reads_keys:
            refuse_parts_of_keys(score, parts)
        check_selection(self.mask, role, parts["score"], width)
        return self._with_parts(dim, layer, bias, width, parts)

    def _with_parts(
        self, dim: int, layer: int, bias: bool, width: int, parts: dict[str, Any]
    ) -> MultiHeadAttention:
        """The module with its parts, except those that depend on how its heads are combined."""
        heads, key_heads = self.heads or 1, self.key_value_heads
        if self.mixing == "differential":
            if self.join not in (None, "projection"):
                raise ValueError("differential attention joins its heads by a projection only")
            parts["bias"] = self._all(bias)
            return DifferentialAttention(dim, heads, layer, key_heads=key_heads, **parts)
        inner = bias if self.bias is None else self.bias != "none"
        mixing = TalkingHeads(heads) if self.mixing == "talking-heads" else None
        return MultiHeadAttention(
            dim,
            heads,
            key_heads=key_heads,
            mixing=mixing,
            aggregate=self.join or "projection",
            bias=inner,
            output_bias=inner and self.bias != "query-key-value",
            head_dim=width,
            **parts,
        )

    def _width(self, dim: int, maps: int) -> int:
        """The width of a head of so many."""
        self._refuse_head_size()
        if self.head_size is None and dim % maps:
            raise ValueError(f"hidden_size {dim} is not a multiple of heads {maps}")
        return self.head_size or dim // maps

    def _refuse_head_size(self) -> None:
        """Raise ValueError if heads of another width are given where the width is fixed."""
        if self.head_size is None:
            return
        if self.latent_size:
            raise ValueError("attention with latent_size has no head_size; remove one of them")
        usual = {"mixing": "none", "gate": "none", "join": "projection"}
        for key, value in usual.items():
            if getattr(self, key) not in (None, value):
                raise ValueError(
                    f"head_size needs {key} = '{value}', not '{getattr(self, key)}': the width of "
                    "these heads follows from hidden_size"
                )

    def _all(self, bias: bool) -> bool:
        """Whether all projections have a bias, in attention that has no choice for each."""
        if self.bias == "query-key-value":
            raise ValueError(
                "attention.bias = 'query-key-value' is for standard attention without latent_size "
                "and differential heads; choose 'all' or 'none'"
            )
        return bias if self.bias is None else self.bias == "all"

    def _latent(
        self, dim: int, role: Role, *, key_dim: int | None, bias: bool, max_length: int | None
    ) -> LatentAttention:
        """The module whose keys and values are projections of latent vectors."""
        assert self.latent_size is not None
        heads = self.heads or 1
        plain = {"key_value_heads": heads, "join": "projection", "query_key_norm": "none"}
        plain |= {"mixing": "none"}
        for key, usual in plain.items():
            if getattr(self, key) not in (None, usual):
                raise ValueError(f"attention with latent_size has no {key}; remove one of them")
        score, normalizer = self._score_and_normalizer(max_length)
        if score.name != "scaled-dot":
            raise ValueError("attention with latent_size has the score scaled-dot only")
        if dim % heads:
            raise ValueError(f"hidden_size {dim} is not a multiple of heads {heads}")
        width = dim // heads
        rotary = None if role == "cross" else self._rotary(width, heads)
        check_selection(self.mask, role, ScaledDot(), width)
        return LatentAttention(
            dim,
            heads,
            self.latent_size,
            rotary=rotary,
            key_dim=key_dim,
            normalize=normalizer.build(heads, width),
            gate=self._gate(dim, heads),
            mask=None if role == "cross" or self.mask is None else self.mask.build(),
            dropout=self.dropout or 0.0,
            bias=self._all(bias),
        )

    def _rotary(self, width: int, heads: int) -> Rotary | None:
        """The positions of a head's rotated part beside ``width`` components."""
        rotated = self.rotary_size or max(2, width // 4 * 2)
        settings = self.positions or NoneSettings()
        positions = settings.build_relative(HeadSizes(rotated, heads))
        if positions is not None and not isinstance(positions, Rotary):
            raise ValueError(
                f"attention with latent_size has rotary positions or none, not '{settings.name}'"
            )
        if positions is None and self.rotary_size is not None:
            raise ValueError("rotary_size is for rotary positions: set positions = 'rotary'")
        return positions

    def _norm(self, width: int) -> QueryKeyNorm | None:
        kind = self.query_key_norm
        return None if kind is None or kind == "none" else QueryKeyNorm(width, kind)

    def _gate(self, dim: int, heads: int) -> OutputGate | None:
        per = self.gate
        if per is None or per == "none":
            return None
        return OutputGate(dim, heads, dim // heads, per)

    @property
    def reads_past(self) -> bool:
        """Whether weights depend on those of earlier steps."""
        parts = (self.score, self.normalizer)
        return any(part is not None and part.reads_past for part in parts)

    def _refuse_past(self) -> None:
        if self.reads_past:
            score = self.score is not None and self.score.reads_past
            part = self.score if score else self.normalizer
            raise ValueError(
                f"'{part}' reads the weights of earlier steps; it is only for recurrent decoders: "
                "use model.kind = 'recurrent'"
            )

    def _score_and_normalizer(
        self, max_length: int | None
    ) -> tuple[ScoreSettings, NormalizerSettings]:
        """The two, which fit together."""
        score = self.score or ScaledDot.Settings()
        normalizer = self.normalizer or Softmax.Settings()
        check_parts(score, normalizer, max_length)
        return score, normalizer

    def build_past(
        self, query_dim: int, key_dim: int, *, max_length: int | None = None
    ) -> RecurrentAttention:
        """One head without projections whose parts may read the weights of earlier steps.

        Raises:
            ValueError: the settings do not fit together.
        """
        score, normalizer = self._score_and_normalizer(max_length)
        return RecurrentAttention(
            score.build(query_dim, key_dim),
            normalizer.build(1, query_dim),
            dropout=self.dropout or 0.0,
        )

    def build_one(
        self, query_dim: int, key_dim: int, *, max_length: int | None = None
    ) -> Attention:
        """One head without projections, for attention to another text.

        Raises:
            ValueError: the settings do not fit together, or need several heads.
        """
        self._refuse_past()
        beside = ("score", "normalizer", "dropout")
        other = [key for key in self.given() if key not in beside]
        if other:
            raise ValueError(
                f"this attention has one head and no {other[0]}; it has {', '.join(beside)}"
            )
        score, normalizer = self._score_and_normalizer(max_length)
        return Attention(
            score.build(query_dim, key_dim),
            normalizer.build(1, query_dim),
            dropout=self.dropout or 0.0,
        )

    def check(self, dim: int, role: Role, *, max_length: int | None = None) -> Self:
        """Return itself, as settings of a layer that adds the result to its states.

        Args:
            dim: as in :meth:`build`.
            role: as in :meth:`build`.
            max_length: as in :meth:`build`.

        Raises:
            ValueError: as :meth:`build`; or the normalizer cannot be used with several heads, or
                the result has another width than the states.
        """
        if not self.is_standard:
            with torch.device("meta"):
                self.build_self(dim, role)
            return self
        normalizer = self.normalizer or Softmax.Settings()
        with torch.device("meta"):
            module = self.build(dim, role, max_length=max_length)
        reason = normalizer.not_for_heads
        if not reason and (module.normalize.draws or module.normalize.learns_by_reward):
            reason = "draws weights at random"
        if reason:
            parts = NormalizerSettings.parts.items()
            names = [name for name, kind in parts if not kind.not_for_heads]
            raise ValueError(f"'{normalizer.name}' {reason}; choose one of {', '.join(names)}")
        if module.aggregate == "mean" and module.heads > 1:
            raise ValueError(
                "join = 'mean' returns vectors of a head's width, which cannot be added to the "
                "states; choose projection or concatenation"
            )
        return self
