"""Breakdowns of scores by source length and by sentence, and counts of typical faults."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from heedful.basics.errors import UserError
from heedful.evaluation.metrics import Score, score_statistics
from heedful.evaluation.statistics import (
    DEFAULT_SEED,
    MetricName,
    SentenceStatistics,
    check_parallel,
    collect,
)

LengthUnit = Literal["words", "characters"]
WORD_BOUNDS = (5, 10, 15, 20, 30, 40, 60, 80, 100, 120)
CHARACTER_BOUNDS = (10, 20, 40, 60, 100, 150, 250)

_LOOPED_PHRASE = 3
_LOOPED_WORD_TIMES = 3
_LOOPED_CHARACTERS = re.compile(r"(\S.{0,19}?)\1{4,}", re.DOTALL)
_SHORT, _LONG, _SLACK = 0.5, 2.0, 10


@dataclass(frozen=True)
class LengthBucket:
    """Sentences whose source has ``shortest`` to ``longest`` units (None: no upper limit)."""

    shortest: int
    longest: int | None
    unit: LengthUnit
    count: int
    scores: list[Score]

    @property
    def name(self) -> str:
        """For example ``6–10`` or ``61+``."""
        if self.longest is None:
            return f"{self.shortest}+"
        return f"{self.shortest}–{self.longest}"


@dataclass(frozen=True)
class SentenceScore:
    """The scores of one sentence; ``index`` counts from 0."""

    index: int
    chrf: float
    bleu: float


@dataclass(frozen=True)
class Faults:
    """Sentences with faults that can be detected without judging meaning, by index from 0.

    Attributes:
        count: number of sentences checked.
        copies: the output equals the source, and the reference does not.
        empty: the output is empty, and the reference is not.
        repeats: the output repeats itself, and the reference does not
            (:func:`repeats_itself`).
        too_short: less than half as many characters as the reference, by more than ten; not empty.
        too_long: more than twice as many characters as the reference, by more than ten.
    """

    count: int
    copies: list[int]
    empty: list[int]
    repeats: list[int]
    too_short: list[int]
    too_long: list[int]


def natural_unit(texts: Sequence[str]) -> LengthUnit:
    """Words; characters for scripts without spaces between words.

    Example:
        >>> natural_unit(["Good morning"]), natural_unit(["今天天气很好,我们去公园散步吧。"])
        ('words', 'characters')
    """
    words = [word for text in texts for word in text.split()]
    return "characters" if sum(map(len, words)) > 12 * max(len(words), 1) else "words"


def score_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName] = ("bleu", "chrf"),
    unit: LengthUnit | None = None,
    bounds: Sequence[int] | None = None,
    tokenise: str = "13a",
    lowercase: bool = False,
    bootstrap: int = 1000,
    seed: int = DEFAULT_SEED,
) -> list[LengthBucket]:
    """Scores by source length.

    Args:
        sources: the source texts.
        hypotheses: the outputs, one for each source.
        references: the reference translations, one for each source.
        metrics: the scores to compute.
        unit: the unit of source length; by default, determined by the script.
        bounds: the upper bound of each bucket, increasing; another bucket has all longer ones.
        tokenise: sacrebleu's tokeniser for BLEU.
        lowercase: whether to compare in lower case.
        bootstrap: number of resamples for the interval of each bucket.
        seed: of the resampling.

    Returns:
        The buckets that contain sentences, shortest first.

    Raises:
        UserError: the numbers differ, there is nothing to score, or the bounds do not increase.
    """
    statistics = [
        collect(name, hypotheses, references, tokenise=tokenise, lowercase=lowercase)
        for name in metrics
    ]
    return bucket_statistics(
        sources, statistics, unit=unit, bounds=bounds, bootstrap=bootstrap, seed=seed
    )


def bucket_statistics(
    sources: Sequence[str],
    statistics: Sequence[SentenceStatistics],
    *,
    unit: LengthUnit | None = None,
    bounds: Sequence[int] | None = None,
    bootstrap: int = 1000,
    seed: int = DEFAULT_SEED,
) -> list[LengthBucket]:
    """Like :func:`score_by_length`, with statistics that were collected before."""
    for each in statistics:
        _check_sources(len(sources), len(each.values))
    return [
        LengthBucket(
            shortest=found.shortest,
            longest=found.longest,
            unit=found.unit,
            count=len(found.rows),
            scores=[
                score_statistics(each.subset(found.rows), bootstrap, seed) for each in statistics
            ],
        )
        for found in rows_by_length(sources, unit=unit, bounds=bounds)
    ]


class LengthRows(NamedTuple):
    """The rows of the texts with ``shortest`` to ``longest`` units (None: no upper limit)."""

    shortest: int
    longest: int | None
    unit: LengthUnit
    rows: list[int]


def rows_by_length(
    texts: Sequence[str],
    *,
    unit: LengthUnit | None = None,
    bounds: Sequence[int] | None = None,
) -> list[LengthRows]:
    """Divide texts by length; the arguments and errors are those of :func:`score_by_length`.

    Example:
        >>> [(each.shortest, each.longest, each.rows) for each in rows_by_length(["a", "b c " * 4])]
        [(1, 5, [0]), (6, 10, [1])]
    """
    unit = unit or natural_unit(texts)
    bounds = bounds or (WORD_BOUNDS if unit == "words" else CHARACTER_BOUNDS)
    if list(bounds) != sorted(set(bounds)) or bounds[0] < 1:
        raise UserError(f"length bounds {list(bounds)} must be increasing whole numbers above 0")
    rows: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for index, text in enumerate(texts):
        length = len(text.split()) if unit == "words" else len(text.strip())
        rows[sum(length > bound for bound in bounds)].append(index)
    return [
        LengthRows(
            shortest=bounds[place - 1] + 1 if place else min(1, _shortest(texts, chosen)),
            longest=bounds[place] if place < len(bounds) else None,
            unit=unit,
            rows=chosen,
        )
        for place, chosen in enumerate(rows)
        if chosen
    ]


def rank_sentences(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenise: str = "13a",
    lowercase: bool = False,
) -> list[SentenceScore]:
    """chrF and BLEU of every sentence, worst first.

    The order is by chrF, then BLEU. Among equal scores, longer references are nearer to their end
    of the list, because long sentences are more informative. Pairs whose output and reference are
    both empty are left out: they are correct, and their score is undefined.

    Raises:
        UserError: the numbers differ, or there is nothing to score.
    """
    chrf = collect("chrf", hypotheses, references, lowercase=lowercase)
    bleu = collect("bleu", hypotheses, references, tokenise=tokenise, lowercase=lowercase)
    return rank_statistics(hypotheses, references, chrf, bleu)


def rank_statistics(
    hypotheses: Sequence[str],
    references: Sequence[str],
    chrf_statistics: SentenceStatistics,
    bleu_statistics: SentenceStatistics,
) -> list[SentenceScore]:
    """Like :func:`rank_sentences`, with statistics that were collected before."""
    by_chrf = chrf_statistics.by_sentence().sentence_values()
    by_bleu = bleu_statistics.by_sentence().sentence_values()
    ranked = [
        SentenceScore(index, chrf, bleu)
        for index, (chrf, bleu) in enumerate(zip(by_chrf, by_bleu, strict=True))
        if hypotheses[index].strip() or references[index].strip()
    ]

    def order(sentence: SentenceScore) -> tuple[float, float, int]:
        length = len(references[sentence.index])
        outward = length if sentence.chrf > 50 else -length
        return (round(sentence.chrf, 6), round(sentence.bleu, 6), outward)

    return sorted(ranked, key=order)


def find_faults(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> Faults:
    """Count the outputs that are a copy, empty, repetitive, far too short or far too long.

    It is no fault if the reference has the same property: names may be copied, slogans repeat.

    Raises:
        UserError: the numbers differ, or there is nothing to check.
    """
    check_parallel(hypotheses, references)
    _check_sources(len(sources), len(hypotheses))
    triples = [
        (" ".join(source.split()), " ".join(hypothesis.split()), " ".join(reference.split()))
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]

    def where(test: Callable[[str, str, str], bool]) -> list[int]:
        return [index for index, triple in enumerate(triples) if test(*triple)]

    return Faults(
        count=len(triples),
        copies=where(lambda src, hyp, ref: hyp == src != ref and hyp != ""),
        empty=where(lambda _, hyp, ref: hyp == "" != ref),
        repeats=where(lambda _, hyp, ref: repeats_itself(hyp) and not repeats_itself(ref)),
        too_short=where(
            lambda _, hyp, ref: len(hyp) < min(_SHORT * len(ref), len(ref) - _SLACK) and hyp != ""
        ),
        too_long=where(lambda _, hyp, ref: len(hyp) > max(_LONG * len(ref), len(ref) + _SLACK)),
    )


def repeats_itself(text: str) -> bool:
    """Whether a text contains a loop of a phrase, a word or characters.

    True if three or more words are immediately repeated, if one or two words occur three times
    in a row, or if up to twenty characters occur five times in a row (which also detects loops in
    scripts without spaces).

    Example:
        >>> repeats_itself("the man in the man in the park"), repeats_itself("no no no")
        (True, True)
        >>> repeats_itself("he said that that was good")
        False
    """
    words = text.split()
    for size in range(1, len(words) // 2 + 1):
        # A run of matches between each word and the word `size` positions later is a repetition.
        needed = size * (_LOOPED_WORD_TIMES - 1) if size < _LOOPED_PHRASE else size
        run = 0
        for here, there in zip(words, words[size:], strict=False):
            run = run + 1 if here == there else 0
            if run >= needed:
                return True
    return _LOOPED_CHARACTERS.search(text) is not None


def _check_sources(sources: int, hypotheses: int) -> None:
    if sources != hypotheses:
        raise UserError(
            f"{sources} sources but {hypotheses} hypotheses; "
            "give one source line for each hypothesis, in the same order"
        )


def _shortest(sources: Sequence[str], rows: Sequence[int]) -> int:
    return min(len(sources[row].strip()) for row in rows)
