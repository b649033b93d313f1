"""Traces as a page takes them: a summary in JSON with thumbnails, and a map's weights as bytes.

A page first gets the summary (under 1 MB for 144 heads), then one map at a time, when it is looked
at: one byte a weight.

Shapes: H heads, S steps, Q queries, K keys.
"""

import base64
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.inference.axes import Axis
from heedful.inference.media import PNG
from heedful.inference.trace import AttentionMap, Trace
from heedful.viewing.labels import token_labels

FORMAT = "heedful-view-1"
THUMBNAIL = 48
"""Sides of a thumbnail are at most so long."""


def summary(trace: Trace) -> dict[str, Any]:
    """What a page needs before it looks at single weights; docs/serving.md lists the fields."""
    where = trace.alignment
    names = [one.name for one in trace.maps]
    alignment = None
    if where is not None and where.module in names:
        heads = None if where.heads is None else list(where.heads)
        alignment = {"map": names.index(where.module), "heads": heads, "shift": where.shift}
    return {
        "format": FORMAT,
        "title": trace.title,
        "axes": {name: axis.labels for name, axis in trace.axes.items()},
        "labels": {name: _labels(axis) for name, axis in trace.axes.items()},
        "kinds": {name: _kind(axis) for name, axis in trace.axes.items()},
        "words": {
            name: trace.words.get(name, list(range(len(axis)))) for name, axis in trace.axes.items()
        },
        "decided": trace.decided,
        "decided_labels": token_labels(trace.decided),
        "log_probabilities": trace.log_probabilities,
        "alignment": alignment,
        "faithfulness": trace.faithfulness,
        "maps": [_facts(trace, one) for one in trace.maps],
    }


def map_bytes(trace: Trace, index: int) -> bytes:
    """The weights of a map as uint8 ``[H, Q, K]``, or with steps ``[H, S, Q, K]``, rows first.

    A head's weight is ``byte / 255 · scale`` with its ``scale`` in the summary, its largest weight;
    where the map is ``negative``, ``(byte − 128) / 127 · scale``.

    Raises:
        IndexError: there is no such map.
    """
    weights = trace.maps[index].rows
    return _bytes_of(weights, _scale(weights))


def _labels(axis: Axis) -> list[str]:
    return token_labels(axis.labels) if axis.kind == "tokens" else axis.labels


def _kind(axis: Axis) -> dict[str, Any]:
    """How an axis is drawn; its media is a data URL."""
    media: dict[str, Any] | None = None
    if axis.media is not None:
        data = base64.b64encode(axis.media.data).decode()
        media = {
            "type": axis.media.type,
            "url": f"data:{axis.media.type};base64,{data}",
            "size": axis.media.size if axis.media.type == PNG else None,
        }
    return {
        "kind": axis.kind,
        "extent": list(axis.extent),
        "steps": axis.steps,
        "media": media,
    }


def _facts(trace: Trace, one: AttentionMap) -> dict[str, Any]:
    weights, steps = one.rows, len(one.at_steps)
    heads, rows, keys = weights.shape
    queries = rows // steps if steps else len(trace.axes[one.query_axis])
    scale = _scale(weights)
    small = _thumbnails(_cells(weights, trace.axes[one.key_axis]))
    written = one.query_axis != one.key_axis and len(trace.decided) == queries
    return {
        "name": one.name,
        "kind": one.kind,
        "query_axis": one.query_axis,
        "key_axis": one.key_axis,
        "step_axis": one.step_axis,
        "heads": heads,
        "steps": steps,
        "queries": queries,
        "keys": keys,
        # Whether rows are the tokens that were written at each step, not those that were fed in.
        "written": written,
        "scale": scale.tolist(),
        "negative": _negative(weights),
        "thumbnail_size": list(small.shape[1:]),
        "thumbnails": base64.b64encode(_bytes_of(small, scale, _negative(weights))).decode(),
        "entropy": _entropy(weights),
    }


def _cells(weights: Tensor, axis: Axis) -> Tensor:
    """``[H, rows, columns]`` of a picture's cells, each its largest weight; else the weights."""
    if axis.kind != "image" or not weights.numel():
        return weights
    return weights.amax(1).view(-1, int(axis.extent[0]), int(axis.extent[1]))


def _negative(weights: Tensor) -> bool:
    return bool((weights < 0).any())


def _scale(weights: Tensor) -> Tensor:
    """Each head's largest weight ``[H]``, or 0."""
    if not weights.numel():
        return torch.zeros(len(weights))
    return weights.abs().amax((1, 2))


def _bytes_of(weights: Tensor, scale: Tensor, negative: bool | None = None) -> bytes:
    share = weights / scale.clamp(min=torch.finfo(torch.float32).tiny).view(-1, 1, 1)
    negative = _negative(weights) if negative is None else negative
    levels = share * 127 + 128 if negative else share * 255
    return levels.round().to(torch.uint8).numpy().tobytes()


def _thumbnails(weights: Tensor) -> Tensor:
    """``[H, h, w]``: the largest weight (by size) of each field, so that peaks are not lost."""
    size = tuple(min(side, THUMBNAIL) for side in weights.shape[1:])
    if not weights.numel():
        return weights
    highest = F.adaptive_max_pool2d(weights, size)
    lowest = F.adaptive_max_pool2d(-weights, size)
    return torch.where(highest >= lowest, highest, -lowest)


def _entropy(weights: Tensor) -> list[float]:
    """Mean over each head's rows of the entropy, in bits, of the row's weights over their sum."""
    positive = weights.clamp(min=0)
    shares = positive / positive.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    rows = torch.special.entr(shares).sum(-1) / math.log(2)  # [H, Q]
    return rows.mean(1).tolist() if rows.numel() else [0.0] * len(rows)
