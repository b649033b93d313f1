"""Tags of whole sentences by a conditional random field.

Shapes: W words, C tags.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

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
T = TypeVar("T")


class TagChain:
    """Chooses the tags of a sentence together.

    Args:
        head: the head with the transitions.
        tags: the names of the tags.
        scheme: sequences that do not follow this scheme are forbidden; any is allowed if None.
    """

    def __init__(self, head: ChainTagger, tags: Sequence[str], scheme: Scheme | None) -> None:
        self.head = head
        count = len(tags)
        self.between = torch.zeros(count, count)
        self.first, self.last = torch.zeros(count), torch.zeros(count)
        if scheme is not None:
            pairs = [[may_follow(scheme, one, other) for other in tags] for one in tags]
            self.between = _scores(pairs)
            self.first = _scores([may_follow(scheme, None, tag) for tag in tags])
            self.last = _scores([may_follow(scheme, tag, None) for tag in tags])

    def decide(
        self, emissions: Sequence[Tensor], temperature: float = 1.0
    ) -> list[tuple[list[int], Tensor]]:
        """The most probable tags of sentences.

        Args:
            emissions: of the words of each sentence ``[W, C]``.
            temperature: all scores are divided by it.

        Returns:
            For each sentence, its tags by number, and the log-probability ``[W]`` of each word's
            tag, whatever the tags of the other words, in float64 on the CPU.
        """

        def some(
            rows: Tensor, transitions: Tensor, lengths: Tensor
        ) -> list[tuple[list[int], Tensor]]:
            tags = best_tags(rows.detach(), transitions.detach(), lengths)
            marginals = log_marginals(rows, transitions, lengths)
            return [
                (own, row[torch.arange(len(own)), own])
                for own, row in zip(tags, marginals, strict=True)
            ]

        nothing: list[tuple[list[int], Tensor]] = [([], own.new_zeros(0)) for own in emissions]
        return self._by_length(emissions, temperature, some, nothing)

    def log_marginals(self, emissions: Sequence[Tensor], temperature: float = 1.0) -> list[Tensor]:
        """The log-probability of each tag of the words of sentences ``[W, C]``, in float64 on the
        CPU."""

        def some(rows: Tensor, transitions: Tensor, lengths: Tensor) -> list[Tensor]:
            marginals = log_marginals(rows, transitions, lengths)
            return [row[:length] for row, length in zip(marginals, lengths.tolist(), strict=True)]

        nothing = [own.cpu().double() for own in emissions]
        return self._by_length(emissions, temperature, some, nothing)

    def _by_length(
        self,
        emissions: Sequence[Tensor],
        temperature: float,
        some: Callable[[Tensor, Tensor, Tensor], list[T]],
        found: list[T],
    ) -> list[T]:
        """The results of ``some``, for sentences of similar length together.

        Args:
            emissions: of the words of each sentence.
            temperature: all scores are divided by it.
            some: called with padded emissions, transitions and lengths.
            found: the results of sentences without words.
        """
        # Sums over many words need float64, which some devices do not have.
        transitions = self.head.transitions.cpu().double() / temperature + self.between
        order = sorted((len(own), number) for number, own in enumerate(emissions) if len(own))
        for start in range(0, len(order), _AT_ONCE):
            numbers = [number for _, number in order[start : start + _AT_ONCE]]
            rows = []
            for number in numbers:
                own = emissions[number].cpu().double() / temperature
                ends = torch.zeros_like(own)
                ends[0] += self.first
                ends[-1] += self.last
                rows.append(own + ends)
            lengths = torch.tensor([len(own) for own in rows])
            made = some(pad_sequence(rows, batch_first=True), transitions, lengths)
            for number, result in zip(numbers, made, strict=True):
                found[number] = result
        return found


def _scores(allowed: Sequence[bool] | Sequence[Sequence[bool]]) -> Tensor:
    """0 where something is allowed, a very low score elsewhere."""
    return torch.where(torch.tensor(allowed), 0.0, _FORBIDDEN)
