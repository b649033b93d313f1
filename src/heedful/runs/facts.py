"""What ``run.json`` must say for a run to be used; what else it says is kept as it is."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS

_Count = Annotated[int, Field(ge=0, strict=True)]
_Size = Annotated[int, Field(ge=1, le=MOST_SYMBOLS + 5, strict=True)]


class _Start(BaseModel):
    run: str
    checkpoint: str
    weights: str


class _Imported(BaseModel):
    layout: str
    folder: str
    heads: list[str] | None = None


class _Facts(BaseModel):
    made_with: dict[str, Any]
    started_from: _Start | None = None
    imported: _Imported | None = None
    vectors: dict[str, Any] | None = None


class _PairVocabulary(BaseModel):
    source: _Size
    target: _Size
    fingerprint: str


class _PairData(BaseModel):
    hashes: dict[str, list[str]]
    train_pairs: _Count
    left_out: dict[str, _Count]
    validation_pairs: _Count
    test_pairs: _Count


class PairFacts(_Facts):
    """Of a run that learns from pairs of texts."""

    source: str | None = None
    target: str | None = None
    data: _PairData
    vocabulary: _PairVocabulary


class _TextVocabulary(BaseModel):
    size: _Size
    fingerprint: str
    sentence_ends: list[_Count] = []


class _TextData(BaseModel):
    hashes: dict[str, list[str]]


class _Set(BaseModel):
    labels: list[str]
    train: _Count
    unit: str
    validation: _Count
    test: _Count


class TextFacts(_Facts):
    """Of a run for single texts."""

    data: _TextData
    sets: dict[str, _Set]
    vocabulary: _TextVocabulary


def check_facts(kind: type[PairFacts | TextFacts], facts: dict[str, Any], path: Path) -> None:
    """Raise UserError unless ``facts``, the content of ``path``, have what a kind of run needs."""
    try:
        kind.model_validate(facts)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(f"{path}: '{place}': {problem['msg']}; the file is damaged") from error
