"""Hidden Markov attention: the weights are the posterior of a hidden Markov model.

    p(y, a) = Π_t p(a_t | a_{t−1}) p(y_t | x_{a_t}),      weights[t, s] = p(a_t = s | y)

The source word that a target word is aligned to depends on the alignment of the target word before
it: most often it is the next source word. Vogel et al. 1996, "HMM-based word alignment in
statistical translation"; as attention whose weights are marginals of a chain, Kim et al. 2017,
"Structured attention networks", section 3.2. With p(a_t | a_{t−1}) uniform it is a softmax over the
scores of each row: IBM Model 1.

A target word may be aligned to no source word (the empty word), which is written as attention to
END; the chain then continues from the alignment before it (Och and Ney 2003, section 3.2.2).

Shapes: B batch, S source tokens with END, T target tokens with BEGIN.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention.watching import Watchable

_LEAST = 1e-30
"""Keeps the logarithm of a probability that rounding made zero."""


class Chain(NamedTuple):
    """The probabilities of a chain."""

    jumps: Tensor
    """``[B, S, S]``: transitions between source words; rows sum to 1 over words."""
    first: Tensor
    """``[B, S]``: the source word of the first target word."""
    nowhere: Tensor
    """Scalar: that a target word is aligned to the empty word."""


class HiddenMarkovAttention(Watchable):
    """Marginals of a chain over source words.

    The distribution of jumps is learned: one parameter for each signed distance up to ``reach``,
    which longer jumps share, and one for the empty word.

    Args:
        reach: the longest jump, in tokens, that has its own parameter.
    """

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach
        distances = torch.arange(-reach, reach + 1)
        # A small initial slope, so that the two directions differ.
        self.jumps = nn.Parameter(-0.3 * (distances - 1).abs().clamp(max=10).float())
        self.nowhere = nn.Parameter(torch.tensor(-1.5))

    def forward(
        self, scores: Tensor, source_lengths: Tensor, target_lengths: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The likelihood of the target, and the weights if the module is watched.

        Args:
            scores: ``log p(y_t | x_s)``, ``[B, T, S]``; the score of END is that of the empty
                word. The first row belongs to BEGIN, which is not part of the chain.
            source_lengths: ``[B]`` with END.
            target_lengths: ``[B]`` with BEGIN.

        Returns:
            ``log p(y)`` ``[B]``, and the weights ``[B, T, S]`` or None. Rows of BEGIN and of
            padding attend to END.
        """
        watched = self.watched or self.watched_in_part
        if scores.dtype != torch.float64:
            scores = scores.float()
        chain = self._chain(scores.shape[2], source_lengths, scores.dtype)
        places = torch.arange(scores.shape[2], device=scores.device)
        is_word = places < source_lengths[:, None] - 1  # [B, S]
        end = (source_lengths - 1)[:, None, None].expand(-1, scores.shape[1], 1)
        nowhere = scores.gather(2, end).squeeze(2)  # [B, T]
        words = scores.masked_fill(~is_word[:, None], -torch.inf)
        steps = torch.arange(scores.shape[1], device=scores.device)
        real = steps < target_lengths[:, None]
        likelihood, weights = chain_marginals(
            words[:, 1:], nowhere[:, 1:], real[:, 1:], chain, marginals=watched
        )
        if weights is not None:
            weights = torch.cat([torch.zeros_like(words[:, :1]), weights], 1)
            # Alignment to the empty word is attention to END.
            weights = weights.scatter_add(2, end, 1 - weights.sum(2, keepdim=True))
            self._show(weights.unsqueeze(1))
        return likelihood, weights

    def _chain(self, size: int, source_lengths: Tensor, dtype: torch.dtype) -> Chain:
        places = torch.arange(size, device=source_lengths.device)
        is_word = places < source_lengths[:, None] - 1
        # The first jump starts before the first word.
        distances = (places[None, :] - torch.arange(-1, size, device=places.device)[:, None]).clamp(
            -self.reach, self.reach
        ) + self.reach  # [1 + S, S]
        logits = self.jumps.to(dtype)[distances].masked_fill(~is_word[:, None], -torch.inf)
        # A source without words has no jumps: everything is aligned to the empty word.
        jumps = logits.softmax(2).nan_to_num(0.0)
        return Chain(jumps[:, 1:], jumps[:, 0], self.nowhere.to(dtype).sigmoid())

    def _show(self, weights: Tensor) -> None:
        if self.watched:
            self.show(weights)
        if self.watched_in_part:
            self.show_some(lambda rows: weights.index_select(2, rows), weights, weights.shape[3])


def chain_marginals(
    words: Tensor, nowhere: Tensor, real: Tensor, chain: Chain, *, marginals: bool
) -> tuple[Tensor, Tensor | None]:
    """Forward–backward (Rabiner 1989, section III), each step scaled to sum to one.

    Args:
        words: ``log p(y_t | x_s)`` of source words ``[B, T, S]``, −∞ where there is no word.
        nowhere: the same for the empty word, ``[B, T]``.
        real: which target words exist, ``[B, T]``; the others are ignored.
        chain: the probabilities of the chain.
        marginals: whether to compute the weights.

    Returns:
        ``log p(y)`` ``[B]``, and ``p(a_t = s | y)`` ``[B, T, S]`` or None; the rest of a row's
        sum is the probability of the empty word.
    """
    peak = torch.maximum(words.amax(2), nowhere).detach()  # [B, T]
    here = torch.exp(words - peak[:, :, None])  # [B, T, S]
    elsewhere = torch.exp(nowhere - peak)[:, :, None]  # [B, T, 1]
    somewhere, none = 1 - chain.nowhere, chain.nowhere
    likelihood = words.new_zeros(words.shape[0])
    at_word: list[Tensor] = []
    scales: list[Tensor] = []
    place = chain.first
    for step in range(words.shape[1]):
        before = chain.first if step == 0 else torch.bmm(place[:, None], chain.jumps)[:, 0]
        # At the empty word the chain keeps its state (at the first word: the initial distribution).
        now = somewhere * before * here[:, step]
        still = none * place * elsewhere[:, step]
        total = (now + still).sum(1, keepdim=True).clamp(min=_LEAST)
        is_real = real[:, step, None]
        place = torch.where(is_real, (now + still) / total, place)
        likelihood = likelihood + torch.where(
            real[:, step], total[:, 0].log() + peak[:, step], likelihood.new_zeros(())
        )
        at_word.append(torch.where(is_real, now / total, now.new_zeros(())))
        scales.append(total)
    if not marginals:
        return likelihood, None
    if not scales:
        return likelihood, torch.zeros_like(words)
    weights: list[Tensor] = []
    after = torch.ones_like(place)
    for step in reversed(range(words.shape[1])):
        weights.append(at_word[step] * after)
        if step == 0:
            break
        coming = torch.bmm(chain.jumps, (somewhere * here[:, step] * after)[:, :, None])[:, :, 0]
        earlier = (coming + none * elsewhere[:, step] * after) / scales[step]
        after = torch.where(real[:, step, None], earlier, after)
    return likelihood, torch.stack(weights[::-1], 1)


def key_normaliser(keys: Tensor, table: Tensor, bias: Tensor) -> Tensor:
    """``log Σ_y exp(w_y · k + b_y)`` of each key ``[B, S]``, over the whole vocabulary.

    Subtracted from the scores of a key, it makes the probabilities of all target tokens sum to 1.

    Args:
        keys: ``[B, S, D]``.
        table: ``[V, D]``.
        bias: ``[V]``.
    """
    return torch.logsumexp(F.linear(keys, table, bias).float(), 2)
