"""The share of each head's weights on the previous, next, same, first and separator token.

Clark et al. 2019, "What Does BERT Look At? An Analysis of BERT's Attention", section 3: heads that
look at one token only, and the entropy of heads.
Shapes: N heads of all layers, L tokens.
"""

import torch
from torch import Tensor

from heedful.evaluation.head_distances import normalized, pair_distances

PLACES = ("previous", "next", "same", "first", "separator")
MEASURES = (*PLACES, "largest", "entropy", "relative entropy")


class HeadShares:
    """Means over the tokens of many texts, for each head.

    The share of a place is the mean over the tokens that have such a token: the first token has no
    previous one, and does not count for the first one itself. ``largest`` is the mean of each
    token's largest weight. ``entropy`` is in nats, ``relative entropy`` relative to that of even
    weights, without tokens that can attend to one token only.

    Args:
        heads: number of heads N.
        causal: whether a token attends to itself and earlier ones only. Then no token attends to
            the next one or to the separator, which is the last token.
    """

    def __init__(self, heads: int, *, causal: bool) -> None:
        self.causal = causal
        self._sums = {name: torch.zeros(heads, dtype=torch.float64) for name in MEASURES}
        self._counts = dict.fromkeys(MEASURES, 0)
        self._distances = torch.zeros(heads, heads, dtype=torch.float64)
        self._tokens = 0

    def add(self, weights: Tensor) -> None:
        """Add the ``weights [N, L, L]`` of a text, its first and last token included."""
        shares = normalized(weights)
        length = shares.shape[-1]
        i, j = torch.arange(length).unsqueeze(1), torch.arange(length).unsqueeze(0)
        chosen = {
            "previous": j == i - 1,
            "next": (j == i + 1) & (not self.causal),
            "same": i == j,
            "first": (j == 0) & (i > 0),
            "separator": (j == length - 1) & (i < length - 1) & (not self.causal),
        }
        for name, where in chosen.items():
            self._add(name, (shares * where).sum((1, 2)), int(where.any(1).sum()))
        entropy = torch.special.entr(shares).sum(2)
        most = (i + 1 if self.causal else torch.full_like(i, length)).squeeze(1)
        several = most > 1
        relative = entropy[:, several] / most[several].double().log()
        self._add("largest", shares.amax(2).sum(1), length)
        self._add("entropy", entropy.sum(1), length)
        self._add("relative entropy", relative.sum(1), int(several.sum()))
        self._distances += pair_distances(weights) * length
        self._tokens += length

    def _add(self, name: str, sums: Tensor, count: int) -> None:
        self._sums[name] += sums
        self._counts[name] += count

    def means(self) -> dict[str, Tensor]:
        """The mean of each of :data:`MEASURES` ``[N]``, without those that no token has."""
        return {name: self._sums[name] / count for name, count in self._counts.items() if count}

    def distances(self) -> Tensor:
        """The mean Jensen–Shannon distance of all pairs of heads ``[N, N]``, from 0 to 1."""
        return self._distances / max(self._tokens, 1)
