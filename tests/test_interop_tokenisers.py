"""Imported vocabularies against the tokenisers of transformers, on any text."""

import base64
import functools
import json
import random
import tempfile
from pathlib import Path
from typing import Any

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
from heedful.interop.tokeniser_class import check_tokeniser
from interop_help import (
    TEXTS,
    save_bytes,
    save_pegasus_tokeniser,
    save_roberta,
    save_t5_tokeniser,
    save_unigram,
    save_wordpiece,
)

WORDS = st.sampled_from(
    [
        *" ".join(TEXTS[:4]).split(),
        "[MASK]",
        "##s",
        "ﬁ",
        "é",
        "東京",
        "\t",
        "xyzzy",
        "<mask>",
        "<|endoftext|>",
        "``",
        "▁",
    ]
)
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(WORDS, max_size=12).map(" ".join),
)
KINDS = [
    *("wordpiece", "wordpiece-cased", "wordpiece-old", "bytes", "bytes-prefix", "bytes-old"),
    *("roberta", "roberta-prefix", "roberta-old", "roberta-plain-old"),
    *("xlm-roberta", "albert", "albert-cased", "t5", "pegasus", "pegasus-plain"),
]


GENERATING = ("bytes", "t5", "pegasus")
"""Tokenisers of models that generate texts."""


@functools.cache
def made(kind: str) -> tuple[Path, transformers.PreTrainedTokenizerBase, ImportedVocabulary]:
    folder = Path(tempfile.mkdtemp())
    if kind.startswith("wordpiece"):
        tokens = save_wordpiece(folder, lower=kind != "wordpiece-cased")
    elif kind.startswith("roberta"):
        prefix, stripped = kind == "roberta-prefix", not kind.startswith("roberta-plain")
        tokens = save_roberta(folder, stripped=stripped, add_prefix_space=prefix)
    elif kind == "xlm-roberta":
        tokens = save_unigram(folder)
    elif kind.startswith("albert"):
        cased = kind == "albert-cased"
        tokens = save_unigram(folder, albert=True, do_lower_case=not cased, keep_accents=cased)
    elif kind == "t5":
        tokens = dict.fromkeys(map(str, range(save_t5_tokeniser(folder))), 0)
    elif kind.startswith("pegasus"):
        tokens = save_pegasus_tokeniser(folder, mapped=kind == "pegasus")
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
        if kind == "roberta-old":  # its settings say that the space before a mask belongs to it
            mask = {"content": "<mask>", "lstrip": True, "normalized": False, "rstrip": False}
            mask |= {"single_word": False, "__type": "AddedToken"}
            given = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps({**given, "mask_token": mask}))
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
    files = read_files(folder)
    special = find_special(files, str(folder), encoder=not kind.startswith(GENERATING))
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


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("roberta")])
def test_the_space_before_a_mask_is_where_transformers_has_it(kind: str) -> None:
    _, theirs, ours = made(kind)
    for text in ("The <mask> sat", "<mask>", "a  <mask>  b<mask>c <mask>"):
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text) == in_ours(ours, expected)


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
    ours = ImportedVocabulary(files, find_special(files, "here", encoder=False), 400)
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
    with pytest.raises(
        UserError, match="'Unigram'; WordPiece, byte-level BPE, and BPE and Unigram"
    ):
        find_special({"tokenizer.json": json.dumps(described).encode()}, "here")
    described["model"] = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    with pytest.raises(UserError, match="'WordLevel'; WordPiece, byte-level BPE and Unigram are"):
        find_special({"tokenizer.json": json.dumps(described).encode()}, "here")


def charsmap(*texts: str, size: int = 4) -> str:
    content = size.to_bytes(4, "little") + b"\0" * 4 + "\0".join(texts).encode()
    return base64.b64encode(content).decode()


BROKEN = [
    ({"model": {"vocab": [["a", "b"]]}}, "not a list of pieces with their scores"),
    ({"model": {"vocab": []}}, "not a list of pieces with their scores"),
    ({"model": {"vocab": [["a" * 1001, 0.0]]}}, "has 1,001 characters"),
    ({"model": {"unk_id": 4000}}, "unk_id = 4000 is not the number of a piece"),
    ({"model": {"unk_id": None}}, "unk_id = None"),
    ({"model": {"byte_fallback": True}}, "byte_fallback = true"),
    ({"normalizer": {"precompiled_charsmap": "?"}}, "precompiled_charsmap is damaged"),
    ({"normalizer": {"precompiled_charsmap": ""}}, "precompiled_charsmap is damaged"),
    ({"normalizer": {"precompiled_charsmap": charsmap("a", size=400)}}, "its trie has 400 bytes"),
    ({"normalizer": {"precompiled_charsmap": charsmap("a", size=0)}}, "its trie has 0 bytes"),
    ({"normalizer": {"precompiled_charsmap": charsmap("a", "b" * 65)}}, "a character by 65 bytes"),
    (
        {"pre_tokenizer": {"pretokenizers": [{"type": "Metaspace", "replacement": "aa"}]}},
        "not supp",
    ),
]


@pytest.mark.parametrize(("changed", "message"), BROKEN)
def test_a_damaged_unigram_is_one_line(changed: dict[str, Any], message: str) -> None:
    folder = made("xlm-roberta")[0]
    described = json.loads((folder / "tokenizer.json").read_text())
    for part, values in changed.items():
        described[part] |= values
    with pytest.raises(UserError, match=message) as found:
        find_special({"tokenizer.json": json.dumps(described).encode()}, "here")
    assert "\n" not in str(found.value)


def test_a_step_that_makes_texts_longer_is_refused_or_allowed_once() -> None:
    folder = made("albert")[0]
    described = json.loads((folder / "tokenizer.json").read_text())
    steps = described["normalizer"]["normalizers"]
    [charmap] = [step for step in steps if step["type"] == "Precompiled"]
    for more, message in (
        (charmap, "Precompiled 2 times"),
        ({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}, "not supported"),
        ({"type": "Replace", "pattern": {"String": "``"}, "content": "aaa"}, "not supported"),
    ):
        longer = {**described, "normalizer": {"type": "Sequence", "normalizers": [*steps, more]}}
        with pytest.raises(UserError, match=message):
            find_special({"tokenizer.json": json.dumps(longer).encode()}, "here")


LOWER = {"type": "Lowercase"}
BERT: dict[str, Any] = {"type": "BertNormalizer", "handle_chinese_chars": True, "lowercase": True}
BERT |= {"strip_accents": None, "clean_text": False}
DIGITS: dict[str, Any] = {"type": "Sequence", "pretokenizers": []}
DIGITS["pretokenizers"].append({"type": "Digits", "individual_digits": True})
DIGITS["pretokenizers"].append({"type": "ByteLevel", "add_prefix_space": False})
DIGITS["pretokenizers"][1] |= {"trim_offsets": True, "use_regex": True}
OTHER_THAN_THE_CLASS: list[tuple[str, str, Any, str]] = [
    ("xlm-roberta", "normalizer", LOWER, r"normalizers \['Lowercase'\]"),
    ("t5", "normalizer", LOWER, r"normalizers \['Lowercase'\]"),
    ("albert", "normalizer", None, r"normalizers \[\]"),
    ("pegasus", "normalizer", None, r"normalizers \[\]"),
    ("t5", "pre_tokenizer", {"prepend_scheme": "never"}, 'prepend_scheme = "never"'),
    ("pegasus", "pre_tokenizer", {"prepend_scheme": "first"}, 'prepend_scheme = "first"'),
    ("t5", "model", {"unk_id": 0}, "unk_id = 0"),
    ("wordpiece", "normalizer", BERT, "clean_text = false"),
    ("wordpiece", "pre_tokenizer", {"type": "WhitespaceSplit"}, "'WhitespaceSplit'"),
    ("wordpiece", "model", {"max_input_chars_per_word": 5}, "max_input_chars_per_word = 5"),
    ("bytes", "normalizer", LOWER, r"normalizers \['Lowercase'\]"),
    ("bytes", "pre_tokenizer", {"use_regex": False}, "uses ByteLevel with GPT-2's words"),
    ("bytes", "pre_tokenizer", DIGITS, r"pre_tokenizer \['Digits', 'ByteLevel'\]"),
    ("bytes", "model", {"ignore_merges": True}, "ignore_merges = true"),
    ("roberta", "model", {"byte_fallback": True}, "byte_fallback = true"),
]


@pytest.mark.parametrize(("kind", "part", "value", "message"), OTHER_THAN_THE_CLASS)
@pytest.mark.parametrize("named", [True, False])
def test_what_the_class_would_not_build_is_refused(
    kind: str, part: str, value: Any, message: str, named: bool
) -> None:
    files = read_files(made(kind)[0])
    if not named:  # the class is that of the model
        written = json.loads(files["tokenizer_config.json"])
        written.pop("tokenizer_class")
        files["tokenizer_config.json"] = json.dumps(written).encode()
    config = {"model_type": kind}
    check_tokeniser(files, config, "here")
    described = json.loads(files["tokenizer.json"])
    if part == "normalizer":
        described[part] = value
    else:
        (described[part].get("pretokenizers") or [described[part]])[-1].update(value)
    files["tokenizer.json"] = json.dumps(described).encode()
    with pytest.raises(UserError, match=message) as caught:
        check_tokeniser(files, config, "here")
    assert "\n" not in str(caught.value)


SPECIAL_ADDED = {"content": "<new>", "lstrip": True, "special": True}
ADDED: list[tuple[str, dict[str, Any]]] = [
    ("added_tokens.json", {"<new>": 0, "né": 1}),
    ("tokenizer_config.json", {"added_tokens_decoder": {"0": SPECIAL_ADDED}}),
    ("tokenizer_config.json", {"additional_special_tokens": ["<new>", "cat"]}),
    ("tokenizer_config.json", {"extra_special_tokens": ["<new>"]}),
    ("special_tokens_map.json", {"additional_special_tokens": ["<new>"]}),
]
"""Files that add tokens; ids count from the end of the vocabulary."""


@pytest.mark.parametrize("kind", ["wordpiece-old", "bytes-old", "roberta-old", "bytes"])
@pytest.mark.parametrize(("file", "more"), ADDED)
def test_tokens_of_other_files_are_added(
    kind: str, file: str, more: dict[str, Any], tmp_path: Path
) -> None:
    folder, theirs, ours = made(kind)
    for name, content in read_files(folder).items():
        (tmp_path / name).write_bytes(content)
    first, at = len(theirs), tmp_path / file
    if "added_tokens_decoder" in more:
        [one] = more["added_tokens_decoder"].values()
        more = {"added_tokens_decoder": {str(first): one}}
    elif file == "added_tokens.json":
        more = {text: first + row for text, row in more.items()}
    given = json.loads(at.read_text()) if at.exists() else {}
    at.write_text(json.dumps(given | more))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    found = ImportedVocabulary(read_files(tmp_path), ours.special, first + 3, "here")
    for text in ("The <new> cat né", "<new>a", "cats  <new>"):
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert first in expected
        assert found.encode(text) == in_ours(found, expected)


DAMAGED: list[tuple[str, Any, str]] = [
    ("added_tokens.json", {"<new>": 7}, 'the added token "<new>" has the id 7, but'),
    ("added_tokens.json", {"cat": 900}, 'the added token "cat" has the id 900'),
    ("added_tokens.json", [], "not a table of tokens and numbers"),
    ("added_tokens.json", {"<new>": "x"}, "has no number"),
    ("tokenizer_config.json", {"added_tokens_decoder": [3]}, "has no text"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "a"}}}, "has no number"),
    ("tokenizer_config.json", {"extra_special_tokens": [[]]}, "has no text"),
    ("tokenizer_config.json", {"extra_special_tokens": "x"}, "not a list of tokens"),
    ("tokenizer_config.json", {"split_special_tokens": True}, "split_special_tokens = true"),
]


@pytest.mark.parametrize(("file", "content", "message"), DAMAGED)
def test_added_tokens_that_cannot_be_are_one_line(file: str, content: Any, message: str) -> None:
    files = read_files(made("wordpiece-old")[0]) | {file: json.dumps(content).encode()}
    with pytest.raises(UserError, match=message) as caught:
        check_tokeniser(files, {"model_type": "bert"}, "here")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "pegasus", "pegasus-plain"])
def test_500_strange_strings_have_the_same_tokens(kind: str) -> None:
    _, theirs, ours = made(kind)
    rng = random.Random(4)
    blocks = [(0, 0x250), (0x300, 0x370), (0x600, 0x700), (0x2000, 0x2070), (0x2580, 0x25A0)]
    blocks += [(0x3040, 0x3100), (0xF900, 0xFB50), (0xFDF0, 0xFE10), (0x1F300, 0x1F650)]
    for _ in range(500):
        text = "".join(chr(rng.randrange(*rng.choice(blocks))) for _ in range(rng.randrange(40)))
        expected = in_ours(ours, theirs(text, add_special_tokens=False)["input_ids"])
        assert ours.encode(text) == expected, ascii(text)
