"""Our vocabularies as transformers reads them give the same tokens, on any text."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.subwords import ESCAPE
from heedful.data.vocabularies import SavedVocabulary, VocabularySettings, train_vocabulary
from heedful.interop.own_vocabularies import tokeniser_files
from interop_help import TEXTS

SOME = " ".join(TEXTS[:4]).split()
EXTRA = [
    "⟦3⟧",
    "⟦61⟧x",
    "▁",
    ESCAPE,
    f"{ESCAPE}1",
    "ﬁ",
    "é",
    "東京",
    "\t",
    "\n",
    "  ",
    "☃",
    "don't",
]
WORDS = st.sampled_from([*SOME, *EXTRA])
ANY_TEXT = st.one_of(
    # Unassigned characters (Cn) may be letters in the Unicode version of another library.
    st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=30),
    st.lists(WORDS, max_size=12).map(" ".join),
    st.lists(WORDS, max_size=6).map("".join),
)
KINDS: dict[str, dict[str, Any]] = {
    "bpe": {"kind": "bpe", "vocabulary_size": 420, "mask": True},
    "bpe-lower": {"kind": "bpe", "vocabulary_size": 400, "lower_case": True},
    "unigram": {"kind": "unigram", "vocabulary_size": 390, "mask": True, "normalise": "nfc"},
    "bytes": {"kind": "bytes", "vocabulary_size": 300, "mask": True},
    "bytes-nfc": {"kind": "bytes", "vocabulary_size": 300, "normalise": "nfc", "lower_case": True},
    "characters": {"kind": "characters", "vocabulary_size": 30},
    "words": {"kind": "words", "vocabulary_size": 25, "mask": True},
    "words-spaces": {"kind": "words", "vocabulary_size": 25, "split": "spaces"},
}


@functools.cache
def made(kind: str) -> tuple[SavedVocabulary, transformers.PreTrainedTokenizerBase]:
    chosen = VocabularySettings.model_validate(KINDS[kind])
    ours = train_vocabulary(lambda: TEXTS * 3, chosen, seed=1, where="the test")
    folder = Path(tempfile.mkdtemp())
    for name, content in tokeniser_files(ours, 64, around=True, where="here").items():
        (folder / name).write_bytes(content)
    return ours, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(text=ANY_TEXT)
def test_tokens_are_the_same(kind: str, text: str) -> None:
    ours, theirs = made(kind)
    tokens = ours.encode(text)
    assert theirs(text)["input_ids"] == [BEGIN, *tokens, END]
    if kind in ("bpe", "unigram", "bytes", "words"):
        assert theirs.decode(tokens) == ours.decode(tokens) or UNKNOWN in tokens


@pytest.mark.parametrize("kind", KINDS)
def test_special_symbols_are_named(kind: str) -> None:
    ours, theirs = made(kind)
    assert (theirs.pad_token_id, theirs.unk_token_id) == (PAD, UNKNOWN)
    assert (theirs.cls_token_id, theirs.sep_token_id) == (BEGIN, END)
    assert theirs.mask_token_id == ours.mask
    assert len(theirs) == ours.size
    assert theirs.model_max_length == 64
    pair = theirs("the cat", "a dog")
    assert pair["input_ids"] == [BEGIN, *ours.encode("the cat"), END, *ours.encode("a dog"), END]
    assert pair["token_type_ids"][-1] == 1
