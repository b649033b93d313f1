"""Terms of a loss on attention weights, in addition to the cross-entropy.

Shapes: B batch, H heads, S source tokens, T target tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from heedful.attention.watching import Seen
from heedful.training.protocol import Loss


class TeacherForced(NamedTuple):
    """The results of teacher forcing a batch."""

    labels: Tensor
    """The target tokens and END, padded with PAD, ``[B, T]``."""
    seen: Seen
    """The weights of the watched modules, with gradients."""
    surprise: Tensor
    """``−log p`` of each target token in nats, detached ``[B, T]``; zero at padding."""
    links: Tensor | None = None
    """Links (row, target token, source token) ``[N, 3]``, if they are given."""


class Term(Protocol):
    """A part of the loss of a batch."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the attention modules that it watches."""
        ...

    def loss(self, forced: TeacherForced) -> Loss:
        """A sum over the batch's target tokens, and its named parts."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The state of the term by name, for checkpoints."""
        ...

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        ...


def all_steps(calls: list[Tensor]) -> Tensor:
    """``[B, H, T, S]`` from a module that was called once (Transformers) or once per step."""
    return calls[0] if len(calls) == 1 else torch.cat(calls, dim=2)


def modules_of(terms: Sequence[Term]) -> list[str]:
    """Names of all modules that the terms watch."""
    return sorted({name for term in terms for name in term.modules})


def with_terms(loss: Loss, terms: Sequence[Term], forced: TeacherForced) -> Loss:
    """The loss plus all terms, with the parts of all."""
    total, parts, weights = loss
    for term in terms:
        more = term.loss(forced)
        total, parts = total + more.total, parts | more.parts
        weights = {**weights, **more.weights}
    return Loss(total, parts, weights)


def tensors_of(terms: Sequence[Term]) -> dict[str, Tensor]:
    """The state of all terms; names are prefixed by the number of the term."""
    return {
        f"{number}.{name}": tensor
        for number, term in enumerate(terms)
        for name, tensor in term.tensors().items()
    }


def load_terms(terms: Sequence[Term], tensors: dict[str, Tensor]) -> None:
    """Restore the state from :func:`tensors_of`."""
    for number, term in enumerate(terms):
        begin = f"{number}."
        term.load(
            {
                name.removeprefix(begin): tensor
                for name, tensor in tensors.items()
                if name.startswith(begin)
            }
        )
