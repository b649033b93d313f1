"""Pre-trained word vectors: both text forms, packed or not, and what is refused."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.basics.errors import UserError
from heedful.data.vocabularies import SavedVocabulary, VocabularySettings, train_vocabulary
from heedful.data.word_vectors import read_word_vectors

TEXTS = ["The cat sat on the mat , Über naïve dogs", "the cat"] * 9
WORDS = {
    "the": [1.0, -2.5, 3.125e-2],
    "cat": [0.5, 0.25, 0.125],
    "über": [4.0, 5.0, 6.0],
    "Über": [7.0, 8.0, 9.0],
    ". . .": [0.0, 0.0, 1.0],
    "zebra": [1.0, 1.0, 1.0],
}
GLOVE = "".join(f"{word} {' '.join(map(str, v))}\n" for word, v in WORDS.items())
WORD2VEC = f"{len(WORDS)} 3\n" + "".join(
    f"{word} {' '.join(map(str, v))} \r\n" for word, v in WORDS.items()
)


def train(kind: str = "words", **values: object) -> SavedVocabulary:
    settings = VocabularySettings.model_validate(
        {"kind": kind, "vocabulary_size": 400, "mask": True, **values}
    )
    return train_vocabulary(lambda: TEXTS, settings, seed=1, where="the test")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


@pytest.mark.parametrize("form", [GLOVE, WORD2VEC])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_words_get_their_vectors(tmp_path: Path, form: str, pack: type[bytes]) -> None:
    vocabulary = train()
    table, share = read_word_vectors(write(tmp_path / "v.txt", pack(form.encode())), vocabulary)
    assert table.shape == (vocabulary.size, 3)
    assert table.dtype == torch.float32
    tokens = vocabulary.encode("The the cat Über sat")
    expected = [WORDS["the"], WORDS["the"], WORDS["cat"], WORDS["Über"]]
    assert table[tokens[:-1]].tolist() == np.float32(expected).tolist()
    assert table[tokens[-1]].isnan().all()
    words = vocabulary.size - 5
    assert share == pytest.approx(4 / words)
    assert (~table.isnan().any(dim=1)).sum() == 4
    assert table[:5].isnan().all()


@pytest.mark.parametrize(("kind", "size"), [("bpe", 356), ("bytes", 290)])
def test_subwords_that_are_words_get_vectors(tmp_path: Path, kind: str, size: int) -> None:
    vocabulary = train(kind, vocabulary_size=size)
    table, share = read_word_vectors(write(tmp_path / "v.txt", GLOVE), vocabulary)
    found = torch.nonzero(~table.isnan().any(dim=1))[:, 0].tolist()
    words = {vocabulary.decode([token]).strip() for token in found}
    assert {"the", "cat"} <= words <= {"the", "cat", "The", "Über"}
    assert set(found) <= set(vocabulary.word_starts())
    starts = vocabulary.decode_batch([[token] for token in vocabulary.word_starts()])
    assert share == pytest.approx(len(found) / sum(bool(text.strip()) for text in starts))


def test_the_first_of_two_counts(tmp_path: Path) -> None:
    vocabulary = train()
    path = write(
        tmp_path / "v.txt",
        GLOVE + "cat 9 9 9\nThe 9 9 9",
    )
    table, _ = read_word_vectors(path, vocabulary)
    assert table[vocabulary.encode("The the")].tolist() == [[9, 9, 9], WORDS["the"]]
    assert table[vocabulary.encode("cat")].tolist() == [WORDS["cat"]]


def test_words_cut_within_a_character_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "v.txt", b"caf\xc3 1 2 3\n" + GLOVE.encode())
    assert read_word_vectors(path, train())[1] > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GLOVE + "dogs 1 2\n", r"v\.txt:7: fewer numbers than the 3"),
        (GLOVE + "dogs 1 x 2\n", r"v\.txt:7: no numbers after the word"),
        (GLOVE + "dogs 1 nan 2\n", r"v\.txt:7: a number is not finite"),
        (WORD2VEC.replace("6 3", "7 3", 1), r"its first line says 7 words but 6 follow"),
        ("", r"no word of the vocabulary"),
        ("zebra 1 2\n", r"no word of the vocabulary has a vector"),
        ("a text\n", r"v\.txt:1: neither a word and its vector"),
        ("word\n", r"v\.txt:1: neither a word and its vector"),
        (b"2 3\nthe \x00\x00\x80\x3f\x00\x20\x20\x20\n", r"v\.txt:2: "),
        (gzip.compress(GLOVE.encode(), mtime=0)[:-9], r"v\.txt:\d: the gzip data end unexpectedly"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        read_word_vectors(write(tmp_path / "v.txt", content), train())
    assert "\n" not in str(error.value)


def test_characters_have_no_word_vectors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no word of the vocabulary has a vector"):
        read_word_vectors(write(tmp_path / "v.txt", GLOVE), train("characters"))
