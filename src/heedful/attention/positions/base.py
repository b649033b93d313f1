"""What positions that enter the attention itself have in common.

Sinusoidal and learned positions are added to the inputs and need none of this.
Shapes: B batch, H heads, Q queries, K keys, D width. Keys stand at 0, 1, …, K − 1.
"""

from torch import Tensor, nn

from heedful.attention.scores import Score


class RelativePositions(nn.Module):
    """Positions that turn queries and keys, or change the scores or the values.

    A new one overrides what it changes; each method changes nothing unless overridden.
    """

    changes_values = False
    """Whether :meth:`context` adds something, so that the weights themselves are needed."""

    def turn(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys ``[.., L, D]`` at integer ``positions [L]``, before the score's own
        projections (rotary positions)."""
        return vectors

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor | None:
        """What is added to the scores, broadcastable to ``[.., Q, K]``; None for nothing.

        Args:
            query: projected queries ``[.., Q, D]``; here for their number, type and device, and for
                biases that depend on what they hold.
            keys: number of keys K.
            positions: of the queries, integers ``[Q]``.
            scale: of the dot product that the bias is added to.
        """
        return None

    def compare(self, score: Score, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        """Scores ``[.., Q, K]`` of projected queries and keys: the score's own and the bias."""
        scores = score.compare(query, key)
        scale = score.dot_scale(query.shape[-1])
        bias = self.bias(query, key.shape[-2], positions, 1.0 if scale is None else scale)
        return scores if bias is None else scores + bias

    def context(self, weights: Tensor, positions: Tensor) -> Tensor | None:
        """What is added to the context: ``[.., Q, dv]`` for ``weights [.., Q, K]``; None for none."""
        return None
