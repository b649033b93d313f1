"""Tags of whole sentences by a conditional random field.

Shapes: W words, C tags.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from heedful.data.tag_schemes import Scheme, may_follow
from heedful.layers.linear_chain import best_tags, log_marginals
from heedful.models.encoders import ChainTagger

_FORBIDDEN = -1e4
"""The score of what a scheme forbids. It is finite, so that a sentence without an allowed sequence
has one, too."""
_AT_ONCE = 64
"""Sentences that are decided together."""


class TagChain:
    """Chooses the tags of a sentence together.

    Args:
        head: the head with the transitions.
        tags: the names of the tags.
        scheme: sequences that do not follow this scheme are forbidden; any is allowed if None.
    """

    def __init__(self, head: ChainTagger, tags: Sequence[str], scheme: Scheme | None) -> None:
        self.head = head
        barred = torch.zeros(3, len(tags), len(tags))
        if scheme is not None:
            for row, one in enumerate(tags):
                barred[0, row] = _scores([may_follow(scheme, one, other) for other in tags])
            barred[1] = _scores([may_follow(scheme, None, tag) for tag in tags])
            barred[2] = _scores([may_follow(scheme, tag, None) for tag in tags])
        self.barred, self.barred_first, self.barred_last = barred[0], barred[1, 0], barred[2, 0]

    def decide(self, emissions: Sequence[Tensor]) -> list[tuple[list[int], Tensor]]:
        """The most probable tags of sentences.

        Args:
            emissions: of the words of each sentence ``[W, C]``.

        Returns:
            For each sentence, its tags by number, and the log-probability ``[W]`` of each word's
            tag, whatever the tags of the other words.
        """
        found: list[tuple[list[int], Tensor]] = [([], own.new_zeros(0)) for own in emissions]
        # Sentences of similar length are decided together.
        order = sorted((len(own), number) for number, own in enumerate(emissions) if len(own))
        for start in range(0, len(order), _AT_ONCE):
            numbers = [number for _, number in order[start : start + _AT_ONCE]]
            decided = self._decide([emissions[number] for number in numbers])
            for number, own in zip(numbers, decided, strict=True):
                found[number] = own
        return found

    def _decide(self, emissions: Sequence[Tensor]) -> list[tuple[list[int], Tensor]]:
        device = emissions[0].device
        lengths = torch.tensor([len(own) for own in emissions], device=device)
        first, last = self.barred_first.to(device), self.barred_last.to(device)
        ended = []
        for own in emissions:
            inner = torch.zeros_like(own)
            inner[0] += first
            inner[-1] += last
            ended.append(own + inner)
        rows = pad_sequence(ended, batch_first=True)
        transitions = self.head.transitions.to(rows.dtype) + self.barred.to(device)
        tags = best_tags(rows.detach(), transitions.detach(), lengths)
        marginals = log_marginals(rows, transitions, lengths)
        return [
            (own, row[torch.arange(len(own)), own])
            for own, row in zip(tags, marginals, strict=True)
        ]


def _scores(allowed: Sequence[bool]) -> Tensor:
    return torch.tensor([0.0 if may else _FORBIDDEN for may in allowed])
