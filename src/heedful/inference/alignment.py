"""Word alignments from attention: the finished output goes through the model once more, watched.

Shapes: B batch, H heads, S source tokens with END, T target tokens with BEGIN.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.models.pairs import AlignmentSource, PairModel, Source


def token_weights(
    model: PairModel, where: AlignmentSource, source: Source, target_in: Tensor
) -> Tensor:
    """Weights ``[B, T, S]`` of the watched module, averaged over its heads, on the CPU."""
    with watch(model, [where.module]) as seen:
        model.states(source, target_in)
    # A Transformer reads all positions in one call, a recurrent decoder one in a call.
    weights = torch.cat(seen[where.module], dim=2).float()  # [B, H, T, S]
    if where.heads is not None:
        weights = weights[:, list(where.heads)]
    return weights.mean(1).cpu()


def word_weights(
    weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]
) -> Tensor:
    """Weights between words: summed over a source word's tokens, averaged over a target word's.

    Args:
        weights: between tokens ``[T, S]``; rows and columns beyond the words' tokens are dropped.
        source_words: for each source token the index of its word, -1 if it has none.
        target_words: the same for target tokens.

    Returns:
        Weights ``[target words, source words]``. What went to END is missing from a row's sum.
    """
    weights = weights[: len(target_words), : len(source_words)]
    to_source = _membership(source_words)  # [source words, S]
    to_target = _membership(target_words)  # [target words, T]
    counts = to_target.sum(1, keepdim=True).clamp(min=1)
    return (to_target / counts) @ weights @ to_source.T


def join(
    soft: Sequence[Tensor], source_starts: Sequence[int], target_starts: Sequence[int]
) -> Tensor:
    """One matrix from those of consecutive parts, each placed where its first words stand.

    A word that a cut went through belongs to two parts: its row is the mean of both.
    """
    bottom = max(start + len(part) for start, part in zip(target_starts, soft, strict=True))
    right = max(start + part.shape[1] for start, part in zip(source_starts, soft, strict=True))
    joined = torch.zeros(bottom, right)
    shares = torch.zeros(bottom, 1)
    for part, column, row in zip(soft, source_starts, target_starts, strict=True):
        joined[row : row + len(part), column : column + part.shape[1]] += part
        shares[row : row + len(part)] += 1
    return joined / shares.clamp(min=1)


def _membership(words: Sequence[int]) -> Tensor:
    """``[words, tokens]``: 1 where a token belongs to a word."""
    found = torch.zeros(max(words, default=-1) + 1, len(words))
    for token, word in enumerate(words):
        if word >= 0:
            found[word, token] = 1
    return found
