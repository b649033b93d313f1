"""Traces: the attention weights of one output, for views that know no models.

Shapes: H heads, S steps, Q queries, K keys.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice
from heedful.inference.axes import Axis
from heedful.models.pairs import AlignmentSource

_FORMAT, _EARLIER = "heedful-trace-2", "heedful-trace-1"
_MOST_MEDIA_BYTES = 32 << 20
_NOT_RETURNED = (
    "the model returned no attention; in transformers load it with attn_implementation='eager' and "
    "call it with output_attentions=True"
)


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one attention module, or of another part that aligns two axes."""

    name: str
    """The module's name in the model."""
    query_axis: str
    key_axis: str
    weights: Tensor = field(repr=False)
    """``[H, Q, K]``, or with a step axis ``[H, S, Q, K]``; float32 on the CPU."""
    kind: str = "weights"
    """``weights``; or, made from them, ``rollout`` or ``gradient``
    (see :mod:`heedful.inference.relevance`); or ``posterior``, the probabilities of an alignment
    that is no attention, given the whole output; or ``copying``, what a model that copies makes of
    its weights."""
    step_axis: str | None = None
    """The axis of the steps at each of which all queries read the keys, such as hops over a memory;
    None if they read once."""

    @property
    def rows(self) -> Tensor:
        """``[H, Q, K]``; with a step axis ``[H, S · Q, K]``, all queries of a step together."""
        return self.weights if self.step_axis is None else self.weights.flatten(1, 2)

    @property
    def at_steps(self) -> tuple[Tensor, ...]:
        """The weights ``[H, Q, K]`` of each step; of the only one without a step axis."""
        return (self.weights,) if self.step_axis is None else self.weights.unbind(1)


@dataclass(frozen=True)
class Trace:
    """Attention weights over named axes, and the decisions of the model.

    Created by :func:`make_trace` or :meth:`of`.

    Raises:
        ValueError: the parts do not match; the message names them.
    """

    axes: dict[str, Axis]
    """Axis name → axis. A target axis has the decoder's input tokens, starting with BEGIN."""
    maps: list[AttentionMap]
    decided: list[str]
    """The output of each step: the i-th token for the i-th query of a target axis."""
    log_probabilities: list[float]
    """Natural logarithm of each decided token's probability."""

    title: str = ""
    """A description for readers."""
    words: dict[str, list[int]] = field(default_factory=dict)
    """Axis name → the index of each token's word, -1 for none. Not needed for axes of words."""
    alignment: AlignmentSource | None = None
    """Where the model's word alignment is read, if it has one."""
    faithfulness: dict[str, Any] | None = None
    """The result of :func:`heedful.evaluation.faithfulness.faithfulness`, as JSON."""
    part: str = ""
    """Which part of the input the trace has, in a sentence; empty if it has all of it."""

    def __post_init__(self) -> None:
        _check_maps(self)
        _check_rest(self)

    @classmethod
    def of(
        cls,
        axes: Mapping[str, Axis | Sequence[str]],
        maps: Mapping[
            str, tuple[str, str, Tensor | None] | tuple[str, str, Tensor | None, str | None]
        ],
        *,
        title: str = "",
    ) -> "Trace":
        """The trace of any model's weights.

        Args:
            axes: axis name → an :class:`~heedful.inference.axes.Axis`, or its tokens.
            maps: name → axis of the queries, axis of the keys, weights ``[H, Q, K]``; or these,
                with weights ``[H, S, Q, K]``, and the axis of the steps.
            title: a description for readers.

        If there are no weights at all, a notice explains how to get them from transformers.

        Raises:
            UserError: some weights are None, as returned by transformers' SDPA attention.
            ValueError: weights do not match their axes or are not finite, or an axis is missing.

        Example:
            >>> weights = torch.full((2, 3, 3), 1 / 3)
            >>> Trace.of({"tokens": ["a", "b", "c"]}, {"layer 1": ("tokens", "tokens", weights)})[
            ...     "layer 1"
            ... ].weights.shape
            torch.Size([2, 3, 3])
        """
        if not maps:
            notice(f"a trace without attention weights: {_NOT_RETURNED}")
        if missing := [name for name, (_, _, weights, *_) in maps.items() if weights is None]:
            raise UserError(f"map {missing[0]} has no weights: {_NOT_RETURNED}")
        made = [
            AttentionMap(name, queries, keys, weights.detach().float().cpu(), "weights", *steps)
            for name, (queries, keys, weights, *steps) in maps.items()
            if weights is not None
        ]
        return make_trace(axes, made, title=title)

    def __getitem__(self, name: str) -> AttentionMap:
        """The map of the module ``name``.

        Raises:
            UserError: there is no such map; the message lists the existing ones.
        """
        for one in self.maps:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self.maps)
        raise UserError(f"this trace has no attention module '{name}'; it has {names}")

    def save(self, path: str | Path) -> None:
        """Write the trace as one safetensors file; the axes are JSON in its header.

        Raises:
            UserError: the file cannot be written; nothing is left behind.
        """
        tensors = {f"map.{i}": one.weights.contiguous() for i, one in enumerate(self.maps)}
        tensors["log_probabilities"] = torch.tensor(self.log_probabilities, dtype=torch.float64)
        for i, axis in enumerate(self.axes.values()):
            if axis.media is not None:
                tensors[f"media.{i}"] = torch.frombuffer(
                    bytearray(axis.media.data), dtype=torch.uint8
                )
        header = {
            "axes": {name: axis.to_json() for name, axis in self.axes.items()},
            "maps": [_header_of(one) for one in self.maps],
            "decided": self.decided,
            "title": self.title,
            "words": self.words,
            "alignment": self.alignment,
            "faithfulness": self.faithfulness,
            "part": self.part,
        }
        metadata = {"format": _FORMAT, "trace": json.dumps(header, ensure_ascii=False)}
        with atomic_file(Path(path)) as file:
            file.write(save(tensors, metadata))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read a file of `save`, of this version or an earlier one; no code in it is executed.

        Raises:
            UserError: the file is missing, damaged, or not a trace.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") not in (_FORMAT, _EARLIER):
                    raise UserError(f"{path} is not a trace; make one with Trace.save")
                names = file.keys()
                tensors = {name: file.get_tensor(name) for name in names}
            return cls._of(json.loads(metadata["trace"]), tensors)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged; no trace can be read from it") from error

    @classmethod
    def _of(cls, header: dict[str, Any], tensors: dict[str, Tensor]) -> "Trace":
        axes = {
            str(name): _read_axis(axis, tensors.get(f"media.{i}"))
            for i, (name, axis) in enumerate(header["axes"].items())
        }
        maps = [
            AttentionMap(str(name), query_axis, key_axis, tensors[f"map.{i}"], *map(str, more))
            for i, (name, query_axis, key_axis, *more) in enumerate(header["maps"])
        ]
        words = {axis: list(map(int, own)) for axis, own in header.get("words", {}).items()}
        where = header.get("alignment")
        if where is not None:
            module, heads, shift = where
            heads = None if heads is None else tuple(map(int, heads))
            where = AlignmentSource(str(module), heads, int(shift))
        decided = [str(token) for token in header["decided"]]
        surprise = tensors["log_probabilities"].tolist()
        title, measured = str(header.get("title", "")), header.get("faithfulness")
        if not isinstance(measured, dict | None):
            raise TypeError("faithfulness is not an object")
        part = str(header.get("part", ""))
        return cls(axes, maps, decided, surprise, title, words, where, measured, part)


def make_trace(
    axes: Mapping[str, Axis | Sequence[str]],
    maps: Sequence[AttentionMap],
    *,
    decided: Sequence[str] = (),
    log_probabilities: Sequence[float] = (),
    title: str = "",
    words: Mapping[str, Sequence[int]] | None = None,
    alignment: AlignmentSource | None = None,
) -> Trace:
    """Create a trace and check that its parts match.

    Args:
        axes: axis name → an axis, or its tokens.
        maps: weights over them.
        decided: the decisions: one for each step of a step axis, or of the whole input.
        log_probabilities: natural logarithm of each decision's probability.
        title: a description for readers.
        words: axis name → the index of each token's word, -1 for none.
        alignment: where the model's word alignment is read.

    Raises:
        ValueError: a map names no axis, or as its step axis one without steps, its weights are not
            of the axes' lengths, a number is not finite, a probability is above 1, or lists are of
            different lengths.
    """
    return Trace(
        {name: Axis.of(axis) for name, axis in axes.items()},
        list(maps),
        list(decided),
        list(log_probabilities),
        title,
        {name: list(own) for name, own in (words or {}).items()},
        alignment,
    )


def _read_axis(found: Any, data: Tensor | None) -> Axis:
    """An axis from a file; in the earlier format it is a list of tokens."""
    if isinstance(found, list):
        return Axis("tokens", [str(token) for token in found])
    return Axis.from_json(found, b"" if data is None else data.to(torch.uint8).numpy().tobytes())


def _header_of(one: AttentionMap) -> list[str]:
    steps = [] if one.step_axis is None else [one.step_axis]
    return [one.name, one.query_axis, one.key_axis, one.kind, *steps]


def _check_maps(trace: Trace) -> None:
    for one in trace.maps:
        axes = [one.query_axis, one.key_axis]
        if one.step_axis is not None:
            axes.insert(0, one.step_axis)
        for axis in axes:
            if axis not in trace.axes:
                there = ", ".join(trace.axes) or "none"
                raise ValueError(f"map {one.name}: unknown axis {axis}; known axes are {there}")
        if one.step_axis is not None and not trace.axes[one.step_axis].steps:
            raise ValueError(f"map {one.name}: its step axis {one.step_axis} has no steps")
        if one.step_axis in axes[1:]:
            raise ValueError(
                f"map {one.name}: {one.step_axis} is both its step axis and another axis"
            )
        shape = tuple(len(trace.axes[axis]) for axis in axes)
        if one.weights.ndim != 1 + len(axes) or one.weights.shape[1:] != shape:
            sizes = ", ".join(f"{axis}: {size:,}" for axis, size in zip(axes, shape, strict=True))
            raise ValueError(
                f"map {one.name}: weights {list(one.weights.shape)} do not fit its axes ({sizes})"
            )
        if not bool(one.weights.isfinite().all()):
            raise ValueError(f"map {one.name}: weights are not finite")


def _check_rest(trace: Trace) -> None:
    if len(trace.decided) != len(trace.log_probabilities):
        raise ValueError("the numbers of decided tokens and of their probabilities differ")
    # A logarithm of a softmax may be rounded to just above 0.
    if not all(one <= 1e-3 for one in trace.log_probabilities):
        raise ValueError("a log-probability is above 0 or not a number")
    for name, own in trace.words.items():
        if name not in trace.axes or len(own) != len(trace.axes[name]):
            raise ValueError(f"words of the axis {name}: {len(own):,} indices do not fit it")
    media = sum(len(axis.media.data) for axis in trace.axes.values() if axis.media is not None)
    if media > _MOST_MEDIA_BYTES:
        raise ValueError(f"{media:,} bytes of media in a trace; the limit is {_MOST_MEDIA_BYTES:,}")
