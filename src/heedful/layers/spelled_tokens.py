"""Vectors of tokens from their spelling, by a convolution over its bytes.

Kim 2014, "Convolutional Neural Networks for Sentence Classification", section 2, over characters as
in Seo et al. 2017, section 2.
Shapes: V vocabulary, W bytes of the longest spelling, M different tokens of a batch, E width of a
byte's vector, F filters.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heedful.layers.embeddings import token_embedding

_NONE = 0
"""The symbol after the end of a spelling; byte b is symbol b + 1."""


class SpelledTokens(nn.Module):
    """``y_f = max_i relu(W_f [x_i … x_{i+k−1}] + b_f)`` over the bytes x of a token's spelling.

    Spellings shorter than k are padded with zeros. The vector of a token without spelling is zero.

    Args:
        vocabulary: number of symbols.
        spellings: the text of each symbol; empty if there are none.
        byte_size: E.
        filters: F.
        width: k, the bytes that a filter reads.

    Example:
        >>> spelled = SpelledTokens(3, ["", "a", "bc"], byte_size=2, filters=5, width=3)
        >>> spelled(torch.tensor([[1, 2, 0]])).shape
        torch.Size([1, 3, 5])
    """

    spelled: Tensor

    def __init__(
        self, vocabulary: int, spellings: Sequence[str], *, byte_size: int, filters: int, width: int
    ) -> None:
        super().__init__()
        self.width = width
        self.bytes = token_embedding(257, byte_size)
        self.convolution = nn.Conv1d(byte_size, filters, width)
        own = [text.encode("utf-8", "replace") for text in spellings] or [b""] * vocabulary
        longest = max(width, *map(len, own))
        rows = [[byte + 1 for byte in text] + [_NONE] * (longest - len(text)) for text in own]
        self.register_buffer("spelled", torch.tensor(rows, dtype=torch.long), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[B, L] -> [B, L, F]``; a token that occurs several times is computed once."""
        different, places = torch.unique(tokens, return_inverse=True)
        spelled = self.spelled[different]  # [M, W]
        there = spelled != _NONE
        embedded = self.bytes(spelled).masked_fill(~there.unsqueeze(-1), 0.0)
        found = torch.relu(self.convolution(embedded.mT))  # [M, F, W − k + 1]
        starts = torch.arange(found.shape[-1], device=tokens.device)
        # A filter begins at each byte from which k bytes follow, or at the first one.
        last = (there.sum(1) - self.width).clamp(min=0)
        beyond = (starts > last.unsqueeze(1)) | ~there[:, :1]
        largest: Tensor = found.masked_fill(beyond.unsqueeze(1), 0.0).amax(-1)  # ReLU is at least 0
        return largest[places]
