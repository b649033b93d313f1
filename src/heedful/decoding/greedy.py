"""Search that chooses one token a step for each row alone: greedy search and sampling.

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

# Dropping a row copies the state of all the others, so that waits until this share has ended.
_ENDED_SHARE = 8

# Reading what was chosen waits for a device to come to the end of its queue: so often, in steps.
READ_EVERY = {"cpu": 1}
_READ_SELDOM = 8


class GreedySearch:
    """The rows under way, one hypothesis each.

    PAD, UNKNOWN and BEGIN are never offered to ``choose``.

    Args:
        options: how to search.
        choose: what chooses.
        device: where the decodable's logits are.
    """

    def __init__(self, options: SearchOptions, choose: Choose, device: torch.device) -> None:
        self.options, self.choose, self.steps, self.count = options, choose, 0, 0
        self.tokens = torch.zeros(0, dtype=torch.long, device=device)  # [N]
        self.rows = self.left = self.tokens  # [N]: the rows' numbers; steps that each has left
        self.written: dict[int, tuple[list[int], list[float]]] = {}
        self.unread: list[tuple[Tensor, ...]] = []  # of steps: rows, tokens, values, left
        self.read_every = READ_EVERY.get(device.type, _READ_SELDOM)
        self.longest = 0  # steps that some row has left at most

    def add(self, max_lengths: Tensor) -> None:
        """Begin with further rows, which stand behind the others."""
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

        Returns the rows that go on, or None if all do; and what was found for those that have
        ended at this step, on a device for those of several steps now and then.
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
        """What was found in the steps that nobody has read."""
        free, finished = self.options.forced_length is None, []
        for step in self.unread:
            told = (part.tolist() for part in step)
            for row, token, value, left in zip(*told, strict=True):
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
        """Take rows out; those that stay."""
        for number in numbers:
            self.written.pop(number, None)
        return self._leave()

    def _finished(self, row: int) -> Hypothesis:
        return Hypothesis.finished(*self.written.pop(row), self.options.length_penalty)

    def _leave(self) -> Tensor:
        """Take the rows out that have ended; the places of those that stay."""
        own = torch.tensor([row in self.written for row in self.rows.tolist()], dtype=torch.bool)
        kept = own.nonzero().squeeze(1).to(self.rows.device)
        self.rows, self.tokens, self.left = self.rows[kept], self.tokens[kept], self.left[kept]
        return kept


def most_probable(logits: Tensor, first: int, rows: Tensor, step: int) -> tuple[Tensor, Total]:
    """Greedy search's choice."""
    found = best(logits, 1, first)
    return found.tokens.squeeze(1), found.total
