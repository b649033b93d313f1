"""Traces as figures: one attention map, its heads apart or their mean."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.inference.trace import AttentionMap, Trace
from heedful.viewing.heatmap import head_figure
from heedful.viewing.media_figure import picture_figure, time_figure

_DRAWN = {"image": picture_figure, "time": time_figure}
"""How kinds of axes are drawn that are not lists of labels."""


def trace_figure(
    trace: Trace,
    name: str,
    *,
    apart: bool = False,
    heads: Sequence[int] | None = None,
    shift: int = 0,
    title: str | None = None,
) -> Figure:
    """Draw one map of a trace: a heat-map, or over the keys' picture or along their time.

    Args:
        trace: what was watched.
        name: the map's name.
        apart: one panel a head instead of their mean.
        heads: which heads, counted from 0; all unless given.
        shift: of a map from output to source: 0 if the row of an output token is the step that
            writes it, 1 if it is the step after, where it is fed in.
        title: written above; the map's name unless given.

    Raises:
        UserError: the trace has no such map, or the map has no such head.
    """
    drawn = trace[name]
    weights, queries = map_rows(trace, drawn, shift)
    keys = trace.axes[drawn.key_axis]
    title = drawn.name if title is None else title
    chosen = list(range(len(weights))) if heads is None else list(heads)
    for head in chosen:
        if not 0 <= head < len(weights):
            raise UserError(f"{name} has no head {head + 1}; it has {len(weights)}, counted from 1")
    weights = weights[chosen] if apart else weights[chosen].mean(0, keepdim=True)
    names = [f"head {head + 1}" for head in chosen] if apart else [""]
    if keys.kind in _DRAWN:
        return _DRAWN[keys.kind](weights, queries, keys, title, names)
    return head_figure(weights, queries, keys.labels, title, names=names)


def map_rows(trace: Trace, drawn: AttentionMap, shift: int = 0) -> tuple[Tensor, list[str]]:
    """A map's weights `[H, Q, K]` and its rows' tokens.

    With a step axis there is a row for each query of each step. Rows over the source, or of an
    output over itself, are the tokens that were read; rows of an output over the source are the
    tokens that were written (see ``shift`` in :func:`trace_figure`).
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
    """The names of the maps from one axis to another, first layer first."""
    return [each.name for each in trace.maps if each.query_axis != each.key_axis]
