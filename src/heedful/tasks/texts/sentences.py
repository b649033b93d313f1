"""Encodes documents sentence by sentence, for pre-training."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from heedful.data.document_store import EncodedDocuments, write_documents
from heedful.data.readers.plain import split_sentences
from heedful.data.sentences import SentenceFailures
from heedful.data.vocabulary import Vocabulary
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import seen


def encode_documents(
    folder: Path, examples: Examples, write: Callable[[Iterator[str], Path], None]
) -> dict[str, Any]:
    """Write encoded training and validation documents; returns facts about them.

    Args:
        folder: of the training documents; those of validation are written beside it.
        examples: the documents.
        write: writes documents to a folder.
    """
    for part in ("train", "validation"):
        if part == "train" or examples.data.is_validated:
            write((example.text for example in examples.of(part)), folder.parent / part)
    found = EncodedDocuments.open(folder)
    return {"train": len(found.sentences), "documents": len(found), "unit": "sentences"}


def encode_sentences(
    documents: Iterator[str],
    vocabulary: Vocabulary,
    folder: Path,
    longest: int,
    language: str | None,
) -> None:
    """Encode documents to a folder; reports sentences that could not be found.

    Args:
        documents: the texts.
        vocabulary: text to tokens.
        folder: the folder to write.
        longest: maximum number of tokens of a sentence; longer ones are divided.
        language: the language whose rules divide lines into sentences; None for lines.
    """
    failures = SentenceFailures()
    lines = (
        document.split("\n")
        if language is None
        else split_sentences(document.split("\n"), language, failures)
        for document in seen(documents, "documents")
    )
    write_documents(lines, vocabulary, folder, longest=longest)
    failures.report()
