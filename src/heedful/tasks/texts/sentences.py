"""Encodes documents sentence by sentence, for pre-training on rows of sentences."""

from collections.abc import Iterator
from pathlib import Path

from heedful.data.document_store import write_documents
from heedful.data.readers.plain import split_sentences
from heedful.data.sentences import SentenceFailures
from heedful.data.vocabulary import Vocabulary
from heedful.tasks.texts.labelled_rows import seen


def write_sentences(
    documents: Iterator[str],
    vocabulary: Vocabulary,
    folder: Path,
    max_tokens: int,
    *,
    pairs: bool,
    language: str | None,
) -> None:
    """Encode documents sentence by sentence, so short that they fit in a row.

    Args:
        documents: the texts.
        vocabulary: encodes them.
        folder: the folder for the encoded sentences.
        max_tokens: maximum length of a row, with BEGIN and the ENDs.
        pairs: whether two sentences must fit in a row.
        language: the language whose rules are used to split lines into sentences; None if each line
            is a sentence.
    """
    longest = (max_tokens - 3) // 2 if pairs else max_tokens - 2
    failures = SentenceFailures()
    lines = (
        document.split("\n")
        if language is None
        else split_sentences(document.split("\n"), language, failures)
        for document in seen(documents, "documents")
    )
    write_documents(lines, vocabulary, folder, longest=longest)
    failures.report()
