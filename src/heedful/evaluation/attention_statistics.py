"""Statistics of the weights of each attention head over a corpus: entropy, maximum, coverage.

Shapes: B batch, H heads, Q queries, K keys, S source tokens, T target tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.attention.divergences import jensen_shannon_distance
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.evaluation.statistics import check_parallel
from heedful.inference import Translator
from heedful.inference.batches import source_of, target_in_of

COVERED = 0.5
"""Total weight from which a source token counts as covered: half of one target token's weights."""
_MOST_AT_ONCE = 1 << 20  # maximum number of one head's weights computed at once

Advance = Callable[[int], None]


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics of one head of one module over all queries of a corpus.

    A *row* contains the weights of one query over the keys that it may attend to: no padding, and
    in self-attention of the target no later tokens. END and BEGIN count like other tokens.

    Attributes:
        module: the name of the module in the model.
        head: number of the head, counted from 1.
        query_axis: ``source`` or ``target``.
        key_axis: ``source`` or ``target``.
        rows: number of rows.
        entropy: mean over rows of −Σ p ln p, in nats, of normalized weights (Ghader and Monz
            2017).
        relative_entropy: mean over rows of the entropy relative to its maximum, ln(allowed
            keys), without rows that have a single allowed key; None if all rows have one.
        sharpness: mean over rows of the largest normalized weight.
        mass: mean over rows of the sum of weights; 1 except for mechanisms that do not normalize.
        covered: for cross-attention, the share of source tokens (without END) whose weights sum
            to at least :data:`COVERED` over all target steps, including that of END (the coverage
            of Tu et al. 2016 after the last step).
        coverage_error: for cross-attention, the mean of |that sum − 1| over the same tokens.
    """

    module: str
    head: int
    query_axis: str
    key_axis: str
    rows: int
    entropy: float
    relative_entropy: float | None
    sharpness: float
    mass: float
    covered: float | None
    coverage_error: float | None
    agreement: float | None = None
    """Mean over rows and other heads of the overlap Σ min(p, q) of the normalized weights of this
    head and another: 1 if they are equal, 0 if they attend to different keys; None for one head."""
    distance: float | None = None
    """Mean over rows and other heads of the Jensen–Shannon distance (the square root of the
    divergence in bits): 0 if they are equal, 1 if they attend to different keys; None for one
    head."""


def attention_statistics(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    advance: Advance | None = None,
) -> list[HeadStatistics]:
    """Measure every head under teacher forcing with given translations.

    Pairs with an empty side are left out. Pairs longer than the model's limit are also left out;
    a notice counts them.

    Args:
        translator: a translator with one model; for an ensemble, the first model is measured.
        sources: texts.
        targets: the translation of each text.
        advance: called with the number of pairs finished.

    Returns:
        Statistics by module and head; empty, with a notice, if the model has no attention.

    Raises:
        UserError: the numbers of sources and targets differ.
    """
    check_parallel(targets, sources)
    pairs = [
        Pair(source, target)
        for source, target in zip(sources, targets, strict=True)
        if source.strip() and target.strip()
    ]
    model = translator.models[0]
    axes_of = model.attention_axes()
    if not axes_of:
        notice("the model has no attention, so attention statistics are left out")
        return []
    sums: dict[str, _Sums] = {}
    with translator.ready():
        for own, written in _batches(translator, pairs):
            source = source_of(own, translator.device)
            target_in = target_in_of(written, translator.device)
            with watch(model, axes_of) as seen:
                model.states(source, target_in)
            lengths = {
                "source": source.lengths,  # with END
                "target": torch.tensor([len(tokens) + 1 for tokens in written]),  # with BEGIN
            }
            for module, (queries, keys) in axes_of.items():
                # A Transformer computes all positions in one call, a recurrent decoder one per
                # call.
                weights = torch.cat(seen[module], dim=2)
                added = sums.setdefault(module, _Sums(weights.shape[1]))
                added.add(
                    weights,
                    lengths[queries],
                    lengths[keys],
                    causal=queries == keys == "target",
                    covering=(queries, keys) == ("target", "source"),
                )
            if advance is not None:
                advance(len(own))
    return [
        found
        for module, axes in axes_of.items()
        if module in sums
        for found in sums[module].statistics(module, axes)
    ]


def _batches(
    translator: Translator, pairs: Sequence[Pair]
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Batches that are small enough to hold the weights of all modules at once."""
    for sources, targets in translator.encoded_batches(pairs, use="the attention statistics"):
        longest = 1 + max(map(len, sources + targets))
        size = max(1, _MOST_AT_ONCE // longest**2)
        for start in range(0, len(sources), size):
            yield sources[start : start + size], targets[start : start + size]


class _Sums:
    """Sums over the rows of one module, one number per head."""

    def __init__(self, heads: int) -> None:
        self.rows = self.rows_with_choice = self.tokens = 0
        self.entropy = torch.zeros(heads, dtype=torch.float64)
        self.relative = self.entropy.clone()
        self.peak = self.entropy.clone()
        self.mass = self.entropy.clone()
        self.covered = self.entropy.clone()
        self.error = self.entropy.clone()
        self.overlap = self.entropy.clone()
        self.distance = self.entropy.clone()

    def add(
        self, weights: Tensor, queries: Tensor, keys: Tensor, *, causal: bool, covering: bool
    ) -> None:
        """Add ``weights [B, H, Q, K]``; ``queries`` and ``keys`` are lengths without padding."""
        weights = weights.double().cpu()
        rows = torch.arange(weights.shape[2]) < queries.cpu()[:, None]  # [B, Q]
        columns = torch.arange(weights.shape[3]) < keys.cpu()[:, None]  # [B, K]
        allowed = rows[:, :, None] & columns[:, None]  # [B, Q, K]
        if causal:
            allowed = allowed.tril()
        weights = weights.masked_fill(~allowed[:, None], 0.0)
        choices = allowed.sum(2)  # [B, Q]
        mass = weights.sum(3)  # [B, H, Q]
        shares = weights / mass.clamp(min=torch.finfo(mass.dtype).tiny)[..., None]
        entropy = torch.special.entr(shares).sum(3)
        self.rows += int(rows.sum())
        self.rows_with_choice += int((choices > 1).sum())
        self.entropy += entropy.sum((0, 2))
        # With one key, the entropy and its maximum are 0, so these rows add nothing.
        self.relative += (entropy / choices.clamp(min=2).log()[:, None]).sum((0, 2))
        self.peak += shares.amax(3).sum((0, 2))
        self.mass += mass.sum((0, 2))
        for head in range(shares.shape[1]):
            common = torch.minimum(shares[:, head, None], shares).sum(3)  # [B, H, Q]
            common[:, head] = 0.0
            self.overlap[head] += common.sum()
            apart = jensen_shannon_distance(shares[:, head, None], shares)  # [B, H, Q]
            apart[:, head] = 0.0
            self.distance[head] += apart.sum()
        if covering:
            received = weights.sum(2)  # [B, H, K]
            tokens = columns & (torch.arange(weights.shape[3]) < keys.cpu()[:, None] - 1)
            self.tokens += int(tokens.sum())
            self.covered += ((received >= COVERED) & tokens[:, None]).sum((0, 2))
            self.error += ((received - 1).abs() * tokens[:, None]).sum((0, 2))

    def statistics(self, module: str, axes: tuple[str, str]) -> list[HeadStatistics]:
        """The means of each head."""
        choice, tokens = self.rows_with_choice, self.tokens
        return [
            HeadStatistics(
                module=module,
                head=head + 1,
                query_axis=axes[0],
                key_axis=axes[1],
                rows=self.rows,
                entropy=self.entropy[head].item() / self.rows,
                relative_entropy=self.relative[head].item() / choice if choice else None,
                sharpness=self.peak[head].item() / self.rows,
                mass=self.mass[head].item() / self.rows,
                covered=self.covered[head].item() / tokens if tokens else None,
                coverage_error=self.error[head].item() / tokens if tokens else None,
                agreement=self._between_heads(self.overlap, head),
                distance=self._between_heads(self.distance, head),
            )
            for head in range(len(self.entropy))
        ]

    def _between_heads(self, sums: Tensor, head: int) -> float | None:
        others = len(sums) - 1
        return sums[head].item() / self.rows / others if others else None
