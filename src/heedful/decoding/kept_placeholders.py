"""Search constraint: each output has every placeholder of its source exactly once, and no other.

Shapes: B sources, S source tokens, N rows of search, P placeholders, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from heedful.basics.symbols import END
from heedful.decoding.decodable import Decodable, can_join

SourceT = TypeVar("SourceT")


@dataclass(frozen=True)
class Placeholders:
    """The token ids of placeholders, which are consecutive: singles, ordered ones, pairs.

    Attributes:
        first: the first id.
        singles: number of single placeholders.
        ordered: number of placeholders that must be in the order of their ids.
        pairs: number of pairs; the closing token of each follows its opening token.
    """

    first: int
    singles: int
    ordered: int
    pairs: int

    @property
    def count(self) -> int:
        """Number of placeholders P."""
        return self.first_pair + 2 * self.pairs

    @property
    def first_pair(self) -> int:
        """Number of placeholders before the pairs."""
        return self.singles + self.ordered

    @property
    def span(self) -> slice:
        """Their columns in a vocabulary."""
        return slice(self.first, self.first + self.count)


@dataclass
class _Progress:
    """The placeholders of its source that each row has written so far.

    Attributes:
        missing: ``[N, P]``, placeholders that a row has not written yet.
        opened: ``[N, pairs]``, the step at which a row opened each pair; 0 if it is not open.
        alone: ``[N, pairs]``, pairs of which the source has only one token.
        steps: ``[N]``, number of steps of each row.
        limits: ``[N]``, the longest output in tokens, END included.
    """

    missing: Tensor
    opened: Tensor
    alone: Tensor
    steps: Tensor
    limits: Tensor

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def select(self, rows: Tensor) -> "_Progress":
        return _Progress(*(tensor[rows] for tensor in self.tensors()))

    def join(self, other: "_Progress") -> "_Progress":
        both = zip(self.tensors(), other.tensors(), strict=True)
        return _Progress(*(torch.cat(tensors) for tensors in both))

    def empty(self, count: int) -> "_Progress":
        """The progress of further rows, whose sources have no placeholders."""
        return _Progress(
            *(tensor.new_zeros((count, *tensor.shape[1:])) for tensor in self.tensors())
        )


@dataclass
class _PlaceholderState:
    """The state of a search.

    Attributes:
        inner: the state of the decodable.
        count: number of rows N.
        progress: of the rows; None if no source has placeholders, which costs no time.
    """

    inner: Any
    count: int
    progress: _Progress | None

    def select(self, rows: Tensor) -> Self:
        progress = None if self.progress is None else self.progress.select(rows)
        return replace(self, inner=self.inner.select(rows), count=len(rows), progress=progress)

    @property
    def can_join(self) -> bool:
        return can_join(self.inner)

    def join(self, other: Self) -> Self:
        own, new = self.progress, other.progress
        if own is None and new is not None:
            own = new.empty(self.count)
        elif new is None and own is not None:
            new = own.empty(other.count)
        progress = None if own is None or new is None else own.join(new)
        inner = self.inner.join(other.inner)
        return replace(self, inner=inner, count=self.count + other.count, progress=progress)


class KeptPlaceholders(Generic[SourceT]):
    """A decodable whose outputs have each placeholder of their source exactly once, and no other.

    A pair is closed after it was opened, and the pair opened last is closed first. Ordered
    placeholders are in the order of their ids. An output can end only when it has all
    placeholders. They are forced when the maximum length leaves room for nothing else.

    Args:
        decodable: generates tokens.
        placeholders: the tokens that are placeholders, in the source and in the output.
        tokens_of: a batch of sources → its tokens ``[B, S]``; padding must not be a placeholder.
        limits_of: a batch of sources → the maximum length of each output, END included ``[B]``.
    """

    def __init__(
        self,
        decodable: Decodable[SourceT, Any],
        placeholders: Placeholders,
        tokens_of: Callable[[SourceT], Tensor],
        limits_of: Callable[[SourceT], Tensor],
    ) -> None:
        self.decodable, self.placeholders = decodable, placeholders
        self.tokens_of, self.limits_of = tokens_of, limits_of

    def start(self, source: SourceT) -> _PlaceholderState:
        """The state before the first step, one row a source ``[B]``."""
        tokens, limits = self.tokens_of(source), self.limits_of(source)
        known = self.placeholders
        numbers = tokens - known.first
        inside = (numbers >= 0) & (numbers < known.count)
        missing = tokens.new_zeros((len(tokens), known.count + 1), dtype=torch.bool)
        missing.scatter_(1, torch.where(inside, numbers, known.count), value=True)
        inner = self.decodable.start(source)
        if not missing[:, : known.count].any():
            return _PlaceholderState(inner, len(tokens), None)
        missing = missing[:, : known.count].clone()
        alone = ~(missing[:, known.first_pair :: 2] & missing[:, known.first_pair + 1 :: 2])
        steps = torch.zeros_like(limits)
        opened = steps.unsqueeze(1).expand(-1, known.pairs).clone()
        progress = _Progress(missing, opened, alone, steps, limits)
        return _PlaceholderState(inner, len(tokens), progress)

    def step(self, tokens: Tensor, state: _PlaceholderState) -> tuple[Tensor, _PlaceholderState]:
        """Logits ``[N, V]``, −∞ for tokens that may not follow, and the new state."""
        logits, inner = self.decodable.step(tokens, state.inner)
        known = self.placeholders
        if state.progress is None:
            logits[:, known.span] = -torch.inf
            return logits, replace(state, inner=inner)
        progress = replace(state.progress, steps=state.progress.steps + 1)
        self._note_written(tokens, progress)
        count = progress.missing.sum(1)
        own = logits[:, known.span].masked_fill(~self._allowed(progress), -torch.inf)
        # After this step's token there is room only for END.
        forced = (count > 0) & (progress.limits - progress.steps <= count)
        logits.masked_fill_(forced.unsqueeze(1), -torch.inf)
        logits[:, known.span] = own
        logits[:, END].masked_fill_(count > 0, -torch.inf)
        return logits, replace(state, inner=inner, progress=progress)

    def _note_written(self, tokens: Tensor, progress: _Progress) -> None:
        """Record the last tokens ``[N]`` as written, and as opening or closing pairs."""
        known = self.placeholders
        numbers = (tokens - known.first).unsqueeze(1)
        progress.missing = progress.missing & (
            numbers != torch.arange(known.count, device=tokens.device)
        )
        pairs = known.first_pair + 2 * torch.arange(known.pairs, device=tokens.device)
        opens = (numbers == pairs) & ~progress.alone
        opened = torch.where(opens, progress.steps.unsqueeze(1), progress.opened)
        progress.opened = opened.masked_fill(numbers == pairs + 1, 0)

    def _allowed(self, progress: _Progress) -> Tensor:
        """The placeholders ``[N, P]`` that may follow."""
        known = self.placeholders
        allowed = progress.missing.clone()
        ordered = allowed[:, known.singles : known.first_pair]
        ordered &= ordered.cumsum(1) == 1  # the first of those that are missing
        innermost = (progress.opened > 0) & (
            progress.opened == progress.opened.amax(1, keepdim=True)
        )
        allowed[:, known.first_pair + 1 :: 2] &= progress.alone | innermost
        return allowed
