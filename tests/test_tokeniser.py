"""Tokenisers: nothing is lost, words are found again, files are checked."""

import json
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.examples import Pair
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.subwords import ESCAPE, MARKER, reservoir
from heedful.data.tokeniser import (
    PLACEHOLDERS,
    Tokeniser,
    Tokenisers,
    TokeniserSettings,
    VocabularyTooLargeError,
)

TEXTS = [
    "The cat sat on the mat.",
    "Der Hund läuft über die Straße, und die Katze schläft.",
    "A dog, a cat and 42 mice: <b>x</b> %s {name}",
    "日本語の文\u3000です。",
    "",
    " two  spaces\tand a tab ",
] * 12
# Texts that try to be mistaken for sentencepiece's own symbols, and are frequent enough to merge.
HOSTILE = [
    f"a{MARKER}b {MARKER}{MARKER} {ESCAPE}1 {ESCAPE}{ESCAPE}0",
    "<s>x</s> <pad> <unk> <0x41><0x0A> ⟦0⟧⟦63⟧ ⟦64⟧",
    "nul\x00nul ▅▅ ⁇ line\nline\r\nline\u2028line \ufffd \ufeff",
] * 40
FRAGMENTS = [
    *(" ", "  ", "\t", "\n", "\r", "\x00", "\x1c", "\u3000", "\xa0", "\u2028", "\u200b", "\ufeff"),
    *(MARKER, ESCAPE, ESCAPE + "0", ESCAPE + "1", "0", "1", "▅", "⁇", " ⁇ ", "\ufffd", "\u0301"),
    *(
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
        "<0x41>",
        "<0xFF>",
        "⟦0⟧",
        "⟦63⟧",
        "⟦64⟧",
        "⟦",
        "The",
        "cat",
    ),
]
any_text = st.lists(
    st.sampled_from(FRAGMENTS) | st.characters(exclude_categories=["Cs"]), max_size=12
).map("".join)


def train(
    texts: list[str],
    kind: str = "bpe",
    vocabulary: int = 380,
    normalise: str = "none",
    seed: int = 1,
) -> Tokeniser:
    values = {"kind": kind, "vocabulary_size": vocabulary, "normalise": normalise}
    chosen = TokeniserSettings.model_validate(values)
    return Tokeniser.train(texts, chosen, seed=seed, where="the test")


@pytest.fixture(scope="module", params=["bpe", "unigram", "bpe hostile", "unigram hostile"])
def tokeniser(request: pytest.FixtureRequest) -> Tokeniser:
    kind, *hostile = request.param.split()
    if hostile:
        return train(TEXTS + HOSTILE, kind, 400)
    return train(TEXTS, kind)


@settings(max_examples=250, deadline=None)
@example("")
@example(" ")
@example("\U0010ffff")
@given(text=any_text)
def test_decoding_gives_the_very_text(tokeniser: Tokeniser, text: str) -> None:
    tokens = tokeniser.encode(text)
    assert tokeniser.decode(tokens) == text
    assert not {PAD, BEGIN, END} & set(tokens)
    assert all(0 < token < tokeniser.size for token in tokens)
    assert tokeniser.decode([BEGIN, *tokens, END, PAD, PAD]) == text
    assert bool(tokens) == bool(text)


@settings(max_examples=250, deadline=None)
@given(text=any_text)
def test_tokens_know_their_words(tokeniser: Tokeniser, text: str) -> None:
    tokens = tokeniser.encode(text)
    words = tokeniser.word_indices(tokens)
    assert len(words) == len(tokens)
    assert set(words) - {-1} == set(range(len(text.split())))
    assert sorted(index for index in words if index >= 0) == [
        index for index in words if index >= 0
    ]
    if -1 in words:  # only white space stands at the end
        assert tokeniser.decode(tokens[words.index(-1) :]).strip() == ""
    assert tokeniser.word_indices([BEGIN, *tokens, END]) == [-1, *words, -1]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_tokens_decode(tokeniser: Tokeniser, data: st.DataObject) -> None:
    """A model may choose any tokens; the text is valid and its words are those of the tokens."""
    ids = st.integers(0, tokeniser.size - 1) | st.integers(68, 323)
    tokens = data.draw(st.lists(ids, max_size=20))
    text = tokeniser.decode(tokens)
    text.encode("utf-8")
    assert len(tokeniser.pieces(tokens)) == len(tokens)
    words = set(tokeniser.word_indices(tokens)) - {-1}
    assert words == set(range(len(text.split())))


def test_words_by_example() -> None:
    tokeniser = train(["the cat on the mat"] * 20, vocabulary=340)
    tokens = tokeniser.encode("the ☃, \n the ")
    snowman = ["<0xE2>", "<0x98>", "<0x83>"]
    assert tokeniser.pieces(tokens) == [
        *("▁the", "▁", *snowman, "<0x2C>", "▁", "<0x0A>", "▁the", "▁")
    ]
    assert tokeniser.word_indices(tokens) == [0, 1, 1, 1, 1, 1, 2, 2, 2, -1]


def test_symbols_have_their_places(tokeniser: Tokeniser) -> None:
    assert tokeniser.size == tokeniser.settings.vocabulary_size
    assert tokeniser.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokeniser.pieces(range(4, 68)) == list(PLACEHOLDERS)
    assert tokeniser.pieces(range(68, 324)) == [f"<0x{byte:02X}>" for byte in range(256)]
    placeholder = PLACEHOLDERS[7]
    assert 4 + 7 in tokeniser.encode(f"a{placeholder}b")


def test_a_word_is_the_same_piece_at_the_start_of_a_line_and_within() -> None:
    tokeniser = train(["the cat on the mat"] * 20, vocabulary=340)
    tokens = tokeniser.encode("the the")
    assert tokens[0] == tokens[1]
    assert tokeniser.pieces(tokens) == ["▁the", "▁the"]


def test_lone_surrogates_are_refused_with_their_place(tokeniser: Tokeniser) -> None:
    with pytest.raises(UserError, match=r"^the text: character 3 .*U\+D800"):
        tokeniser.encode("ab\ud800")
    with pytest.raises(UserError, match=r"^text 2: character 1 .*U\+DFFF"):
        tokeniser.encode_batch(["fine", "\udfff", "fine"])
    with pytest.raises(UserError, match=r"^the test, text 2: character 2 "):
        train(["fine", "x\udc80"])


def test_nfc_composes_and_otherwise_nothing_is_composed() -> None:
    decomposed = unicodedata.normalize("NFD", "läuft über")
    assert train(TEXTS).decode(train(TEXTS).encode(decomposed)) == decomposed
    composing = train(TEXTS, normalise="nfc")
    assert composing.decode(composing.encode(decomposed)) == "läuft über"


def test_batches_in_threads_equal_single_texts(tokeniser: Tokeniser) -> None:
    generator = random.Random(1)
    texts = ["".join(generator.choices(FRAGMENTS, k=6)) for _ in range(600)]
    for threads in (None, 1, 2):
        assert tokeniser.encode_batch(texts, threads) == [tokeniser.encode(text) for text in texts]
    encoded = tokeniser.encode_batch(texts)
    assert tokeniser.decode_batch(encoded) == texts
    assert tokeniser.encode_batch([]) == []


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_deterministic_and_samples_by_seed(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    generator = random.Random(0)
    texts = ["".join(generator.choices("abcdef ", k=30)) for _ in range(300)]
    chosen = TokeniserSettings.model_validate({"kind": kind, "vocabulary_size": 340})

    def model(seed: int, sample: int) -> bytes:
        return Tokeniser.train(iter(texts), chosen, seed=seed, where="it", sample=sample).model

    assert model(1, 1000) == model(1, 1000) == model(2, 300)
    assert capfd.readouterr() == ("", "")
    assert model(1, 40) == model(1, 40) != model(2, 40)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 3
    assert "random sample of 40 of 300 texts" in said[0]


def test_the_reservoir_is_uniform() -> None:
    counts = [0] * 50
    for seed in range(2000):
        kept, total = reservoir((str(number) for number in range(50)), 5, seed)
        assert (len(set(kept)), total) == (5, 50)
        for text in kept:
            counts[int(text)] += 1
    assert sum((count - 200) ** 2 / 200 for count in counts) < 90  # chi-square, 49 degrees


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_too_large_a_vocabulary_says_what_the_corpus_supports(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        VocabularyTooLargeError, match=r"lower tokeniser\.vocabulary_size to"
    ) as error:
        train(TEXTS, kind, 8000)
    assert train(TEXTS, kind, error.value.supported).size == error.value.supported
    with pytest.raises(UserError, match=r"raise tokeniser\.vocabulary_size to \d+ or more"):
        train(TEXTS, kind, 330)
    assert capfd.readouterr() == ("", "")


def test_a_corpus_without_text_is_refused() -> None:
    for texts in ([], ["", ""]):
        with pytest.raises(UserError, match="no text to train"):
            train(texts)


def test_an_error_of_the_corpus_comes_through() -> None:
    def broken() -> Iterator[Pair]:
        yield Pair("a", "b")
        raise UserError("x.tsv, line 2: bad byte")

    with pytest.raises(UserError, match=r"x\.tsv, line 2"):
        Tokenisers.train(broken, TokeniserSettings(), seed=1)


@pytest.mark.parametrize("joint", [True, False])
def test_tokenisers_are_saved_and_loaded(tmp_path: Path, joint: bool) -> None:
    pairs = [Pair(text, text.upper()) for text in TEXTS]
    chosen = TokeniserSettings(vocabulary_size=400, joint=joint, normalise="nfc")
    trained = Tokenisers.train(lambda: pairs, chosen, seed=1)
    assert trained.shared == joint
    trained.save(tmp_path / "it")
    loaded = load_tokenisers(tmp_path / "it")
    assert loaded.shared == joint
    assert loaded.target.settings == chosen
    assert loaded.fingerprint() == trained.fingerprint()
    for ours, theirs in ((trained.source, loaded.source), (trained.target, loaded.target)):
        assert ours.encode(TEXTS[1]) == theirs.encode(TEXTS[1])
    plain = chosen.model_copy(update={"normalise": "none"})
    assert Tokenisers.train(lambda: pairs, plain, seed=1).fingerprint() != trained.fingerprint()
    swapped = Tokenisers(trained.target, trained.source)
    assert (swapped.fingerprint() == trained.fingerprint()) == joint


def test_saved_files_are_checked(tmp_path: Path) -> None:
    pairs = [Pair(text, text) for text in TEXTS]
    tokenisers = Tokenisers.train(lambda: pairs, TokeniserSettings(vocabulary_size=400), seed=1)
    tokenisers.save(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["joint.json", "joint.model", "tokenisers.json"]
    for name in names:
        content = (tmp_path / name).read_bytes()
        for damaged in (b"", content[: len(content) // 2], None):
            if damaged is None:
                (tmp_path / name).unlink()
            else:
                (tmp_path / name).write_bytes(damaged)
            with pytest.raises(UserError, match=name.replace(".", r"\.")) as error:
                load_tokenisers(tmp_path)
            assert "\n" not in str(error.value)
        (tmp_path / name).write_bytes(content)
    other = train(TEXTS + HOSTILE, vocabulary=400)
    (tmp_path / "joint.model").write_bytes(other.model)
    with pytest.raises(UserError, match=r"joint\.model: not the model that was saved"):
        load_tokenisers(tmp_path)
    (tmp_path / "joint.json").write_text(json.dumps({"vocabulari": 3}), encoding="utf-8")
    with pytest.raises(UserError, match="did you mean 'vocabulary_size'"):
        load_tokenisers(tmp_path)
