"""The trace of an answer: attention weights, and the probabilities of its boundaries.

Shapes: L tokens of a row, K tokens of the text in the window.
"""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from heedful.data.vocabulary import Vocabulary
from heedful.inference.axes import Axis
from heedful.inference.inference_mode import ready
from heedful.inference.span_windows import Window, rows_of
from heedful.inference.trace import AttentionMap, Trace
from heedful.inference.tracing import Decision, describe_texts, trace_model
from heedful.models.encoders import HeadedEncoder, Sequences
from heedful.models.span_layer import best_spans

ANSWER = "answer"
"""The map of the probabilities of the answer's boundaries."""
_BOUNDARIES = "boundaries"


class Reader(Protocol):
    """What :func:`trace_window` needs of a predictor."""

    model: HeadedEncoder
    vocabulary: Vocabulary
    device: torch.device
    longest: int

    def scores(self, rows: Sequences) -> Tensor:
        """Log-probabilities of starts and ends ``[B, L, 2]``."""
        ...


def trace_window(
    reader: Reader, window: Window, texts: tuple[str, str], *, relevance: bool
) -> Trace:
    """The trace of one window; see :meth:`heedful.inference.span_reader.SpanReader.trace`."""
    rows = rows_of([window], reader.device)
    second = window.row.second or []
    shift = len(window.row.first) + 2
    probabilities = torch.zeros(0)

    def decide() -> Decision:
        nonlocal probabilities
        scores = reader.scores(rows)  # [1, L, 2]
        best = best_spans(scores.detach(), reader.longest, 1)
        places = int(best.starts[0, 0]), int(best.ends[0, 0])
        probabilities = scores[0, shift : shift + len(second)].detach().exp().mT
        labels = reader.vocabulary.pieces([second[place - shift] for place in places])
        chosen = torch.stack([scores[0, place, which] for which, place in enumerate(places)])
        return Decision([f"start: {labels[0]}", f"end: {labels[1]}"], chosen, places)

    title = " ‖ ".join(texts)
    described = describe_texts(reader.vocabulary, window.row.first, second, title, True)
    context = ready(reader.model, reader.device)
    found = trace_model(reader.model, decide, described, context, relevance=relevance)
    axes = {
        **found.axes,
        "second": described.axes["second"],
        _BOUNDARIES: Axis("labels", ["first token", "last token"]),
    }
    words = {**found.words, "second": list(described.words["second"])}
    weights = probabilities.float().cpu().unsqueeze(0)  # [1, 2, K]
    answer = AttentionMap(ANSWER, _BOUNDARIES, "second", weights, "posterior")
    return replace(found, axes=axes, words=words, maps=[answer, *found.maps])
