"""What stands beside a model of CTranslate2's, so that its folder alone translates text."""

from pathlib import Path
from types import ModuleType
from typing import Literal

from pydantic import Field

from heedful.basics.bounded_reading import parse_json, read_bytes, read_json
from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.basics.limits import MOST_BEAM, MOST_POSITIONS
from heedful.basics.settings import Settings, check
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.tokeniser import Tokenisers
from heedful.inference.alignment import AlignmentRule
from heedful.models.pairs import AlignmentSource

FILE = "heedful.json"
TOKENISER = "tokeniser"
QUANTIZATIONS = ("float32", "int8", "int8_float32", "int16", "float16", "bfloat16")
"""How weights may be kept, by CTranslate2's names."""


class KeptRule(Settings):
    """An alignment rule; heads are counted from 0, and stand first in the exported model."""

    module: str
    heads: tuple[int, ...] | None
    shift: Literal[0, 1]
    threshold: float | None


class Facts(Settings):
    """``heedful.json``: what heedful needs to know of an exported model."""

    format: Literal[1] = 1
    source: str | None
    """The language that is translated from."""
    target: str | None
    max_length: int = Field(ge=2, le=MOST_POSITIONS)
    """Tokens of the longest text, END included."""
    beam: int = Field(ge=1, le=MOST_BEAM)
    length_penalty: float = Field(ge=0)
    alignment: KeptRule
    quantization: str
    parameters: int
    weights: str
    """SHA-256 of the checkpoint's weights."""
    vocabulary: str
    """The tokenisers' fingerprint."""

    @property
    def rule(self) -> AlignmentRule:
        """How its attention is read as an alignment."""
        kept = self.alignment
        return AlignmentRule(
            AlignmentSource(kept.module, kept.heads, kept.shift), threshold=kept.threshold
        )

    @classmethod
    def read(cls, folder: Path) -> "Facts":
        """Those of an exported folder.

        Raises:
            UserError: it is none, or one of a later version.
        """
        path = folder / FILE
        if not path.exists():
            made = "there is no such folder"
            if folder.exists():
                other = (folder / "model.bin").exists()
                made = "another program made it" if other else f"it has no run.json and no {FILE}"
            raise UserError(
                f"{folder} is neither a run nor what heedful export ctranslate2 writes: {made}"
            )
        return check(cls, read_json(path), str(path))

    def write(self, folder: Path) -> None:
        """Write the file into ``folder``."""
        write_json(folder / FILE, self.model_dump(mode="json"))


def is_export(folder: Path) -> bool:
    """Whether a folder is what ``heedful export ctranslate2`` writes, and no run."""
    return (folder / FILE).exists() and not (folder / "run.json").exists()


def read_tokenisers(folder: Path, facts: Facts) -> Tokenisers:
    """The tokenisers of an exported folder.

    Raises:
        UserError: they are missing, damaged, or not those that the model was exported with.
    """
    tokenisers = load_tokenisers(folder / TOKENISER)
    if tokenisers.fingerprint() != facts.vocabulary:
        raise UserError(f"{folder / TOKENISER}: not the tokenisers of this model; export it again")
    return tokenisers


def read_symbols(folder: Path) -> tuple[list[str], list[str]]:
    """The names of the source's and the target's symbols, by number.

    Raises:
        UserError: a file is missing or damaged.
    """
    shared = folder / "shared_vocabulary.json"
    if shared.exists():
        names = _names(shared)
        return names, names
    source, target = (_names(folder / f"{side}_vocabulary.json") for side in ("source", "target"))
    return source, target


def _names(path: Path) -> list[str]:
    names = parse_json(read_bytes(path), str(path))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: no list of symbols; the file is damaged")
    return names


def check_quantization(name: str | None) -> str | None:
    """Raise UserError for a way of keeping weights that CTranslate2 does not have."""
    if name is not None and name not in QUANTIZATIONS:
        raise UserError(f"unknown quantization '{name}'; use {', '.join(QUANTIZATIONS)}")
    return name


def require_ctranslate2() -> ModuleType:
    """The package.

    Raises:
        UserError: it is not installed.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise UserError(
            "the package ctranslate2 is not installed (pip install 'heedful[ctranslate2]')"
        ) from error
    module: ModuleType = ctranslate2
    return module
