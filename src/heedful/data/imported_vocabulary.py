"""Imported vocabularies: WordPiece, BPE of bytes or characters, and Unigram of other libraries.

Symbols are reordered: PAD, UNKNOWN, BEGIN, END and the mask come first, all others keep their
order. The tokeniser's files are stored byte for byte, so that they can be exported. `tokenizers`
does the encoding.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.byte_vocabulary import bytes_of_letters, readable
from heedful.data.encoding import encode_all, encode_one
from heedful.data.fixed_symbols import digest, fixed_names
from heedful.data.subwords import refuse_surrogates
from heedful.data.tokeniser import words_of_spans
from heedful.data.tokeniser_files import (
    FILES,
    family_of,
    hash_of,
    read_kept,
    read_tokenizer,
    write_kept,
)
from heedful.data.tokenizer_json import METASPACE
from heedful.data.vocabularies import FORMAT, INDEX

KIND = "imported"


def places_of(special: Sequence[int | None], rows: int) -> list[int | None]:
    """The row of each symbol in a table of ``rows`` rows: special symbols first, then all others.

    Args:
        special: the rows of PAD, UNKNOWN, BEGIN, END and, if there is one, the mask; None for
            missing symbols.
        rows: number of rows of the table.

    Example:
        >>> places_of([None, 1, 4, 0], 5)
        [None, 1, 4, 0, 2, 3]
    """
    taken = set(special)
    return [*special, *(row for row in range(rows) if row not in taken)]


def check_places(special: Sequence[Any], rows: Any, where: str) -> None:
    """Raise UserError if a special symbol has an invalid row or the table is too large."""
    if type(rows) is not int or not 0 < rows <= MOST_SYMBOLS:
        raise UserError(f"{where}: {rows!r:.40} rows; a table has 1 to {MOST_SYMBOLS:,}")
    given = [row for row in special if row is not None]
    if not END < len(special) <= END + 2 or not all(
        type(row) is int and 0 <= row < rows for row in given
    ):
        raise UserError(f"{where}: the special symbols have no rows of the table's {rows:,}")
    if len(set(given)) < len(given) or special[END] is None:
        raise UserError(f"{where}: the special symbols do not have rows of their own")


def count_rows(places: Sequence[int | None]) -> int:
    """The number of rows of the imported table."""
    return sum(place is not None for place in places)


class ImportedVocabulary:
    """A tokeniser of another library, with symbols in heedful's order.

    Args:
        files: the content of the `FILES` that exist.
        special: the rows of PAD, UNKNOWN, BEGIN, END and optionally the mask.
        rows: number of rows of the table; at least the number of tokens of the tokeniser.
        where: origin of the files, for messages.

    Raises:
        UserError: the files are damaged or not supported, or have more tokens than the table has
            rows.
    """

    kind = KIND

    def __init__(
        self,
        files: Mapping[str, bytes],
        special: Sequence[int | None],
        rows: int,
        where: str = "tokeniser",
    ) -> None:
        self._tokenizer = read_tokenizer(files, where)
        self._encode_one = partial(self._tokenizer.encode, add_special_tokens=False)
        self._encode_all = partial(self._tokenizer.encode_batch_fast, add_special_tokens=False)
        self.family = family_of(self._tokenizer, where)
        largest = max(self._tokenizer.get_vocab().values(), default=-1)
        if largest >= rows:
            raise UserError(
                f"{where}: the tokeniser has a token {largest}, but the model's table has only "
                f"{rows} rows; the two belong to different models"
            )
        check_places(special, rows, where)
        self.files = dict(files)
        self.special, self.rows = tuple(special), rows
        self.places = places_of(special, rows)
        self.size = len(self.places)
        self.mask: int | None = END + 1 if len(special) > END + 1 else None
        self._ids: list[int] = [UNKNOWN] * rows
        for symbol, place in enumerate(self.places):
            if place is not None:
                self._ids[place] = symbol
        self._added = self._tokenizer.get_added_tokens_decoder()
        self._pieces = self._names()
        self._spans = [self._span(symbol) for symbol in range(self.size)]

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END; an empty text has no tokens.

        As in the original library, the name of a special token (``[MASK]``) in a text gives that
        token.

        Raises:
            UserError: the text contains a lone surrogate, which is not valid Unicode.
        """
        refuse_surrogates(text, "the text")
        found = encode_one(self._encode_one, text)
        return [self._ids[token] for token in found.ids]

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
        ids = self._ids
        encoded = encode_all(self._encode_all, self._encode_one, texts)
        return [[ids[token] for token in found.ids] for found in encoded]

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN, END and the mask give no text.

        Any tokens give a valid string; bytes that are not UTF-8 become U+FFFD. Unigram puts a space
        before each word, and the first is removed. WordPiece does not store spaces around
        punctuation: decoding puts one before each word and mark.
        """
        text = b"".join(self._spans[int(token)] for token in tokens).decode("utf-8", "replace")
        return text if self.family == "bytes" else text.removeprefix(" ")

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        return [self.decode(tokens) for tokens in batch]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token; in byte-level BPE, ``␣`` is a space."""
        return [
            self._pieces[token]
            if self.family != "bytes" or not self._spans[token] or token <= END
            else readable(self._spans[token])
            for token in map(int, tokens)
        ]

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word."""
        return words_of_spans([self._spans[int(token)] for token in tokens])

    def word_starts(self) -> list[int]:
        """Tokens that begin with white space; in byte-level BPE, the first of a text does not."""
        first = END + 1 if self.mask is None else END + 2
        return [symbol for symbol in range(first, self.size) if self._spans[symbol][:1].isspace()]

    def added(self) -> dict[str, int]:
        """The symbols of special tokens that are not part of the model's pieces, by their names."""
        rows = {place: symbol for symbol, place in enumerate(self.places) if place is not None}
        return {
            token.content: rows[row]
            for row, token in self._added.items()
            if token.special and row in rows
        }

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        hashes = [f"{name} {hash_of(content)}" for name, content in sorted(self.files.items())]
        return digest([self.kind, str(self.special), str(self.rows), *hashes])

    def save(self, folder: Path) -> None:
        """Write the unchanged files and ``vocabulary.json`` into ``folder``."""
        index = {
            "format": FORMAT,
            "kind": self.kind,
            "special": list(self.special),
            "rows": self.rows,
        }
        write_kept(folder, self.files, INDEX, index)

    @classmethod
    def load(cls, folder: Path, index: dict[str, Any]) -> "ImportedVocabulary":
        """Load a saved vocabulary.

        Raises:
            UserError: a file is missing, damaged, or has changed since it was saved.
        """
        special, rows = index.get("special"), index.get("rows")
        if not isinstance(special, list) or type(rows) is not int:
            raise UserError(f"{folder / INDEX}: not an imported vocabulary; the file is damaged")
        return cls(read_kept(folder, index, INDEX, FILES), special, rows, str(folder))

    def _names(self) -> list[str]:
        own = {token: piece for piece, token in self._tokenizer.get_vocab().items()}
        fixed = fixed_names(self.mask is not None)
        return [
            fixed[symbol] if symbol < len(fixed) else own.get(place or 0, f"<row {place}>")
            for symbol, place in enumerate(self.places)
        ]

    def _span(self, symbol: int) -> bytes:
        """The bytes of a symbol in a text."""
        if symbol in (PAD, BEGIN, END, self.mask):
            return b""
        if symbol == UNKNOWN:
            return " ⁇ ".encode()
        piece = self._pieces[symbol]
        if piece == f"<row {self.places[symbol]}>":
            return b""
        if self.family == "wordpiece":
            return (piece[2:] if piece.startswith("##") else f" {piece}").encode()
        letters = _LETTERS
        added = self.places[symbol] in self._added  # written as it is, not letter by letter
        if self.family in ("unigram", "merges"):
            return (piece if added else piece.replace(METASPACE, " ")).encode()
        if not added and all(letter in letters for letter in piece):
            return bytes(letters[letter] for letter in piece)
        return piece.encode()


_LETTERS = bytes_of_letters()
