"""Tokenisers of Marian: two sentencepiece models, and a vocabulary with the ids of their pieces.

Each side has its own model, even if both share one vocabulary; pieces that are not in the
vocabulary are unknown. Symbols are reordered, and the files are stored byte for byte.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sentencepiece

from heedful.basics.bounded_reading import parse_json
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.added_tokens import refuse_unknown_tokens
from heedful.data.encoding import encode_all, encode_one
from heedful.data.fixed_symbols import digest, fixed_names
from heedful.data.imported_vocabulary import check_places, count_rows, places_of
from heedful.data.subwords import MARKER, TokeniserSettings, refuse_surrogates
from heedful.data.tokeniser import INDEX, Tokeniser, Tokenisers
from heedful.data.tokeniser_files import read_kept, read_tokeniser_settings, write_kept
from heedful.data.tokenizer_json import check_vocabulary

KIND = "marian"
FILES = (
    "source.spm",
    "target.spm",
    "vocab.json",
    "target_vocab.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""Files of tokenisers that are kept if they exist."""

_FEW = 256
_LEAST = 325
"""The smallest vocabulary that a recipe accepts."""


class MarianSide(Tokeniser):
    """The tokeniser of one side, with symbols in heedful's order.

    Args:
        model: the sentencepiece model.
        rows: the row of each piece in the table of the model.
        special: the rows of PAD, UNKNOWN, BEGIN and END.
        count: number of rows of the table.
        joint: whether both sides share a vocabulary.
        where: names of the files, for messages.
        silent: pieces without text, which name languages.

    Raises:
        UserError: the model is damaged, or a piece has no row in the table.
    """

    def __init__(
        self,
        model: bytes,
        rows: Mapping[str, int],
        special: Sequence[int | None],
        count: int,
        *,
        joint: bool,
        where: str,
        silent: Collection[str] = (),
    ) -> None:
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except Exception as error:  # the type depends on the damage
            raise UserError(f"{where}: not a sentencepiece model; the file is damaged") from error
        if not self._processor.get_piece_size():
            raise UserError(f"{where}: a sentencepiece model without pieces; the file is damaged")
        self._pieces_of = partial(self._processor.encode, out_type=str)
        largest = max(rows.values(), default=-1)
        if largest >= count:
            raise UserError(
                f"{where}: the vocabulary has a piece {largest}, but the model's table has only "
                f"{count} rows; the two belong to different models"
            )
        check_places(special, count, where)
        self.special, self.rows = tuple(special), dict(rows)
        self.places = places_of(special, count)
        self.size = len(self.places)
        self.mask = None
        size = max(self.size, _LEAST)
        self.settings = TokeniserSettings(kind="imported", vocabulary_size=size, joint=joint)
        symbols = {place: symbol for symbol, place in enumerate(self.places) if place is not None}
        self._symbols = {piece: symbols[row] for piece, row in rows.items()}
        self._silent = frozenset({PAD, BEGIN, END, *(self._symbols[piece] for piece in silent)})
        names = {row: piece for piece, row in rows.items()}
        self._names = [
            fixed_names(mask=False)[symbol] if symbol <= END else names.get(place or 0, "")
            for symbol, place in enumerate(self.places)
        ]
        self._bytes = [self._surface(symbol) for symbol in range(self.size)]

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END; an empty text has no tokens.

        A language code at the start (``>>fr<<``) is one token.

        Raises:
            UserError: the text contains a lone surrogate, which is not valid Unicode.
        """
        refuse_surrogates(text, "the text")
        code, rest = self._language_code(text)
        # One text at a time: sentencepiece starts threads for any batch.
        return self._numbers([*code, *encode_one(self._pieces_of, rest)])

    def _language_code(self, text: str) -> tuple[list[str], str]:
        """The pieces before a text, and the text without a code at its start."""
        return _language_code(text)

    def _numbers(self, pieces: Sequence[str]) -> list[int]:
        return [self._symbols.get(piece, UNKNOWN) for piece in pieces]

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """Encode several texts.

        A language code at the start of a text (``>>fr<<``) is one token.

        Raises:
            UserError: a text contains a lone surrogate; the message names the text and the
                position.
        """
        for number, text in enumerate(texts, start=1):
            refuse_surrogates(text, f"text {number}" if len(texts) > 1 else "the text")
        parts = [self._language_code(text) for text in texts]
        together = partial(self._pieces_of, num_threads=1 if len(texts) < _FEW else (threads or -1))
        pieces: list[list[str]] = encode_all(together, self._pieces_of, [text for _, text in parts])
        return [
            self._numbers([*code, *found]) for (code, _), found in zip(parts, pieces, strict=True)
        ]

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN and END give no text.

        Any tokens give a valid string; bytes that are not UTF-8 become U+FFFD.
        """
        spans = b"".join(self._bytes[int(token)] for token in tokens)
        return spans.decode("utf-8", "replace").removeprefix(" ")

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        return [self.decode(tokens) for tokens in batch]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token: ``▁`` starts a word."""
        return [self._names[int(token)] for token in tokens]

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        rows = json.dumps(sorted(self.rows.items()))
        return digest([KIND, super().fingerprint(), str(self.special), str(self.size), rows])

    def save(self, path: Path) -> None:
        """Not supported: `MarianTokenisers.save` saves the files of both sides."""
        raise NotImplementedError

    def _surface(self, token: int) -> bytes:
        if token in self._silent:
            return b""
        if token == UNKNOWN:
            return " ⁇ ".encode()
        piece = self._names[token]
        own = self._processor.piece_to_id(piece)
        if piece and self._processor.is_byte(own):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(MARKER, " ").encode()


@dataclass(frozen=True)
class MarianTokenisers(Tokenisers):
    """The tokenisers of both sides of a Marian model, with the content of their files."""

    source: MarianSide
    target: MarianSide
    files: dict[str, bytes]

    @classmethod
    def read(
        cls,
        files: Mapping[str, bytes],
        special: tuple[Sequence[int | None], Sequence[int | None]],
        counts: tuple[int, int],
        where: str,
    ) -> "MarianTokenisers":
        """Create the tokenisers from the content of files.

        Args:
            files: the content of the `FILES` that exist.
            special: the rows of PAD, UNKNOWN, BEGIN and END in the tables of source and target.
            counts: numbers of rows of both tables.
            where: the folder, for messages.

        Raises:
            UserError: a file is missing or damaged, or has more pieces than the table has rows.
        """
        rows = read_rows(files, where)
        sides = [
            MarianSide(
                _content(files, f"{name}.spm", where),
                rows[side],
                special[side],
                counts[side],
                joint=rows[0] is rows[1],
                where=f"{where}/{name}.spm",
            )
            for side, name in enumerate(("source", "target"))
        ]
        return cls(sides[0], sides[1], dict(files))

    def save(self, folder: Path) -> None:
        """Write the unchanged files into ``folder``, and the index last."""
        index = {
            "format": 1,
            "kind": KIND,
            "special": [list(self.source.special), list(self.target.special)],
            "rows": [count_rows(self.source.places), count_rows(self.target.places)],
        }
        write_kept(folder, self.files, INDEX, index)

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        return digest([self.source.fingerprint(), self.target.fingerprint()])


def load_marian(folder: Path, index: dict[str, Any]) -> MarianTokenisers:
    """Load what `MarianTokenisers.save` wrote.

    Raises:
        UserError: a file is missing, damaged, or has changed since it was saved.
    """
    special, rows = index.get("special"), index.get("rows")
    two = all(isinstance(side, list) and len(side) == 2 for side in (special, rows))
    if not two or not all(isinstance(side, list) for side in special or ()):
        raise UserError(f"{folder / INDEX}: not an index of tokenisers; the file is damaged")
    files = read_kept(folder, index, INDEX, FILES)
    (source, target), counts = special or ((), ()), rows or (0, 0)
    return MarianTokenisers.read(files, (source, target), (counts[0], counts[1]), str(folder))


def read_rows(
    files: Mapping[str, bytes], where: str
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The rows of the pieces of source and target; the same object if the vocabulary is shared.

    Raises:
        UserError: a file is missing or damaged.
    """
    source = rows_in(files, "vocab.json", where)
    if read_tokeniser_settings(files, where).get("separate_vocabs"):
        return source, rows_in(files, "target_vocab.json", where)
    return source, source


def find_marian_special(
    files: Mapping[str, bytes], config: Mapping[str, Any], where: str
) -> tuple[list[int | None], list[int | None]]:
    """The rows of PAD, UNKNOWN, BEGIN and END in the source's and the target's table.

    A target begins with ``decoder_start_token_id``. In most models, this is also the padding
    symbol. It becomes BEGIN; then the model has no PAD, which is not needed.

    Raises:
        UserError: the configuration contradicts the vocabulary, a symbol is missing, or tokens are
            added to the vocabulary.
    """
    token_settings = read_tokeniser_settings(files, where)
    tables = read_rows(files, where)
    refuse_unknown_tokens(files, token_settings, tables[0].keys() | tables[1].keys(), where)
    end, pad, start = (
        config.get(name) for name in ("eos_token_id", "pad_token_id", "decoder_start_token_id")
    )
    for name, row in (("eos_token_id", end), ("decoder_start_token_id", start)):
        if type(row) is not int or row < 0:
            raise UserError(f"{where}/config.json: {name} = {json.dumps(row)}: expected a number")
    if pad is not None and (type(pad) is not int or pad < 0):
        raise UserError(f"{where}/config.json: pad_token_id = {json.dumps(pad)}: expected a number")
    if start == end:
        raise UserError(
            f"{where}/config.json: decoder_start_token_id = {start}: not supported where it is "
            "eos_token_id too"
        )
    found = []
    for rows in tables:
        unknown = rows.get(token_settings.get("unk_token", "<unk>"))
        ends = rows.get(token_settings.get("eos_token", "</s>"))
        if unknown is None or ends != end:
            raise UserError(
                f"{where}: eos_token_id = {end} and the unknown symbol must be in vocab.json as "
                f"tokenizer_config.json names them; there </s> is {ends} and <unk> is {unknown}"
            )
        found.append([None if pad == start else pad, unknown, start, end])
    return found[0], found[1]


def rows_in(files: Mapping[str, bytes], name: str, where: str) -> dict[str, int]:
    """The rows of the pieces in a file of a vocabulary.

    Raises:
        UserError: the file is missing or damaged.
    """
    rows = parse_json(_content(files, name, where), f"{where}/{name}", 2 * MOST_SYMBOLS)
    good = isinstance(rows, dict) and all(type(row) is int and row >= 0 for row in rows.values())
    if not good or len(set(rows.values())) < len(rows):
        raise UserError(f"{where}/{name}: two pieces have the same row")
    own: dict[str, int] = rows
    check_vocabulary(own, f"{where}/{name}")
    return own


def _content(files: Mapping[str, bytes], name: str, where: str) -> bytes:
    if name not in files:
        raise UserError(
            f"{where} has no {name}; a Marian model has source.spm, target.spm and vocab.json"
        )
    return files[name]


def _language_code(text: str) -> tuple[list[str], str]:
    """A code such as ``>>fr<<`` at the start of a text, and the rest."""
    end = text.find("<<")
    if not text.startswith(">>") or end < 0:
        return [], text
    return [text[: end + 2]], text[end + 2 :]
