"""Imported vocabularies against the tokenisers of transformers, on any text."""

import functools
import json
import tempfile
from pathlib import Path

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.imported_vocabulary import ImportedVocabulary
from heedful.data.saved_vocabularies import load_vocabulary
from heedful.data.tokeniser_files import find_special, read_files
from heedful.data.vocabularies import encode_words, save_vocabulary
from interop_help import TEXTS, save_bytes, save_wordpiece

WORDS = st.sampled_from(
    [*" ".join(TEXTS[:4]).split(), "[MASK]", "##s", "ﬁ", "é", "東京", "\t", "xyzzy"]
)
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(WORDS, max_size=12).map(" ".join),
)
KINDS = ["wordpiece", "wordpiece-cased", "wordpiece-old", "bytes", "bytes-prefix", "bytes-old"]


@functools.cache
def made(kind: str) -> tuple[Path, transformers.PreTrainedTokenizerBase, ImportedVocabulary]:
    folder = Path(tempfile.mkdtemp())
    if kind.startswith("wordpiece"):
        tokens = save_wordpiece(folder, lower=kind != "wordpiece-cased")
    else:
        tokens = save_bytes(folder, add_prefix_space=kind == "bytes-prefix")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if kind.endswith("old"):  # the files of before tokenizer.json
        described = json.loads((folder / "tokenizer.json").read_text())["model"]
        (folder / "tokenizer.json").unlink()
        if kind == "wordpiece-old":
            names = sorted(tokens, key=tokens.__getitem__)
            (folder / "vocab.txt").write_text("".join(f"{name}\n" for name in names))
        else:
            (folder / "vocab.json").write_text(json.dumps(described["vocab"]))
            lines = ["#version: 0.2", *(" ".join(pair) for pair in described["merges"])]
            (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    files = read_files(folder)
    special = find_special(files, str(folder))
    return folder, theirs, ImportedVocabulary(files, special, len(tokens) + 3, str(folder))


def in_ours(vocabulary: ImportedVocabulary, theirs: list[int]) -> list[int]:
    return [vocabulary.places.index(token) for token in theirs]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=ANY_TEXT)
def test_ids_are_those_of_transformers_in_our_order(kind: str, text: str) -> None:
    _, theirs, ours = made(kind)
    expected = in_ours(ours, theirs(text, add_special_tokens=False)["input_ids"])
    assert ours.encode(text) == expected
    assert ours.encode_batch([text, "the"])[0] == expected


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(text=ANY_TEXT)
def test_word_indices_are_of_the_decoded_words(kind: str, text: str) -> None:
    ours = made(kind)[2]
    tokens = [BEGIN, *ours.encode(text), END, PAD]
    words = ours.decode(tokens).split()
    indices = ours.word_indices(tokens)
    assert len(indices) == len(ours.pieces(tokens)) == len(tokens)
    assert sorted({index for index in indices if index >= 0}) == list(range(len(words)))
    assert indices[0] == indices[-1] == indices[-2] == -1
    for word in range(len(words)):
        own = [token for token, index in zip(tokens, indices, strict=True) if index == word]
        assert ours.decode(own).split()[0].startswith(words[word][:1])


def test_special_tokens_come_first_whatever_their_rows() -> None:
    _, theirs, ours = made("wordpiece")
    text = "the [MASK] cat"
    ids = theirs(text, "a dog")["input_ids"]
    second = ours.encode("a dog")
    assert in_ours(ours, ids) == [BEGIN, *ours.encode(text), END, *second, END]
    assert ours.mask == 4
    assert 4 in ours.encode(text)
    assert theirs.convert_tokens_to_ids("[MASK]") == ours.places[4]
    assert ours.encode("☃") == [UNKNOWN]


def test_bytes_lack_three_symbols_and_lose_nothing() -> None:
    ours = made("bytes")[2]
    assert ours.places[:END] == [None] * 3
    assert ours.mask is None
    for text in (*TEXTS, " ☃\n\tx", "", "é"):
        assert ours.decode(ours.encode(text)) == text
    assert ours.encode("a<|endoftext|>b").count(END) == 1


def test_added_tokens_are_text_as_they_are(tmp_path: Path) -> None:
    folder = made("bytes")[0]
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.add_tokens(["né", "<|user|>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    files = read_files(tmp_path)
    ours = ImportedVocabulary(files, find_special(files, "here"), 400)
    tokens = ours.encode("a né<|user|>b")
    assert ours.decode(tokens) == "a né<|user|>b"
    assert "né" in ours.pieces(tokens)


def test_any_tokens_give_a_string() -> None:
    for kind in KINDS:
        ours = made(kind)[2]
        everything = list(range(ours.size))
        assert isinstance(ours.decode(everything), str)
        assert len(ours.pieces(everything)) == ours.size
        assert all(END < token < ours.size for token in ours.word_starts())


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_is_the_same_and_its_files_too(kind: str, tmp_path: Path) -> None:
    folder, _, ours = made(kind)
    save_vocabulary(ours, tmp_path)
    again = load_vocabulary(tmp_path)
    assert again.fingerprint() == ours.fingerprint()
    assert again.encode(TEXTS[0]) == ours.encode(TEXTS[0])
    for name in read_files(folder):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    name = next(iter(read_files(folder)))
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(UserError, match="was changed"):
        load_vocabulary(tmp_path)


def test_words_of_a_sentence_keep_their_places() -> None:
    ours = made("wordpiece")[2]
    words = ["She", "doesn't", "sell", "shells", "."]
    tokens, firsts = encode_words(ours, words)
    assert len(firsts) == len(words)
    assert ours.pieces([tokens[firsts[0]]]) == ["she"]


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        find_special({}, "here")
    with pytest.raises(UserError, match="damaged"):
        find_special({"tokenizer.json": b"{}"}, "here")
    folder, _, ours = made("wordpiece")
    with pytest.raises(UserError, match="only 20 rows"):
        ImportedVocabulary(read_files(folder), ours.special, 20, "here")
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"] = {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}
    described["added_tokens"] = []
    with pytest.raises(UserError, match="'Unigram'; WordPiece, byte-level BPE, and"):
        find_special({"tokenizer.json": json.dumps(described).encode()}, "here")
