"""Load vocabularies and tokenisers of any kind. The files cannot contain code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.data.byte_vocabulary import ByteVocabulary
from heedful.data.imported_tokenisers import KIND as IMPORTED_PAIR
from heedful.data.imported_tokenisers import load_imported
from heedful.data.imported_vocabulary import ImportedVocabulary
from heedful.data.listed_vocabularies import Characters, Words
from heedful.data.m2m_tokenisers import KIND as M2M
from heedful.data.m2m_tokenisers import load_m2m
from heedful.data.marian_tokenisers import load_marian
from heedful.data.tokeniser import INDEX as TOKENISERS_INDEX
from heedful.data.tokeniser import Tokenisers
from heedful.data.vocabularies import FORMAT, INDEX, SavedVocabulary, Subwords

T = TypeVar("T")

_LOADERS: dict[str, Callable[[Path, dict[str, Any]], SavedVocabulary]] = {
    "bpe": Subwords.load,
    "unigram": Subwords.load,
    "bytes": ByteVocabulary.load,
    "characters": Characters.load,
    "words": Words.load,
    "imported": ImportedVocabulary.load,
}


def load_vocabulary(folder: Path) -> SavedVocabulary:
    """Load a vocabulary that :func:`heedful.data.vocabularies.save_vocabulary` wrote.

    Raises:
        UserError: a file is missing, damaged, or of an unknown kind.
    """
    path = folder / INDEX
    index = read_json(path)
    kind = index.get("kind")
    if index.get("format") != FORMAT or not isinstance(kind, str):
        raise UserError(f"{path}: not a vocabulary that this version of heedful reads")
    if kind not in _LOADERS:
        raise UserError(
            f"{path}: unknown kind '{kind}'; known kinds are {', '.join(sorted(_LOADERS))}"
        )
    return _LOADERS[kind](folder, index)


def with_vocabulary(make: Callable[..., T], folder: Path, *settings: Any) -> T:
    """What ``make`` returns for the vocabulary in a folder and ``settings``.

    Raises:
        UserError: see `load_vocabulary`.
    """
    return make(load_vocabulary(folder), *settings)


def load_tokenisers(folder: Path) -> Tokenisers:
    """Load tokenisers that :meth:`Tokenisers.save`, or an imported translator, wrote.

    Raises:
        UserError: a file is missing, damaged, or has changed since it was saved.
    """
    index = read_json(folder / TOKENISERS_INDEX)
    if index.get("kind") == "marian":
        return load_marian(folder, index)
    if index.get("kind") == M2M:
        return load_m2m(folder, index)
    if index.get("kind") == IMPORTED_PAIR:
        return load_imported(folder, index)
    return Tokenisers.load(folder, index)
