"""Forced first tokens: a decodable whose outputs begin with one given token, their language.

Shapes: N rows of search, V vocabulary.
"""

from typing import Generic

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN
from heedful.decoding.decodable import Decodable, SelectableT, SourceT_contra


class ForcedFirst(Generic[SourceT_contra, SelectableT]):
    """A decodable whose outputs all begin with the same token, with probability 1.

    Unlike the tokens of :class:`heedful.decoding.ForcedPrefix`, the token is part of each
    hypothesis, so that whatever reads outputs again (alignments, traces) sees it where the model
    does. Rows that are at their first step are known by their last token, BEGIN.

    Args:
        decodable: generates tokens.
        first: the token.
    """

    def __init__(self, decodable: Decodable[SourceT_contra, SelectableT], first: int) -> None:
        self.decodable, self.first = decodable, first

    def start(self, source: SourceT_contra) -> SelectableT:
        """The state before the first step."""
        return self.decodable.start(source)

    def step(self, tokens: Tensor, state: SelectableT) -> tuple[Tensor, SelectableT]:
        """Logits ``[N, V]``, −∞ for all tokens but the given one at the first step."""
        logits, after = self.decodable.step(tokens, state)
        others = torch.arange(logits.shape[1], device=logits.device) != self.first
        logits.masked_fill_((tokens == BEGIN).unsqueeze(1) & others, -torch.inf)
        return logits, after
