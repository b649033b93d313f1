"""Vocabularies of every kind: what goes in comes out, words are found, files are checked."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.byte_vocabulary import ByteVocabulary
from heedful.data.listed_vocabularies import Characters, Words
from heedful.data.saved_vocabularies import load_vocabulary
from heedful.data.subwords import MASK, VocabularyTooLargeError
from heedful.data.tokeniser import Tokeniser, TokeniserSettings
from heedful.data.vocabularies import (
    SavedVocabulary,
    VocabularySettings,
    encode_words,
    save_vocabulary,
    train_vocabulary,
    unknown_share,
)

TEXTS = [
    "The cat sat on the mat.",
    "Der Hund läuft über die Straße, und die Katze schläft.",
    "A dog, a cat and 42 mice don't sleep: <b>x</b>",
    "日本語の文\u3000です。",
    "",
    " two  spaces\tand a tab\n",
    "<mask> <s> <pad> </s> <unk> <mask><s>",
] * 12
KINDS = ("bpe", "unigram", "bytes", "characters", "words")
SIZES = {"bpe": 390, "unigram": 380, "bytes": 330, "characters": 500, "words": 500}
ALPHABET = sorted(set("".join(TEXTS)))
any_text = st.lists(
    st.sampled_from(["The", " cat", "  ", "\n", "\u3000", "<s>", "<mask>", " ⁇ ", "\x00", "'", "é"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=12,
).map("".join)


def train(kind: str, texts: list[str] = TEXTS, **values: object) -> SavedVocabulary:
    chosen = VocabularySettings.model_validate(
        {"kind": kind, "vocabulary_size": SIZES[kind], "mask": True, **values}
    )
    return train_vocabulary(lambda: texts, chosen, seed=1, where="the test")


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request: pytest.FixtureRequest) -> SavedVocabulary:
    return train(request.param)


@settings(max_examples=150, deadline=None)
@example("")
@example("<mask>")
@example("\U0010ffff")
@given(text=any_text)
def test_what_goes_in_comes_out(vocabulary: SavedVocabulary, text: str) -> None:
    tokens = vocabulary.encode(text)
    assert not {PAD, BEGIN, END, vocabulary.mask} & set(tokens)
    assert all(UNKNOWN <= token < vocabulary.size for token in tokens)
    decoded = vocabulary.decode(tokens)
    if isinstance(vocabulary, Words):
        assert decoded.split() == [
            word if word in vocabulary.entries else "<unk>" for word in vocabulary.cut(text)
        ]
        assert vocabulary.encode(decoded) == tokens or UNKNOWN in tokens
    elif isinstance(vocabulary, Characters):
        assert decoded == "".join(c if c in vocabulary.entries else "\ufffd" for c in text)
    else:
        assert decoded == text
        assert UNKNOWN not in tokens
    assert vocabulary.decode([BEGIN, *tokens, END, PAD, vocabulary.mask or PAD]) == decoded
    assert vocabulary.encode_batch([text, "a cat"]) == [tokens, vocabulary.encode("a cat")]
    assert vocabulary.encode_batch([text], threads=1) == [tokens]
    assert vocabulary.decode_batch([tokens, []]) == [decoded, ""]


@settings(max_examples=100, deadline=None)
@given(text=st.lists(st.sampled_from(ALPHABET), max_size=30).map("".join))
def test_characters_of_the_alphabet_come_back(text: str) -> None:
    characters = train("characters")
    assert characters.decode(characters.encode(text)) == text
    assert len(characters.encode(text)) == len(text)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_tokens_decode_and_know_their_words(
    vocabulary: SavedVocabulary, data: st.DataObject
) -> None:
    tokens = data.draw(st.lists(st.integers(0, vocabulary.size - 1), max_size=25))
    text = vocabulary.decode(tokens)
    text.encode("utf-8")
    indices = vocabulary.word_indices(tokens)
    assert len(indices) == len(tokens) == len(vocabulary.pieces(tokens))
    written = [index for index in indices if index >= 0]
    assert written == sorted(written)
    assert set(written) <= set(range(len(text.split())))
    assert all(i == -1 for i, t in zip(indices, tokens, strict=True) if t in (PAD, BEGIN, END, 4))
    for token, index in zip(tokens, indices, strict=True):
        assert index >= 0 or not vocabulary.decode([token]).strip()


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(["The", "cat", "läuft", "don't", ":", "☃", "日本語", "100 000", "<s>"])
        | st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc", "Zl", "Zp"]), min_size=1),
        min_size=1,
        max_size=8,
    )
)
def test_words_are_found_among_tokens(vocabulary: SavedVocabulary, words: list[str]) -> None:
    tokens, firsts = encode_words(vocabulary, words)
    assert len(firsts) == len(words)
    assert firsts == sorted(set(firsts))
    ends = [*firsts[1:], len(tokens)]
    for word, first, end in zip(words, firsts, ends, strict=True):
        alone = vocabulary.decode(vocabulary.encode(word)).strip()
        found = vocabulary.decode(tokens[first:end]).strip()
        assert found == alone or isinstance(vocabulary, Characters)
        assert vocabulary.decode([tokens[first]]).strip()


def test_words_by_example() -> None:
    characters = train("characters")
    tokens, firsts = encode_words(characters, ["The", "cat"])
    assert (characters.decode(tokens), firsts) == ("The cat", [0, 4])
    words = train("words", split="punctuation")
    tokens, firsts = encode_words(words, ["The", "U.S.", "cat"])
    assert words.pieces(tokens) == ["The", "<unk>", ".", "<unk>", ".", "cat"]
    assert firsts == [0, 1, 5]
    with pytest.raises(ValueError, match="empty"):
        encode_words(words, ["The", " "])


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_have_their_places(kind: str) -> None:
    masked, plain = train(kind), train(kind, mask=False)
    assert masked.mask == 4
    assert masked.pieces(range(5)) == ["<pad>", "<unk>", "<s>", "</s>", MASK]
    assert plain.mask is None
    assert plain.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert plain.decode([PAD, BEGIN, END]) == ""


def test_word_starts(vocabulary: SavedVocabulary) -> None:
    starts = set(vocabulary.word_starts())
    tokens = vocabulary.encode("a cat sat on the mat")
    indices = vocabulary.word_indices(tokens)
    for place in range(1, len(tokens)):
        assert (indices[place] != indices[place - 1]) == (tokens[place] in starts)
    assert not starts & set(range(5)) - {UNKNOWN}


def test_pairs_have_the_tokenisers_they_had() -> None:
    """Without a mask the trainer is asked what it was always asked, so its bytes are the same."""
    chosen = TokeniserSettings(vocabulary_size=380)
    plain = Tokeniser.train(TEXTS, chosen, seed=1, where="it")
    masked = Tokeniser.train(TEXTS, chosen, seed=1, where="it", mask=True)
    assert plain.mask is None
    assert (masked.mask, masked.size) == (4, plain.size)
    assert MASK.encode() not in plain.model
    assert plain.fingerprint() != masked.fingerprint()
    assert set(chosen.model_dump()) == {"kind", "vocabulary_size", "joint", "normalise"}


@pytest.mark.parametrize("kind", KINDS)
def test_case_and_composition(kind: str) -> None:
    folding = train(kind, lower_case=True, normalise="nfc")
    decoded = folding.decode(folding.encode("THE CAT la\u0308uft"))
    assert decoded == "the cat läuft"
    assert train(kind, lower_case=True).fingerprint() != train(kind).fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    first = train(kind)
    assert first.fingerprint() == train(kind).fingerprint()
    assert first.fingerprint() != train(kind, [*TEXTS, "quite other words"] * 3).fingerprint()
    assert "unknown" not in capfd.readouterr().err


def test_what_is_unknown_is_counted_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    texts = ["a b a c", "a d <unk> b"]
    words = train("words", texts, minimum_count=2, split="spaces")
    assert isinstance(words, Words)
    assert words.entries == ("a", "b")
    said = capfd.readouterr().err
    assert said.splitlines() == [
        "heedful: the test: 3 of 8 words (37.50%) are unknown; the vocabulary lists 2 of 4"
    ]
    assert unknown_share(words, texts) == 3 / 8
    assert train("words", texts, vocabulary_size=6).size == 6
    assert train("words", ["b a", "c a b"], vocabulary_size=7).pieces([5, 6]) == ["a", "b"]
    train("bytes", vocabulary_size=5000)
    assert "of 5,000 symbols" in capfd.readouterr().err


def test_bytes_split_as_gpt_2_does() -> None:
    vocabulary = train("bytes", ["don't stop the cat's 123 cats"] * 9, vocabulary_size=400)
    assert vocabulary.pieces(vocabulary.encode("don't the  cats 123!")) == [
        *("don", "'t", "␣the", "␣", "␣cats", "␣123", "!")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_texts_are_refused(kind: str) -> None:
    for texts in ([], ["", ""]):
        with pytest.raises(UserError, match=r"^the test: no text to"):
            train(kind, texts)
    with pytest.raises(UserError, match=r"^the test, text 2: character 2 is a lone surrogate"):
        train(kind, ["fine", "x\ud800"])
    vocabulary = train(kind)
    with pytest.raises(UserError, match=r"^the text: character 3 .*U\+D800"):
        vocabulary.encode("ab\ud800")
    with pytest.raises(UserError, match=r"^text 2: character 1 .*U\+DFFF"):
        vocabulary.encode_batch(["fine", "\udfff"])


@pytest.mark.parametrize(("kind", "least"), [("bpe", 326), ("bytes", 261), ("words", 6)])
def test_too_small_a_vocabulary_is_refused(kind: str, least: int) -> None:
    with pytest.raises(ValueError, match=f"at least {least} symbols"):
        VocabularySettings.model_validate(
            {"kind": kind, "vocabulary_size": least - 1, "mask": True}
        )


def test_too_large_a_vocabulary_says_what_the_texts_support() -> None:
    with pytest.raises(VocabularyTooLargeError) as error:
        train("bpe", vocabulary_size=8000)
    assert train("bpe", vocabulary_size=error.value.supported).size == error.value.supported


def test_saved_and_loaded(vocabulary: SavedVocabulary, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("stays")
    save_vocabulary(vocabulary, tmp_path)
    loaded = load_vocabulary(tmp_path)
    assert type(loaded) is type(vocabulary)
    assert loaded.fingerprint() == vocabulary.fingerprint()
    assert (loaded.size, loaded.mask) == (vocabulary.size, vocabulary.mask)
    assert loaded.encode_batch(TEXTS) == vocabulary.encode_batch(TEXTS)
    assert (tmp_path / "other.txt").exists()
    files = [path for path in tmp_path.iterdir() if path.name != "other.txt"]
    for path in files:
        content = path.read_bytes()
        for damaged in (b"", content[: len(content) // 2], b"{}", b"[]", None):
            if damaged is None:
                path.unlink()
            else:
                path.write_bytes(damaged)
            with pytest.raises(UserError, match=path.name.replace(".", r"\.")) as error:
                load_vocabulary(tmp_path)
            assert "\n" not in str(error.value)
        path.write_bytes(content)
    assert load_vocabulary(tmp_path).fingerprint() == vocabulary.fingerprint()


def test_files_that_were_changed_are_refused(tmp_path: Path) -> None:
    train("bytes").save(tmp_path)
    path = tmp_path / "bytes.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    found["merges"].pop()
    path.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(UserError, match=r"bytes\.json: not the vocabulary that was saved"):
        load_vocabulary(tmp_path)


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    made = train("characters")
    made.save(tmp_path)
    path = tmp_path / "vocabulary.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"characters"', '"of the test"'))
    with pytest.raises(UserError, match="unknown kind 'of the test'; known kinds are bpe"):
        load_vocabulary(tmp_path)


def test_byte_pieces_agree_with_transformers(tmp_path: Path) -> None:
    """The library's own GPT-2 tokeniser, given our merges, cuts texts as we do."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = train("bytes", mask=False)
    assert isinstance(vocabulary, ByteVocabulary)
    names = {piece: token for token, piece in enumerate(vocabulary.tokens)}
    reference = tokenizers.Tokenizer(tokenizers.models.BPE(names, vocabulary.merges))
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.decoder = tokenizers.decoders.ByteLevel()
    encode: Callable[[str], list[int]] = vocabulary.encode
    for text in TEXTS[:7]:
        assert reference.encode(text).ids == encode(text)
        assert reference.decode(encode(text)) == text == vocabulary.decode(encode(text))
