"""The base class of normalizers that read the weights of earlier steps.

As for :class:`~heedful.attention.scores.RecurrentScore`, ``start`` makes the state of the first
step, ``weigh`` computes the weights of a step, and ``advance`` adds them to the state. Each tensor
of a state has the leading dimensions of the scores first. Shapes: B batch, K keys.
"""

from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, Queries

State = tuple[Tensor, ...]
"""Tensors ``[.., K]``."""


class RecurrentNormalizer(Normalizer):
    """A normalizer that depends on the weights of the steps before; one query at a time.

    A subclass implements :meth:`start`, :meth:`weigh` and :meth:`advance`. It needs
    :class:`~heedful.attention.RecurrentAttention`. As a :class:`Normalizer` it computes the first
    step.

    Example:
        >>> class Falling(RecurrentNormalizer):
        ...     def start(self, like):
        ...         return (like.new_ones(like.shape),)
        ...     def weigh(self, scores, allowed, state):
        ...         return (scores - state[0].unsqueeze(-2)).softmax(-1)
        >>> Falling().weigh.__name__  # scores [Q, K]
        'weigh'
    """

    def start(self, like: Tensor) -> State:
        """The state of the first step; ``like [.., K]`` has its shape, dtype and device."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `start`")

    def weigh(self, scores: Tensor, allowed: Tensor | None, state: State) -> Tensor:
        """Weights ``[.., 1, K]`` of ``scores [.., 1, K]``; masked ones are exactly zero."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `weigh`")

    def advance(self, weights: Tensor, state: State) -> State:
        """The state after a step with ``weights [.., K]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `advance`")

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return self.weigh(scores, allowed, self.start(scores[..., 0, :]))
