"""Our vocabularies as transformers reads them give the same tokens, on any text."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

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
    "ΣΟΦΟΣ",
    "ΑΣ'",
    "ʰΣ",
    "ΑΣ\u0301.Β",
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


GREEK = ["ΟΔΥΣΣΕΥΣ ΠΑΕΙ ΣΤΟΥΣ ΑΝΘΡΩΠΟΥΣ", "ὁ Ὀδυσσεύς ΣΑΣ", "Σ ΑΣ' ΑΣ'Α Α'Σ 1Σ ΣΣ", "İstanbul"]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes", "characters", "words"])
def test_lower_case_is_that_of_a_whole_text(kind: str) -> None:
    """A sigma at the end of a word has a lower case of its own."""
    size = {"characters": 60, "words": 20, "bytes": 320}.get(kind, 390)
    chosen = {"kind": kind, "vocabulary_size": size, "lower_case": True}
    texts = [*GREEK, *(text.lower() for text in GREEK), *TEXTS[:3]] * 3
    ours = train_vocabulary(
        lambda: texts, VocabularySettings.model_validate(chosen), seed=1, where="the test"
    )
    files = tokeniser_files(ours, 64, around=False, where="here")
    theirs = Tokenizer.from_str(files["tokenizer.json"].decode())
    for text in (*GREEK, "ΑΣ\u0301", "ΑΣ.Α", "ΑΣ.", "ʰΣ", "Αʰ\u00adΣ\u00adʰ"):
        assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text), text


def test_symbols_around_texts_are_those_of_the_model() -> None:
    ours = made("bytes")[0]
    first, second = ours.encode("the cat"), ours.encode("a dog")

    def found(**options: Any) -> tuple[list[int], list[int], list[int]]:
        files = tokeniser_files(ours, 64, where="here", **options)
        theirs = Tokenizer.from_str(files["tokenizer.json"].decode())
        pair = theirs.encode("the cat", "a dog")
        return theirs.encode("the cat").ids, pair.ids, pair.type_ids

    pair = [BEGIN, *first, END, *second, END]
    one_segment = found(around=True, second=0)
    assert one_segment == ([BEGIN, *first, END], pair, [0] * len(pair))
    assert found(around=True)[2] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert found(around=False, begin=True)[0] == [BEGIN, *first]
    after = [*first, END, *second, END]
    assert found(around=False, after=True) == ([*first, END], after, [0] * len(after))
    assert found(around=False)[0] == first
