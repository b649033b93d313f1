"""The fields that ``run.json`` must have; others are kept as they are."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS

Count = Annotated[int, Field(ge=0, strict=True)]
Size = Annotated[int, Field(ge=1, le=MOST_SYMBOLS + 5, strict=True)]


class _Start(BaseModel):
    """Another run, and the hash of the weights of its chosen checkpoint."""

    run: str
    checkpoint: str
    weights: str


class _Imported(BaseModel):
    layout: str
    folder: str
    heads: list[str] | None = None


class Facts(BaseModel):
    """The fields that every run has."""

    made_with: dict[str, Any]
    started_from: _Start | None = None
    teacher: _Start | None = None
    imported: _Imported | None = None
    vectors: dict[str, Any] | None = None


def check_facts(kind: type[Facts], facts: dict[str, Any], path: Path) -> None:
    """Raise UserError unless ``facts``, the content of ``path``, are valid for a kind of run."""
    try:
        kind.model_validate(facts)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(f"{path}: '{place}': {problem['msg']}; the file is damaged") from error
