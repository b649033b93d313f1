"""Corpus scores by sacrebleu, with signatures and bootstrap intervals; perplexity."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sacrebleu.metrics.base import Score as SacrebleuScore
from sacrebleu.metrics.bleu import BLEUScore
from sacrebleu.metrics.chrf import CHRFScore
from sacrebleu.metrics.ter import TERScore

from heedful.evaluation.statistics import (
    DEFAULT_SEED,
    METRICS,
    MetricName,
    SentenceStatistics,
    collect,
    percentile_interval,
)


@dataclass(frozen=True)
class Score:
    """A corpus score, from 0 to 100 (TER may be higher; lower TER is better).

    Attributes:
        name: ``BLEU``, ``chrF2`` or ``TER``.
        value: the corpus score.
        signature: sacrebleu's signature, which describes how the score was computed.
        low: lower bound of the 95 % bootstrap interval; None without resampling.
        high: its upper bound.
        detail: the components of the score, e.g. precisions, brevity penalty and lengths.
    """

    name: str
    value: float
    signature: str
    low: float | None = None
    high: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName] = METRICS,
    tokenise: str = "13a",
    lowercase: bool = False,
    bootstrap: int = 1000,
    seed: int = DEFAULT_SEED,
) -> list[Score]:
    """Score a system's output.

    Args:
        hypotheses: the outputs, one per sentence.
        references: the reference translations, one for each output.
        metrics: some of ``bleu``, ``chrf`` and ``ter``, in the order of the results.
        tokenise: sacrebleu's tokeniser for BLEU; ``none`` for texts that are tokenised already.
        lowercase: whether to compare in lower case.
        bootstrap: number of resamples for the interval; below 2, no interval is computed.
        seed: of the resampling; the default gives the intervals of ``sacrebleu -ci``.

    Raises:
        UserError: the numbers differ, there is nothing to score, or the tokeniser is not available.

    Example:
        >>> [score] = score_corpus(["a b c d e"], ["a b c d f"], metrics=["bleu"], bootstrap=0)
        >>> round(score.value, 1), score.signature.split("|")[0]
        (66.9, 'nrefs:1')
    """
    return [
        score_statistics(
            collect(name, hypotheses, references, tokenise=tokenise, lowercase=lowercase),
            bootstrap,
            seed,
        )
        for name in metrics
    ]


def score_statistics(
    statistics: SentenceStatistics, bootstrap: int = 0, seed: int = DEFAULT_SEED
) -> Score:
    """The corpus score from statistics that were collected before."""
    metric = statistics.metric
    score = statistics.score()
    low = high = None
    metric.n_bootstrap = metric.seed = None
    if bootstrap > 1:
        low, high = percentile_interval(statistics.resampled(bootstrap, seed))
        metric.n_bootstrap, metric.seed = bootstrap, str(seed)
    signature = str(metric.get_signature())
    return Score(score.name, float(score.score), signature, low, high, _detail(score))


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenise: str = "13a") -> float:
    """Corpus BLEU only, without an interval: for validation during training."""
    return float(collect("bleu", hypotheses, references, tokenise=tokenise).score().score)


def perplexity(total_negative_log_likelihood: float, tokens: int) -> float:
    """``exp`` of the mean negative log-likelihood (in nats) per token.

    Infinite if there are no tokens, or if the result is too large for a float.

    Example:
        >>> perplexity(20 * math.log(8), 20)
        8.0
    """
    if tokens <= 0:
        return math.inf
    try:
        return round(math.exp(total_negative_log_likelihood / tokens), 12)
    except OverflowError:
        return math.inf


def _detail(score: SacrebleuScore) -> dict[str, Any]:
    if isinstance(score, BLEUScore):
        return {
            "precisions": [float(precision) for precision in score.precisions],
            "brevity_penalty": float(score.bp),
            "length_ratio": float(score.ratio),
            "hypothesis_length": int(score.sys_len),
            "reference_length": int(score.ref_len),
        }
    if isinstance(score, TERScore):
        return {"edits": int(score.num_edits), "reference_length": float(score.ref_length)}
    if isinstance(score, CHRFScore):
        return {
            "character_order": score.char_order,
            "word_order": score.word_order,
            "beta": score.beta,
        }
    return {}
