"""Search constraint: each output has every placeholder of its source exactly once, and no other.

Shapes: B sources, S source tokens, N rows of search, P placeholders, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from heedful.basics.symbols import END
from heedful.decoding.decodable import Decodable, can_join

SourceT = TypeVar("SourceT")


@dataclass(frozen=True)
class Placeholders:
    """The token ids of placeholders, which are consecutive; pairs come last.

    Attributes:
        first: the first id.
        singles: number of single placeholders.
        pairs: number of pairs; the closing token of each follows its opening token.
    """

    first: int
    singles: int
    pairs: int

    @property
    def count(self) -> int:
        """Number of placeholders P."""
        return self.singles + 2 * self.pairs

    @property
    def span(self) -> slice:
        """Their columns in a vocabulary."""
        return slice(self.first, self.first + self.count)


@dataclass
class _PlaceholderState:
    """The state of a search.

    Attributes:
        inner: the state of the decodable.
        missing: ``[N, P]``, placeholders that a row has not written yet.
        opened: ``[N, pairs]``, the step at which a row opened each pair; 0 if it is not open.
        alone: ``[N, pairs]``, pairs of which the source has only one token.
        steps: ``[N]``, number of steps of each row.
        limits: ``[N]``, the longest output in tokens, END included.
        some: whether any source has placeholders.
    """

    inner: Any
    missing: Tensor
    opened: Tensor
    alone: Tensor
    steps: Tensor
    limits: Tensor
    some: bool

    def select(self, rows: Tensor) -> Self:
        inner = self.inner.select(rows)
        parts = {name: getattr(self, name)[rows] for name in _TENSORS}
        return replace(self, inner=inner, **parts)

    @property
    def can_join(self) -> bool:
        return can_join(self.inner)

    def join(self, other: Self) -> Self:
        parts = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in _TENSORS}
        inner = self.inner.join(other.inner)
        return replace(self, inner=inner, some=self.some or other.some, **parts)


_TENSORS = ("missing", "opened", "alone", "steps", "limits")


class KeptPlaceholders(Generic[SourceT]):
    """A decodable whose outputs have each placeholder of their source exactly once, and no other.

    A pair is closed after it was opened, and the pair opened last is closed first. An output can
    end only when it has all placeholders. They are forced when the maximum length leaves room for
    nothing else.

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
        missing = missing[:, : known.count].clone()
        alone = ~(missing[:, known.singles :: 2] & missing[:, known.singles + 1 :: 2])
        steps = torch.zeros_like(limits)
        opened = steps.unsqueeze(1).expand(-1, known.pairs).clone()
        some = bool(missing.any())
        inner = self.decodable.start(source)
        return _PlaceholderState(inner, missing, opened, alone, steps, limits, some)

    def step(self, tokens: Tensor, state: _PlaceholderState) -> tuple[Tensor, _PlaceholderState]:
        """Logits ``[N, V]``, −∞ for tokens that may not follow, and the new state."""
        logits, inner = self.decodable.step(tokens, state.inner)
        known = self.placeholders
        after = replace(state, inner=inner, steps=state.steps + 1)
        if not state.some:
            logits = logits.clone()
            logits[:, known.span] = -torch.inf
            return logits, after
        self._note_written(tokens, after)
        count = after.missing.sum(1)
        own = logits[:, known.span].masked_fill(~self._allowed(after), -torch.inf)
        # After this step's token there is room only for END.
        forced = (count > 0) & (after.limits - after.steps <= count)
        logits = logits.masked_fill(forced.unsqueeze(1), -torch.inf)
        logits[:, known.span] = own
        logits[:, END] = logits[:, END].masked_fill(count > 0, -torch.inf)
        return logits, after

    def _note_written(self, tokens: Tensor, state: _PlaceholderState) -> None:
        """Record the last tokens ``[N]`` as written, and as opening or closing pairs."""
        known = self.placeholders
        numbers = (tokens - known.first).unsqueeze(1)
        state.missing = state.missing & (numbers != torch.arange(known.count, device=tokens.device))
        pairs = known.singles + 2 * torch.arange(known.pairs, device=tokens.device)
        opens = (numbers == pairs) & ~state.alone
        opened = torch.where(opens, state.steps.unsqueeze(1), state.opened)
        state.opened = opened.masked_fill(numbers == pairs + 1, 0)

    def _allowed(self, state: _PlaceholderState) -> Tensor:
        """The placeholders ``[N, P]`` that may follow."""
        first = self.placeholders.singles + 1
        allowed = state.missing.clone()
        innermost = (state.opened > 0) & (state.opened == state.opened.amax(1, keepdim=True))
        allowed[:, first::2] &= state.alone | innermost
        return allowed
