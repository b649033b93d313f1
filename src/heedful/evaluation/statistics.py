"""Sufficient statistics: a few numbers per sentence whose sums determine a corpus score.

BLEU, chrF and TER are functions of sums over sentences. From statistics that are computed once per
sentence, the scores of the corpus, of parts of it and of thousands of resamples are computed
without reading the texts again.

Letters: `N` sentences, `S` statistics of one sentence, `R` resamples.
"""

import copy
import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.base import Score as SacrebleuScore
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from heedful.basics.errors import UserError
from heedful.data.examples import require_list
from heedful.evaluation.correlation import is_constant

MetricName = Literal["bleu", "chrf", "ter"]
METRICS: tuple[MetricName, ...] = get_args(MetricName)
DEFAULT_SEED = 12345

# A variance below this part of the mean square is a rounding error.
_ROUNDING = 1e-12

# Random bits are drawn in blocks, to limit memory for large corpora. Blocks of a multiple of 32
# give the same stream as a single draw.
_BLOCK = 64


class Statistics(Protocol):
    """Statistics of examples whose sum determines a figure."""

    @property
    def name(self) -> str:
        """The name of the figure."""
        ...

    @property
    def rises(self) -> bool:
        """Whether a higher value is better."""
        ...

    @property
    def values(self) -> NDArray[np.float64]:
        """`[N, S]`, the statistics of each example."""
        ...

    def value_of_sum(self, total: NDArray[np.float64]) -> float:
        """The figure for summed statistics `[S]`."""
        ...


@dataclass(frozen=True)
class MeanStatistics:
    """Statistics of a figure that is a mean over examples, such as the accuracy.

    Attributes:
        name: the name of the figure.
        values: `[N, 2]`: a sum and a count for each example.
        scale: factor of the mean: 100 for per cent.
        rises: whether a higher value is better.
    """

    name: str
    values: NDArray[np.float64]
    scale: float = 1.0
    rises: bool = True

    def value_of_sum(self, total: NDArray[np.float64]) -> float:
        """The mean for summed statistics `[2]`."""
        return float(self.scale * total[0] / max(total[1], 1.0))


@dataclass(frozen=True)
class PearsonStatistics:
    """Statistics of Pearson's correlation of numbers with the right ones.

    Attributes:
        name: the name of the figure.
        values: `[N, 6]`: 1, x, y, x², y², xy of each example.
        rises: whether a higher value is better.
    """

    name: str
    values: NDArray[np.float64]
    rises: bool = True

    def value_of_sum(self, total: NDArray[np.float64]) -> float:
        """The correlation for summed statistics `[6]`; 0 if one side is constant."""
        _, x, y, xx, yy, xy = total / max(total[0], 1.0)
        own, other = xx - x * x, yy - y * y
        if own <= _ROUNDING * xx or other <= _ROUNDING * yy:
            return 0.0
        return float((xy - x * y) / (own**0.5 * other**0.5))


@dataclass(frozen=True)
class F1Statistics:
    """Statistics of the F1 of things that are found, such as names.

    Attributes:
        name: the name of the figure.
        values: `[N, 3]`: right, found and true ones of each example.
        rises: whether a higher value is better.
    """

    name: str
    values: NDArray[np.float64]
    rises: bool = True

    def value_of_sum(self, total: NDArray[np.float64]) -> float:
        """The F1 for summed statistics `[3]`; 0 if there is nothing to find and nothing found."""
        return float(2 * total[0] / max(total[1] + total[2], 1.0))


@dataclass(frozen=True)
class SentenceStatistics:
    """The statistics of all sentences for one metric.

    Attributes:
        metric: sacrebleu's metric object.
        values: `[N, S]`, the statistics of each sentence.
    """

    metric: SacrebleuMetric
    values: NDArray[np.float64]

    @property
    def name(self) -> str:
        """sacrebleu's name of the metric."""
        return str(self.score().name)

    @property
    def rises(self) -> bool:
        """Whether a higher value is better."""
        return not isinstance(self.metric, TER)

    def score(self, rows: Sequence[int] | NDArray[np.intp] | None = None) -> SacrebleuScore:
        """The score of all sentences, or of ``rows``."""
        chosen = self.values if rows is None else self.values[np.asarray(rows, dtype=np.intp)]
        return self.score_of_sum(chosen.sum(axis=0))

    def score_of_sum(self, total: NDArray[np.float64]) -> SacrebleuScore:
        """The score for summed statistics `[S]`."""
        score: SacrebleuScore = self.metric._compute_score_from_stats(total.tolist())
        return score

    def value_of_sum(self, total: NDArray[np.float64]) -> float:
        """Like :meth:`score_of_sum`, but only the value."""
        return float(self.score_of_sum(total).score)

    def sentence_values(self) -> list[float]:
        """The score of each sentence alone."""
        return [self.value_of_sum(row) for row in self.values]

    def by_sentence(self) -> "SentenceStatistics":
        """The same statistics, for scores of single sentences.

        BLEU then uses only the n-gram orders that occur; other metrics are unchanged.
        """
        if not isinstance(self.metric, BLEU):
            return self
        metric = copy.copy(self.metric)
        metric.effective_order = True
        return SentenceStatistics(metric, self.values)

    def subset(self, rows: Sequence[int]) -> "SentenceStatistics":
        """The statistics of some sentences."""
        return SentenceStatistics(self.metric, self.values[np.asarray(rows, dtype=np.intp)])

    def resampled(self, resamples: int, seed: int) -> NDArray[np.float64]:
        """See :func:`resample`."""
        return resample(self, resamples, seed)


def resample(statistics: Statistics, resamples: int, seed: int) -> NDArray[np.float64]:
    """Figures `[R]` of corpora drawn with replacement from this one (Koehn 2004, section 3)."""
    return np.array(
        [
            statistics.value_of_sum(times @ statistics.values)
            for times in draw_with_replacement(len(statistics.values), resamples, seed)
        ]
    )


def measure(
    name: str, settings: Mapping[str, Any], outputs: Sequence[str], references: Sequence[str]
) -> Statistics:
    """The statistics that ``Examples.measures`` describes.

    Args:
        name: the name of the figure.
        settings: ``kind`` is ``pearson``, ``f1`` (with ``values``), ``mean`` (with ``values`` and
            ``scale``) or a metric (with ``tokenise``, ``lowercase``, ``order`` and, if there are
            several for each output, ``references``).
        outputs: one for each example.
        references: one for each output.
    """
    how = {key: value for key, value in settings.items() if key != "kind"}
    if settings["kind"] == "pearson":
        x, y = (_standardised([float(one) for one in side]) for side in (outputs, references))
        stacked = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
        return PearsonStatistics(name, stacked)
    if settings["kind"] == "f1":
        return F1Statistics(name, np.array(how["values"], dtype=np.float64))
    if settings["kind"] == "mean":
        values = np.array(how.pop("values"), dtype=np.float64)
        return MeanStatistics(name, values, **how)
    return collect(settings["kind"], outputs, how.pop("references", references), **how)


def _standardised(numbers: list[float]) -> NDArray[np.float64]:
    """Numbers with mean 0 and variance 1, or zeros if they are constant.

    A correlation does not change. Squares of numbers that are far from 0 are exact, and the outputs
    of two systems can be swapped although their scales differ.
    """
    values = np.array(numbers, dtype=np.float64)
    if is_constant(numbers):
        return np.zeros_like(values)
    values -= values.mean()
    values /= np.abs(values).max()  # so that no square overflows or becomes 0
    values /= values.std()
    return values


def draw_with_replacement(sentences: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """The number of times `[N]` that each sentence is drawn, for each resample.

    The random stream is that of sacrebleu for the same seed.
    """
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        rows = generator.choice(sentences, size=sentences, replace=True)
        yield np.bincount(rows, minlength=sentences)


def draw_swaps(sentences: int, trials: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Blocks `[≤64, N]` of fair coin flips; the same stream as sacrebleu's for this seed."""
    generator = np.random.default_rng(seed)
    for start in range(0, trials, _BLOCK):
        size = (min(_BLOCK, trials - start), sentences)
        yield generator.integers(2, size=size, dtype=np.bool_)


def percentile_interval(scores: NDArray[np.float64]) -> tuple[float, float]:
    """The bounds without the lowest and highest fortieth of the scores (95 % interval)."""
    ordered = np.sort(scores)
    outside = len(ordered) // 40
    return float(ordered[outside]), float(ordered[len(ordered) - outside - 1])


def collect(
    name: MetricName,
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    *,
    tokenise: str = "13a",
    lowercase: bool = False,
    order: int = 4,
) -> SentenceStatistics:
    """Read the texts once and compute the statistics of each sentence.

    Args:
        name: the metric.
        hypotheses: the outputs, one per sentence.
        references: the reference translations: one for each output, or a list for each.
        tokenise: sacrebleu's tokeniser for BLEU (``13a``, ``none``, ``intl``, ``zh``, ``char``, …).
        lowercase: whether to compare in lower case (TER always does, as in sacrebleu).
        order: the longest n-grams of BLEU.

    Raises:
        UserError: the numbers differ, there is nothing to score, or the tokeniser is not available.
    """
    several = [[one] if isinstance(one, str) else list(one) or [""] for one in references]
    check_parallel(hypotheses, several)
    metric: SacrebleuMetric
    if name == "bleu":
        metric = _bleu(tokenise, lowercase, order)
    elif name == "chrf":
        metric = CHRF(lowercase=lowercase)
    elif name == "ter":
        metric = TER()
    else:
        raise UserError(f"unknown metric '{name}'; use {', '.join(METRICS)}")
    # Where sentences have different numbers of references, sacrebleu ignores None.
    by_place = list(map(list, itertools.zip_longest(*several)))
    rows = metric._extract_corpus_statistics(list(hypotheses), by_place)
    return SentenceStatistics(metric, np.array(rows, dtype=np.float64))


def check_parallel(hypotheses: Sequence[str], references: Sequence[object]) -> None:
    """Check that two lists can belong together.

    Raises:
        UserError: one is a string, or the numbers differ or are zero.
    """
    for texts in (hypotheses, references):
        require_list(texts, "a comparison")
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references; "
            "give one reference line for each hypothesis, in the same order"
        )
    if not hypotheses:
        raise UserError("nothing to score: there are no sentences; give a test set with some")


def check_tokeniser(tokenise: str, *, present: bool = True) -> None:
    """Check that sacrebleu supports a tokeniser for BLEU.

    Args:
        tokenise: the name of the tokeniser.
        present: also require the packages and files that it needs.

    Raises:
        UserError: the tokeniser is not supported; the message suggests another one.
    """
    known = list(BLEU.TOKENIZERS)
    if tokenise not in known:
        near = difflib.get_close_matches(tokenise, known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(known)}"
        raise UserError(f"unknown tokeniser '{tokenise}' for BLEU; {hint}")
    if present:
        _bleu(tokenise, lowercase=False)


def _bleu(tokenise: str, lowercase: bool, order: int = 4) -> BLEU:
    check_tokeniser(tokenise, present=False)
    try:
        # `force` only silences sacrebleu's warning about texts that look tokenised.
        return BLEU(tokenize=tokenise, lowercase=lowercase, max_ngram_order=order, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"tokeniser '{tokenise}' for BLEU cannot be used here: {reason}; "
            "install what it needs or use 13a, intl or char"
        ) from error
