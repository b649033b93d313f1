"""The texts of a row without BEGIN, the ENDs and padding.

Shapes: B batch, L tokens of a row, W tokens of the longest text.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.basics.symbols import PAD
from heedful.models.encoders import Sequences


class Text(NamedTuple):
    """One text of each row."""

    tokens: Tensor
    """Integers ``[B, W]``, W at least 1: PAD beyond a text's length."""
    lengths: Tensor
    """Integers ``[B]``; 0 for an empty text."""


def text_lengths(batch: Sequences) -> tuple[Tensor, Tensor]:
    """Tokens of the first and of the second text ``[B]``, without BEGIN and ENDs."""
    there = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    there = there < batch.lengths.unsqueeze(1)
    second = (batch.segments.bool() & there).sum(1)
    return batch.lengths - second - 2, (second - 1).clamp(min=0)


def text_mask(batch: Sequences) -> Tensor:
    """Which tokens belong to a text, without BEGIN, END and padding: booleans ``[B, L]``."""
    first, second = (lengths.unsqueeze(1) for lengths in text_lengths(batch))
    places = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    of_first = (places > 0) & (places <= first)
    return of_first | ((places > first + 1) & (places <= first + 1 + second))


def both_texts(batch: Sequences) -> tuple[Text, Text]:
    """The two texts of each row, each starting at position 0.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> _, second = both_texts(sequences_of([[7, 8], [9]], [[5], [6, 4]]))
        >>> second.tokens, second.lengths
        (tensor([[5, 0],
                [6, 4]]), tensor([1, 2]))
    """
    first, second = text_lengths(batch)
    return _cut(batch.tokens, torch.ones_like(first), first), _cut(batch.tokens, first + 2, second)


def _cut(tokens: Tensor, begin: Tensor, lengths: Tensor) -> Text:
    width = max(1, int(lengths.max())) if len(lengths) else 1
    places = torch.arange(width, device=tokens.device)
    index = (begin.unsqueeze(1) + places).clamp(max=tokens.shape[1] - 1)
    beyond = places >= lengths.unsqueeze(1)
    return Text(tokens.gather(1, index).masked_fill(beyond, PAD), lengths)
