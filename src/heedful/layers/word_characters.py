"""Words of rows of characters, and their vectors by convolutions over their characters.

Kim et al. 2016, "Character-Aware Neural Language Models", sections 2.2 and 2.3; Jozefowicz et al.
2016, "Exploring the Limits of Language Modeling", section 3.1.
Shapes: B rows, L characters of a row, W words of the longest row, M words of all rows, C characters
of the longest word with its two boundaries, E width of a character's vector, D width of a word's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.symbols import BEGIN, END, PAD
from heedful.layers.convolutional import convolve
from heedful.layers.embeddings import token_embedding

_CARRY = -2.0
"""Initial bias of the gates of a highway layer, which then mostly carries its input (Srivastava et
al. 2015, section 2.2)."""


class WordSpans(NamedTuple):
    """Where the words of each row are. BEGIN and each END are words of their own."""

    starts: Tensor
    """The position of the first character of each word ``[B, W]``; 0 beyond a row's words."""
    sizes: Tensor
    """The number of characters of each word ``[B, W]``; 0 beyond a row's words."""
    lengths: Tensor
    """The number of words of each row ``[B]``."""
    numbers: Tensor
    """The word of each character ``[B, L]``; that of white space is the word before it."""

    @property
    def real(self) -> Tensor:
        """Which words there are: booleans ``[B, W]``."""
        places = torch.arange(self.starts.shape[1], device=self.starts.device)
        return places < self.lengths.unsqueeze(1)


def word_spans(tokens: Tensor, lengths: Tensor, separators: Tensor) -> WordSpans:
    """The words of rows of characters: the parts between white space.

    Args:
        tokens: integers ``[B, L]``; each row begins with BEGIN.
        lengths: characters of each row ``[B]``, at least 1.
        separators: the tokens of white space.

    Example:
        >>> row = torch.tensor([[2, 7, 8, 5, 5, 9, 3, 0]])  # "hi  a", 5 is a space
        >>> spans = word_spans(row, torch.tensor([7]), torch.tensor([5]))
        >>> spans.starts.tolist(), spans.sizes.tolist()
        ([[0, 1, 5, 6]], [[1, 2, 1, 1]])
        >>> spans.numbers.tolist()
        [[0, 1, 1, 1, 1, 2, 3, 3]]
    """
    there = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
    inside = there & ~torch.isin(tokens, separators)
    alone = (tokens == BEGIN) | (tokens == END)
    follows = F.pad(inside & ~alone, (1, 0))[:, :-1]  # whether the word of the last one may go on
    first = inside & (alone | ~follows)
    numbers = (first.cumsum(1) - 1).clamp(min=0)
    counts = first.sum(1)
    shape = len(tokens), int(counts.max()) if len(counts) else 0
    rows, places = first.nonzero(as_tuple=True)
    starts = tokens.new_zeros(shape).index_put((rows, numbers[rows, places]), places)
    sizes = tokens.new_zeros(shape).scatter_add(1, numbers, inside.to(tokens.dtype))
    return WordSpans(starts, sizes, counts, numbers)


def word_characters(tokens: Tensor, spans: WordSpans, boundary: int) -> Tensor:
    """The characters of each word between two boundaries, then PAD: ``[M, C]``, row by row.

    Args:
        tokens: the rows ``[B, L]``.
        spans: their words.
        boundary: the symbol before a word; the next symbol stands behind it.
    """
    real = spans.real
    rows = real.nonzero(as_tuple=True)[0].unsqueeze(1)
    starts, sizes = spans.starts[real].unsqueeze(1), spans.sizes[real].unsqueeze(1)
    longest = int(sizes.max()) if len(sizes) else 0
    places = torch.arange(-1, longest + 1, device=tokens.device)
    index = (starts + places).clamp(0, tokens.shape[1] - 1)
    found = tokens[rows, index].masked_fill(places > sizes, PAD)
    return found.masked_fill(places < 0, boundary).masked_fill(places == sizes, boundary + 1)


class Highway(nn.Module):
    """``y = t ∘ relu(W x + b) + (1 − t) ∘ x``, ``t = σ(W_t x + b_t)`` (Kim et al., equation 8)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, _CARRY)

    def forward(self, inputs: Tensor) -> Tensor:
        """``[.., D] -> [.., D]``"""
        share = torch.sigmoid(self.gate(inputs))
        return share * torch.relu(self.transform(inputs)) + (1 - share) * inputs


class CharacterWords(nn.Module):
    """Vectors of words from their characters: convolutions, maxima, highway layers, a projection.

    ``y_f = max_i relu(W_f [x_i … x_{i+k−1}] + b_f)`` of each filter f of width k, over the
    positions i of the word with its two boundaries. Characters beyond the word count as zero. A
    word that occurs several times in a batch is computed once.

    Args:
        symbols: number of symbols of the vocabulary of characters.
        character_size: E.
        filters: the width k and the number of filters of each convolution.
        highways: number of highway layers.
        width: D.
    """

    def __init__(
        self,
        symbols: int,
        character_size: int,
        filters: Sequence[tuple[int, int]],
        highways: int,
        width: int,
    ) -> None:
        super().__init__()
        self.symbols = symbols
        self.widths = tuple(kernel for kernel, _ in filters)
        self.characters = token_embedding(symbols + 2, character_size)
        self.convolutions = nn.ModuleList(
            nn.Linear(kernel * character_size, number) for kernel, number in filters
        )
        found = sum(number for _, number in filters)
        self.highways = nn.Sequential(*(Highway(found) for _ in range(highways)))
        self.projection = nn.Linear(found, width)

    def forward(self, tokens: Tensor, spans: WordSpans) -> Tensor:
        """``tokens [B, L] -> [B, W, D]``, zero beyond a row's words."""
        characters, places = torch.unique(
            word_characters(tokens, spans, self.symbols), dim=0, return_inverse=True
        )
        beyond = (characters == PAD).unsqueeze(2)
        embedded = self.characters(characters).masked_fill(beyond, 0.0)
        largest = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            convolved = convolve(F.pad(embedded, (0, 0, 0, width - 1)), width, convolution)
            largest.append(convolved.masked_fill(beyond, float("-inf")).amax(1))
        vectors = self.projection(self.highways(torch.relu(torch.cat(largest, 1))))
        words: Tensor = vectors.new_zeros(*spans.starts.shape, vectors.shape[1])
        words[spans.real] = vectors[places]
        return words
