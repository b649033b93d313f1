"""The base class of models that answer a question about a story, and how they encode its facts.

Shapes: B stories, N facts of a story, L tokens of a fact, Q tokens of a question, D width, K hops,
C answers.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.basics.symbols import PAD


class StoryOutput(NamedTuple):
    """What a model finds for stories and questions."""

    logits: Tensor
    """Of the answers ``[B, C]``."""
    scores: Tensor | None = None
    """Of the facts at each hop ``[B, K, N]``, −∞ for padding; with a first column if
    :attr:`StoryModel.can_stop`. None for models whose addressing cannot be supervised."""


class StoryModel(nn.Module):
    """Base of models that answer questions about stories; a subclass implements :meth:`forward`."""

    can_stop: bool = False
    """Whether the first column of the scores stands for "no further fact"."""

    def forward(self, story: Tensor, question: Tensor, *, linear: bool = False) -> StoryOutput:
        """Answer questions.

        Args:
            story: ``[B, N, L]``, the oldest fact first; facts and tokens are padded with PAD at the
                end.
            question: ``[B, Q]``, padded with PAD.
            linear: compute the attention without the normalizer (the linear start of Sukhbaatar et
                al. 2015, section 4.1), in models that support it.
        """
        raise NotImplementedError

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """Module → the axes of its queries and keys: "hops", "facts", or "story", which has the
        facts and then the question."""
        return {}


def told(story: Tensor) -> Tensor:
    """Which facts are not padding ``[B, N]``."""
    return (story != PAD).any(-1)


def ages(facts: Tensor) -> Tensor:
    """How many facts were told after each one ``[B, N]``; 0 for the last one and for padding.

    Args:
        facts: which facts are not padding ``[B, N]``.

    Example:
        >>> ages(torch.tensor([[True, True, True], [True, True, False]]))
        tensor([[2, 1, 0],
                [1, 0, 0]])
    """
    return (facts.flip(-1).cumsum(-1).flip(-1) - 1).clamp(min=0)


def noisy_ages(facts: Tensor, share: float) -> Tensor:
    """Ages in a story with empty facts at random places: the "random noise" of training.

    The number of empty facts is drawn from 0 to ``share`` × N, rounded up; their places are drawn
    with PyTorch's default generator of the CPU.

    Args:
        facts: which facts are not padding ``[B, N]``.
        share: largest share of empty facts.

    Returns:
        ``[B, N]``: at most N − 1 + ⌈share × N⌉, in the order of the facts.

    Source: Sukhbaatar et al. 2015, section 4.1: 10 % of empty memories.
    """
    counts = facts.sum(-1).cpu()
    found = torch.zeros(facts.shape, dtype=torch.long)
    for row, count in zip(found, counts.tolist(), strict=True):
        most = -int(-share * count // 1)
        places = count + int(torch.randint(most + 1, ()))
        row[:count] = torch.randperm(places)[:count].sort(descending=True).values
    return found.to(facts.device)


class PlaceWeights(NamedTuple):
    """Weights l_kj = α_j + γ_k β_j of the words of texts: those of a place j and a component k."""

    alpha: Tensor
    """``[.., L]``"""
    beta: Tensor
    """``[.., L]``"""
    gamma: Tensor
    """``[D]``"""

    def sum(self, words: Tensor) -> Tensor:
        """Σ_j l_j ∘ x_j: words ``[.., L, D]`` to ``[.., D]``."""
        found = torch.stack([self.alpha, self.beta], -2) @ words
        return found[..., 0, :] + self.gamma * found[..., 1, :]


def position_weights(
    there: Tensor, width: int, dtype: torch.dtype, longest: int = 0
) -> PlaceWeights:
    """The position encoding l_kj = (1 − j/J) − (k/D) (1 − 2j/J), 0 for padding.

    Args:
        there: which words are not padding ``[.., L]``.
        width: D.
        dtype: of the result.
        longest: J, the same for all texts of at most so many words; J of a longer text is its
            number of words.

    Source: Sukhbaatar et al. 2015, section 4.1.

    Example:
        >>> alpha, beta, gamma = position_weights(torch.tensor([True, True]), 2, torch.float32)
        >>> alpha[:, None] + beta[:, None] * gamma
        tensor([[0.5000, 0.5000],
                [0.5000, 1.0000]])
    """
    place, count, component = _places(there, width, dtype, longest)
    share = place / count  # j / J
    return PlaceWeights((1 - share) * there, (2 * share - 1) * there, component / width)


def centred_position_weights(
    there: Tensor, width: int, dtype: torch.dtype, longest: int = 0
) -> PlaceWeights:
    """l_kj = 1 + 4 (k − (D+1)/2) (j − (J+1)/2) / (D J): about twice the weights of
    :func:`position_weights`, with a mean of 1.

    The program of Sukhbaatar et al. 2015 computes them so, with the largest J of all texts.

    Args:
        there: which words are not padding ``[.., L]``.
        width: D.
        dtype: of the result.
        longest: as in :func:`position_weights`.

    Example:
        >>> there = torch.tensor([True, True])
        >>> alpha, beta, gamma = centred_position_weights(there, 2, torch.float32)
        >>> alpha[:, None] + beta[:, None] * gamma
        tensor([[1.2500, 0.7500],
                [0.7500, 1.2500]])
    """
    place, count, component = _places(there, width, dtype, longest)
    beta = (place - (count + 1) / 2) / count
    gamma = 4 * (component - (width + 1) / 2) / width
    return PlaceWeights(there.to(dtype), beta * there, gamma)


def _places(
    there: Tensor, width: int, dtype: torch.dtype, longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """j ``[L]``, J ``[.., 1]`` and k ``[D]``, from 1."""
    place = torch.arange(1, there.shape[-1] + 1, device=there.device, dtype=dtype)
    count = there.sum(-1, keepdim=True).clamp(min=max(1, longest)).to(dtype)
    return place, count, torch.arange(1, width + 1, device=there.device, dtype=dtype)


_WEIGHTS = {
    "positions": position_weights,
    "centred-positions": centred_position_weights,
}
"""Encoding → its fixed weights."""
Encoding = Literal["positions", "centred-positions", "learned", "bag-of-words"]
_MODULUS, _FACTOR = 2**31 - 1, 48_271
"""Of the hash of n-grams: products stay below 2⁶³."""
_PLACES = 64
"""Places with learned weights of their own; later words have those of the last one."""


def n_gram_rows(tokens: Tensor, length: int, rows: int) -> Tensor:
    """The row of a table for each n-gram of 2 to ``length`` tokens: a hash of its tokens.

    Args:
        tokens: ``[.., L]``, padded with PAD at the end.
        length: of the longest n-grams.
        rows: number of rows of the table; n-grams can share a row.

    Returns:
        ``[.., M]``, 1 to ``rows`` − 1, for M = Σ_n (L − n + 1) n-grams, the shortest first; 0 for
        n-grams that reach into the padding.

    Example:
        >>> found = n_gram_rows(torch.tensor([[5, 6, 5, 6], [5, 6, 0, 0]]), 3, 1000)
        >>> found.shape, bool(found[0, 0] == found[0, 2] == found[1, 0]), found[1, 1:].tolist()
        (torch.Size([2, 5]), True, [0, 0, 0, 0])
    """
    found = []
    for n in range(2, min(length, tokens.shape[-1]) + 1):
        each = tokens.unfold(-1, n, 1)  # [.., L − n + 1, n]
        mixed = torch.full_like(each[..., 0], n)
        for place in range(n):
            mixed = (mixed * _FACTOR + each[..., place]) % _MODULUS
        found.append((mixed * _FACTOR % _MODULUS % (rows - 1) + 1) * (each != PAD).all(-1))
    return torch.cat(found, -1) if found else tokens[..., :0]


class TextEncoding(nn.Module):
    """A vector for each text: the weighted sum of the embeddings of its words.

    Args:
        encoding: ``positions``: the weights are :func:`position_weights`; ``centred-positions``:
            those of :func:`centred_position_weights`, about twice as large; ``learned``: a trained
            vector for each place, at first all ones (Henaff et al. 2017, "Tracking the World State
            with Recurrent Entity Networks", section 2.1); ``bag-of-words``: all are 1, and the
            order of the words does not count.
        width: D.
        longest: J of the fixed weights, see :func:`position_weights`.
    """

    def __init__(self, encoding: Encoding, width: int, longest: int = 0) -> None:
        super().__init__()
        self.encoding, self.longest = encoding, longest
        if encoding == "learned":
            self.weights = nn.Parameter(torch.ones(_PLACES, width))

    def forward(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        """``tokens [.., L]``, padded with PAD, to ``[.., D]``."""
        words: Tensor = table(tokens)
        there = tokens != PAD
        if self.encoding in _WEIGHTS:
            weight = _WEIGHTS[self.encoding]
            weights = weight(there, words.shape[-1], words.dtype, self.longest)
            return weights.sum(words)
        words = words * there.unsqueeze(-1)
        if self.encoding == "learned":
            places = torch.arange(tokens.shape[-1], device=tokens.device).clamp(max=_PLACES - 1)
            words = words * self.weights[places]
        return words.sum(-2)
