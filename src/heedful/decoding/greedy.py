"""Search that chooses one token per step for each row independently: greedy search and sampling.

Shapes: N rows, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.search_loop import Finished
from heedful.kernels.topk import Total, best

Choose = Callable[[Tensor, int, Tensor, int], tuple[Tensor, Total]]
"""``(logits [N, V], first token offered, which rows [N], step) -> chosen tokens [N]``, and what the
rows' logits come to; rows are numbered as they were added, steps count from 0."""

# Removing rows copies the state of the others, so wait until this share of the rows has ended.
_ENDED_SHARE = 8

# Reading tokens synchronises with the device; do it only every this many steps.
READ_EVERY = {"cpu": 1}
_READ_SELDOM = 8


class GreedySearch:
    """The active rows, one hypothesis each.

    ``choose`` never gets PAD, UNKNOWN and BEGIN.

    Args:
        options: search settings.
        choose: chooses the next token.
        device: the device of the decodable's logits.
    """

    def __init__(self, options: SearchOptions, choose: Choose, device: torch.device) -> None:
        self.options, self.choose, self.steps, self.count = options, choose, 0, 0
        self.tokens = torch.zeros(0, dtype=torch.long, device=device)  # [N]
        self.rows = self.left = self.tokens  # [N]: row numbers; remaining steps of each
        self.written: dict[int, tuple[list[int], list[float]]] = {}
        self.unread: list[tuple[Tensor, ...]] = []  # for each step: rows, tokens, values, left
        self.read_every = READ_EVERY.get(device.type, _READ_SELDOM)
        self.longest = 0  # the largest number of remaining steps

    def add(self, max_lengths: Tensor) -> None:
        """Add rows after the others."""
        numbers = torch.arange(self.count, self.count + len(max_lengths), device=max_lengths.device)
        self.count += len(max_lengths)
        forced = self.options.forced_length
        limits = max_lengths.long() if forced is None else torch.full_like(numbers, forced)
        self.tokens = torch.cat([self.tokens, torch.full_like(numbers, BEGIN)])
        self.rows, self.left = torch.cat([self.rows, numbers]), torch.cat([self.left, limits])
        self.written.update((number, ([], [])) for number in numbers.tolist())
        self.longest = max(self.longest, int(limits.max()))

    def advance(self, logits: Tensor) -> tuple[Tensor | None, list[Finished]]:
        """Choose a token for each row, given ``logits [N, V]``.

        Returns the remaining rows, or None if all remain; and the results of the rows that have
        ended at this step (on a GPU, of several steps at a time).
        """
        free = self.options.forced_length is None
        tokens, total = self.choose(logits, END if free else END + 1, self.rows, self.steps)
        self.steps += 1
        if free:
            tokens = tokens.masked_fill(self.left == 1, END)
        chosen = total.log_probabilities(logits.gather(1, tokens.unsqueeze(1))).squeeze(1)
        self.tokens, self.left, self.longest = tokens, self.left - 1, self.longest - 1
        self.unread.append((self.rows, tokens, chosen, self.left))
        if len(self.unread) < self.read_every and self.longest:
            return None, []
        finished = self._read()
        ended = len(self.rows) - len(self.written)
        return (self._leave() if ended * _ENDED_SHARE >= len(self.rows) else None), finished

    def _read(self) -> list[Finished]:
        """The results of the steps that are not read yet."""
        free, finished = self.options.forced_length is None, []
        for step in self.unread:
            values = (part.tolist() for part in step)
            for row, token, value, left in zip(*values, strict=True):
                if row not in self.written:
                    continue
                written = self.written[row]
                written[1].append(value)
                if token != END:
                    written[0].append(token)
                if token == END or (not free and not left):
                    finished.append((row, [self._finished(row)]))
        self.unread = []
        return finished

    def drop(self, numbers: list[int]) -> Tensor:
        """Remove rows; returns the remaining ones."""
        for number in numbers:
            self.written.pop(number, None)
        return self._leave()

    def _finished(self, row: int) -> Hypothesis:
        return Hypothesis.finished(*self.written.pop(row), self.options.length_penalty)

    def _leave(self) -> Tensor:
        """Remove finished rows; returns the indices of the remaining ones."""
        own = torch.tensor([row in self.written for row in self.rows.tolist()], dtype=torch.bool)
        kept = own.nonzero().squeeze(1).to(self.rows.device)
        self.rows, self.tokens, self.left = self.rows[kept], self.tokens[kept], self.left[kept]
        return kept


def most_probable(logits: Tensor, first: int, rows: Tensor, step: int) -> tuple[Tensor, Total]:
    """The choice of greedy search."""
    found = best(logits, 1, first)
    return found.tokens.squeeze(1), found.total
