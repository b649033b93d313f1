"""Streams of tokens that are given as they are, for tests."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from heedful.data.store_encoder import write_store
from heedful.data.stream_encoder import StreamEncoder


class Given:
    """A vocabulary whose texts are lists of tokens."""

    def __init__(self, size: int) -> None:
        self.size = size

    def encode_batch(self, texts: Any, threads: int | None = None) -> Any:
        return texts

    def fingerprint(self) -> str:
        return f"given {self.size}"


def write_stream(
    documents: Iterable[Sequence[int]], folder: Path, vocabulary: int, shard_size: int = 1 << 25
) -> int:
    """Write documents of tokens; returns the number of tokens, with one END per document."""
    encoder: Any = StreamEncoder(Given(vocabulary))  # type: ignore[arg-type]
    encoder.shard_size = shard_size
    return write_store(documents, encoder, folder)["tokens"]
