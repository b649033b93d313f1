"""Marian's tokenisers against those of transformers, on any text."""

import functools
import json
import tempfile
import warnings
from pathlib import Path

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.marian_tokenisers import FILES, MarianTokenisers, find_marian_special
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.tokeniser_files import read_files
from interop_help import TEXTS, save_marian_tokeniser

WORDS = st.sampled_from(
    [*" ".join(TEXTS[:4]).split(), ">>fr<<", "</s>", "ﬁ", "é", "東京", "\t", "▁"]
)
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(WORDS, max_size=12).map(" ".join),
    st.lists(WORDS, max_size=12).map(lambda words: ">>fr<<" + " ".join(words)),
)
KINDS = ["joint", "code", "separate"]
Made = tuple[Path, transformers.PreTrainedTokenizerBase, MarianTokenisers]


@functools.cache
def made(kind: str) -> Made:
    folder = Path(tempfile.mkdtemp())
    rows = save_marian_tokeniser(
        folder, separate=kind == "separate", code=">>fr<<" if kind == "code" else None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.MarianTokenizer.from_pretrained(folder)
    files = read_files(folder, FILES)
    config = {
        "eos_token_id": 0,
        "pad_token_id": rows - 1,
        "decoder_start_token_id": rows - 1,
    }
    special = find_marian_special(files, config, str(folder))
    target = json.loads(files["target_vocab.json"]) if kind == "separate" else range(rows)
    ours = MarianTokenisers.read(files, special, (rows + 2, len(target) + 2), str(folder))
    return folder, theirs, ours


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=ANY_TEXT)
def test_ids_are_those_of_transformers_in_our_order(kind: str, text: str) -> None:
    _, theirs, ours = made(kind)
    sides = {
        ours.source: theirs(text, split_special_tokens=True)["input_ids"],
        ours.target: theirs(text_target=text, split_special_tokens=True)["input_ids"],
    }
    for side, expected in sides.items():
        assert [side.places.index(token) for token in expected] == [*side.encode(text), END]
        assert side.encode_batch(["", text])[1] == side.encode(text)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(text=ANY_TEXT)
def test_text_comes_back_and_words_are_numbered(kind: str, text: str) -> None:
    _, theirs, ours = made(kind)
    for side, use_source in ((ours.source, True), (ours.target, False)):
        tokens = side.encode(text)
        back = [side.places[token] for token in tokens]
        if UNKNOWN not in tokens and kind != "code":
            assert None not in back
            decoded = theirs.decode(back, use_source_tokenizer=use_source)
            if kind == "joint" or not use_source:  # separate: transformers decodes targets only
                assert side.decode(tokens).strip() == decoded
        indices = side.word_indices([BEGIN, *tokens, END, PAD])
        words = side.decode(tokens).split()
        assert sorted({index for index in indices if index >= 0}) == list(range(len(words)))
        assert len(side.pieces(tokens)) == len(tokens)


def test_a_language_code_is_one_token() -> None:
    with_code, without = made("code")[2].source, made("joint")[2].source
    assert with_code.pieces(with_code.encode(">>fr<< the cat"))[:1] == [">>fr<<"]
    assert without.encode(">>fr<< the cat")[0] == UNKNOWN


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_they_are_the_same_and_their_files_too(kind: str, tmp_path: Path) -> None:
    folder, _, ours = made(kind)
    ours.save(tmp_path)
    again = load_tokenisers(tmp_path)
    assert (
        again.fingerprint()
        == ours.fingerprint()
        != made("joint" if kind == "code" else "code")[2].fingerprint()
    )
    assert again.target.encode(TEXTS[0]) == ours.target.encode(TEXTS[0])
    for name in read_files(folder, FILES):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(UserError, match="was changed"):
        load_tokenisers(tmp_path)


def test_wrong_files_are_one_line() -> None:
    folder, _, ours = made("joint")
    files = read_files(folder, FILES)
    special = (ours.source.special, ours.target.special)
    with pytest.raises(UserError, match="only 50 rows"):
        MarianTokenisers.read(files, special, (50, 50), "here")
    with pytest.raises(UserError, match=r"here/source\.spm: not a sentencepiece model"):
        MarianTokenisers.read(files | {"source.spm": b"x"}, special, (500, 500), "here")
    lacking = {name: content for name, content in files.items() if name != "target.spm"}
    with pytest.raises(UserError, match=r"here has no target\.spm"):
        MarianTokenisers.read(lacking, special, (500, 500), "here")
    config = {"eos_token_id": 0, "pad_token_id": 9, "decoder_start_token_id": 9}
    for name, value in (("eos_token_id", 5), ("eos_token_id", [0]), ("decoder_start_token_id", 0)):
        wrong = config | {name: value}
        with pytest.raises(UserError, match=name):
            find_marian_special(files, wrong, "here")
    for name, content in (
        ("added_tokens.json", {"<tag>": 600}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"600": {"content": "<tag>"}}}),
    ):
        more = files | {name: json.dumps(content).encode()}
        with pytest.raises(UserError, match='token "<tag>" is added to those of'):
            find_marian_special(more, config, "here")
