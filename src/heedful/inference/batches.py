"""Batches of parts of similar length, limited by their number of tokens."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.kernels.allocator import FreedMemory
from heedful.models.pairs import Source

_freed = FreedMemory(8_000)


class Item(NamedTuple):
    """A text, or a part of one, as tokens."""

    line: int
    """Index of its text in the window."""
    part: int
    """Index of the part in its text."""
    tokens: list[int]


def token_batches(items: Sequence[Item], width: int, batch_tokens: int) -> Iterator[list[Item]]:
    """Batches of items, longest first, of at most ``batch_tokens`` padded source tokens.

    Every item counts ``width`` times, once for each row that search needs; a batch has at least
    one item, however long. The memory that large batches freed is returned to the system
    (:class:`~heedful.kernels.allocator.FreedMemory`).
    """
    for batch in _batches(items, width, batch_tokens):
        check_cancelled()
        yield batch
        _freed.count(len(batch) * (len(batch[0].tokens) + 1) * width)


def _batches(items: Sequence[Item], width: int, batch_tokens: int) -> Iterator[list[Item]]:
    batch: list[Item] = []
    for item in sorted(items, key=lambda item: -len(item.tokens)):
        longest = len(batch[0].tokens) + 1 if batch else 0
        if batch and (len(batch) + 1) * longest * width > batch_tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def source_of(sequences: Sequence[Sequence[int]], device: torch.device) -> Source:
    """A batch of source sequences, with END appended to each."""
    rows = [[*tokens, END] for tokens in sequences]
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return Source(padded(rows, device), lengths)


def target_in_of(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The decoder's input for target sequences: BEGIN, then their tokens."""
    return padded([[BEGIN, *tokens] for tokens in sequences], device)


def target_out_of(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The decoder's expected output: the tokens of the target sequences, then END."""
    return padded([[*tokens, END] for tokens in sequences], device)


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Integers ``[B, longest]``, PAD after each row's end."""
    longest = max(len(row) for row in rows)
    filled = [[*row, *[PAD] * (longest - len(row))] for row in rows]
    return torch.tensor(filled, device=device)
