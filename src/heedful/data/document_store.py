"""Encoded documents: a store with one row per sentence.

Its columns are ``tokens``, and ``begins``: 1 for the first sentence of a document, else 0. Stores
of heedful 0.1 have a file ``documents.starts`` instead: 64-bit integers, the first sentence of each
document, followed by the number of sentences.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder
from heedful.basics.notices import notice
from heedful.basics.progress import progress
from heedful.data import columns
from heedful.data.mapped import OFFSET, Integers, Mapped, damaged
from heedful.data.store import Store, StoreWriter
from heedful.data.vocabulary import Vocabulary

STARTS_VERSION_1 = "documents.starts"

_SENTENCES_AT_ONCE = 4096


class _WithWords(Protocol):
    """A vocabulary that knows which tokens begin words."""

    def word_starts(self) -> list[int]: ...


class EncodedDocuments:
    """Documents that `write_documents` wrote, opened without reading them.

    Attributes:
        sentences: the sentences, as a store.
        starts: [documents + 1] the first sentence of each document, then their number.
        longest: maximum number of tokens of a sentence.
        fingerprint: fingerprint of their vocabulary.
    """

    def __init__(self, folder: Path) -> None:
        self.sentences = Store.open(folder, renamed={"source": "tokens"})
        facts = self.sentences.facts
        try:
            count = int(facts["documents"])
            self.longest = int(facts["longest"])
            self.fingerprint = str(facts["vocabulary"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"{folder}: not a corpus of documents; encode the corpus again"
            ) from error
        self.starts: Integers = self._starts(folder, count)
        ends = self.starts[0], self.starts[-1]
        if len(self.starts) != count + 1 or ends != (0, len(self.sentences)):
            raise damaged(folder)
        if (np.diff(self.starts) <= 0).any():
            raise damaged(folder)

    def _starts(self, folder: Path, count: int) -> Integers:
        if "begins" not in self.sentences.codecs:
            return Mapped(folder / STARTS_VERSION_1, OFFSET, count + 1).array
        begins = self.sentences.read("begins", np.arange(len(self.sentences))).values
        return np.append(np.flatnonzero(begins), len(self.sentences))

    @classmethod
    def open(cls, folder: Path) -> "EncodedDocuments":
        """Map the files of ``folder``.

        Raises:
            UserError: the folder has no encoded documents, or a file is missing or damaged.
        """
        return cls(folder)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return self.sentences.total("tokens")


def write_documents(
    documents: Iterable[Sequence[str]], vocabulary: Vocabulary, folder: Path, *, longest: int
) -> None:
    """Encode a stream of documents into ``folder``, atomically.

    A sentence of more than ``longest`` tokens is split, if possible at the start of a word in the
    second half, and a notice counts such sentences. Lines without tokens are skipped.

    Args:
        documents: the lines (preferably sentences) of each document.
        vocabulary: encodes the documents.
        folder: the folder; an existing one is replaced.
        longest: maximum tokens of a sentence, at least 2; at most (N − 3) / 2 for pairs in rows of
            N tokens.

    Raises:
        UserError: there is no text, a text is not valid Unicode, or the folder cannot be written.
    """
    if longest < 2:
        raise ValueError(f"longest={longest} must be at least 2")
    splitter = Splitter(vocabulary, longest)
    codecs = {"tokens": columns.tokens(vocabulary.size), "begins": columns.label(2)}
    written = documents_written = 0
    with (
        atomic_folder(folder) as beside,
        StoreWriter(beside, codecs) as writer,
        progress("encoding", None, "documents") as advance,
    ):
        for group in _groups(documents):
            encoded = iter(vocabulary.encode_batch([line for lines in group for line in lines]))
            pieces: list[list[int]] = []
            begins: list[int] = []
            for lines in group:
                own = [piece for _ in lines for piece in splitter.cut(next(encoded))]
                pieces += own
                begins += [int(not place) for place in range(len(own))]
                documents_written += bool(own)
            rows: dict[str, Sequence[Any]] = {"tokens": pieces, "begins": begins}
            writer.add({name: codecs[name].column(own) for name, own in rows.items()})
            written += len(pieces)
            advance(len(group))
        if not written:
            raise UserError("the documents have no text to train on")
        facts = {
            "documents": documents_written,
            "longest": longest,
            "vocabulary": vocabulary.fingerprint(),
        }
        writer.finish(facts)
    if splitter.count:
        notice(f"{splitter.count:,} lines of more than {longest} tokens were split")


class Splitter:
    """Splits sentences that are too long, if possible at the start of a word, and counts them.

    Args:
        vocabulary: the vocabulary of the sentences.
        longest: maximum tokens of a part.
    """

    def __init__(self, vocabulary: _WithWords, longest: int) -> None:
        self.longest = longest
        self.count = 0
        self._starts = frozenset(vocabulary.word_starts())

    def cut(self, tokens: list[int]) -> Iterator[list[int]]:
        """The parts of a sentence, each of at most ``longest`` tokens."""
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
    """Groups of documents with some thousands of sentences each."""
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
