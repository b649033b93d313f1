"""Encoded documents: a store with one row per sentence.

Its columns are ``tokens``, and ``begins``: 1 for the first sentence of a document, else 0. Stores
of heedful 0.1 have a file ``documents.starts`` instead: 64-bit integers, the first sentence of each
document, followed by the number of sentences.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data import columns
from heedful.data.columns import Columns
from heedful.data.mapped import OFFSET, Integers, Mapped, damaged
from heedful.data.readers.plain import split_sentences
from heedful.data.sentences import SentenceFailures
from heedful.data.store import Store
from heedful.data.store_encoder import StoreEncoder, write_store
from heedful.data.vocabulary import Vocabulary

STARTS_VERSION_1 = "documents.starts"


class _WithWords(Protocol):
    """A vocabulary that knows which tokens begin words."""

    def word_starts(self) -> list[int]: ...


class EncodedDocuments:
    """Documents that `SentenceEncoder` encoded, opened without reading them.

    Args:
        folder: the store.
        verified: compare the files of a shard with their hashes when it is first read.

    Attributes:
        sentences: the sentences, as a store.
        starts: [documents + 1] the first sentence of each document, then their number.
        longest: maximum number of tokens of a sentence.
        fingerprint: fingerprint of their vocabulary.
    """

    def __init__(self, folder: Path, *, verified: bool = False) -> None:
        renamed = {"source": "tokens"}
        self.sentences = Store.open(folder, renamed=renamed, verified=verified)
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
    def open(cls, folder: Path, *, verified: bool = False) -> "EncodedDocuments":
        """Map the files of ``folder``.

        Raises:
            UserError: the folder has no encoded documents, or a file is missing or damaged.
        """
        return cls(folder, verified=verified)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return self.sentences.total("tokens")


class SentenceEncoder(StoreEncoder[str]):
    """Encodes documents sentence by sentence; counts ``documents``, ``sentences``, and lines that
    were ``split`` or that ``failed`` to be divided into sentences.

    A sentence of more than ``longest`` tokens is split, if possible at the start of a word in the
    second half. Lines without tokens are skipped.

    Args:
        vocabulary: encodes the documents.
        longest: maximum tokens of a sentence, at least 2; at most (N − 3) / 2 for pairs in rows of
            N tokens.
        language: the language whose rules divide lines into sentences; None for lines.
    """

    def __init__(self, vocabulary: Vocabulary, longest: int, language: str | None = None) -> None:
        if longest < 2:
            raise ValueError(f"longest={longest} must be at least 2")
        self.vocabulary, self.longest, self.language = vocabulary, longest, language
        self.codecs = {"tokens": columns.tokens(vocabulary.size), "begins": columns.label(2)}

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.facts(Counter()), "language": self.language}

    def rows(self, items: Sequence[str]) -> tuple[Columns, Counter[str]]:
        failures, splitter = SentenceFailures(), Splitter(self.vocabulary, self.longest)
        documents = [document.split("\n") for document in items]
        if self.language is not None:
            documents = [split_sentences(lines, self.language, failures) for lines in documents]
        lines = [line for lines in documents for line in lines]
        encoded = iter(self.vocabulary.encode_batch(lines, self.threads))
        pieces: list[list[int]] = []
        begins: list[int] = []
        for lines in documents:
            own = [piece for _ in lines for piece in splitter.cut(next(encoded))]
            pieces += own
            begins += [int(not place) for place in range(len(own))]
        counts = Counter(
            documents=sum(begins),
            sentences=len(pieces),
            split=splitter.count,
            failed=failures.count,
        )
        rows: dict[str, Sequence[Any]] = {"tokens": pieces, "begins": begins}
        return {name: self.codecs[name].column(own) for name, own in rows.items()}, counts

    def check(self, counts: Counter[str]) -> None:
        if not counts["sentences"]:
            raise UserError("the documents have no text to train on")
        if counts["split"]:
            notice(f"split lines of more than {self.longest} tokens: {counts['split']:,}")
        SentenceFailures(counts["failed"]).report()

    def facts(self, counts: Counter[str]) -> dict[str, Any]:
        return {
            "documents": counts["documents"],
            "longest": self.longest,
            "vocabulary": self.vocabulary.fingerprint(),
        }


def write_documents(
    documents: Iterable[Sequence[str]], vocabulary: Vocabulary, folder: Path, *, longest: int
) -> None:
    """Encode a stream of documents into ``folder``, atomically, in this process.

    Args:
        documents: the lines (preferably sentences) of each document.
        vocabulary: encodes the documents.
        folder: the folder; an existing one is replaced.
        longest: see `SentenceEncoder`.

    Raises:
        UserError: there is no text, a text is not valid Unicode, or the folder cannot be written.
    """
    texts = ("\n".join(lines) for lines in documents)
    write_store(texts, SentenceEncoder(vocabulary, longest), folder)


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
