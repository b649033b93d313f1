"""The base class of positions that are added to the embeddings.

Shapes: B batch, L positions, D width.
"""

import torch
from torch import Tensor, nn

from heedful.attention.places import places


class AddedPositions(nn.Module):
    """Positions that are added to embeddings ``[B, L, D]``. A new one implements :meth:`vectors`.

    Example:
        >>> class Growing(AddedPositions):
        ...     def vectors(self, positions):
        ...         return positions.unsqueeze(-1) / 10
        >>> Growing()(torch.zeros(1, 3, 1), first=2).flatten()
        tensor([0.2000, 0.3000, 0.4000])
    """

    def vectors(self, positions: Tensor) -> Tensor:
        """The vectors ``[.., D]`` of integer ``positions [..]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement vectors")

    def forward(self, embedded: Tensor, first: int | Tensor = 0) -> Tensor:
        """Add the positions ``first, first + 1, …`` to ``embedded [B, L, D]``.

        ``first`` may be different in each row: integers ``[B]``; or the positions, ``[B, L]``.
        """
        steps = torch.arange(embedded.shape[-2], device=embedded.device)
        return embedded + self.vectors(places(first, steps, 1)).to(embedded.dtype)


class NoPositions(AddedPositions):
    """Adds nothing; for models whose attention has relative positions.

    Example:
        >>> NoPositions()(torch.ones(1, 1, 2))
        tensor([[[1., 1.]]])
    """

    def forward(self, embedded: Tensor, first: int | Tensor = 0) -> Tensor:
        """The unchanged embeddings ``[B, L, D]``."""
        return embedded
