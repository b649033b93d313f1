"""Corpus scores through sacrebleu, each with its signature and a bootstrap interval; perplexity."""

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
    """One corpus score, between 0 and 100 (TER may be higher; there lower is better).

    Attributes:
        name: ``BLEU``, ``chrF2`` or ``TER``.
        value: the score of the whole corpus.
        signature: sacrebleu's own, which says how it was made.
        low: lower bound of the 95 % bootstrap interval; None without resampling.
        high: its upper bound.
        detail: what the score is made of, e.g. precisions, brevity penalty and lengths.
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
        hypotheses: outputs, one a sentence.
        references: right translations, as many.
        metrics: which of ``bleu``, ``chrf`` and ``ter``, in the order wanted.
        tokenise: sacrebleu's tokeniser for BLEU; ``none`` for texts that are tokenised already.
        lowercase: compare in lower case.
        bootstrap: number of resamples for the interval; below 2 there is none.
        seed: of the resampling; with the default the interval is what ``sacrebleu -ci`` finds.

    Raises:
        UserError: the counts differ, there is nothing to score, or the tokeniser is not to be had.

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
    """The corpus score of statistics collected before."""
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
    """Corpus BLEU alone, quickly: what validation during training looks at."""
    return float(collect("bleu", hypotheses, references, tokenise=tokenise).score().score)


def perplexity(total_negative_log_likelihood: float, tokens: int) -> float:
    """``exp`` of the mean negative log-likelihood (in nats) of a token.

    Infinite where there is nothing to average or the mean is too large for a number.

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
