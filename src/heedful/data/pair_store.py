"""Encoded pairs: a store with the columns ``source``, ``target`` and optionally ``links``.

Tokens exclude BEGIN and END. Links are pairs of source token and target token.

A shard holds the rows of a fixed number of pairs of the corpus, so that shards can be encoded in
any order, by any number of processes: the files are the same.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from heedful.basics.files import atomic_folder
from heedful.basics.progress import progress
from heedful.basics.worker_processes import Advance
from heedful.data import columns
from heedful.data.columns import Codec, Columns
from heedful.data.examples import Pair
from heedful.data.links import LinkedPair, token_links
from heedful.data.store import SHARD_ROWS, StoreWriter, write_index
from heedful.data.tokeniser import Tokenisers

_PAIRS_AT_ONCE = 4096

AnyPair = Pair | LinkedPair


class PairEncoder:
    """Encodes pairs into the columns of a store.

    Args:
        tokenisers: of the source and the target.
        max_tokens: pairs with more tokens on a side (without END) are skipped.
        linked: whether the pairs are `LinkedPair`, whose links are stored.
        threads: number of threads; all by default.
    """

    def __init__(
        self,
        tokenisers: Tokenisers,
        max_tokens: int,
        linked: bool = False,
        threads: int | None = None,
    ) -> None:
        self.tokenisers, self.max_tokens, self.threads = tokenisers, max_tokens, threads
        self.codecs: dict[str, Codec] = {
            "source": columns.tokens(tokenisers.source.size),
            "target": columns.tokens(tokenisers.target.size),
            **({"links": columns.links(max_tokens)} if linked else {}),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What the index of a store says of its encoding."""
        return {"max_tokens": self.max_tokens, "tokenisers": self.tokenisers.fingerprint()}

    @property
    def skipped(self) -> str:
        """The reason for which pairs are skipped."""
        return f"longer than {self.max_tokens} tokens"

    def shard(
        self, pairs: Iterable[AnyPair], folder: Path, number: int, advance: Advance
    ) -> dict[str, Any]:
        """Write one shard; returns what `write_index` needs, and the number of pairs skipped.

        Args:
            pairs: the pairs of the shard.
            folder: the folder of the store.
            number: the number of the shard, from 0.
            advance: called with the number of pairs that were encoded since the last call.

        Raises:
            UserError: a text is not valid Unicode.
            OSError: the folder cannot be written.
        """
        remaining = iter(pairs)
        read = skipped = 0
        with StoreWriter(folder, self.codecs, None, first=number) as writer:
            while chunk := list(islice(remaining, _PAIRS_AT_ONCE)):
                rows, kept = self._rows(chunk)
                writer.add(rows)
                read += len(chunk)
                skipped += len(chunk) - kept
                advance(len(chunk))
            return {**writer.close(), "pairs": read, "skipped": skipped}

    def _rows(self, pairs: Sequence[AnyPair]) -> tuple[Columns, int]:
        """The rows of the pairs that are not too long, and their number."""
        of = self.tokenisers
        sources = of.source.encode_batch([pair.source for pair in pairs], self.threads)
        targets = of.target.encode_batch([pair.target for pair in pairs], self.threads)
        kept = [
            (pair, source, target)
            for pair, source, target in zip(pairs, sources, targets, strict=True)
            if max(len(source), len(target)) <= self.max_tokens
        ]
        rows: dict[str, list[Any]] = {
            "source": [source for _, source, _ in kept],
            "target": [target for _, _, target in kept],
        }
        if "links" in self.codecs:
            rows["links"] = [_links(*one, of) for one in kept]
        return {name: self.codecs[name].column(own) for name, own in rows.items()}, len(kept)


def write_pair_store(
    pairs: Iterable[AnyPair],
    tokenisers: Tokenisers,
    folder: Path,
    *,
    max_tokens: int,
    left_out: Counter[str],
    linked: bool = False,
    shard_rows: int = SHARD_ROWS,
) -> int:
    """Encode a stream of pairs into ``folder``, atomically, in this process.

    Args:
        pairs: the corpus.
        tokenisers: of the source and the target.
        folder: the folder; an existing one is replaced.
        max_tokens: pairs with more tokens on a side (without END) are skipped.
        left_out: counts skipped pairs under ``longer than … tokens``.
        linked: whether the pairs are `LinkedPair`, whose links are stored.
        shard_rows: number of pairs in a shard, with those skipped.

    Returns:
        The number of pairs stored.

    Raises:
        UserError: a text is not valid Unicode, or the folder cannot be written.
    """
    encoder = PairEncoder(tokenisers, max_tokens, linked)
    with atomic_folder(folder) as beside, progress("encoding", None, "pairs") as advance:
        written = [
            encoder.shard(shard, beside, number, advance)
            for number, shard in enumerate(shards_of(pairs, shard_rows))
        ] or [encoder.shard([], beside, 0, advance)]
        return finish_pairs(beside, encoder, written, left_out)


def shards_of(pairs: Iterable[AnyPair], shard_rows: int) -> Iterator[Iterator[AnyPair]]:
    """Divide pairs into streams of ``shard_rows``, each of which must be read before the next.

    The last may be shorter; none is empty.
    """
    remaining = iter(pairs)
    for first in remaining:
        yield chain([first], islice(remaining, shard_rows - 1))


def finish_pairs(
    folder: Path,
    encoder: PairEncoder,
    written: Sequence[dict[str, Any]],
    left_out: Counter[str],
) -> int:
    """Write the index of a store, and count skipped pairs; returns the number of pairs stored."""
    write_index(folder, encoder.codecs, written, encoder.facts)
    skipped = sum(int(one["skipped"]) for one in written)
    if skipped:
        left_out[encoder.skipped] += skipped
    return sum(int(one["pairs"]) for one in written) - skipped


def _links(
    pair: AnyPair, source: list[int], target: list[int], tokenisers: Tokenisers
) -> list[tuple[int, int]]:
    """Convert links of words to links of tokens."""
    of_words = pair.links if isinstance(pair, LinkedPair) else ()
    of_source = tokenisers.source.word_indices(source)
    return token_links(of_words, of_source, tokenisers.target.word_indices(target))
