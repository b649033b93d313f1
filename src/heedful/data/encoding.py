"""Encoding texts by a native tokeniser, which may fail at one of them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from heedful.basics.errors import UserError
from heedful.basics.native import NativeError, call_native

T = TypeVar("T")


def encode_one(encode: Callable[[str], T], text: str, what: str = "the text") -> T:
    """A text as the library encodes it.

    Args:
        encode: the library's function.
        text: valid Unicode.
        what: what the text is called in a message.

    Raises:
        UserError: the library panicked; the message names ``what``, never the text.
    """
    try:
        return call_native(encode, text)
    except NativeError as error:
        raise UserError(
            f"{what} cannot be encoded ({error}): leave it out, or change it"
        ) from error


def encode_all(
    encode: Callable[[list[str]], Sequence[T]], one: Callable[[str], T], texts: Sequence[str]
) -> list[T]:
    """Texts as the library encodes them together.

    Args:
        encode: the library's function for several texts.
        one: the same for a single text, by which the text that it fails at is found.
        texts: valid Unicode.

    Raises:
        UserError: the library panicked at a text; the message says which, counted from 1.
    """
    try:
        return list(call_native(encode, list(texts)))
    except NativeError:
        several = len(texts) > 1
        return [
            encode_one(one, text, f"text {number}" if several else "the text")
            for number, text in enumerate(texts, start=1)
        ]
