"""Watching: attention weights on demand.

``with watch(model) as seen:`` makes the watched modules compute and record their weights while the
block runs. No other code returns weights.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.normalizers.base import Draw
from heedful.basics.contexts import ThreadValue

_MOST_AT_ONCE = 1 << 22  # weights computed at a time when selecting the largest of each row


class TopWeights(NamedTuple):
    """The largest weights of each row and their keys, in descending order."""

    weights: Tensor
    """``[B, H, Q, k]``"""
    keys: Tensor
    """Indices of the keys, ``[B, H, Q, k]``."""


class Terms(NamedTuple):
    """The terms of the equation in one call: what the weights and the context are computed from."""

    query: Tensor
    """Projected queries ``[B, H, Q, D]``, rotated by their positions."""
    key: Tensor
    """Projected keys ``[B, H, K, D]``."""
    value: Tensor
    """Projected values ``[B, H, K, E]``."""
    scores: Tensor
    """What is normalized, ``[B, H, Q, K]``: with the terms of positions and added masks."""
    allowed: Tensor | None
    """Which keys may be attended to; broadcasts to ``[B, H, Q, K]``. None for all."""
    weights: Tensor
    """``[B, H, Q, K]``"""
    context: Tensor
    """``[B, H, Q, E]``"""
    dot_scale: float | None
    """The factor, if a score is a scaled dot product plus a term of positions or masks."""
    tanh_vector: Tensor | None
    """``v [D]``, if a score is ``vᵀ tanh(query + key)``."""
    softmax_scale: float | None
    """The factor on the scores, if they are normalized by a softmax."""
    sink: Tensor | float | None
    """The score of one more key of value 0, ``[H]`` or one number; None for no such key."""
    past: bool = False
    """Whether the scores also depend on the weights of earlier queries."""


class _Watcher:
    """The request of one ``watch`` for one module, and the recorded weights."""

    def __init__(
        self,
        module: "Watchable",
        keep_gradients: bool,
        rows: Sequence[int] | None,
        top: int | None,
        wants_terms: bool = False,
    ) -> None:
        self.module, self.open = module, True
        self.wants_terms = wants_terms
        self.terms: list[Terms] = []
        self.keep_gradients, self.rows, self.top = keep_gradients, rows, top
        self.weights: list[Tensor] = []
        self.largest: list[TopWeights] = []
        self.log_probability: list[Tensor] = []
        self.entropy: list[Tensor] = []

    @property
    def wants_all(self) -> bool:
        return self.rows is None and self.top is None

    def see(self, weights: Tensor, draw: Draw | None) -> None:
        self._keep(self.weights, weights)
        if draw is not None:
            self._keep(self.log_probability, draw.log_probability)
            if draw.entropy is not None:
                self._keep(self.entropy, draw.entropy)

    def _keep(self, calls: list[Tensor], seen: Tensor) -> None:
        calls.append(seen if self.keep_gradients else seen.detach())

    def see_some(self, rows_of: Callable[[Tensor], Tensor], like: Tensor, keys: int) -> None:
        queries = like.shape[-2]
        with torch.set_grad_enabled(self.keep_gradients and torch.is_grad_enabled()):
            if self.rows is not None:
                self.weights.append(rows_of(_indices(self.rows, queries, like.device)))
            if self.top is not None:
                self.largest.append(self._largest(self.top, rows_of, like, keys))

    @staticmethod
    def _largest(
        top: int, rows_of: Callable[[Tensor], Tensor], like: Tensor, keys: int
    ) -> TopWeights:
        if top > keys:
            raise ValueError(f"top_k={top} is more than the number of keys, {keys}")
        queries, others = like.shape[-2], like.shape[:-2].numel()
        step = max(1, _MOST_AT_ONCE // max(1, others * keys))
        parts = []
        for start in range(0, queries, step):
            rows = torch.arange(start, min(start + step, queries), device=like.device)
            parts.append(torch.topk(rows_of(rows), top))
        return TopWeights(
            torch.cat([part.values for part in parts], -2),
            torch.cat([part.indices for part in parts], -2),
        )


# The watchers of all modules in this thread or asyncio task.
_watchers: ContextVar[tuple[_Watcher, ...]] = ContextVar("watchers", default=())


def _indices(rows: Sequence[int], queries: int, device: torch.device) -> Tensor:
    for row in rows:
        if not -queries <= row < queries:
            raise ValueError(f"rows: row {row} is out of range for {queries} queries")
    return torch.tensor([row % queries for row in rows], device=device, dtype=torch.long)


class Watchable(nn.Module):
    """An attention module whose weights can be watched."""

    gives_terms: bool = False
    """Whether watchers can have the terms of its equation (:class:`Terms`)."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers_in_thread = ThreadValue(())

    @property
    def _watchers(self) -> Sequence[_Watcher]:
        """The watchers of this module in this thread or asyncio task."""
        if torch.compiler.is_compiling():
            traced: Sequence[_Watcher] = self._watchers_in_thread.value
            return traced
        return [one for one in _watchers.get() if one.module is self and one.open]

    @property
    def watched_at_all(self) -> bool:
        """Whether a watcher needs any of this module's weights."""
        return bool(self._watchers)

    @property
    def watched(self) -> bool:
        """Whether a watcher needs all of this module's weights."""
        return any(watcher.wants_all for watcher in self._watchers)

    @property
    def watched_in_part(self) -> bool:
        """Whether a watcher needs only some rows, or the largest weights."""
        return any(not watcher.wants_all for watcher in self._watchers)

    @property
    def terms_watched(self) -> bool:
        """Whether a watcher needs the terms of the equation."""
        return any(watcher.wants_terms for watcher in self._watchers)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        del state["_watchers_in_thread"]  # cannot be copied or saved
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.pop("_watchers", None)  # of modules saved by earlier versions
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        # A copy created during a watch is not watched.
        self._watchers_in_thread = ThreadValue(())

    def show(self, weights: Tensor, draw: Draw | None = None) -> None:
        """Pass ``weights [B, H, Q, K]``, before dropout, to the watchers that need all of them.

        Args:
            weights: the weights.
            draw: log-probability and entropy ``[B, H, Q]`` of sampled weights; else None.
        """
        for watcher in self._watchers:
            if watcher.wants_all:
                watcher.see(weights, draw)

    def show_whole(self, weights: Tensor) -> None:
        """Pass ``weights [B, H, Q, K]`` that are computed anyway to all watchers, as they need
        them."""
        self.show(weights)
        self.show_some(lambda rows: weights[..., rows, :], weights, weights.shape[-1])

    def show_terms(self, terms: Terms) -> None:
        """Pass the terms of a call to the watchers that need them."""
        for watcher in self._watchers:
            if watcher.wants_terms:
                watcher.terms.append(terms)

    def show_some(self, rows_of: Callable[[Tensor], Tensor], like: Tensor, keys: int) -> None:
        """Pass rows, or the largest weights of each, to watchers without computing all weights.

        Args:
            rows_of: row indices ``[R]`` → weights ``[B, H, R, K]``.
            like: the queries ``[.., Q, D]``.
            keys: number of keys K.
        """
        for watcher in self._watchers:
            if not watcher.wants_all:
                watcher.see_some(rows_of, like, keys)


def watched_as_now() -> Callable[[], AbstractContextManager[None]]:
    """A context in which calls can be repeated later as they are watched now.

    A watched module computes its weights, which rounds differently. The repetition of a call must
    therefore be watched, too; what it records is discarded.
    """
    open_now = [one for one in _watchers.get() if one.open]

    @contextmanager
    def again() -> Iterator[None]:
        copies = (
            _Watcher(one.module, one.keep_gradients, one.rows, one.top, one.wants_terms)
            for one in open_now
        )
        token = _watchers.set(tuple(copies))
        try:
            yield
        finally:
            _watchers.reset(token)

    return again


class Seen(Mapping[str, list[Tensor]]):
    """Recorded weights: module name → ``[B, H, Q, K]``, one tensor for each call of the module.

    With ``rows`` they are ``[B, H, R, K]``; with ``top_k`` see :attr:`top`.
    """

    def __init__(self, watchers: dict[str, _Watcher]) -> None:
        self._watchers = watchers

    def __getitem__(self, name: str) -> list[Tensor]:
        return self._watchers[name].weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._watchers)

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def top(self) -> dict[str, list[TopWeights]]:
        """Module name → the largest weights of each row, one entry per call; needs ``top_k``."""
        return {name: watcher.largest for name, watcher in self._watchers.items()}

    @property
    def terms(self) -> dict[str, list[Terms]]:
        """Module name → the terms of each call; needs ``terms=True``.

        Empty for modules that compute their weights in another way than the equation, such as
        linear attention.
        """
        return {name: watcher.terms for name, watcher in self._watchers.items()}

    @property
    def log_probability(self) -> dict[str, list[Tensor]]:
        """Module name → log-probabilities ``[B, H, Q]`` of sampled weights, one tensor per call.

        Multiplied by a reward, and with ``keep_gradients``, this is the REINFORCE surrogate; see
        :class:`heedful.attention.normalizers.SampledHard`.
        """
        return {name: watcher.log_probability for name, watcher in self._watchers.items()}

    @property
    def entropy(self) -> dict[str, list[Tensor]]:
        """Module name → entropies ``[B, H, Q]``, in nats, of the distribution of sampled weights.

        One tensor per call, if there is a log-probability. As a term of a loss it prevents sampling
        from converging to one key too early (Xu et al. 2015, section 4.2).
        """
        return {name: watcher.entropy for name, watcher in self._watchers.items()}


def seen_from_outside(model: nn.Module) -> bool:
    """Whether an attention module of ``model`` is watched, or a module has a hook.

    If so, calls must run one after another, as without threads.
    """
    return any(
        part._forward_hooks
        or part._forward_pre_hooks
        or (isinstance(part, Watchable) and part.watched_at_all)
        for part in model.modules()
    )


@contextmanager
def watch(
    model: nn.Module,
    names: Iterable[str] | None = None,
    *,
    keep_gradients: bool = False,
    rows: Sequence[int] | None = None,
    top_k: int | None = None,
    terms: bool = False,
) -> Iterator[Seen]:
    """Watch the attention weights of a model while the block runs.

    Calls in other threads and asyncio tasks are not watched, unless they run in a copy of this
    context, as with ``asyncio.to_thread`` or ``contextvars.copy_context().run``. A compiled model
    cannot distinguish the asyncio tasks of one thread.

    Outputs do not change except for rounding (in evaluation, or without dropout). With ``rows`` or
    ``top_k`` the whole matrix is never computed: the cost is that of the rows.

    Args:
        model: any module with attention modules of this library, compiled or not.
        names: names of the watched modules in ``model.named_modules()``; all by default.
        keep_gradients: keep the weights in the graph, for a loss on them.
        rows: record only these queries; negative indices count from the end.
        top_k: record only this many of each row's largest weights, at least 1.
        terms: record also the queries, keys, values and scores; see :attr:`Seen.terms`.

    Raises:
        ValueError: a name is not that of an attention module (the message suggests the nearest
            one), ``top_k`` is below 1, or ``terms`` is combined with ``rows`` or ``top_k``; in the
            block, if a row does not exist, there are fewer keys than ``top_k``, or ``rows`` or
            ``top_k`` are used with sampled weights.

    Example:
        >>> import torch
        >>> from heedful.attention import MultiHeadAttention
        >>> layer = MultiHeadAttention(8, heads=2)
        >>> with watch(layer) as seen:
        ...     context = layer(torch.zeros(1, 3, 8), torch.zeros(1, 5, 8))
        >>> seen[""][0].shape
        torch.Size([1, 2, 3, 5])
    """
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, not {top_k}")
    if terms and (rows is not None or top_k is not None):
        raise ValueError("terms are those of all rows: leave rows and top_k out")
    there = {
        name.replace("_orig_mod.", "").removesuffix("_orig_mod"): part  # compiled modules
        for name, part in model.named_modules()
        if isinstance(part, Watchable)
    }
    wanted = list(there) if names is None else list(names)
    for name in wanted:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1, cutoff=0.0)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ValueError(f"the model has no attention module named '{name}'{hint}")
    watchers = {name: _Watcher(there[name], keep_gradients, rows, top_k, terms) for name in wanted}
    for watcher in watchers.values():
        watcher.module._watchers_in_thread.value += (watcher,)
    _watchers.set((*_watchers.get(), *watchers.values()))
    try:
        yield Seen(watchers)
    finally:
        # Copies of this context may still exist in other threads and tasks.
        for watcher in watchers.values():
            watcher.open = False
            here = watcher.module._watchers_in_thread
            here.value = tuple(one for one in here.value if one.open)
        _watchers.set(tuple(one for one in _watchers.get() if one.open))
