"""ROUGE: the overlap of summaries with references, by the package rouge-score.

Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries": ROUGE-N (section 2) compares
n-grams, ROUGE-L (section 3.1) the longest common subsequence of words. Values are F1. Texts are in
lower case without punctuation, and words of ASCII letters are stemmed, as is usual for English.
Words with other letters, which the tokeniser of the package deletes, are kept.
"""

import functools
import unicodedata
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.data.filters import is_unspaced
from heedful.evaluation.outcome import Figure
from heedful.evaluation.statistics import (
    DEFAULT_SEED,
    MeanStatistics,
    percentile_interval,
    resample,
)

Several = Literal["best", "each"]
"""How several references are used: those of the reference with the highest ROUGE-1, or for each
metric those of the reference with its highest value."""
NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
"""The package's name of each metric → the name of its figure."""
_RESAMPLES = 1000


def rouge_values(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, several: Several = "best"
) -> NDArray[np.float64]:
    """F1 of ROUGE-1, ROUGE-2 and ROUGE-L of each output, ``[N, 3]`` in [0, 1].

    Args:
        outputs: one for each example; an empty output has 0.
        references: one or more for each output.
        several: how several references are used.

    Raises:
        ValueError: the numbers of outputs and references differ, or an output has no reference.

    Example:
        >>> rouge_values(["the cat sat"], [["a dog ran", "The cats sat down."]]).round(3)
        array([[0.857, 0.8  , 0.857]])
    """
    if len(outputs) != len(references) or not all(references):
        raise ValueError(f"{len(outputs)} outputs for {len(references)} lists of references")
    found = np.zeros((len(outputs), len(NAMES)))
    for row, output, own in zip(found, outputs, references, strict=True):
        values = np.array([_of_one(reference, output) for reference in own])
        row[:] = values.max(0) if several == "each" else values[values[:, 0].argmax()]
    return found


def _of_one(reference: str, output: str) -> list[float]:
    found = _scorer().score(reference, output)
    return [found[name].fmeasure for name in NAMES]


@functools.lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # it takes a second to import

    return RougeScorer(list(NAMES), tokenizer=_Words())


class _Words:
    """Splits texts of all scripts; ASCII texts as the package with its stemmer does."""

    def __init__(self) -> None:
        from rouge_score.tokenizers import DefaultTokenizer

        self._of_ascii = DefaultTokenizer(use_stemmer=True)

    def tokenize(self, text: str) -> list[str]:
        """The words of a text; in scripts without spaces, each character is one."""
        found: list[str] = []
        for word in "".join(map(_spread, unicodedata.normalize("NFC", text.lower()))).split():
            if word.isascii():
                found += self._of_ascii.tokenize(word)
            elif word[0].isalnum() or is_unspaced(word[0]):  # not a mark alone
                found.append(word)
        return found


def _spread(character: str) -> str:
    """A letter, digit or mark, with spaces in scripts without; a space for any other character."""
    if unicodedata.category(character)[0] not in "LMN":
        return " "
    return f" {character} " if is_unspaced(character) else character


def mean_rouge(values: NDArray[np.float64]) -> dict[str, float]:
    """Metric → the mean of ``values [N, 3]``, from 0 to 100."""
    return dict(zip(NAMES, (100 * values.mean(0)).tolist(), strict=True))


def rouge_intervals(
    values: NDArray[np.float64], seed: int = DEFAULT_SEED
) -> dict[str, tuple[float, float]]:
    """Metric → the bounds of the 95 % bootstrap interval of its mean, from 0 to 100."""
    return {
        name: percentile_interval(resample(measure_of(values, place), _RESAMPLES, seed))
        for place, name in enumerate(NAMES)
    }


def measure_of(values: NDArray[np.float64], place: int) -> MeanStatistics:
    """The statistics of one metric."""
    column = np.stack([values[:, place], np.ones(len(values))], 1)
    return MeanStatistics(list(NAMES.values())[place], column, scale=100.0)


def signature(several: Several) -> str:
    """How figures are computed."""
    return f"rouge-score {version('rouge-score')}|tok:unicode|stemmer|f1|references:{several}"


def rouge_figures(values: NDArray[np.float64], several: Several = "best") -> dict[str, Figure]:
    """The figures of ``values [N, 3]``, with 95 % intervals."""
    intervals, means = rouge_intervals(values), mean_rouge(values)
    return {
        NAMES[name]: Figure(mean, low=low, high=high, signature=signature(several))
        for (name, mean), (low, high) in zip(means.items(), intervals.values(), strict=True)
    }


def measures(values: NDArray[np.float64]) -> dict[str, dict[str, Any]]:
    """Figure → how it is computed from ``values [N, 3]``, for
    :func:`heedful.evaluation.statistics.measure`."""
    return {
        name: {"kind": "mean", "values": [[float(row[place]), 1.0] for row in values], "scale": 100}
        for place, name in enumerate(NAMES.values())
    }
