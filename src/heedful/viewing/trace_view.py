"""Figures of traces: the heads of one attention map, or their mean."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.inference.trace import AttentionMap, Trace
from heedful.viewing.heatmap import head_figure
from heedful.viewing.links_figure import links_figure
from heedful.viewing.media_figure import picture_figure, time_figure

_LINKED = ("tokens", "labels")
_MOST_ROWS = 24
"""A memory of at most so many slots has a row for each slot, so that texts are readable."""


def trace_figure(
    trace: Trace,
    name: str,
    *,
    apart: bool = False,
    heads: Sequence[int] | None = None,
    shift: int = 0,
    title: str | None = None,
    links: bool = False,
) -> Figure:
    """Draw one map of a trace: as a heat-map, over the picture of the keys, or along time.

    The slots of a small memory are rows, with a column for each query.

    Args:
        trace: the trace.
        name: the name of the map.
        apart: draw one panel per head instead of their mean.
        heads: the heads to draw, counted from 0; default: all.
        shift: for a map from output to source: 0 if the row of an output token belongs to the step
            that generates it, 1 if it belongs to the next step, whose input it is.
        title: the title; default: the name of the map.
        links: draw bands between tokens (:mod:`heedful.viewing.links_figure`) instead, for the mean
            of the heads.

    Raises:
        UserError: the trace does not have the map, the map does not have a head, or links are asked
            for each head or between other things than tokens.
    """
    drawn = trace[name]
    weights, queries = map_rows(trace, drawn, shift)
    keys = trace.axes[drawn.key_axis]
    title = drawn.name if title is None else title
    chosen = list(range(len(weights))) if heads is None else list(heads)
    for head in chosen:
        if not 0 <= head < len(weights):
            raise UserError(f"{name} has no head {head + 1}; its heads are 1 to {len(weights)}")
    weights = weights[chosen] if apart else weights[chosen].mean(0, keepdim=True)
    names = [f"head {head + 1}" for head in chosen] if apart else [""]
    if links:
        if apart or keys.kind not in _LINKED or drawn.step_axis is not None:
            raise UserError(
                "links are drawn between tokens, for the mean of the heads; draw "
                f"{name} without links"
            )
        own = drawn.query_axis == drawn.key_axis
        return links_figure(weights[0], queries, keys.labels, title, own=own)
    if keys.kind == "time":
        return time_figure(weights, queries, keys, title, names)
    if keys.kind in ("image", "frames"):
        queried = trace.axes[drawn.query_axis]
        path = drawn.step_axis is None and queried.steps and queried.kind == "labels"
        return picture_figure(weights, queries, keys, title, names, path=path)
    if keys.kind == "slots" and len(queries) < len(keys.labels) <= _MOST_ROWS:
        return head_figure(weights.mT, keys.labels, queries, title, names=names)
    return head_figure(weights, queries, keys.labels, title, names=names)


def map_rows(trace: Trace, drawn: AttentionMap, shift: int = 0) -> tuple[Tensor, list[str]]:
    """The weights `[H, Q, K]` of a map and the tokens of its rows.

    With a step axis, there is a row for each query of each step. In self-attention, rows are input
    tokens. In attention from output to source, rows are the generated tokens (see ``shift`` in
    :func:`trace_figure`).
    """
    read = trace.axes[drawn.query_axis].labels
    if drawn.query_axis != drawn.key_axis and len(trace.decided) == len(read):
        if shift and drawn.step_axis is None:
            return drawn.weights[:, shift:], read[shift:]
        read = trace.decided
    if drawn.step_axis is None:
        return drawn.weights, read
    steps = trace.axes[drawn.step_axis].labels
    several = len(read) > 1
    labels = [f"{step} · {one}" if several else step for step in steps for one in read]
    return drawn.rows, labels


def cross_maps(trace: Trace) -> list[str]:
    """Names of the maps between two different axes, in the order of layers; posteriors come before
    attention."""
    found = [each for each in trace.maps if each.query_axis != each.key_axis]
    return [each.name for each in sorted(found, key=lambda each: each.kind != "posterior")]
