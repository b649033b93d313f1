"""Statistics of the weights of each attention head over a corpus: spread, peak, coverage.

Shapes: B batch, H heads, Q queries, K keys, S source tokens, T target tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.evaluation.statistics import check_parallel
from heedful.inference import Translator
from heedful.inference.batches import source_of, target_in_of

COVERED = 0.5
"""A source token is covered from this total weight on: that of half a target token."""
_MOST_AT_ONCE = 1 << 20  # weights of one head made at a time

Advance = Callable[[int], None]


@dataclass(frozen=True)
class HeadStatistics:
    """What one head of one module did, over all queries of a corpus.

    A *row* is one query's weights over the keys it may attend to: those that are no padding and,
    among the target's own tokens, not later ones. END and BEGIN are keys and queries like others.

    Attributes:
        module: its name in the model.
        head: counted from 1.
        query_axis: ``source`` or ``target``.
        key_axis: ``source`` or ``target``.
        rows: how many rows were looked at.
        entropy: mean over rows of −Σ p ln p, in nats, of the row's weights over their sum
            (Ghader and Monz 2017).
        relative_entropy: mean over rows of the entropy's share of its greatest, ln(keys allowed);
            rows with a single allowed key have none. None if all are such.
        sharpness: mean over rows of the largest of the weights over their sum.
        mass: mean over rows of the sum of weights: 1, but for mechanisms that do not normalise.
        covered: of cross-attention, the share of source tokens (END apart) whose weights sum to at
            least :data:`COVERED` over all target steps, that which writes END included (the
            coverage of Tu et al. 2016 after the last step).
        coverage_error: of cross-attention, the mean over the same tokens of |that sum − 1|.
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


def attention_statistics(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    advance: Advance | None = None,
) -> list[HeadStatistics]:
    """Measure every head while the model is made to write given translations (teacher forcing).

    Pairs with an empty side are left out. Pairs longer than the model's limit are left out, too,
    with a notice.

    Args:
        translator: of one model; of an ensemble the first one is measured.
        sources: texts.
        targets: a translation of each.
        advance: told how many pairs were finished.

    Returns:
        Statistics by module and head; empty, with a notice, for a model without attention.

    Raises:
        UserError: the counts differ.
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
                # A Transformer reads all positions in one call, a recurrent decoder one in a call.
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
    """Batches so small that the weights of all modules can be held at once."""
    for sources, targets in translator.encoded_batches(pairs, use="the attention statistics"):
        longest = 1 + max(map(len, sources + targets))
        size = max(1, _MOST_AT_ONCE // longest**2)
        for start in range(0, len(sources), size):
            yield sources[start : start + size], targets[start : start + size]


class _Sums:
    """Sums over the rows of one module, a number a head."""

    def __init__(self, heads: int) -> None:
        self.rows = self.rows_with_choice = self.tokens = 0
        self.entropy = torch.zeros(heads, dtype=torch.float64)
        self.relative = self.entropy.clone()
        self.peak = self.entropy.clone()
        self.mass = self.entropy.clone()
        self.covered = self.entropy.clone()
        self.error = self.entropy.clone()

    def add(
        self, weights: Tensor, queries: Tensor, keys: Tensor, *, causal: bool, covering: bool
    ) -> None:
        """Take in ``weights [B, H, Q, K]``, of which the first so many of a row are no padding."""
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
        # Where there is one key, the entropy is 0 and so is its greatest: such rows add nothing.
        self.relative += (entropy / choices.clamp(min=2).log()[:, None]).sum((0, 2))
        self.peak += shares.amax(3).sum((0, 2))
        self.mass += mass.sum((0, 2))
        if covering:
            received = weights.sum(2)  # [B, H, K]
            tokens = columns & (torch.arange(weights.shape[3]) < keys.cpu()[:, None] - 1)
            self.tokens += int(tokens.sum())
            self.covered += ((received >= COVERED) & tokens[:, None]).sum((0, 2))
            self.error += ((received - 1).abs() * tokens[:, None]).sum((0, 2))

    def statistics(self, module: str, axes: tuple[str, str]) -> list[HeadStatistics]:
        """The means, a head each."""
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
            )
            for head in range(len(self.entropy))
        ]
