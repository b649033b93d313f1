"""Encode texts with a native tokeniser, which may panic."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from heedful.basics.errors import UserError
from heedful.basics.native import NativeError, call_native

T = TypeVar("T")


def encode_one(encode: Callable[[str], T], text: str, what: str = "the text") -> T:
    """Encode a text with the library.

    Args:
        encode: the function of the library.
        text: valid Unicode.
        what: description of the text, for messages.

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
    """Encode several texts with the library.

    Args:
        encode: the function of the library for several texts.
        one: the function for a single text, which finds the text that causes a panic.
        texts: valid Unicode.

    Raises:
        UserError: the library panicked; the message has the number of the text, from 1.
    """
    try:
        return list(call_native(encode, list(texts)))
    except NativeError:
        several = len(texts) > 1
        return [
            encode_one(one, text, f"text {number}" if several else "the text")
            for number, text in enumerate(texts, start=1)
        ]
