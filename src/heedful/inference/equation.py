"""The equation in numbers: the terms of one row of one head, as they were in a run of the model.

Shapes: H heads, Q queries, K keys, D width of queries and keys, E width of values.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.attention.watching import Terms
from heedful.basics.errors import UserError
from heedful.inference.observing import Run, observing


class EquationRow(NamedTuple):
    """The terms for one query of one head, float32 on the CPU."""

    query: Tensor
    """``[D]``, projected."""
    keys: Tensor
    """``[K, D]``, projected."""
    values: Tensor
    """``[K, E]``, projected."""
    score: Literal["dot", "additive", "other"]
    """``dot``: ``scale · qᵀk + added``; ``additive``: ``vᵀ tanh(q + k) + added``."""
    scale: float
    vector: Tensor | None
    """``v [D]`` of an additive score."""
    added: Tensor
    """``[K]``: what positions, masks and earlier weights add; zeros for other scores."""
    scores: Tensor
    """``[K]``; 0 for keys that are not allowed."""
    allowed: Tensor
    """Booleans ``[K]``."""
    softmax_scale: float | None
    """The factor on scores in the softmax; None for another normalizer."""
    sink: float | None
    """The score of one more key of value 0."""
    weights: Tensor
    """``[K]``, as recorded."""
    context: Tensor
    """``[E]``, as recorded."""
    added_context: Tensor
    """``[E]``: what positions add to the weighted sum."""
    past: bool
    """Whether scores also depend on the weights of earlier queries, whose part ``added`` has."""


class Equation:
    """The terms of all calls of one module on one input.

    Args:
        module: name of the module.
        terms: of each call, with a batch of one.

    Raises:
        UserError: there are no terms, because the module computes its weights in another way.
    """

    def __init__(self, module: str, terms: Sequence[Terms]) -> None:
        if not terms:
            raise UserError(
                f"{module} does not compute softmax-like weights from queries and keys one by one; "
                "its weights are in the panel Heads"
            )
        self.module = module
        self._calls = [_first_of_batch(one) for one in terms]
        self.heads = len(self._calls[0].weights)
        self.queries = sum(one.weights.shape[1] for one in self._calls)
        """Rows of the map: queries, or queries of all steps."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        tensors = (part for one in self._calls for part in one if isinstance(part, Tensor))
        return sum(part.numel() * part.element_size() for part in tensors)

    def row(self, head: int, query: int) -> EquationRow:
        """The terms of one query of one head.

        Args:
            head: from 0.
            query: the row of the map, from 0.

        Raises:
            UserError: there is no such head or query.
        """
        if not 0 <= head < self.heads:
            raise UserError(f"no head {head}; {self.module} has {self.heads} heads, from 0")
        if not 0 <= query < self.queries:
            raise UserError(f"no query {query}; {self.module} has {self.queries} queries, from 0")
        for one in self._calls:
            if query < one.weights.shape[1]:
                return _row(one, head, query)
            query -= one.weights.shape[1]
        raise AssertionError


def equation_of(module: str, trace: Callable[[], object]) -> Equation:
    """The equation of one attention module.

    Args:
        module: its name in ``model.named_modules()``.
        trace: calls the predictor's ``trace``.

    Raises:
        UserError: the model has no such attention module, or its terms are not known.
    """
    terms: list[Terms] = []

    @contextmanager
    def observer(run: Run) -> Iterator[None]:
        if module not in run.axes_of:
            names = ", ".join(run.axes_of) or "none"
            raise UserError(f"no attention module '{module}'; the model has {names}")
        with watch(run.model, [module], terms=True) as seen:
            yield
            terms.extend(seen.terms[module])

    with observing(observer):
        trace()
    return Equation(module, terms)


def _first_of_batch(terms: Terms) -> Terms:
    """Float32 on the CPU without the batch dimension: queries ``[H, Q, D]`` and so on."""

    def plain(part: Tensor) -> Tensor:
        return part[0].float().cpu()

    heads, queries, keys = terms.weights.shape[1:]
    allowed = terms.allowed
    if allowed is None:
        allowed = torch.ones(1, 1, 1, dtype=torch.bool)
    else:
        while allowed.dim() < 4:
            allowed = allowed.unsqueeze(0)
        allowed = allowed[0].cpu()
    vector, sink = terms.tanh_vector, terms.sink
    return terms._replace(
        query=plain(terms.query),
        key=plain(terms.key),
        value=plain(terms.value),
        scores=plain(terms.scores),
        allowed=allowed.expand(heads, queries, keys),
        weights=plain(terms.weights),
        context=plain(terms.context),
        tanh_vector=None if vector is None else vector.detach().float().cpu(),
        sink=sink.detach().float().cpu() if isinstance(sink, Tensor) else sink,
    )


def _row(terms: Terms, head: int, query: int) -> EquationRow:
    asked, keys, values = terms.query[head, query], terms.key[head], terms.value[head]
    scores, weights = terms.scores[head, query], terms.weights[head, query]
    assert terms.allowed is not None
    allowed = terms.allowed[head, query] & scores.isfinite()
    scores = scores.masked_fill(~allowed, 0.0)
    kind: Literal["dot", "additive", "other"] = "other"
    plain, vector = scores, terms.tanh_vector
    if terms.dot_scale is not None:
        kind, plain = "dot", terms.dot_scale * (keys @ asked)
    elif vector is not None:
        kind, plain = "additive", (asked + keys).tanh() @ vector
    added = (scores - plain).masked_fill(~allowed, 0.0)
    context, summed = terms.context[head, query], weights @ values
    sink = terms.sink
    return EquationRow(
        asked,
        keys,
        values,
        kind,
        1.0 if terms.dot_scale is None else terms.dot_scale,
        vector if kind == "additive" else None,
        _without_rounding(added, scores),
        scores,
        allowed,
        terms.softmax_scale,
        float(sink[head]) if isinstance(sink, Tensor) else sink,
        weights,
        context,
        _without_rounding(context - summed, context),
        terms.past,
    )


def _without_rounding(difference: Tensor, like: Tensor) -> Tensor:
    """Zeros if the difference is that of rounding, relative to the numbers ``like``."""
    largest = float(like.abs().max()) if like.numel() else 0.0
    small = difference.abs() <= 1e-5 * max(1.0, largest)
    return torch.zeros_like(difference) if bool(small.all()) else difference
