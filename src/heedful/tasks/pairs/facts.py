"""The facts in ``run.json`` of runs for pairs of texts."""

from pydantic import BaseModel

from heedful.runs.facts import Count, Facts, Size


class _PairVocabulary(BaseModel):
    source: Size
    target: Size
    fingerprint: str


class PairData(BaseModel):
    """The facts about the data."""

    hashes: dict[str, list[str]]
    train_pairs: Count
    left_out: dict[str, Count]
    validation_pairs: Count
    test_pairs: Count


class PairFacts(Facts):
    """The facts of a run for pairs of texts."""

    source: str | None = None
    target: str | None = None
    data: PairData
    vocabulary: _PairVocabulary
