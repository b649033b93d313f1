"""The base class of scores that read the weights of earlier steps.

The score carries a state from step to step. ``start`` makes that of the first step, ``compare_at``
computes the scores of a step, ``advance`` adds the step's weights:

    state = score.start(key)
    for query in queries:
        scores = score.compare_at(query, key, state)
        weights = normalize(scores)
        state = score.advance(weights, key, state)

Each tensor of a state has the leading dimensions of the keys first, so that a search can reorder
its rows. Shapes: B batch, K keys, D width of projected queries and keys, U hidden units.
"""

import torch
from torch import Tensor, nn

from heedful.attention.scores.base import Score, require_width
from heedful.kernels.additive import additive_scores

State = tuple[Tensor, ...]
"""Tensors ``[.., K]``."""


class RecurrentScore(Score):
    """A score that depends on the weights of the steps before; one query at a time.

    A subclass implements :meth:`start`, :meth:`compare_at` and :meth:`advance`. It needs
    :class:`~heedful.attention.RecurrentAttention`. As a :class:`Score` it compares as at the first
    step.

    Example:
        >>> class Tired(RecurrentScore):
        ...     def start(self, key):
        ...         return (key.new_zeros(key.shape[:-1]),)
        ...     def compare_at(self, query, key, state):
        ...         return query @ key.mT - state[0].unsqueeze(-2)
        >>> Tired()(torch.ones(1, 2), torch.ones(3, 2))  # [Q, K]
        tensor([[2., 2., 2.]])
    """

    def start(self, key: Tensor) -> State:
        """The state of the first step, for projected ``key [.., K, D]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `start`")

    def compare_at(self, query: Tensor, key: Tensor, state: State) -> Tensor:
        """Scores ``[.., 1, K]`` of one projected query ``[.., 1, D]`` and ``key [.., K, D]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `compare_at`")

    def advance(self, weights: Tensor, key: Tensor, state: State) -> State:
        """The state after a step with ``weights [.., K]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `advance`")

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return self.compare_at(query, key, self.start(key))


class RecurrentAdditive(RecurrentScore):
    """``vᵀ tanh(W q + V h_j + m_j)`` with a vector ``m_j`` of the state, :meth:`message`.

    Parameters: ``query_projection`` (W), ``key_projection`` (V, with the bias b) and ``v``.

    Args:
        query_dim: width of the queries.
        key_dim: width of the keys.
        hidden_dim: number of tanh units U.

    Raises:
        ValueError: a number is below 1; at the call, the query or key has another width.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        if min(query_dim, key_dim, hidden_dim) < 1:
            raise ValueError(
                "query_dim, key_dim and hidden_dim must be at least 1, not "
                f"{query_dim}, {key_dim} and {hidden_dim}"
            )
        self.query_dim, self.key_dim, self.hidden_dim = query_dim, key_dim, hidden_dim
        self.query_projection = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key_projection = nn.Linear(key_dim, hidden_dim)
        self.v = nn.Parameter(torch.empty(hidden_dim))
        nn.init.uniform_(self.v, -(hidden_dim**-0.5), hidden_dim**-0.5)

    def message(self, state: State) -> Tensor:
        """``m [.., K, U]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `message`")

    def project_query(self, query: Tensor) -> Tensor:
        require_width("query", query, self.query_dim)
        projected: Tensor = self.query_projection(query)
        return projected

    def project_key(self, key: Tensor) -> Tensor:
        require_width("key", key, self.key_dim)
        projected: Tensor = self.key_projection(key)
        return projected

    def compare_at(self, query: Tensor, key: Tensor, state: State) -> Tensor:
        return additive_scores(query, key + self.message(state).to(key.dtype), self.v)
