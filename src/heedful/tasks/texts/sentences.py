"""Encodes documents for tasks that train on plain text."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.document_store import SentenceEncoder
from heedful.data.parallel_encoding import encode_store
from heedful.data.saved_vocabularies import with_vocabulary
from heedful.data.store_encoder import StoreEncoder, write_store
from heedful.data.vocabularies import SavedVocabulary
from heedful.data.vocabulary import Vocabulary
from heedful.tasks.texts.examples import Examples


class SentenceRule(NamedTuple):
    """How documents are divided into sentences."""

    longest: int
    """Maximum tokens of a sentence; longer ones are divided."""
    language: str | None
    """The language whose rules divide lines into sentences; None for lines."""
    if_one: str = ""
    """What needs several documents, and what to do if there is one; empty if one is enough."""

    def check(self, counts: Counter[str], part: str) -> None:
        """Raise UserError if one document is not enough."""
        if self.if_one and counts["documents"] < 2:
            raise UserError(f"the {part} text is one document, but {self.if_one}")


def encode_texts(
    examples: Examples,
    part: str,
    folder: Path,
    kind: Callable[..., StoreEncoder[str]],
    vocabulary: SavedVocabulary,
    *settings: Any,
) -> Counter[str]:
    """Encode the documents of a part in several processes; an interrupted encoding is resumed.

    Args:
        examples: the documents.
        part: ``train`` or ``validation``.
        folder: the folder of the store.
        kind: an encoder, which is called with the vocabulary and ``settings``.
        vocabulary: the run's vocabulary, which is saved in ``examples.tokeniser``.
        settings: further arguments of ``kind``.

    Returns:
        The counts of the encoder.

    Raises:
        UserError: see `heedful.data.parallel_encoding.encode_store`.
    """
    if examples.tokeniser is None:
        raise ValueError("other processes need the folder of the vocabulary")
    texts = (str(example.text) for example in examples.of(part))
    opens = partial(with_vocabulary, kind, examples.tokeniser, *settings)
    identity = {**examples.identity, "part": part}
    return encode_store(texts, kind(vocabulary, *settings), folder, opens, identity=identity)


def encode_documents(
    folder: Path, examples: Examples, vocabulary: SavedVocabulary, rule: SentenceRule
) -> dict[str, Any]:
    """Write encoded training and validation documents; returns facts about them.

    Args:
        folder: of the training documents; those of validation are written beside it.
        examples: the documents.
        vocabulary: encodes them.
        rule: how they are divided.
    """
    found: dict[str, Counter[str]] = {}
    for part in ("train", "validation"):
        if part == "train" or examples.data.is_validated:
            how = (SentenceEncoder, vocabulary, rule.longest, rule.language)
            found[part] = encode_texts(examples, part, folder.parent / part, *how)
            rule.check(found[part], part)
    counts = found["train"]
    return {"train": counts["sentences"], "documents": counts["documents"], "unit": "sentences"}


def write_texts(
    texts: Iterable[str], folder: Path, vocabulary: Vocabulary, rule: SentenceRule
) -> None:
    """Encode documents into a folder, in this process."""
    encoder = SentenceEncoder(vocabulary, rule.longest, rule.language)
    rule.check(write_store(texts, encoder, folder), folder.name)
