"""Traces: what a model attended to while it wrote one output, for views that know no model.

Shapes: H heads, Q queries, K keys.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice
from heedful.models.pairs import AlignmentSource

_FORMAT = "heedful-trace-1"
_NOT_RETURNED = (
    "the model returned no attention; in transformers load it with attn_implementation='eager' and "
    "call it with output_attentions=True"
)


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one attention module."""

    name: str
    """The module's name in the model."""
    query_axis: str
    key_axis: str
    weights: Tensor = field(repr=False)
    """``[H, Q, K]``, float32 on the CPU."""
    kind: str = "weights"
    """``weights``; or, made from them, ``rollout`` or ``gradient``
    (see :mod:`heedful.inference.relevance`)."""


@dataclass(frozen=True)
class Trace:
    """What was attended to, over named axes of tokens, and what was decided."""

    axes: dict[str, list[str]]
    """Axis name → its tokens. A target axis has the tokens fed in, from the begin symbol on."""
    maps: list[AttentionMap]
    decided: list[str]
    """What was written at each step: by the i-th query of a target axis, the i-th token."""
    log_probabilities: list[float]
    """Natural logarithm of each decided token's probability."""

    title: str = ""
    """What it is of, for people."""
    words: dict[str, list[int]] = field(default_factory=dict)
    """Axis name → the index of each token's word, -1 for none. Axes of whole words need none."""
    alignment: AlignmentSource | None = None
    """Where the model's word alignment is read, where it has one."""
    faithfulness: dict[str, Any] | None = None
    """What was measured of it by :func:`heedful.evaluation.faithfulness.faithfulness`, as JSON."""

    @classmethod
    def of(
        cls,
        axes: Mapping[str, Sequence[str]],
        maps: Mapping[str, tuple[str, str, Tensor | None]],
        *,
        title: str = "",
    ) -> "Trace":
        """The trace of any model's weights.

        Args:
            axes: axis name → its tokens.
            maps: name → axis of the queries, axis of the keys, weights ``[H, Q, K]``.
            title: what it is of.

        Without any weights a notice says how transformers returns them.

        Raises:
            UserError: weights are None, as transformers' SDPA attention returns them.
            ValueError: weights do not fit their axes or are not finite, or an axis is missing.

        Example:
            >>> weights = torch.full((2, 3, 3), 1 / 3)
            >>> Trace.of({"tokens": ["a", "b", "c"]}, {"layer 1": ("tokens", "tokens", weights)})[
            ...     "layer 1"
            ... ].weights.shape
            torch.Size([2, 3, 3])
        """
        if not maps:
            notice(f"a trace without attention weights: {_NOT_RETURNED}")
        if missing := [name for name, (_, _, weights) in maps.items() if weights is None]:
            raise UserError(f"map {missing[0]} has no weights: {_NOT_RETURNED}")
        made = [
            AttentionMap(name, queries, keys, weights.detach().float().cpu())
            for name, (queries, keys, weights) in maps.items()
            if weights is not None
        ]
        trace = cls({name: list(tokens) for name, tokens in axes.items()}, made, [], [], title)
        trace._check()
        return trace

    def view(self) -> Any:
        """Show it in a notebook; the same as ``heedful.view(trace)``, which see."""
        # Through the front door, by name: this room knows of none above it.
        return import_module("heedful.api").view(self)

    def __getitem__(self, name: str) -> AttentionMap:
        """The map of the module ``name``.

        Raises:
            UserError: there is none; those that there are are named.
        """
        for one in self.maps:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self.maps)
        raise UserError(f"no attention module '{name}' in this trace; it has {names}")

    def save(self, path: str | Path) -> None:
        """Write the trace as one safetensors file; the tokens are JSON in its header.

        Raises:
            UserError: the file cannot be written; nothing is left behind.
        """
        tensors = {f"map.{i}": one.weights.contiguous() for i, one in enumerate(self.maps)}
        tensors["log_probabilities"] = torch.tensor(self.log_probabilities, dtype=torch.float64)
        header = {
            "axes": self.axes,
            "maps": [[one.name, one.query_axis, one.key_axis, one.kind] for one in self.maps],
            "decided": self.decided,
            "title": self.title,
            "words": self.words,
            "alignment": self.alignment,
            "faithfulness": self.faithfulness,
        }
        metadata = {"format": _FORMAT, "trace": json.dumps(header, ensure_ascii=False)}
        with atomic_file(Path(path)) as file:
            file.write(save(tensors, metadata))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read what `save` wrote; no code is run by it.

        Raises:
            UserError: the file is missing, damaged, or no trace.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise UserError(f"{path} is not a trace; make one with Trace.save")
                names = file.keys()
                tensors = {name: file.get_tensor(name) for name in names}
            return cls._of(json.loads(metadata["trace"]), tensors)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged and no trace can be read from it") from error

    @classmethod
    def _of(cls, header: dict[str, Any], tensors: dict[str, Tensor]) -> "Trace":
        axes = {str(name): [str(token) for token in axis] for name, axis in header["axes"].items()}
        maps = [
            AttentionMap(str(name), query_axis, key_axis, tensors[f"map.{i}"], *map(str, kind))
            for i, (name, query_axis, key_axis, *kind) in enumerate(header["maps"])
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
        trace = cls(axes, maps, decided, surprise, title, words, where, measured)
        trace._check()
        return trace

    def _check(self) -> None:
        for one in self.maps:
            for axis in (one.query_axis, one.key_axis):
                if axis not in self.axes:
                    there = ", ".join(self.axes) or "none"
                    raise ValueError(f"map {one.name}: there is no axis {axis}; axes: {there}")
            shape = (len(self.axes[one.query_axis]), len(self.axes[one.key_axis]))
            if one.weights.ndim != 3 or one.weights.shape[1:] != shape:
                raise ValueError(
                    f"map {one.name}: weights {list(one.weights.shape)} do not fit its axes "
                    f"({one.query_axis}: {shape[0]:,}, {one.key_axis}: {shape[1]:,})"
                )
            if not bool(one.weights.isfinite().all()):
                raise ValueError(f"map {one.name}: weights are not finite")
        if len(self.decided) != len(self.log_probabilities):
            raise ValueError("not as many decided tokens as their probabilities")
