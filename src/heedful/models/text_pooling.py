"""Pooling of an encoder's output to one vector for each text.

Shapes: B rows, L tokens, D width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.models.encoders import Encoded

Pooling = Literal["mean", "cls", "max", "encoder"]


class TextPooling(nn.Module):
    """The vector of each text, without parameters (Reimers and Gurevych 2019, section 3).

    Args:
        kind: ``mean`` or ``max`` of the states of all tokens, BEGIN and END included; ``cls``, the
            state of one token; ``encoder``, the encoder's own vector of the text.
        cls_place: the token of ``cls``: 0 is BEGIN, −1 is the last token of the row.

    Example:
        >>> states = torch.tensor([[[1.0], [3.0], [9.0]]])
        >>> TextPooling("mean")(Encoded(states, None), torch.tensor([2]))
        tensor([[2.]])
    """

    def __init__(self, kind: Pooling, cls_place: int = 0) -> None:
        super().__init__()
        self.kind, self.cls_place = kind, cls_place

    def forward(self, encoded: Encoded, lengths: Tensor | None = None) -> Tensor:
        """Vectors ``[B, D]``.

        Args:
            encoded: the output of an encoder.
            lengths: ``[B]`` tokens of each row; all ``L`` if None.

        Raises:
            ValueError: the encoder has no such vectors.
        """
        found = encoded.pooled if self.kind == "encoder" else encoded.states
        if found is None:
            raise ValueError(f"this encoder has no vectors for pooling = '{self.kind}'")
        if self.kind == "encoder":
            return found
        if lengths is None:
            lengths = torch.full((len(found),), found.shape[1], device=found.device)
        if self.kind == "cls":
            rows = torch.arange(len(found), device=found.device)
            return found[rows, lengths - 1] if self.cls_place < 0 else found[:, 0]
        outside = (torch.arange(found.shape[1], device=found.device) >= lengths[:, None])[..., None]
        if self.kind == "max":
            return found.masked_fill(outside, float("-inf")).amax(1)
        return found.masked_fill(outside, 0.0).sum(1) / lengths[:, None]
