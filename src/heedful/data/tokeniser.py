"""Lossless tokenisers.

`decode(encode(text)) == text` holds for every valid Unicode string (with ``normalise = "none"``);
`heedful.data.subwords` says how.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sentencepiece

from heedful.basics.bounded_reading import read_bytes, read_json
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, write_json
from heedful.basics.native import call_native
from heedful.basics.notices import notice
from heedful.basics.settings import check
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.encoding import encode_all, encode_one
from heedful.data.examples import Pair
from heedful.data.subwords import (
    MARKER,
    MASK,
    PLACEHOLDERS,
    SAMPLE_TEXTS,
    TokeniserSettings,
    VocabularyTooLargeError,
    prepare,
    refuse_surrogates,
    reservoir,
    restore,
    train_model,
    unescape,
)

__all__ = [
    "PLACEHOLDERS",
    "Tokeniser",
    "TokeniserSettings",
    "Tokenisers",
    "VocabularyTooLargeError",
]

_TEXTS_A_THREAD = 256
INDEX = "tokenisers.json"


class Tokeniser:
    """A trained sentencepiece model and the settings it was trained with.

    Example:
        >>> texts = ["the cat sat on the mat", "the dog sat on the cat"] * 9
        >>> settings = TokeniserSettings(vocabulary_size=345)
        >>> tokeniser = Tokeniser.train(texts, settings, seed=1, where="the example")
        >>> tokeniser.pieces(tokeniser.encode("the mat"))
        ['▁the', '▁', 'm', 'at']
        >>> tokeniser.decode(tokeniser.encode(" a\\t▁ ☃"))
        ' a\\t▁ ☃'
    """

    first: int | None = None
    """The token that each output must begin with, such as its language; None if there is none."""

    def __init__(self, model: bytes, settings: TokeniserSettings, where: str = "tokeniser") -> None:
        self.model = model
        self.settings = settings
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except Exception as error:  # of several kinds, by what is damaged
            raise UserError(f"{where}: not a sentencepiece model; the file is damaged") from error
        processor = self._processor
        found = processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()
        if found != (PAD, UNKNOWN, BEGIN, END):
            raise UserError(f"{where}: a sentencepiece model, but not one that heedful made")
        self.size: int = processor.get_piece_size()
        mask: int = processor.piece_to_id(MASK)
        self.mask: int | None = mask if mask > END and processor.is_control(mask) else None
        self._silent = frozenset({PAD, BEGIN, END, mask if self.mask else PAD})
        try:
            self._bytes = [self._surface(token) for token in range(self.size)]
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: a symbol is not UTF-8; the file is damaged") from error

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        settings: TokeniserSettings,
        *,
        seed: int,
        where: str,
        sample: int = SAMPLE_TEXTS,
        mask: bool = False,
    ) -> "Tokeniser":
        """Train a vocabulary on a stream of texts.

        Equal texts, settings and seeds give equal tokenisers. If there are more than ``sample``
        texts, a random sample is used, with a notice.

        Args:
            texts: lines, including empty ones.
            settings: kind, size and normalisation.
            seed: seed of the random sample.
            where: description of the texts, for messages ("the source side of train.tmx").
            sample: maximum number of training texts.
            mask: add a symbol (4) for masked tokens, which counts in the vocabulary size.

        Raises:
            VocabularyTooLargeError: the texts support fewer symbols than requested.
            UserError: there are no texts, they need more symbols, or contain a lone surrogate.
        """
        chosen, total = reservoir(_valid(texts, where), sample, seed)
        if not chosen:
            raise UserError(f"{where}: no text to train a tokeniser on; the corpus is empty")
        if total > len(chosen):
            kept, of = f"{len(chosen):,}", f"{total:,}"
            notice(f"{where}: the tokeniser is trained on a random sample of {kept} of {of} texts")
        return cls(train_model(chosen, settings, where, mask=mask), settings, where)

    def save(self, path: Path) -> None:
        """Write the model to ``path`` and its settings to ``path`` with ``.json``."""
        with atomic_file(path) as file:
            file.write(self.model)
        write_json(path.with_suffix(".json"), self.settings.model_dump())

    @classmethod
    def load(cls, path: Path) -> "Tokeniser":
        """Load a saved object.

        Raises:
            UserError: a file is missing, damaged, or not written by heedful.
        """
        beside = path.with_suffix(".json")
        return cls(
            read_bytes(path),
            check(TokeniserSettings, read_json(beside), str(beside), written=True),
            str(path),
        )

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END; an empty text has no tokens.

        Raises:
            UserError: the text contains a lone surrogate, which is not valid Unicode.
        """
        refuse_surrogates(text, "the text")
        # By itself: sentencepiece starts threads for a batch, of however few.
        tokens: list[int] = encode_one(
            self._processor.encode, prepare(text, self.settings.normalise)
        )
        return tokens

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """Encode several texts; many texts use ``threads`` threads (default: all).

        Raises:
            UserError: a text contains a lone surrogate; the message names the text and the
                position.
        """
        prepared = [prepare(text, self.settings.normalise) for text in texts]
        few = len(texts) < _TEXTS_A_THREAD
        together = partial(self._processor.encode, num_threads=1 if few else (threads or -1))
        try:
            encoded: list[list[int]] = encode_all(together, self._processor.encode, prepared)
        except (TypeError, UnicodeError):
            for number, text in enumerate(texts, start=1):
                refuse_surrogates(text, f"text {number}" if len(texts) > 1 else "the text")
            raise
        return encoded

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN, END and the mask give no text.

        Any tokens give a valid string; bytes that are not UTF-8 become U+FFFD.
        """
        silent = self._silent
        kept = [int(token) for token in tokens if int(token) not in silent]
        return restore(call_native(self._processor.decode, kept))

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        silent = self._silent
        kept = [[int(token) for token in tokens if int(token) not in silent] for tokens in batch]
        found = call_native(self._processor.decode, kept, num_threads=1)
        return [restore(text) for text in found]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token: ``▁`` starts a word, ``<0x0A>`` is a byte."""
        names = [self._processor.id_to_piece(int(token)) for token in tokens]
        return [unescape(name) for name in names]

    def word_starts(self) -> list[int]:
        """Tokens that begin with a space, as the first token of each word does."""
        return [token for token in range(END + 1, self.size) if self._bytes[token][:1] == b" "]

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of the word that each token belongs to, in ``decode(tokens).split()``.

        Words are what Python's `str.split` gives: the text cut at runs of Unicode white space. A
        token belongs to the word of its first character that is not white space (a byte, to the
        word of the character that it is part of). A token of white space only belongs to the next
        word, or to -1 if there is none. PAD, BEGIN, END and the mask belong to no word: -1.
        """
        return words_of_spans([self._bytes[token] for token in tokens])

    def scores(self) -> dict[str, tuple[int, float]]:
        """The token and the score of each piece: all symbols but control symbols, bytes and
        placeholders.

        BPE merges the pair whose piece has the highest score first; the score of a unigram
        vocabulary is a log-probability.
        """
        processor = self._processor
        return {
            processor.id_to_piece(token): (token, processor.get_score(token))
            for token in range(END + 1, self.size)
            if not processor.is_control(token)
            and not processor.is_byte(token)
            and processor.id_to_piece(token) not in PLACEHOLDERS
        }

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        return _digest(f"{_digest(self.model)} {self.settings.normalise}".encode())

    def _surface(self, token: int) -> bytes:
        """The bytes of a token, still escaped (escapes contain no white space)."""
        if token in self._silent:
            return b""
        if token == UNKNOWN:
            return " ⁇ ".encode()  # what sentencepiece decodes it to
        piece: str = self._processor.id_to_piece(token)
        if self._processor.is_byte(token):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(MARKER, " ").encode("utf-8")


@dataclass(frozen=True)
class Tokenisers:
    """The tokenisers of a pair of languages; ``source is target`` for a joint vocabulary."""

    source: Tokeniser
    target: Tokeniser

    @property
    def shared(self) -> bool:
        """Whether both sides share a vocabulary."""
        return self.source is self.target

    @classmethod
    def train(
        cls, pairs: Callable[[], Iterable[Pair]], settings: TokeniserSettings, *, seed: int
    ) -> "Tokenisers":
        """Train on a stream of pairs, read once for a joint vocabulary, else once per side.

        Args:
            pairs: returns a new stream of pairs at each call.
            settings: kind, size, joint or not, normalisation.
            seed: seed of the random sample of a large corpus.

        Raises:
            VocabularyTooLargeError: the texts support fewer symbols than requested.
            UserError: the corpus is empty, needs more symbols, or contains a lone surrogate.
        """
        if settings.kind == "imported":
            raise UserError(
                "tokeniser.kind = 'imported' is for runs of heedful import; train a run that "
                "starts from such a run (--start-from), or choose another kind"
            )
        if settings.joint:
            both = (text for pair in pairs() for text in pair)
            joint = Tokeniser.train(both, settings, seed=seed, where="the training texts")
            return cls(joint, joint)
        sources = (pair.source for pair in pairs())
        source = Tokeniser.train(sources, settings, seed=seed, where="the source texts")
        targets = (pair.target for pair in pairs())
        target = Tokeniser.train(targets, settings, seed=seed, where="the target texts")
        return cls(source, target)

    def save(self, folder: Path) -> None:
        """Write the models and their settings into ``folder``, and the index last.

        Other files in the folder are not changed.
        """
        sides = {"joint": self.source}
        if not self.shared:
            sides = {"source": self.source, "target": self.target}
        for name, tokeniser in sides.items():
            tokeniser.save(folder / f"{name}.model")
        index = {
            "format": 1,
            "shared": self.shared,
            "models": {name: _digest(tokeniser.model) for name, tokeniser in sides.items()},
        }
        write_json(folder / INDEX, index)

    @classmethod
    def load(cls, folder: Path, index: dict[str, Any]) -> "Tokenisers":
        """Read what `save` wrote; ``index`` is the content of its index.

        Raises:
            UserError: a file is missing, damaged, or has changed since it was saved.
        """
        models = index.get("models")
        if not isinstance(models, dict) or set(models) not in ({"joint"}, {"source", "target"}):
            raise UserError(f"{folder / INDEX}: not an index of tokenisers; the file is damaged")
        loaded = {}
        for name, digest in models.items():
            path = folder / f"{name}.model"
            loaded[name] = Tokeniser.load(path)
            if _digest(loaded[name].model) != digest:
                raise UserError(f"{path}: not the model that was saved here; the file was changed")
        if "joint" in loaded:
            return cls(loaded["joint"], loaded["joint"])
        return cls(loaded["source"], loaded["target"])

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        parts = [
            part
            for side in (self.source, self.target)
            for part in (_digest(side.model), side.settings.normalise)
        ]
        return _digest(" ".join([*parts, str(self.shared)]).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _valid(texts: Iterable[str], where: str) -> Iterable[str]:
    """The non-empty texts; raises an error with the number of a text that has a lone surrogate."""
    for number, text in enumerate(texts, start=1):
        refuse_surrogates(text, f"{where}, text {number}")
        if text:
            yield text


def words_of_spans(spans: Sequence[bytes]) -> list[int]:
    """The index of the word in which each span begins; -1 for none and for empty spans."""
    words = _words_of_bytes(b"".join(spans))
    indices, start = [], 0
    for span in spans:
        indices.append(words[start] if span else -1)
        start += len(span)
    return indices


def _words_of_bytes(surface: bytes) -> list[int]:
    """The index of the word of each byte; white space belongs to the next word, or -1."""
    words: list[int] = []
    word, inside = -1, False
    # surrogateescape keeps every byte that is no UTF-8 as one character, so that lengths add up.
    for character in surface.decode("utf-8", "surrogateescape"):
        space = character.isspace()
        word += not space and not inside
        inside = not space
        width = len(character.encode("utf-8", "surrogateescape"))
        words.extend([word + space] * width)
    return [index if index <= word else -1 for index in words]
