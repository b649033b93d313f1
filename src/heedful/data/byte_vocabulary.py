"""Byte-level BPE (Radford et al. 2019, section 2.2): lossless for any text, no unknown symbol.

Bytes are merged within the parts into which GPT-2's pattern splits a text: a word with the space
before it, runs of digits, of punctuation, of white space. `tokenizers` does training and encoding.
"""

import json
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.basics.native import call_native
from heedful.basics.notices import notice
from heedful.basics.settings import Settings, check
from heedful.basics.symbols import END, UNKNOWN
from heedful.data.encoding import encode_all, encode_one
from heedful.data.fixed_symbols import digest, fixed_names
from heedful.data.subwords import SAMPLE_TEXTS, refuse_surrogates, reservoir
from heedful.data.tokeniser import words_of_spans

FORMAT = 1
INDEX = "vocabulary.json"
MERGES = "bytes.json"


class ByteSettings(Settings):
    """Preprocessing of texts.

    Attributes:
        lower_case: convert texts to lower case; decoded texts are in lower case.
        normalise: ``nfc`` composes characters.
        mask: add a symbol for masked tokens.
    """

    lower_case: bool = False
    normalise: Literal["none", "nfc"] = "none"
    mask: bool = False


class ByteVocabulary:
    """A byte-level BPE vocabulary.

    Args:
        pieces: the piece of each token, with bytes as `tokenizers` writes them. Pieces of fixed
            symbols contain a space, which no byte is written as, so no text contains them.
        merges: pairs of pieces, in the order of merging.
        settings: preprocessing of texts.

    Raises:
        ValueError: a merge refers to an unknown piece.

    Example:
        >>> it = ByteVocabulary.train(
        ...     ["the cat", "the dog"] * 9, ByteSettings(), vocabulary=280, minimum_count=2,
        ...     seed=1, where="the example",
        ... )
        >>> it.pieces(it.encode("a cat"))
        ['a', '␣cat']
        >>> it.decode(it.encode("☃\\\\n"))
        '☃\\\\n'
    """

    kind = "bytes"

    def __init__(
        self, pieces: Sequence[str], merges: Sequence[tuple[str, str]], settings: ByteSettings
    ) -> None:
        self.settings = settings
        self.merges = list(merges)
        self.tokens = list(pieces)
        self.size = len(pieces)
        self.mask: int | None = END + 1 if settings.mask else None
        model = BPE({piece: token for token, piece in enumerate(pieces)}, self.merges)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = _cutter()
        fixed = len(fixed_names(settings.mask))
        own = bytes_of_letters()
        self._bytes = [b""] * fixed + [bytes(map(own.__getitem__, p)) for p in pieces[fixed:]]
        self._bytes[UNKNOWN] = " ⁇ ".encode()

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        settings: ByteSettings,
        *,
        vocabulary: int,
        minimum_count: int,
        seed: int,
        where: str,
        sample: int = SAMPLE_TEXTS,
    ) -> "ByteVocabulary":
        """Learn merges from ``texts``, which are read once, as a stream.

        Args:
            texts: training texts; if there are more than ``sample``, a random sample, with a
                notice.
            settings: preprocessing of texts.
            vocabulary: number of symbols, including fixed symbols and 256 bytes; fewer, with a
                notice, if the texts have no more pairs to merge.
            minimum_count: minimum frequency of a pair to be merged.
            seed: seed of the random sample.
            where: description of the texts, for messages.
            sample: maximum number of training texts.

        Raises:
            UserError: there are no texts, or a text contains a lone surrogate.
        """
        chosen, total = reservoir(_valid(texts, where), sample, seed)
        if not chosen:
            raise UserError(f"{where}: no text to build a vocabulary from; the corpus is empty")
        if total > len(chosen):
            kept, of = f"{len(chosen):,}", f"{total:,}"
            notice(f"{where}: the vocabulary is trained on a random sample of {kept} of {of} texts")
        names = [f" {name}" for name in fixed_names(settings.mask)]
        trainer = BpeTrainer(
            vocab_size=vocabulary,
            min_frequency=minimum_count,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=names,
            show_progress=False,
        )
        learner = Tokenizer(BPE())
        learner.pre_tokenizer = _cutter()
        prepared = (_preprocess(text, settings) for text in chosen)
        call_native(learner.train_from_iterator, prepared, trainer)
        model = json.loads(learner.to_str())["model"]
        if len(model["vocab"]) < vocabulary:
            notice(
                f"{where}: the texts yield only {len(model['vocab']):,} of {vocabulary:,} symbols"
            )
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        return cls(pieces, [(left, right) for left, right in model["merges"]], settings)

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END; an empty text has no tokens.

        Raises:
            UserError: the text contains a lone surrogate, which is not valid Unicode.
        """
        refuse_surrogates(text, "the text")
        tokens: list[int] = encode_one(self._tokenizer.encode, _preprocess(text, self.settings)).ids
        return tokens

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """Encode several texts; uses all threads unless ``threads`` is 1.

        Raises:
            UserError: a text contains a lone surrogate; the message names the text and the
                position.
        """
        if threads == 1:
            return [self.encode(text) for text in texts]
        for number, text in enumerate(texts, start=1):
            refuse_surrogates(text, f"text {number}" if len(texts) > 1 else "the text")
        prepared = [_preprocess(text, self.settings) for text in texts]
        encoded = encode_all(self._tokenizer.encode_batch_fast, self._tokenizer.encode, prepared)
        return [found.ids for found in encoded]

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN, END and the mask give no text.

        Any tokens give a valid string; bytes that are not UTF-8 become U+FFFD.
        """
        spans = [self._bytes[int(token)] for token in tokens]
        return b"".join(spans).decode("utf-8", errors="replace")

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        return [self.decode(tokens) for tokens in batch]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token: ``␣`` is a space, ``<0xE2>`` a part of a character."""
        names = fixed_names(self.settings.mask)
        return [
            names[token] if token < len(names) else readable(self._bytes[token])
            for token in map(int, tokens)
        ]

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word.

        A token belongs to the word in which it begins; white space, to the next word or to none.
        """
        return words_of_spans([self._bytes[int(token)] for token in tokens])

    def word_starts(self) -> list[int]:
        """Tokens that begin with white space: the first token of every word but the first."""
        return [
            token for token, span in enumerate(self._bytes) if token > END and span[:1].isspace()
        ]

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        merges = (f"{left} {right}" for left, right in self.merges)
        return digest([self.kind, self.settings.model_dump_json(), *self.tokens, *merges])

    def save(self, folder: Path) -> None:
        """Write ``bytes.json`` and ``vocabulary.json`` into ``folder``."""
        write_json(folder / MERGES, {"pieces": self.tokens, "merges": self.merges})
        index = {
            "format": FORMAT,
            "kind": self.kind,
            "settings": self.settings.model_dump(),
            "fingerprint": self.fingerprint(),
        }
        write_json(folder / INDEX, index)

    @classmethod
    def load(cls, folder: Path, index: dict[str, Any]) -> "ByteVocabulary":
        """Load a saved vocabulary.

        Raises:
            UserError: a file is damaged or has changed since it was saved.
        """
        path = folder / MERGES
        found, given = read_json(path), index.get("settings")
        if not isinstance(given, dict):
            raise UserError(f"{folder / INDEX}: not a byte vocabulary; the file is damaged")
        settings = check(ByteSettings, given, str(folder / INDEX))
        try:
            merges = [(left, right) for left, right in found["merges"]]
            it = cls(found["pieces"], merges, settings)
        except Exception as error:  # tokenizers raises bare Exception
            raise UserError(f"{path}: not a byte vocabulary; the file is damaged") from error
        if it.fingerprint() != index.get("fingerprint"):
            raise UserError(f"{path}: not the vocabulary that was saved here; the file was changed")
        return it


def _cutter() -> pre_tokenizers.PreTokenizer:
    cutter: pre_tokenizers.PreTokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return cutter


def _valid(texts: Iterable[str], where: str) -> Iterable[str]:
    for number, text in enumerate(texts, start=1):
        refuse_surrogates(text, f"{where}, text {number}")
        if text:
            yield text


def _preprocess(text: str, settings: ByteSettings) -> str:
    if settings.normalise == "nfc":
        text = unicodedata.normalize("NFC", text)
    return text.lower() if settings.lower_case else text


def readable(span: bytes) -> str:
    try:
        text = span.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in span)
    return text.replace(" ", "␣").replace("\n", "⏎")


def bytes_of_letters() -> dict[str, int]:
    """The byte for each of the 256 characters that `tokenizers` uses.

    Printable bytes of Latin-1 are written unchanged, and the others as U+0100, U+0101, … in order
    (Radford et al.'s released code, ``bytes_to_unicode``).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(others)}
