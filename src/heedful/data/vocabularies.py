"""Train, save and load vocabularies of single texts, of any kind."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from heedful.basics.bounded_reading import read_bytes
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, write_json
from heedful.basics.limits import MOST_SYMBOLS
from heedful.basics.settings import Settings, check
from heedful.basics.symbols import END, UNKNOWN
from heedful.data.byte_vocabulary import ByteSettings, ByteVocabulary
from heedful.data.fixed_symbols import digest
from heedful.data.listed_vocabularies import Characters, ListedSettings, Words
from heedful.data.subwords import TokeniserSettings
from heedful.data.tokeniser import Tokeniser
from heedful.data.vocabulary import Vocabulary

__all__ = [
    "SavedVocabulary",
    "Subwords",
    "VocabularySettings",
    "encode_words",
    "save_vocabulary",
    "separators_of",
    "train_vocabulary",
    "unknown_share",
]

FORMAT = 1
INDEX = "vocabulary.json"
MODEL = "vocabulary.model"

_LEAST = {"bpe": 325, "unigram": 325, "bytes": 260, "characters": 5, "words": 5, "imported": 4}
"""Minimum vocabulary sizes: the fixed symbols of each kind without a mask, plus one if needed."""


class VocabularySettings(Settings):
    """Settings of a vocabulary.

    Attributes:
        kind: subwords by merges (``bpe``, Sennrich et al. 2016) or by probability (``unigram``,
            Kudo 2018), with bytes for what is rare; merges of ``bytes`` (Radford et al. 2019);
            single ``characters``; whole ``words`` and punctuation marks. ``imported`` is a
            vocabulary of another library, which is not trained.
        vocabulary_size: number of symbols, including fixed ones; for characters, words and bytes,
            the maximum.
        lower_case: convert texts to lower case; decoded texts are in lower case.
        minimum_count: minimum frequency; rarer words or characters are unknown, and rarer pairs of
            bytes are not merged. Ignored for ``bpe`` and ``unigram``.
        normalise: ``nfc`` composes characters; decoded texts are composed.
        split: for ``words``: split at white space and around punctuation, or at white space only,
            for texts that are already tokenised.
        mask: add a symbol (4) for masked tokens.
    """

    renamed: ClassVar[dict[str, str]] = {"vocabulary": "vocabulary_size"}
    kind: Literal["bpe", "unigram", "characters", "bytes", "words", "imported"] = "bpe"
    vocabulary_size: int = Field(default=8000, ge=5, le=MOST_SYMBOLS)
    lower_case: bool = False
    minimum_count: int = Field(default=1, ge=1)
    normalise: Literal["none", "nfc"] = "none"
    split: Literal["punctuation", "spaces"] = "punctuation"
    mask: bool = False

    @property
    def has_characters(self) -> bool:
        """Whether each symbol is a character or a byte."""
        fewest = _LEAST["bytes"] + self.mask
        return self.kind == "characters" or (
            self.kind == "bytes" and self.vocabulary_size == fewest
        )

    @property
    def is_sampled(self) -> bool:
        """Whether the vocabulary of many texts is learnt from a random sample of them."""
        return self.kind in ("bpe", "unigram", "bytes")

    @model_validator(mode="after")
    def _has_room(self) -> "VocabularySettings":
        least = _LEAST[self.kind] + self.mask
        if self.vocabulary_size < least:
            raise ValueError(
                f"vocabulary_size = {self.vocabulary_size}: kind '{self.kind}' needs at least "
                f"{least} symbols; raise it"
            )
        return self


class SavedVocabulary(Vocabulary, Protocol):
    """A vocabulary that can be saved."""

    def save(self, folder: Path) -> None:
        """Write files into ``folder``, with ``vocabulary.json`` (``format`` and ``kind``) last."""
        ...


class Subwords:
    """A sentencepiece model as the vocabulary of single texts; rare characters become bytes.

    Args:
        tokeniser: the model.
        lower_case: convert texts to lower case.
    """

    def __init__(self, tokeniser: Tokeniser, lower_case: bool = False) -> None:
        self.tokeniser = tokeniser
        self.lower_case = lower_case
        self.kind: str = tokeniser.settings.kind
        self.size = tokeniser.size
        self.mask = tokeniser.mask

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END; an empty text has no tokens."""
        return self.tokeniser.encode(text.lower() if self.lower_case else text)

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """Encode several texts."""
        if self.lower_case:
            texts = [text.lower() for text in texts]
        return self.tokeniser.encode_batch(texts, threads)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN, END and the mask give no text."""
        return self.tokeniser.decode(tokens)

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        return self.tokeniser.decode_batch(batch)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token."""
        return self.tokeniser.pieces(tokens)

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word."""
        return self.tokeniser.word_indices(tokens)

    def word_starts(self) -> list[int]:
        """Tokens that begin with a space, as the first token of each word does."""
        return self.tokeniser.word_starts()

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        return digest(["subwords", self.tokeniser.fingerprint(), str(self.lower_case)])

    def save(self, folder: Path) -> None:
        """Write ``vocabulary.model`` and ``vocabulary.json`` into ``folder``."""
        with atomic_file(folder / MODEL) as file:
            file.write(self.tokeniser.model)
        index = {
            "format": FORMAT,
            "kind": self.kind,
            "lower_case": self.lower_case,
            "settings": self.tokeniser.settings.model_dump(),
            "model": hashlib.sha256(self.tokeniser.model).hexdigest(),
        }
        write_json(folder / INDEX, index)

    @classmethod
    def load(cls, folder: Path, index: dict[str, Any]) -> "Subwords":
        """Load a saved vocabulary.

        Raises:
            UserError: a file is missing, damaged, or has changed since it was saved.
        """
        path, given = folder / MODEL, index.get("settings")
        if not isinstance(given, dict) or not isinstance(index.get("lower_case"), bool):
            raise UserError(f"{folder / INDEX}: not a vocabulary; the file is damaged")
        model = read_bytes(path)
        if hashlib.sha256(model).hexdigest() != index.get("model"):
            raise UserError(f"{path}: not the model that was saved here; the file was changed")
        settings = check(TokeniserSettings, given, str(folder / INDEX), written=True)
        return cls(Tokeniser(model, settings, str(path)), index["lower_case"])


def train_vocabulary(
    texts: Callable[[], Iterable[str]], settings: VocabularySettings, *, seed: int, where: str
) -> SavedVocabulary:
    """Train a vocabulary on a stream of texts.

    Equal texts, settings and seeds give equal vocabularies. A notice has the share of unknown
    tokens.

    Args:
        texts: returns a new stream of texts at each call.
        settings: kind, size and preprocessing of texts.
        seed: seed of the random sample of a large corpus.
        where: description of the texts, for messages ("the training texts").

    Raises:
        VocabularyTooLargeError: the texts support fewer subwords than requested.
        UserError: there are no texts, or a text contains a lone surrogate.
    """
    if settings.kind == "imported":
        raise UserError(
            "tokeniser.kind = 'imported' is for runs of heedful import; train a run that "
            "starts from such a run (--start-from), or choose another kind"
        )
    size, mask = settings.vocabulary_size, settings.mask
    lower_case, normalise = settings.lower_case, settings.normalise
    if settings.kind == "bpe" or settings.kind == "unigram":
        found = TokeniserSettings(kind=settings.kind, vocabulary_size=size, normalise=normalise)
        made = (text.lower() for text in texts()) if lower_case else texts()
        tokeniser = Tokeniser.train(made, found, seed=seed, where=where, mask=mask)
        return Subwords(tokeniser, lower_case)
    least = settings.minimum_count
    if settings.kind == "bytes":
        ready = ByteSettings(lower_case=lower_case, normalise=normalise, mask=mask)
        return ByteVocabulary.train(
            texts(), ready, vocabulary=size, minimum_count=least, seed=seed, where=where
        )
    listed = ListedSettings(
        lower_case=lower_case, normalise=normalise, split=settings.split, mask=mask
    )
    kind = Words if settings.kind == "words" else Characters
    return kind.train(texts(), listed, vocabulary=size, minimum_count=least, where=where)


def save_vocabulary(vocabulary: SavedVocabulary, folder: Path) -> None:
    """Write ``vocabulary`` into ``folder``; other files in the folder are not changed."""
    vocabulary.save(folder)


def encode_words(vocabulary: Vocabulary, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """Encode a sentence of words; also returns the index of the first token of each word.

    The first token of a word is the first that is not only white space. If the vocabulary splits
    the text in another way (at punctuation, or without white space), each word is encoded
    separately. A word without tokens becomes one unknown token.

    Args:
        vocabulary: of any kind.
        words: the words; none is blank.

    Returns:
        The tokens, without BEGIN and END, and one increasing index per word.

    Raises:
        ValueError: a word is blank.
    """
    parts = [len(word.split()) for word in words]
    if not all(parts):
        raise ValueError("a word is empty or white space only")
    tokens = vocabulary.encode(" ".join(words))
    if len(vocabulary.decode(tokens).split()) != sum(parts):
        return _one_by_one(vocabulary, words)
    firsts: list[int] = []
    silent: dict[int, bool] = {}
    wanted = iter([sum(parts[:place]) for place in range(len(parts))])
    word = next(wanted, None)
    for place, index in enumerate(vocabulary.word_indices(tokens)):
        if index == word:
            token = tokens[place]
            if token not in silent:
                silent[token] = not vocabulary.decode([token]).strip()
            if not silent[token]:
                firsts.append(place)
                word = next(wanted, None)
    return (tokens, firsts) if len(firsts) == len(words) else _one_by_one(vocabulary, words)


def _one_by_one(vocabulary: Vocabulary, words: Sequence[str]) -> tuple[list[int], list[int]]:
    tokens: list[int] = []
    firsts = []
    for found in vocabulary.encode_batch(list(words), threads=1):
        firsts.append(len(tokens))
        tokens.extend(found or [UNKNOWN])
    return tokens, firsts


def separators_of(vocabulary: Vocabulary) -> list[int]:
    """The tokens of white space in a vocabulary of characters or bytes."""
    tokens = list(range(END + 1, vocabulary.size))
    texts = vocabulary.decode_batch([[token] for token in tokens])
    return [token for token, text in zip(tokens, texts, strict=True) if text.isspace()]


def unknown_share(vocabulary: Vocabulary, texts: Iterable[str]) -> float:
    """The share of unknown tokens among all tokens of ``texts``; 0 for no tokens."""
    unknown = total = 0
    for text in texts:
        tokens = vocabulary.encode(text)
        unknown += tokens.count(UNKNOWN)
        total += len(tokens)
    return unknown / max(total, 1)
