"""Encoded documents: the sentences of each as one run of token numbers, memory-mapped.

A folder is an encoded corpus (`heedful.data.shards`) with one "pair" a sentence, whose target side
is empty, and ``documents.starts``: signed 64-bit little-endian numbers, the first sentence of each
document and at last the number of sentences.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder
from heedful.basics.notices import notice
from heedful.basics.progress import progress
from heedful.basics.reading import read_json
from heedful.data.mapped import OFFSET, Integers, Mapped, damaged
from heedful.data.shards import INDEX, EncodedCorpus, ShardWriter
from heedful.data.vocabulary import Vocabulary

STARTS = "documents.starts"

_SENTENCES_AT_ONCE = 4096


class EncodedDocuments:
    """What `write_documents` wrote, opened without reading it.

    Attributes:
        sentences: the sentences, as an encoded corpus.
        starts: [documents + 1] the first sentence of each document, then their number.
        longest: a sentence has at most so many tokens.
        fingerprint: of the vocabulary that they are encoded with.
    """

    def __init__(self, folder: Path) -> None:
        self.sentences = EncodedCorpus.open(folder)
        index = read_json(folder / INDEX)
        try:
            count = int(index["documents"])
            self.longest = int(index["longest"])
            self.fingerprint = str(index["vocabulary"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"{folder / INDEX}: not a corpus of documents; encode the corpus again"
            ) from error
        self._mapped = Mapped(folder / STARTS, OFFSET, count + 1)
        self.starts: Integers = self._mapped.array
        ends = self.starts[0], self.starts[-1]
        if ends != (0, len(self.sentences)) or (np.diff(self.starts) <= 0).any():
            raise damaged(folder / STARTS)

    @classmethod
    def open(cls, folder: Path) -> "EncodedDocuments":
        """Map the files of ``folder``.

        Raises:
            UserError: the folder holds no encoded documents, or a file is missing or damaged.
        """
        return cls(folder)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return self.sentences.source_tokens


def write_documents(
    documents: Iterable[Sequence[str]], vocabulary: Vocabulary, folder: Path, *, longest: int
) -> None:
    """Encode ``documents``, read once as a stream, into ``folder``, which is whole or absent after.

    A sentence of more than ``longest`` tokens is cut, at the start of a word where there is one in
    the second half of the room, so that nothing is lost; their number is said. Lines without a
    token are left out.

    Args:
        documents: the lines (better, the sentences) of each.
        vocabulary: encodes them.
        folder: replaced if it is there.
        longest: tokens a sentence, at least 2. For pairs in rows of N tokens, at most (N − 3) / 2.

    Raises:
        UserError: there is no text, a text is not valid Unicode, or the folder cannot be written.
    """
    if longest < 2:
        raise ValueError(f"longest={longest} must be at least 2")
    cutter = _Cutter(vocabulary, longest)
    starts = [0]
    written = 0
    with (
        atomic_folder(folder) as beside,
        ShardWriter(beside, (vocabulary.size, 1)) as writer,
        progress("encoding", None, "documents") as advance,
    ):
        for group in _groups(documents):
            encoded = iter(vocabulary.encode_batch([line for lines in group for line in lines]))
            pieces: list[list[int]] = []
            for lines in group:
                for _ in lines:
                    pieces.extend(cutter.cut(next(encoded)))
                if written + len(pieces) > starts[-1]:
                    starts.append(written + len(pieces))
            lengths = np.zeros((len(pieces), 2), np.int64)
            lengths[:, 0] = [len(piece) for piece in pieces]
            tokens = np.fromiter(chain.from_iterable(pieces), np.int64, int(lengths.sum()))
            writer.add(tokens, lengths)
            written += len(pieces)
            advance(len(group))
        if not written:
            raise UserError("the documents have no text; there is nothing to learn from")
        (beside / STARTS).write_bytes(np.array(starts, OFFSET).tobytes())
        facts = {
            "documents": len(starts) - 1,
            "longest": longest,
            "vocabulary": vocabulary.fingerprint(),
        }
        writer.finish(facts)
    if cutter.count:
        notice(f"{cutter.count:,} lines of more than {longest} tokens were cut into pieces")


class _Cutter:
    """Cuts what is too long, and counts it."""

    def __init__(self, vocabulary: Vocabulary, longest: int) -> None:
        self.longest = longest
        self.count = 0
        self._starts = frozenset(vocabulary.word_starts())

    def cut(self, tokens: list[int]) -> Iterator[list[int]]:
        self.count += len(tokens) > self.longest
        begin = 0
        while len(tokens) - begin > self.longest:
            end = begin + self.longest
            for place in range(end, begin + self.longest // 2, -1):
                if tokens[place] in self._starts:
                    end = place
                    break
            yield tokens[begin:end]
            begin = end
        if len(tokens) > begin:
            yield tokens[begin:]


def _groups(documents: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Documents, as many at a time as have some thousands of sentences."""
    group: list[Sequence[str]] = []
    size = 0
    for lines in documents:
        group.append(lines)
        size += len(lines)
        if size >= _SENTENCES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group
