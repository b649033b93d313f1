"""Panics of native libraries become ordinary exceptions; nothing else is changed."""

import pytest
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.models import BPE

from heedful.basics.native import NativeLibraryError, guarded


def test_a_panic_becomes_an_ordinary_exception() -> None:
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.Replace(Regex("(a+)+$"), "b")  # takes too many steps
    message = "reading a text: PanicException"
    with pytest.raises(NativeLibraryError, match=message), guarded("reading a text"):
        tokenizer.encode("a" * 30 + "b")


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_other_exceptions_pass_unchanged(kind: type[BaseException]) -> None:
    with pytest.raises(kind), guarded("nothing"):
        raise kind
