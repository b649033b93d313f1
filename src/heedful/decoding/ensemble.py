"""An ensemble: several decodables with one vocabulary, searched as one.

Shapes: N rows, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self

import torch
from torch import Tensor

from heedful.decoding.decodable import Decodable, SourceT_contra, State, can_join


@dataclass(frozen=True)
class EnsembleState:
    """The states of the members, in their order."""

    members: tuple[State, ...]

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        return type(self)(tuple(member.select(rows) for member in self.members))

    @property
    def can_join(self) -> bool:
        """Whether all members can."""
        return all(map(can_join, self.members))

    def join(self, other: Self) -> Self:
        """The state of these rows, followed by the rows of ``other``."""
        pairs = zip(self.members, other.members, strict=True)
        return type(self)(tuple(one.join(two) for one, two in pairs if can_join(one)))


class Ensemble(Generic[SourceT_contra]):
    """A decodable whose probabilities are the mean of its members' probabilities.

    Raises:
        ValueError: there are no members.
    """

    def __init__(self, members: Sequence[Decodable[SourceT_contra, Any]]) -> None:
        if not members:
            raise ValueError("an ensemble needs at least one member")
        self.members = tuple(members)

    def start(self, source: SourceT_contra) -> EnsembleState:
        """Every member's state before the first step."""
        return EnsembleState(tuple(member.start(source) for member in self.members))

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Logarithms ``[N, V]`` of the members' mean probabilities, and their new states."""
        log_probs, states = [], []
        for member, own in zip(self.members, state.members, strict=True):
            logits, after = member.step(tokens, own)
            log_probs.append(logits.float().log_softmax(1))
            states.append(after)
        mean = torch.stack(log_probs).logsumexp(0) - math.log(len(self.members))
        return mean, EnsembleState(tuple(states))
