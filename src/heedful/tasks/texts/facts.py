"""The facts in ``run.json`` of runs for single texts."""

from pydantic import BaseModel

from heedful.runs.facts import Count, Facts, Size


class _TextVocabulary(BaseModel):
    size: Size
    fingerprint: str
    sentence_ends: list[Count] = []
    separators: list[Count] = []


class _TextData(BaseModel):
    hashes: dict[str, list[str]]


class _Set(BaseModel):
    labels: list[str]
    train: Count
    unit: str
    validation: Count
    test: Count


class TextFacts(Facts):
    """The facts of a run for single texts."""

    data: _TextData
    sets: dict[str, _Set]
    vocabulary: _TextVocabulary
