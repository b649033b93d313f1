"""Traces of encoders' decisions: what was attended to, and what they rest on.

Shapes: H heads, Q queries, K keys, L layers, N decisions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.attention.watching import Seen
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.vocabulary import Vocabulary
from heedful.inference.classifier import Classifier, Row, Text
from heedful.inference.filler import Filler
from heedful.inference.readiness import ready
from heedful.inference.relevance import rollout, weights_times_gradient
from heedful.inference.spans import room_for_text
from heedful.inference.tagger import Tagger
from heedful.inference.trace import AttentionMap, Trace
from heedful.inference.tracing import BEGIN_LABEL, END_LABEL
from heedful.models.encoders import Encoded, HeadedEncoder, Sequences, sequences_of

DECISION = "decision"
"""The axis of what was decided, in the maps that are made from the weights."""


class _Decision(NamedTuple):
    """What a head decides on one row."""

    labels: list[str]
    log_probabilities: Tensor
    """``[N]``"""
    places: list[int]
    """Where in the row each is decided."""


def trace_classification(
    classifier: Classifier, text: Text, *, label: str | None = None, relevance: bool = True
) -> Trace:
    """What a classifier attends to while it reads ``text``.

    Args:
        classifier: what decides.
        text: a text, or a pair, that fits into the model.
        label: the class whose gradients are taken; the most probable one unless given.
        relevance: whether to add what is made from the weights.

    Returns:
        The axis "text" (``<s>``, the tokens, ``</s>``, and a second text's with another), and
        others that the model names; ``decided`` is the label. With ``relevance``, attention
        rollout, attention × gradient, and from the axis "decision" to the text what the class
        rests on: the rollout's row, and the gradients followed through the layers.

    Raises:
        UserError: the text is empty or too long, or there is no such label.
    """
    rows = classifier.rows(text)
    row = _only(rows, classifier.max_length)
    if label is not None and label not in classifier.labels:
        raise UserError(f"no label '{label}'; there are {', '.join(classifier.labels)}")

    def decide(encoded: Encoded) -> _Decision:
        head = classifier.model.heads[classifier.head]
        scores = head(encoded)[0].float().log_softmax(0)
        tokens = 1 if encoded.states is None else encoded.states.shape[1]
        best = int(scores.argmax()) if label is None else classifier.labels.index(label)
        place = classifier.model.encoder.pooled_from % tokens
        return _Decision([classifier.labels[best]], scores[best].unsqueeze(0), [place])

    title = text if isinstance(text, str) else " ‖ ".join(text)
    traced = _Traced(classifier.model, classifier.vocabulary, classifier.device, row, title)
    return traced.trace(decide, relevance)


def trace_tagging(tagger: Tagger, words: Sequence[str], *, relevance: bool = True) -> Trace:
    """What a tagger attends to while it reads a sentence; ``decided`` are the tags.

    Raises:
        UserError: the sentence is empty or too long.
    """
    tokens, firsts = tagger.encode(words)
    row = _only([Row(tokens, None)] if tokens else [], tagger.max_length)
    places = [place + 1 for place in firsts]  # BEGIN stands before

    def decide(encoded: Encoded) -> _Decision:
        scores = tagger.model.heads[tagger.head](encoded)[0].float().log_softmax(1)
        best = scores[places].max(1)
        return _Decision([tagger.tags[tag] for tag in best.indices.tolist()], best.values, places)

    traced = _Traced(tagger.model, tagger.vocabulary, tagger.device, row, " ".join(words))
    return traced.trace(decide, relevance)


def trace_filling(filler: Filler, text: str, *, relevance: bool = True) -> Trace:
    """What a masked language model attends to; ``decided`` are the likeliest hidden tokens.

    Raises:
        UserError: nothing is hidden in the text, or it is too long.
    """
    tokens = filler.tokens(text)
    row = _only([Row(tokens, None)], filler.max_length)
    places = [place + 1 for place, token in enumerate(tokens) if token == filler.mask]

    def decide(encoded: Encoded) -> _Decision:
        if encoded.states is None:
            raise ValueError("this encoder gives tokens no vectors of their own")
        scores = filler.model.heads[filler.head](encoded.states[0, places]).float().log_softmax(1)
        allowed = scores.clone()
        allowed[:, : END + 1] = -torch.inf
        allowed[:, filler.mask] = -torch.inf
        best = allowed.argmax(1)
        chosen = scores.gather(1, best.unsqueeze(1)).squeeze(1)
        return _Decision(filler.vocabulary.pieces(best.tolist()), chosen, places)

    traced = _Traced(filler.model, filler.vocabulary, filler.device, row, text)
    return traced.trace(decide, relevance)


def _only(rows: Sequence[Row], max_length: int) -> Row:
    if not rows:
        raise UserError("the text is empty; give a text to look at")
    texts = 1 if rows[0].second is None else 2
    room = room_for_text(max_length, texts)
    if len(rows) > 1 or len(rows[0].first) + len(rows[0].second or []) > room:
        raise UserError(f"the text has more tokens than the model's {room:,}; give a shorter text")
    return rows[0]


def watched_maps(axes_of: dict[str, tuple[str, str]], seen: Seen) -> list[AttentionMap]:
    """The maps of one row; a module that was called step by step has its steps joined."""
    return [
        AttentionMap(name, *axes, torch.cat(seen[name], dim=2)[0].float().cpu())
        for name, axes in axes_of.items()
        if seen[name]
    ]


class _Traced:
    """One row through an encoder."""

    def __init__(
        self,
        model: HeadedEncoder,
        vocabulary: Vocabulary,
        device: torch.device,
        row: Row,
        title: str,
    ) -> None:
        self.model, self.vocabulary, self.device = model, vocabulary, device
        self.row, self.title = row, title

    def trace(self, decide: Callable[[Encoded], _Decision], relevance: bool) -> Trace:
        """The weights while ``decide`` decides, and what they lead to."""
        second = None if self.row.second is None else [self.row.second]
        made = sequences_of([self.row.first], second)
        batch = Sequences(*(part.to(self.device) for part in made))
        axes_of = self.model.attention_axes()
        with ready(self.model, self.device), watch(self.model, axes_of) as seen:
            decision = decide(self.model.encoder(batch))
            maps = watched_maps(axes_of, seen)
        axes = self._axes(maps)
        trace = Trace(
            axes=axes,
            maps=maps,
            decided=decision.labels,
            log_probabilities=decision.log_probabilities.tolist(),
            title=self.title,
            words=self._words(axes),
        )
        if relevance:
            gradients = weights_times_gradient(
                self.model, lambda: decide(self.model.encoder(batch)).log_probabilities.sum()
            )
            followed = rollout(trace)
            more = [*_rollout_of(followed, decision.places), *_gradient_of(gradients, decision)]
            axes = {**axes, DECISION: decision.labels} if more else axes
            trace = replace(trace, axes=axes, maps=[*maps, *followed, *gradients, *more])
        trace._check()
        return trace

    def _axes(self, maps: Sequence[AttentionMap]) -> dict[str, list[str]]:
        """The axes that the maps name; those that are no texts' are numbered."""
        pieces, row = self.vocabulary.pieces, self.row
        known = {
            "text": [BEGIN_LABEL, *pieces(row.first), END_LABEL],
            "first": pieces(row.first),
            "second": pieces(row.second or []),
        }
        if row.second is not None:
            known["text"] += [*pieces(row.second), END_LABEL]
        axes: dict[str, list[str]] = {}
        for one in maps:
            sides = (one.query_axis, one.weights.shape[1]), (one.key_axis, one.weights.shape[2])
            for axis, length in sides:
                numbered = [f"{axis.removesuffix('s')} {place + 1}" for place in range(length)]
                axes.setdefault(axis, known.get(axis, numbered))
        # A model without attention still read the text.
        return axes or {"text": known["text"]}

    def _words(self, axes: Iterable[str]) -> dict[str, list[int]]:
        first = self.vocabulary.word_indices(self.row.first)
        second = self.vocabulary.word_indices(self.row.second or [])
        before = max(first, default=-1) + 1
        text = [-1, *first, -1]
        if self.row.second is not None:
            text += [*(word + before if word >= 0 else -1 for word in second), -1]
        known = {"text": text, "first": first, "second": second}
        return {axis: known[axis] for axis in axes if axis in known}


def _rollout_of(followed: Sequence[AttentionMap], places: Sequence[int]) -> list[AttentionMap]:
    """The rows of the text's rollout at which something is decided: ``[layers, N, K]``."""
    return [
        AttentionMap(
            f"rollout of {DECISION} to text",
            DECISION,
            "text",
            one.weights[:, list(places)],
            "rollout",
        )
        for one in followed
        if (one.query_axis, one.key_axis) == ("text", "text")
    ]


def _gradient_of(gradients: Sequence[AttentionMap], decision: _Decision) -> list[AttentionMap]:
    """What one decision rests on ``[1, 1, K]``, for each axis of tokens that is attended to.

    Weights × gradient, the mean of a layer's heads, are followed through layers of self-attention
    by ``R ← R + Ā R``, R being the identity at first (Chefer, Gur and Wolf 2021, equation 6).
    What is read is the sum over the rows of a pooling, if there is one; else the row at which the
    decision is made, without its own identity.
    """
    if len(decision.places) != 1:
        return []
    own: dict[str, list[Tensor]] = {}
    pooled: dict[str, Tensor] = {}
    for one in gradients:
        if one.query_axis == one.key_axis:
            own.setdefault(one.key_axis, []).append(one.weights.mean(0))
        else:
            read = one.weights.mean(0).sum(0)
            pooled[one.key_axis] = pooled.get(one.key_axis, torch.zeros_like(read)) + read
    found = []
    for axis in ("text", "first", "second"):
        if axis not in own and axis not in pooled:
            continue
        layers = own.get(axis, [])
        place = decision.places[0] if axis not in pooled else None
        size = len(layers[0]) if layers else len(pooled[axis])
        followed = torch.eye(size)
        for layer in layers:
            followed = followed + layer @ followed
        if place is None:
            read = pooled[axis] @ followed
        else:
            read = followed[place] - torch.eye(size)[place]
        name = f"{DECISION} × gradient to {axis}"
        found.append(AttentionMap(name, DECISION, axis, read.view(1, 1, -1), "gradient"))
    return found
