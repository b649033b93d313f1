"""Encode traces for the page: a summary in JSON with thumbnails, and the weights of maps as bytes.

The page first loads the summary (under 1 MB for 144 heads). It loads a map, one byte per weight,
when the map is shown.

Shapes: H heads, S steps, Q queries, K keys.
"""

import base64
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.evaluation.head_patterns import head_patterns
from heedful.inference.axes import Axis
from heedful.inference.media import PNG
from heedful.inference.trace import AttentionMap, Trace
from heedful.viewing.labels import token_labels

FORMAT = "heedful-view-1"
THUMBNAIL = 48
"""Maximum height and width of a thumbnail, in pixels."""


def summary(trace: Trace) -> dict[str, Any]:
    """The summary of a trace, without its weights; docs/serving.md lists the fields."""
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
        "part": trace.part,
        "maps": [_facts(trace, one) for one in trace.maps],
    }


def map_bytes(trace: Trace, index: int) -> bytes:
    """The weights of a map as uint8 ``[H, Q, K]``, or ``[H, S, Q, K]`` with steps, row-major.

    A weight is ``byte / 255 · scale``, where ``scale`` in the summary is the largest weight of the
    head. If the map is ``negative``, it is ``(byte − 128) / 127 · scale``.

    Raises:
        IndexError: the trace does not have this map.
    """
    weights = trace.maps[index].rows
    return _bytes_of(weights, _scale(weights))


def _labels(axis: Axis) -> list[str]:
    return token_labels(axis.labels) if axis.kind == "tokens" else axis.labels


def _kind(axis: Axis) -> dict[str, Any]:
    """The kind of an axis, and its media as a data URL."""
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
        # Whether rows are the tokens generated at each step, not the input tokens.
        "written": written,
        "scale": scale.tolist(),
        "negative": _negative(weights),
        "thumbnail_size": list(small.shape[1:]),
        "thumbnails": base64.b64encode(_bytes_of(small, scale, _negative(weights))).decode(),
        "entropy": _entropy(weights),
        "patterns": _patterns(trace, one),
    }


_LONGEST = 512
"""Of longer texts, patterns are not computed: each costs a comparison of all pairs."""


def _patterns(trace: Trace, one: AttentionMap) -> list[dict[str, Any]]:
    """The pattern of each head; none for positions that are no tokens, and for computed maps."""
    query, key = trace.axes[one.query_axis], trace.axes[one.key_axis]
    kinds = {query.kind, key.kind}
    if one.kind != "weights" or one.step_axis is not None or kinds != {"tokens"}:
        return []
    if max(len(query), len(key)) > _LONGEST:
        return []
    same = one.query_axis == one.key_axis
    found = head_patterns(one.weights, query.labels, key.labels, same_text=same)
    return [{"name": each.name, "share": each.share} for each in found]


def _cells(weights: Tensor, axis: Axis) -> Tensor:
    """The weights; over a picture, the largest weight of each cell ``[H, rows, columns]``."""
    if axis.kind != "image" or not weights.numel():
        return weights
    return weights.amax(1).view(-1, int(axis.extent[0]), int(axis.extent[1]))


def _negative(weights: Tensor) -> bool:
    return bool((weights < 0).any())


def _scale(weights: Tensor) -> Tensor:
    """The largest absolute weight of each head ``[H]``; 0 for empty maps."""
    if not weights.numel():
        return torch.zeros(len(weights))
    return weights.abs().amax((1, 2))


def _bytes_of(weights: Tensor, scale: Tensor, negative: bool | None = None) -> bytes:
    share = weights / scale.clamp(min=torch.finfo(torch.float32).tiny).view(-1, 1, 1)
    negative = _negative(weights) if negative is None else negative
    levels = share * 127 + 128 if negative else share * 255
    return levels.round().to(torch.uint8).numpy().tobytes()


def _thumbnails(weights: Tensor) -> Tensor:
    """Thumbnails ``[H, h, w]``; a pixel is the weight with the largest absolute value."""
    size = tuple(min(side, THUMBNAIL) for side in weights.shape[1:])
    if not weights.numel():
        return weights
    highest = F.adaptive_max_pool2d(weights, size)
    lowest = F.adaptive_max_pool2d(-weights, size)
    return torch.where(highest >= lowest, highest, -lowest)


def _entropy(weights: Tensor) -> list[float]:
    """The mean entropy of the normalised rows of each head, in bits."""
    positive = weights.clamp(min=0)
    shares = positive / positive.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    rows = torch.special.entr(shares).sum(-1) / math.log(2)  # [H, Q]
    return rows.mean(1).tolist() if rows.numel() else [0.0] * len(rows)
