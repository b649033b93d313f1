"""Linear-chain conditional random fields: a probability for each sequence of tags.

    p(y | x) = exp(Σ_t e_t(y_t) + Σ_t A(y_{t−1}, y_t)) / Z(x)

``e`` are emission scores, ``A`` transition scores. Lafferty et al. 2001, "Conditional random
fields", section 3; as the output of a network, Collobert et al. 2011, "Natural language processing
(almost) from scratch", section 3.3, and Lample et al. 2016, "Neural architectures for named entity
recognition", section 2.2. There are no scores of the first and the last tag: the states that
emissions come from know where a sentence begins and ends.

All functions use the forward recursion in log space. :mod:`heedful.attention.hidden_markov` has the
recursion of a hidden Markov model with an empty word, which is no state; it works with scaled
probabilities. Both agree where both are defined.

Shapes: B sequences, W words (padded), C tags.
"""

import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled


def forward_scores(emissions: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """``α_t(j) = e_t(j) + log Σ_i exp(α_{t−1}(i) + A(i, j))``; padding repeats the last word.

    Args:
        emissions: ``[B, W, C]``, W at least 1.
        transitions: ``[C, C]``, from the row's tag to the column's.
        lengths: integers ``[B]``: the words of each sequence.

    Returns:
        ``[B, W, C]``.
    """
    scores = emissions[:, 0]
    found = [scores]
    for word in range(1, emissions.shape[1]):
        check_cancelled()
        reached = torch.logsumexp(scores.unsqueeze(2) + transitions, 1) + emissions[:, word]
        scores = torch.where((word < lengths).unsqueeze(1), reached, scores)
        found.append(scores)
    return torch.stack(found, 1)


def log_partition(emissions: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """``log Z`` ``[B]``; 0 for a sequence without words. The arguments are those above."""
    if not emissions.shape[1]:
        return emissions.new_zeros(len(emissions))
    total = forward_scores(emissions, transitions, lengths)[:, -1].logsumexp(1)
    return torch.where(lengths > 0, total, total.new_zeros(()))


def log_likelihood(emissions: Tensor, transitions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
    """``log p(tags)`` ``[B]``, summed over all tags of words whose tag is unknown.

    Args:
        emissions: ``[B, W, C]``.
        transitions: ``[C, C]``.
        tags: integers ``[B, W]``; −1 for an unknown tag. Padding is ignored.
        lengths: integers ``[B]``.

    Example:
        >>> free = torch.zeros(1, 3, 2), torch.zeros(2, 2)
        >>> log_likelihood(*free, torch.tensor([[0, 1, 1]]), torch.tensor([3])).exp()
        tensor([0.1250])
    """
    places = torch.arange(emissions.shape[1], device=tags.device)
    known = (tags >= 0) & (places < lengths.unsqueeze(1))
    numbers = torch.arange(emissions.shape[2], device=tags.device)
    others = known.unsqueeze(2) & (tags.unsqueeze(2) != numbers)
    # Sequences that agree with the tags, and all sequences, in one pass.
    both = torch.cat([emissions.masked_fill(others, -torch.inf), emissions])
    agreeing, every = log_partition(both, transitions, lengths.repeat(2)).chunk(2)
    return agreeing - every


def log_marginals(emissions: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """``log p(y_t = j)`` ``[B, W, C]`` by forward–backward; 0 at padding.

    The arguments are those of :func:`forward_scores`.
    """
    forward = forward_scores(emissions, transitions, lengths)
    turned = _turned(emissions, lengths)
    backward = _turned(forward_scores(turned, transitions.T, lengths), lengths)
    total = forward[:, -1].logsumexp(1)[:, None, None]
    found = (forward + backward - emissions - total).clamp(max=0)  # rounding
    places = torch.arange(emissions.shape[1], device=emissions.device)
    real = (places < lengths.unsqueeze(1)).unsqueeze(2)
    return torch.where(real, found, found.new_zeros(()))


def best_tags(emissions: Tensor, transitions: Tensor, lengths: Tensor) -> list[list[int]]:
    """The most probable sequence of tags of each row, by Viterbi's algorithm.

    The arguments are those of :func:`forward_scores`.

    Example:
        >>> stays = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> emissions = torch.tensor([[[3.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
        >>> best_tags(emissions, stays, torch.tensor([3]))
        [[0, 0, 0]]
    """
    scores = emissions[:, 0]
    stay = torch.arange(emissions.shape[2], device=emissions.device)
    before = []
    for word in range(1, emissions.shape[1]):
        check_cancelled()
        best, origins = (scores.unsqueeze(2) + transitions).max(1)
        real = (word < lengths).unsqueeze(1)
        scores = torch.where(real, best + emissions[:, word], scores)
        before.append(torch.where(real, origins, stay))
    tag = scores.argmax(1, keepdim=True)
    path = [tag]
    for origins in reversed(before):
        tag = origins.gather(1, tag)
        path.append(tag)
    rows = torch.cat(path[::-1], 1).tolist()
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]


def _turned(values: Tensor, lengths: Tensor) -> Tensor:
    """The words of each row ``[B, W, C]`` in reverse; padding stays at the end."""
    places = torch.arange(values.shape[1], device=values.device)
    last = lengths.unsqueeze(1) - 1
    order = torch.where(places <= last, last - places, places)
    return values.gather(1, order.unsqueeze(2).expand_as(values))
