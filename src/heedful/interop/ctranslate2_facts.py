"""Files in an exported CTranslate2 folder, beside the model, that translation of text needs."""

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
"""Data types of stored weights, by CTranslate2's names."""


class KeptRule(Settings):
    """An alignment rule; heads are counted from 0 and come first in the exported model."""

    module: str
    heads: tuple[int, ...] | None
    shift: Literal[0, 1]
    threshold: float | None


class Facts(Settings):
    """``heedful.json``: facts about an exported model."""

    format: Literal[1] = 1
    source: str | None
    """The source language."""
    target: str | None
    max_length: int = Field(ge=2, le=MOST_POSITIONS)
    """Maximum tokens of a text, END included."""
    beam: int = Field(ge=1, le=MOST_BEAM)
    length_penalty: float = Field(ge=0, le=10, allow_inf_nan=False)
    alignment: KeptRule
    quantization: str
    parameters: int
    weights: str
    """SHA-256 of the checkpoint's weights."""
    vocabulary: str
    """The fingerprint of the tokenisers."""

    @property
    def rule(self) -> AlignmentRule:
        """The rule by which alignments are read from its attention."""
        kept = self.alignment
        return AlignmentRule(
            AlignmentSource(kept.module, kept.heads, kept.shift), threshold=kept.threshold
        )

    @classmethod
    def read(cls, folder: Path) -> "Facts":
        """Read the facts of an exported folder.

        Raises:
            UserError: the folder is not an export, or of a later version.
        """
        path = folder / FILE
        if not path.exists():
            made = "the folder does not exist"
            if folder.exists():
                other = (folder / "model.bin").exists()
                made = "another program made it" if other else f"it has no run.json and no {FILE}"
            raise UserError(
                f"{folder} is neither a run nor an export of heedful export ctranslate2: {made}"
            )
        return check(cls, read_json(path), str(path))

    def write(self, folder: Path) -> None:
        """Write the file into ``folder``."""
        write_json(folder / FILE, self.model_dump(mode="json"))


def is_export(folder: Path) -> bool:
    """Whether a folder is an export of ``heedful export ctranslate2``."""
    return (folder / FILE).exists() and not (folder / "run.json").exists()


def read_tokenisers(folder: Path, facts: Facts) -> Tokenisers:
    """The tokenisers of an exported folder.

    Raises:
        UserError: they are missing, damaged, or not those of the exported model.
    """
    tokenisers = load_tokenisers(folder / TOKENISER)
    if tokenisers.fingerprint() != facts.vocabulary:
        raise UserError(f"{folder / TOKENISER}: not the tokenisers of this model; export it again")
    return tokenisers


def read_symbols(folder: Path) -> tuple[list[str], list[str]]:
    """The names of source and target symbols, by id.

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
        raise UserError(f"{path}: not a list of symbols; the file is damaged")
    return names


def check_quantization(name: str | None) -> str | None:
    """Raise UserError for a data type of weights that CTranslate2 does not support."""
    if name is not None and name not in QUANTIZATIONS:
        raise UserError(f"unknown quantization '{name}'; use {', '.join(QUANTIZATIONS)}")
    return name


def require_ctranslate2() -> ModuleType:
    """Import the package.

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
