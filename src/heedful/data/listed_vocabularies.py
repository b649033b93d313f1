"""Vocabularies that list characters or whole words; anything else is unknown."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.basics.notices import notice
from heedful.basics.settings import Settings, check
from heedful.basics.symbols import END, UNKNOWN
from heedful.data.fixed_symbols import digest, fixed_names
from heedful.data.subwords import refuse_surrogates
from heedful.data.tokeniser import words_of_spans

_WORD_OR_MARK = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_UNKNOWN_CHARACTER = "\ufffd"
_UNKNOWN_WORD = "<unk>"
FORMAT = 1
INDEX = "vocabulary.json"


class ListedSettings(Settings):
    """Preprocessing and splitting of texts.

    Attributes:
        lower_case: convert texts to lower case; decoded texts are in lower case.
        normalise: ``nfc`` composes characters.
        split: how to find words: at white space and around punctuation, or at white space only.
        mask: add a symbol for masked tokens.
    """

    lower_case: bool = False
    normalise: Literal["none", "nfc"] = "none"
    split: Literal["punctuation", "spaces"] = "punctuation"
    mask: bool = False


class ListedVocabulary(ABC):
    """Base class: a list of entries after the fixed symbols.

    Args:
        entries: the entries, in the order of their tokens.
        settings: preprocessing and splitting of texts.
    """

    kind: str
    spelling: str
    """The text of an unknown entry."""
    noun: str

    def __init__(self, entries: Sequence[str], settings: ListedSettings) -> None:
        self.settings = settings
        self.entries = tuple(entries)
        self._names = [*fixed_names(settings.mask), *entries]
        self._first = len(self._names) - len(entries)
        self.size = len(self._names)
        self.mask: int | None = END + 1 if settings.mask else None
        self._tokens = {entry: self._first + place for place, entry in enumerate(entries)}
        self._texts = ["" if token != UNKNOWN else self.spelling for token in range(self._first)]
        self._texts.extend(entries)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        settings: ListedSettings,
        *,
        vocabulary: int,
        minimum_count: int,
        where: str,
    ) -> "ListedVocabulary":
        """List the most frequent entries of ``texts``; ties are broken by code-point order.

        Args:
            texts: a stream, read once.
            settings: preprocessing and splitting of texts.
            vocabulary: maximum number of symbols, including fixed symbols.
            minimum_count: minimum frequency of an entry.
            where: description of the texts, for messages.

        Raises:
            UserError: there are no texts, or a text contains a lone surrogate.
        """
        cut = cls((), settings)
        counts: Counter[str] = Counter()
        for number, text in enumerate(texts, start=1):
            refuse_surrogates(text, f"{where}, text {number}")
            counts.update(cut.cut(text))
        unknown = counts.pop(cls.spelling, 0)
        if not counts:
            raise UserError(f"{where}: no text to build a vocabulary from; the corpus is empty")
        ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        room = vocabulary - len(fixed_names(settings.mask))
        kept = [entry for entry, count in ordered if count >= minimum_count][:room]
        total = counts.total() + unknown
        unknown = total - sum(counts[entry] for entry in kept)
        if unknown:
            share = f"{unknown:,} of {total:,} {cls.noun} ({unknown / total:.2%})"
            notice(
                f"{where}: {share} are unknown; the vocabulary lists {len(kept):,} of "
                f"{len(counts):,}"
            )
        return cls(kept, settings)

    @abstractmethod
    def cut(self, text: str) -> Sequence[str]:
        """Split a text into entries, including unknown ones."""

    @abstractmethod
    def join(self, entries: Iterable[str]) -> str:
        """Join entries to a text."""

    @abstractmethod
    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word."""

    @abstractmethod
    def word_starts(self) -> list[int]:
        """The tokens that begin a word."""

    def ready(self, text: str) -> str:
        """The preprocessed text: normalised and, if set, in lower case."""
        if self.settings.normalise == "nfc":
            text = unicodedata.normalize("NFC", text)
        return text.lower() if self.settings.lower_case else text

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END; an empty text has no tokens.

        Raises:
            UserError: the text contains a lone surrogate, which is not valid Unicode.
        """
        refuse_surrogates(text, "the text")
        return [self._tokens.get(entry, UNKNOWN) for entry in self.cut(text)]

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """Encode several texts.

        Raises:
            UserError: a text contains a lone surrogate; the message names the text and the
                position.
        """
        for number, text in enumerate(texts, start=1):
            refuse_surrogates(text, f"text {number}")
        get = self._tokens.get
        return [[get(entry, UNKNOWN) for entry in self.cut(text)] for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN, END and the mask give no text."""
        return self.join(self._texts[int(token)] for token in tokens)

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        return [self.decode(tokens) for tokens in batch]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token."""
        return [self._names[int(token)] for token in tokens]

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        return digest([self.kind, self.settings.model_dump_json(), *self.entries])

    def save(self, folder: Path) -> None:
        """Write ``vocabulary.json`` into ``folder``."""
        write_json(
            folder / INDEX,
            {
                "format": FORMAT,
                "kind": self.kind,
                "settings": self.settings.model_dump(),
                "entries": list(self.entries),
            },
        )

    @classmethod
    def load(cls, folder: Path, index: dict[str, Any]) -> "ListedVocabulary":
        """Load a saved vocabulary.

        Raises:
            UserError: the file is damaged.
        """
        where = str(folder / INDEX)
        entries, given = index.get("entries"), index.get("settings")
        if (
            not isinstance(given, dict)
            or not isinstance(entries, list)
            or not all(isinstance(entry, str) and entry for entry in entries)
            or len(set(entries)) != len(entries)
        ):
            raise UserError(f"{where}: not a list of {cls.noun}; the file is damaged")
        return cls(entries, check(ListedSettings, given, where))


class Characters(ListedVocabulary):
    """One token per character (code point); unknown characters become U+FFFD.

    Example:
        >>> settings = ListedSettings()
        >>> it = Characters.train(["a cat"], settings, vocabulary=99, minimum_count=1, where="x")
        >>> it.decode(it.encode("a cat at ☃"))
        'a cat at �'
    """

    kind = "characters"
    spelling = _UNKNOWN_CHARACTER
    noun = "characters"

    def __init__(self, entries: Sequence[str], settings: ListedSettings) -> None:
        super().__init__(entries, settings)
        self._bytes = [text.encode("utf-8") for text in self._texts]

    def cut(self, text: str) -> Sequence[str]:
        """The characters of a text."""
        return self.ready(text)

    def join(self, entries: Iterable[str]) -> str:
        """The text of characters."""
        return "".join(entries)

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word.

        White space belongs to the next word, or to none.
        """
        return words_of_spans([self._bytes[int(token)] for token in tokens])

    def word_starts(self) -> list[int]:
        """Tokens of white space, which belong to the next word."""
        return [token for token, text in enumerate(self._texts) if text.isspace()]


class Words(ListedVocabulary):
    """One token per word or punctuation mark; rare ones are unknown, written ``<unk>``.

    Decoding puts a space between tokens. The word ``<unk>`` in a text is the unknown word, as in
    corpora that were already limited to a vocabulary.

    Example:
        >>> settings = ListedSettings(lower_case=True)
        >>> it = Words.train(["The cat sat."], settings, vocabulary=99, minimum_count=1, where="x")
        >>> it.pieces(it.encode("The dog sat."))
        ['the', '<unk>', 'sat', '.']
    """

    kind = "words"
    spelling = _UNKNOWN_WORD
    noun = "words"

    def cut(self, text: str) -> Sequence[str]:
        """The words of a text."""
        text = self.ready(text)
        return text.split() if self.settings.split == "spaces" else _WORD_OR_MARK.findall(text)

    def join(self, entries: Iterable[str]) -> str:
        """Words with a space between them."""
        return " ".join(filter(None, entries))

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word."""
        written = [self._texts[int(token)] for token in tokens]
        return words_of_spans([f" {text}".encode() if text else b"" for text in written])

    def word_starts(self) -> list[int]:
        """All tokens with a text."""
        return [token for token, text in enumerate(self._texts) if text]
