"""Losses that compare two outputs for one batch: with a teacher's, or with those of a second pass.

    distillation   (1 − α) CE + α τ² KL(p_T^τ ‖ p_S^τ) + γ Σ (1 − cos(h_S, h_T))
    R-Drop         CE₁ + CE₂ + α ½ (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))

p^τ is the softmax of logits divided by τ. Hinton et al. 2015, "Distilling the Knowledge in a Neural
Network", section 2; Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.1, for
each target token; Sanh et al. 2019, "DistilBERT", section 3, with the cosine; Liang et al. 2021,
"R-Drop", equations 1 to 4, whose two passes differ in dropout.
Shapes: N positions with a label, C classes or symbols, T tokens, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from heedful.attention.divergences import kullback_leibler
from heedful.basics.errors import UserError
from heedful.data.batching import FEWEST
from heedful.data.positions import SINGLE, Position, Rank
from heedful.training.protocol import Loss, Task, Validation

States = Callable[[], Tensor] | None


class Predicted(NamedTuple):
    """What a model predicts for a batch."""

    logits: Tensor
    """Of the positions with a label, ``[N, C]``."""
    labels: Tensor
    """Integers ``[N]``."""
    share: float = 1.0
    """The weight of a position's loss in the total of the batch."""
    states: States = None
    """Returns the last hidden state of each token ``[T, D]``, if the model has states."""
    more: Any = None
    """What else the loss of the task needs."""


def inside(states: Tensor, lengths: Tensor) -> Tensor:
    """The states ``[T, D]`` of all tokens of rows ``[B, L, D]`` of ``lengths [B]``."""
    places = torch.arange(states.shape[1], device=states.device)
    return states[places < lengths.unsqueeze(1)]


def wide(given: Tensor) -> Tensor:
    """At least float32, for losses."""
    return given if given.dtype == torch.float64 else given.float()


def loss_of_logits(predicted: Predicted, smoothing: float) -> Loss:
    """Summed cross-entropy with label smoothing; the part ``loss`` is without smoothing."""
    logits, labels = wide(predicted.logits), predicted.labels
    total = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    return Loss(total, {"loss": F.cross_entropy(logits.detach(), labels, reduction="sum")})


_ROWS = 64
"""Positions in a block, whose distributions should stay in the cache."""


def divergence_from(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """``Σ KL(p_T^τ ‖ p_S^τ)`` of logits ``[N, C]``, in nats; only the student gets a gradient.

    Finite logits are read a few positions at a time, and the gradient is computed with the
    divergence; others are left to :func:`kullback_leibler`.
    """
    teacher, student = wide(teacher.detach()), wide(student)
    if not _finite(teacher, student):
        return kullback_leibler(teacher / temperature, student / temperature, "logits").sum()
    found: Tensor = _Divergence.apply(student, teacher, temperature)  # type: ignore[no-untyped-call]
    return found


class _Divergence(torch.autograd.Function):
    """The gradient of the student's logits is ``(p_S − p_T) / τ``."""

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """See :func:`divergence_from`."""
        total, gradient = student.new_zeros(()), torch.empty_like(student)
        blocks = (each.split(_ROWS) for each in (student, teacher, gradient))
        for own, other, into in zip(*blocks, strict=True):
            log_q, log_p = (torch.log_softmax(one / temperature, -1) for one in (own, other))
            p = log_p.exp()
            total += log_p.sub_(log_q).mul_(p).sum()
            torch.sub(log_q.exp_(), p, out=into)
        ctx.save_for_backward(gradient)
        ctx.temperature = temperature
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the student's logits."""
        return ctx.saved_tensors[0] * (grad / ctx.temperature), None, None


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """``Σ KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)`` of logits ``[N, C]``, in nats; computed as
    :func:`divergence_from`."""
    first, second = wide(first), wide(second)
    if not _finite(first, second):
        both = (first, second), (second, first)
        return torch.stack([kullback_leibler(*each, "logits").sum() for each in both]).sum()
    found: Tensor = _SymmetricDivergence.apply(first, second)  # type: ignore[no-untyped-call]
    return found


def _finite(*logits: Tensor) -> bool:
    return all(bool(each.detach().sum().isfinite()) for each in logits)


class _SymmetricDivergence(torch.autograd.Function):
    """The gradient of the logits of p₁ is ``p₁ (log p₁ − log p₂ − KL(p₁ ‖ p₂)) + p₁ − p₂``; that of
    the logits of p₂ is the same with both exchanged."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor) -> Tensor:
        """See :func:`symmetric_divergence`."""
        total = first.new_zeros(())
        gradients = torch.empty_like(first), torch.empty_like(second)
        blocks = (each.split(_ROWS) for each in (first, second, *gradients))
        for own, other, *into in zip(*blocks, strict=True):
            log_p, log_q = (torch.log_softmax(one, -1) for one in (own, other))
            ratio = log_p - log_q
            p, q = log_p.exp_(), log_q.exp_()
            forward, backward = p * ratio, (q * ratio).neg_()  # KL(p ‖ q) and KL(q ‖ p) by symbol
            apart = p - q
            for terms, share, sign, gradient in (
                (forward, p, 1, into[0]),
                (backward, q, -1, into[1]),
            ):
                divergence = terms.sum(-1, keepdim=True)
                total += divergence.sum()
                torch.addcmul(terms, share, divergence, value=-1, out=gradient)
                gradient.add_(apart, alpha=sign)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of both logits."""
        first, second = ctx.saved_tensors
        return first * grad, second * grad


@runtime_checkable
class Predicting(Task, Protocol):
    """A task whose loss is a cross-entropy of logits."""

    def predict(self, model: Any, batch: Any) -> Predicted:
        """The logits of a batch by a model: the task's own, or another with the same outputs."""
        ...

    def loss_of(self, predicted: Predicted, batch: Any) -> Loss:
        """The loss of a batch from what its model predicts."""
        ...


class Wrapped:
    """Base of tasks that add to the loss of another task and leave the rest to it."""

    is_sum = True
    """Whether the loss of a batch is the sum of those of its parts."""

    def __init__(self, task: Predicting) -> None:
        self.task = task

    @property
    def model(self) -> nn.Module:
        """The model to train."""
        return self.task.model

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Any]]:
        """Those of the task."""
        return self.task.batches(position, rank)

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """As the task does; the whole batch if its loss is no sum over rows."""
        return self.task.split(batch, count, fewest) if self.is_sum else [batch]

    def validate(self) -> Validation:
        """The task's figures, without a teacher or a second pass."""
        return self.task.validate()

    def tensors(self) -> dict[str, Tensor]:
        """Those of the task."""
        return self.task.tensors()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the task's state."""
        self.task.load(tensors)


class Distilled(Wrapped):
    """A task whose model also learns the distributions of a teacher.

    The teacher is in evaluation mode, has no gradients and belongs to no module, so that it is in
    no checkpoint and its outputs do not depend on the student.

    Args:
        task: the task of the student.
        teacher: a model with the same outputs, on the same device.
        temperature: τ, above 0.
        weight: α in [0, 1] of the teacher's loss; 1 − α of that of the labels.
        cosine: γ of the cosine distance of the last hidden states, averaged over tokens.
    """

    def __init__(
        self,
        task: Predicting,
        teacher: nn.Module,
        *,
        temperature: float,
        weight: float,
        cosine: float = 0.0,
    ) -> None:
        super().__init__(task)
        self.teacher = teacher.eval().requires_grad_(False)
        self.temperature, self.weight, self.cosine = temperature, weight, cosine
        self.is_sum = not cosine  # the cosine is averaged over the tokens of the batch

    def loss(self, batch: Any) -> Loss:
        """The weighted sum. The parts ``teacher`` and ``cosine`` are without their weights."""
        student = self.task.predict(self.model, batch)
        with torch.no_grad():
            teacher = self.task.predict(self.teacher, batch)
        own = self.task.loss_of(student, batch)
        apart = divergence_from(teacher.logits, student.logits, self.temperature)
        apart = apart * student.share * self.temperature**2
        total = (1 - self.weight) * own.total + self.weight * apart
        parts = {**own.parts, "teacher": apart.detach()}
        if self.cosine:
            near = F.cosine_similarity(*_comparable(student.states, teacher.states), dim=-1)
            distance = (1 - near).mean() * batch.weight
            total = total + self.cosine * distance
            parts["cosine"] = distance.detach()
        return Loss(total, parts, own.weights)


def _comparable(student: States, teacher: States) -> tuple[Tensor, Tensor]:
    """The states ``[T, D]`` of both models.

    Raises:
        UserError: their widths differ, or a model has none.
    """
    both = [None if each is None else wide(each()) for each in (student, teacher)]
    own, other = both
    if own is not None and other is not None and own.shape == other.shape:
        return own, other
    widths = ["none" if each is None else str(each.shape[-1]) for each in both]
    raise UserError(
        "training.teacher.cosine compares the states of tokens, which must have the same width in "
        f"both models (student: {widths[0]}, teacher: {widths[1]}); use cosine = 0"
    )


class Consistent(Wrapped):
    """A task whose model predicts each batch twice with different dropout (R-Drop).

    Args:
        task: the task.
        weight: α of the symmetric divergence.
    """

    def __init__(self, task: Predicting, weight: float) -> None:
        super().__init__(task)
        self.weight = weight

    def loss(self, batch: Any) -> Loss:
        """Both losses and their divergence; parts are the means of both passes."""
        both = [self.task.predict(self.model, batch) for _ in range(2)]
        first, second = (self.task.loss_of(each, batch) for each in both)
        p, q = (each.logits for each in both)
        apart = symmetric_divergence(p, q) / 2 * both[0].share
        parts = {name: (part + second.parts[name]) / 2 for name, part in first.parts.items()}
        total = first.total + second.total + self.weight * apart
        return Loss(total, {**parts, "consistency": apart.detach()}, first.weights)
