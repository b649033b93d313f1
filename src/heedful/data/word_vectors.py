"""Pre-trained word vectors: the text files of word2vec (Mikolov et al. 2013) and GloVe
(Pennington et al. 2014), for the words of a vocabulary."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.progress import progress
from heedful.basics.symbols import END
from heedful.data.readers.opening import Input, open_input
from heedful.data.vocabulary import Vocabulary

_REPORT_EVERY = 10_000


def read_word_vectors(path: str | Path, vocabulary: Vocabulary) -> tuple[Tensor, float]:
    """Read the vectors of the words of ``vocabulary``; other words of the file are skipped.

    Tokens that can be a whole word are looked up, without the space before them: first in their own
    spelling, then in lower case. If the file has a word twice, the first is used.

    Args:
        path: a file with one word and its numbers per line, separated by spaces. The first line of
            word2vec, with the numbers of words and dimensions, is optional. Plain, gzip or xz.
        vocabulary: a vocabulary of words, or of subwords that include many words.

    Returns:
        Vectors [V, E] float32, NaN for words without one; and the share of whole words of the
        vocabulary that have one.

    Raises:
        UserError: the file is missing, invalid or binary, a line has a wrong number of numbers, or
            it has no word of the vocabulary.
    """
    exact, lowered = _wanted(vocabulary)
    table: NDArray[np.float32] | None = None
    # 0 for nothing found, 1 for the word in lower case, 2 for the word itself.
    found = np.zeros(vocabulary.size, np.int8)
    with open_input(path) as file:
        for where, word, numbers, width in _lines(file, exact.keys() | lowered.keys()):
            if table is None:
                table = np.full((vocabulary.size, width), np.nan, np.float32)
            vector = _vector(numbers, where)
            for rank, tokens in ((2, exact.get(word, ())), (1, lowered.get(word, ()))):
                for token in tokens:
                    if found[token] < rank:
                        table[token], found[token] = vector, rank
        if table is None:
            raise UserError(
                f"{file.name}: no word of the vocabulary has a vector in this file; use a "
                "vocabulary of words in the file's language and case"
            )
    words = {token for tokens in exact.values() for token in tokens}
    share = float((found > 0).sum()) / len(words)
    return torch.from_numpy(table), share


def _wanted(vocabulary: Vocabulary) -> tuple[dict[bytes, list[int]], dict[bytes, list[int]]]:
    """The tokens of each word in its own spelling, and of others in lower case."""
    exact: dict[bytes, list[int]] = {}
    lowered: dict[bytes, list[int]] = {}
    for token in vocabulary.word_starts():
        word = vocabulary.decode([token]).strip()
        if token <= END or token == vocabulary.mask or not word:
            continue
        exact.setdefault(word.encode("utf-8"), []).append(token)
        if word.lower() != word:
            lowered.setdefault(word.lower().encode("utf-8"), []).append(token)
    return exact, lowered


def _lines(file: Input, wanted: set[bytes]) -> Iterator[tuple[str, bytes, Sequence[bytes], int]]:
    """Lines of wanted words: a description for messages, the word, its numbers and their count.

    A word may contain spaces (as in GloVe of 840 billion tokens), so numbers are counted from the
    end of the line.
    """
    width = announced = read = 0
    with progress("reading word vectors", None, "words") as advance:
        for number, line in enumerate(_byte_lines(file), start=1):
            line = line.rstrip(b" \r")
            if number == 1:
                width, announced = _shape(line, file.name)
                if announced:
                    continue
            if line.count(b" ") < width:
                raise UserError(
                    f"{file.name}:{number}: fewer numbers than the {width} of the lines before; "
                    "the file is damaged, or not in the text format of word vectors"
                )
            read += 1
            if read % _REPORT_EVERY == 0:
                advance(_REPORT_EVERY)
            if line.partition(b" ")[0] not in wanted:
                continue
            parts = line.rsplit(b" ", width)
            if parts[0] in wanted:
                yield f"{file.name}:{number}", parts[0], parts[1:], width
    if announced and read != announced:
        raise UserError(
            f"{file.name}: its first line says {announced:,} words but {read:,} follow; copy or "
            "download it again"
        )


def _byte_lines(file: Input) -> Iterator[bytes]:
    """Undecoded lines, because words may be cut within a character."""
    rest = b""
    for chunk in file.chunks():
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        yield from lines
    if rest:
        yield rest


def _shape(line: bytes, name: str) -> tuple[int, int]:
    """The number of dimensions, and the number of words if the first line has it."""
    parts = line.split(b" ")
    if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit() and int(parts[1]) > 0:
        return int(parts[1]), int(parts[0])
    try:
        [float(part) for part in parts[1:]]
    except ValueError:
        parts = []
    if len(parts) < 2:
        raise UserError(
            f"{name}:1: neither a word and its vector, nor the number of words and their width; "
            "give the text format of word2vec or GloVe"
        )
    return len(parts) - 1, 0


def _vector(numbers: Sequence[bytes], where: str) -> NDArray[np.float32]:
    try:
        vector = np.array([float(number) for number in numbers], np.float32)
    except ValueError as error:
        raise UserError(
            f"{where}: no numbers after the word; give the text format of word2vec or GloVe "
            "(the binary format is not supported)"
        ) from error
    if not np.isfinite(vector).all():
        raise UserError(f"{where}: a number is not finite; the file is damaged")
    return vector
