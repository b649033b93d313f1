"""The output layer for answers that are spans of a text, and how the best spans are found.

    P(start = i) = softmax_i(wₛᵀ xᵢ + bₛ),   P(end = j) = softmax_j(wₑᵀ xⱼ + bₑ)

Devlin et al. 2019, "BERT", sections 4.2 and 4.3: an answer may begin and end at tokens of the
second text; "no answer" begins and ends at BEGIN.
Shapes: B rows, L tokens of a row, A the longest answer in tokens, N best spans.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.layers.dropout import Dropout
from heedful.layers.max_norm import output_linear
from heedful.models.encoders import Encoded, Sequences
from heedful.models.text_spans import text_lengths

FAR_BELOW = -1e30
"""The logit of places where no answer begins or ends; finite, for products with zero."""


class SpanLayer(nn.Module):
    """Logits for the first and the last token of the answer.

    ``threshold`` is the largest score of "no answer", relative to the best answer, with which an
    answer is given. It is set by validation and is saved with the weights.

    Args:
        width: D, width of a token's state.
        dropout: on the states.
        widths: how many components of a state are read for both, for starts only, and for ends
            only; all for both if None.
    """

    threshold: Tensor

    def __init__(
        self, width: int, dropout: float, widths: tuple[int, int, int] | None = None
    ) -> None:
        super().__init__()
        self.both, self.of_start, self.of_end = widths or (width, 0, 0)
        self.dropout = Dropout(dropout)
        self.start = output_linear(self.both + self.of_start, 1, None)
        self.end = output_linear(self.both + self.of_end, 1, None)
        for layer in (self.start, self.end):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        self.register_buffer("threshold", torch.zeros(()))

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits of starts and ends ``[B, L, 2]``."""
        if encoded.states is None:
            raise ValueError("this encoder returns no states of tokens")
        states = self.dropout(encoded.states)
        parts = states.split([self.both, self.of_start, self.of_end], -1)
        starts = self.start(torch.cat([parts[0], parts[1]], -1))
        ends = self.end(torch.cat([parts[0], parts[2]], -1))
        return torch.cat([starts, ends], -1)


def answer_places(rows: Sequences) -> Tensor:
    """Where answers may begin and end: at BEGIN and in the second text; booleans ``[B, L]``."""
    first, second = (lengths.unsqueeze(1) for lengths in text_lengths(rows))
    places = torch.arange(rows.tokens.shape[1], device=rows.tokens.device)
    return (places == 0) | ((places >= first + 2) & (places < first + 2 + second))


def log_probabilities(logits: Tensor, rows: Sequences) -> Tensor:
    """Logarithms of the probabilities of starts and ends ``[B, L, 2]``; far below 0 elsewhere."""
    allowed = answer_places(rows).unsqueeze(-1)
    return logits.masked_fill(~allowed, FAR_BELOW).log_softmax(1)


class BestSpans(NamedTuple):
    """The best spans of each row, best first."""

    scores: Tensor
    """``log P(start) + log P(end)``, ``[B, N]``; far below 0 where there are fewer than N."""
    starts: Tensor
    """Position in the row of the first token ``[B, N]``."""
    ends: Tensor
    """Position of the last token ``[B, N]``."""


def best_spans(scores: Tensor, longest: int, number: int) -> BestSpans:
    """The best answers of at most ``longest`` tokens; "no answer" is not among them.

    Args:
        scores: from :func:`log_probabilities`.
        longest: A.
        number: N.

    Example:
        >>> scores = torch.tensor([[[-9, -9], [-2, -4], [-1, -7], [-5, -1]]])
        >>> [one.tolist() for one in best_spans(scores.float(), 2, 2)]
        [[[-2.0, -6.0]], [[2, 1]], [[3, 1]]]
    """
    starts, ends = scores[:, 1:].unbind(-1)
    longest = min(longest, starts.shape[1])
    following = F.pad(ends, (0, longest - 1), value=FAR_BELOW).unfold(1, longest, 1)
    joined = (starts.unsqueeze(-1) + following).flatten(1)
    found = joined.topk(min(number, joined.shape[1]), 1)
    first = found.indices // longest
    return BestSpans(found.values, first + 1, first + found.indices % longest + 1)
