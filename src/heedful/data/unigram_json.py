"""Validate the Unigram model and the character map of a ``tokenizer.json`` of sentencepiece."""

import base64
import binascii
import struct
from collections.abc import Mapping
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS

_LONGEST_CHARACTER = 64
"""Maximum bytes that a character map puts in the place of a character; NFKC needs 33."""


def check_unigram(model: Mapping[str, Any], where: str, longest: int) -> None:
    """Raise UserError for a damaged or unsupported Unigram model.

    Args:
        model: the model of the file.
        where: name of the file, for messages.
        longest: maximum characters of a piece.
    """
    pieces = model.get("vocab")
    if not isinstance(pieces, list) or not pieces or not all(map(_is_piece, pieces)):
        raise UserError(f"{where}: the vocabulary is not a list of pieces with their scores")
    if len(pieces) > MOST_SYMBOLS:
        raise UserError(
            f"{where}: a vocabulary of {len(pieces):,} tokens, more than the {MOST_SYMBOLS:,} "
            "that are supported"
        )
    too_long = next((piece for piece, _ in pieces if len(piece) > longest), None)
    if too_long is not None:
        raise UserError(
            f"{where}: the piece {too_long[:20]!r}… has {len(too_long):,} characters; at most "
            f"{longest:,} are supported"
        )
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(pieces):
        raise UserError(f"{where}: unk_id = {unknown!r:.40} is not the number of a piece")
    if model.get("byte_fallback"):
        raise UserError(f"{where}: byte_fallback = true is not supported for Unigram")


def _is_piece(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    piece, score = value
    return isinstance(piece, str) and type(score) in (int, float) and abs(score) < float("inf")


def check_charsmap(step: Mapping[str, Any], where: str) -> None:
    """Raise UserError for a character map that is damaged, or makes texts much longer.

    The map is the number of bytes of a trie, the trie, and the texts that it puts in the place of
    characters, each with a zero byte after it.
    """
    try:
        content = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
        (size,) = struct.unpack_from("<I", content)
        texts = content[4 + size :].decode("utf-8").encode("utf-8")
    except (TypeError, ValueError, struct.error, binascii.Error) as error:
        raise UserError(f"{where}: precompiled_charsmap is damaged: {error}") from error
    if not size or size % 4 or 4 + size > len(content):
        raise UserError(f"{where}: precompiled_charsmap is damaged: its trie has {size} bytes")
    longest = max(map(len, texts.split(b"\0")))
    if longest > _LONGEST_CHARACTER:
        raise UserError(
            f"{where}: precompiled_charsmap replaces a character by {longest:,} bytes; at most "
            f"{_LONGEST_CHARACTER} are supported"
        )
