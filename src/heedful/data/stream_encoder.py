"""Streams: concatenated documents for language models.

A stream is a store with a column ``tokens``: a row with END only, then one row per document with
its tokens and END. `heedful.data.streams` reads them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from heedful.basics.symbols import END
from heedful.data import columns
from heedful.data.columns import Columns
from heedful.data.store_encoder import StoreEncoder
from heedful.data.vocabulary import Vocabulary


class StreamEncoder(StoreEncoder[str]):
    """Encodes documents as a stream; counts ``documents`` and ``tokens``.

    ``tokens`` includes one END per document.

    Args:
        vocabulary: encodes the documents.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.codecs = {"tokens": columns.tokens(vocabulary.size)}

    @property
    def identity(self) -> dict[str, Any]:
        return {"stream": self.vocabulary.fingerprint()}

    def first_rows(self) -> Columns:
        return {"tokens": self.codecs["tokens"].column([[END]])}

    def rows(self, items: Sequence[str]) -> tuple[Columns, Counter[str]]:
        encoded = self.vocabulary.encode_batch(items, self.threads)
        column = self.codecs["tokens"].column([[*tokens, END] for tokens in encoded])
        return {"tokens": column}, Counter(documents=len(items), tokens=len(column.values))

    def facts(self, counts: Counter[str]) -> dict[str, Any]:
        return {"documents": counts["documents"]}
