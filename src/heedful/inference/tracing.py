"""The tracer: runs any model on one input and records all attention weights.

A predictor passes its model, the axes that it knows, and a function that runs the model and returns
its decisions. This module does not depend on models or tasks.

Shapes: H heads, S steps, Q queries, K keys, L layers, N decisions.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from heedful.attention import watch
from heedful.attention.watching import Seen
from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.tokeniser import Tokenisers
from heedful.data.vocabulary import Vocabulary
from heedful.inference.axes import Axis
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.observing import Decision as Decision  # plug-ins import it from here
from heedful.inference.observing import Readout as Readout
from heedful.inference.observing import Run, observed
from heedful.inference.relevance import map_of_calls, rollout, weights_times_gradient
from heedful.inference.trace import AttentionMap, Trace, make_trace
from heedful.models.pairs import AlignmentSource, PairModel

BEGIN_LABEL, END_LABEL = "<s>", "</s>"
DECISION = "decision"
"""The axis of decisions, in maps that are computed from the weights."""
_STEPS = ("hops", "glimpses")
"""Axes of models whose positions are steps."""


class Attending(Protocol):
    """A model that names its attention modules."""

    def attention_axes(self) -> Mapping[str, tuple[str, ...]]:
        """Attention module name → the axes of its queries and its keys.

        If all queries read at each call of the module, a third axis is that of the steps.
        Otherwise each call computes further queries.
        """
        ...


class Described(NamedTuple):
    """The axes and words of an input, which are known before the model runs."""

    title: str
    axes: Mapping[str, Axis]
    """The axes that the model may name."""
    words: Mapping[str, Sequence[int]] = {}
    """Axis name → the index of each token's word."""


def trace_model(
    model: nn.Module,
    decide: Callable[[], Decision],
    described: Described,
    ready: AbstractContextManager[None],
    *,
    alignment: AlignmentSource | None = None,
    relevance: bool = False,
    relevant_from: int = 0,
    readout: Readout | None = None,
) -> Trace:
    """The trace of a model's decisions.

    Args:
        model: has ``attention_axes``.
        decide: runs the model on the one input.
        described: the input. An axis that a map names and that is not described is numbered.
        ready: a context in which the model is in evaluation mode and without gradients.
        alignment: where the model's word alignment is read.
        relevance: whether to add rollout and attention × gradient
            (:mod:`heedful.inference.relevance`).
        relevant_from: the first decision whose log-probability counts for gradients.
        readout: how the model's states are read, if it predicts tokens; for observers
            (:mod:`heedful.inference.observing`).
    """
    axes_of = cast(Attending, model).attention_axes()
    check_cancelled()
    run = Run(model, axes_of, described.axes, readout)
    with ready, watch(model, axes_of) as seen:
        with observed(run):
            run.decision = decision = decide()
        maps = _watched(axes_of, seen)
    own: Mapping[str, list[str]] = getattr(model, "axis_labels", dict)()
    labelled = {name: Axis("labels", labels) for name, labels in own.items()}
    axes = _axes(maps, {**labelled, **described.axes})
    made = make_trace(
        axes,
        maps,
        decided=decision.labels,
        log_probabilities=decision.log_probabilities.tolist(),
        title=described.title,
        words={name: own for name, own in described.words.items() if name in axes},
        alignment=alignment,
    )
    if not relevance:
        return made
    gradients = weights_times_gradient(
        model, axes_of, lambda: decide().log_probabilities[relevant_from:].sum()
    )
    followed = rollout(maps)
    more = [*_rollout_of(followed, decision), *_gradient_of(gradients, decision, axes)]
    axes = {**axes, DECISION: Axis("labels", decision.labels)} if more else axes
    return replace(made, axes=axes, maps=[*maps, *followed, *gradients, *more])


def _watched(axes_of: Mapping[str, tuple[str, ...]], seen: Seen) -> list[AttentionMap]:
    """The maps of one row; the calls of a module that runs step by step are concatenated."""
    return [map_of_calls(name, axes_of[name], seen[name]) for name in axes_of if seen[name]]


def _axes(maps: Sequence[AttentionMap], known: Mapping[str, Axis]) -> dict[str, Axis]:
    """The axes that the maps name; unknown axes have numbers as labels.

    For a model without attention, all known axes.
    """
    lengths: dict[str, int] = {}
    for one in maps:
        lengths[one.query_axis], lengths[one.key_axis] = one.weights.shape[-2:]
        if one.step_axis is not None:
            lengths[one.step_axis] = len(one.at_steps)
    axes = {name: axis for name, axis in known.items() if name in lengths or not maps}
    stepped = {*_STEPS, *(one.step_axis for one in maps)}
    for name, length in lengths.items():
        numbered = [f"{name.removesuffix('s')} {place + 1}" for place in range(length)]
        axes.setdefault(name, Axis("labels", numbered, steps=name in stepped))
    return axes


def _rollout_of(followed: Sequence[AttentionMap], decision: Decision) -> list[AttentionMap]:
    """The rows of the text's rollout at the positions of decisions: ``[layers, N, K]``."""
    if decision.places is None:
        return []
    name, places = f"rollout of {DECISION} to text", list(decision.places)
    return [
        AttentionMap(name, DECISION, "text", one.weights[:, places], "rollout")
        for one in followed
        if (one.query_axis, one.key_axis) == ("text", "text")
    ]


def _gradient_of(
    gradients: Sequence[AttentionMap], decision: Decision, axes: Mapping[str, Axis]
) -> list[AttentionMap]:
    """The relevance ``[1, 1, K]`` for one decision, for each axis of tokens that is attended to.

    Weights × gradient, averaged over a layer's heads, are propagated through layers of
    self-attention by ``R ← R + Ā R``, where R is initially the identity (Chefer, Gur and Wolf 2021,
    equation 6). The result is the sum over the rows of a pooling, if there is one; otherwise the
    row of the decision, without the identity.
    """
    if decision.places is None or len(decision.places) != 1:
        return []
    own: dict[str, list[Tensor]] = {}
    pooled: dict[str, Tensor] = {}
    for one in gradients:
        if one.query_axis == one.key_axis:
            own.setdefault(one.key_axis, []).extend(each.mean(0) for each in one.at_steps)
        else:
            read = one.rows.mean(0).sum(0)
            pooled[one.key_axis] = pooled.get(one.key_axis, torch.zeros_like(read)) + read
    found = []
    for axis in axes:
        if axes[axis].kind != "tokens" or (axis not in own and axis not in pooled):
            continue
        layers = own.get(axis, [])
        followed = torch.eye(len(axes[axis]))
        for layer in layers:
            followed = followed + layer @ followed
        if axis in pooled:
            read = pooled[axis] @ followed
        else:
            place = decision.places[0]
            read = followed[place] - torch.eye(len(axes[axis]))[place]
        name = f"{DECISION} × gradient to {axis}"
        found.append(AttentionMap(name, DECISION, axis, read.view(1, 1, -1), "gradient"))
    return found


def describe_texts(
    vocabulary: Vocabulary, first: list[int], second: list[int] | None, title: str, attends: bool
) -> Described:
    """A row of one text or two: axes "text" (with ``<s>`` and ``</s>``), "first" and "second"."""
    pieces, word_indices = vocabulary.pieces, vocabulary.word_indices
    axes = {"text": [BEGIN_LABEL, *pieces(first), END_LABEL], "first": pieces(first)}
    words = {"text": [-1, *word_indices(first), -1], "first": word_indices(first)}
    if second is not None:
        before = max(words["first"], default=-1) + 1
        words["second"], axes["second"] = word_indices(second), pieces(second)
        axes["text"] += [*axes["second"], END_LABEL]
        words["text"] += [*(one + before if one >= 0 else -1 for one in words["second"]), -1]
    if not attends:  # then there is only the text
        axes = {"text": axes["text"]}
    return Described(title, {name: Axis("tokens", own) for name, own in axes.items()}, words)


def trace_pair(
    model: PairModel,
    tokenisers: Tokenisers,
    tokens: tuple[list[int], list[int]],
    title: str,
    ready: AbstractContextManager[None],
    device: torch.device,
    *,
    alignment: AlignmentSource | None,
    relevance: bool,
) -> Trace:
    """The trace of a sequence-to-sequence model for a given target.

    It has the axes "source" (its tokens and END) and "target" (BEGIN and its tokens, which are the
    decoder's input).

    Args:
        model: a sequence-to-sequence model.
        tokenisers: of both sides.
        tokens: of the source and the target, without BEGIN and END.
        title: as in `trace_model`, like the arguments after it.
    """
    sides = tokenisers.source, tokenisers.target
    source, target = tokens
    pieces = sides[1].pieces(target)
    batch = source_of([source], device), target_in_of([target], device)
    decided = torch.tensor([*target, END], device=device)

    def decide() -> Decision:
        scores = model.teacher_force(*batch)[0].float().log_softmax(1)  # [T, V]
        chosen = scores.gather(1, decided.unsqueeze(1)).squeeze(1)
        return Decision([*pieces, END_LABEL], chosen, tokens=decided.tolist())

    axes = {
        "source": Axis("tokens", [*sides[0].pieces(source), END_LABEL]),
        "target": Axis("tokens", [BEGIN_LABEL, *pieces], steps=True),
    }
    words = {
        "source": [*sides[0].word_indices(source), -1],
        "target": [-1, *sides[1].word_indices(target)],
    }
    described = Described(title, axes, words)
    return trace_model(
        model,
        decide,
        described,
        ready,
        alignment=alignment,
        relevance=relevance,
        readout=Readout(model.layer_states(), model.read_layer, labels_of(sides[1])),
    )


def labels_of(vocabulary: Vocabulary) -> Callable[[Sequence[int]], list[str]]:
    """The labels of tokens, END included."""

    def labels(tokens: Sequence[int]) -> list[str]:
        pairs = zip(tokens, vocabulary.pieces(tokens), strict=True)
        return [END_LABEL if token == END else piece for token, piece in pairs]

    return labels


def require_fit(what: str, tokens: int, room: int) -> None:
    """Raise UserError if a text has more than ``room`` tokens."""
    if tokens > room:
        raise UserError(
            f"the {what} has {tokens:,} tokens, more than the model's {room:,}; give a shorter text"
        )
