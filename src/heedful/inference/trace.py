"""Traces: what a model attended to while it wrote one output, for views that know no model.

Shapes: H heads, Q queries, K keys.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file

_FORMAT = "heedful-trace-1"


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one attention module."""

    name: str
    """The module's name in the model."""
    query_axis: str
    key_axis: str
    weights: Tensor
    """``[H, Q, K]``, float32 on the CPU."""


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

    def save(self, path: Path) -> None:
        """Write the trace as one safetensors file; the tokens are JSON in its header.

        Raises:
            UserError: the file cannot be written; nothing is left behind.
        """
        tensors = {f"map.{i}": one.weights.contiguous() for i, one in enumerate(self.maps)}
        tensors["log_probabilities"] = torch.tensor(self.log_probabilities, dtype=torch.float64)
        header = {
            "axes": self.axes,
            "maps": [[one.name, one.query_axis, one.key_axis] for one in self.maps],
            "decided": self.decided,
        }
        metadata = {"format": _FORMAT, "trace": json.dumps(header, ensure_ascii=False)}
        with atomic_file(path) as file:
            file.write(save(tensors, metadata))

    @classmethod
    def load(cls, path: Path) -> "Trace":
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
        maps = []
        for i, (name, query_axis, key_axis) in enumerate(header["maps"]):
            weights = tensors[f"map.{i}"]
            if weights.shape[1:] != (len(axes[query_axis]), len(axes[key_axis])):
                raise ValueError(f"map {name} does not fit its axes")
            maps.append(AttentionMap(str(name), query_axis, key_axis, weights))
        decided = [str(token) for token in header["decided"]]
        return cls(axes, maps, decided, tensors["log_probabilities"].tolist())
