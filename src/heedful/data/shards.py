"""Encoded corpora: token numbers in memory-mapped shards, written once and read at random.

A folder holds ``index.json`` (written last) and, for each shard, two flat little-endian arrays:

- ``00000.tokens``: unsigned 16-bit numbers (32-bit for a vocabulary above 65,536); of each pair the
  source tokens, then the target tokens, without BEGIN and END;
- ``00000.offsets``: signed 64-bit numbers, ``2 x pairs + 1`` of them: where each side of each pair
  starts among the shard's tokens, and at last their number.

A corpus with word links has them beside, as links of tokens: see `heedful.data.link_files`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder
from heedful.basics.progress import progress
from heedful.basics.reading import read_json
from heedful.data.examples import Pair
from heedful.data.link_files import Links, LinkWriter, StoredLinks, link_type
from heedful.data.links import LinkedPair, token_links
from heedful.data.mapped import OFFSET, Integers, Mapped, damaged, ranges
from heedful.data.tokeniser import Tokenisers

INDEX = "index.json"
SHARD_PAIRS = 250_000
"""Small enough that a shard's pages may all be mapped for a moment."""

_PAIRS_AT_ONCE = 4096

Tokens = NDArray[np.uint16] | NDArray[np.uint32]


def write_shards(
    pairs: Iterable[Pair] | Iterable[LinkedPair],
    tokenisers: Tokenisers,
    folder: Path,
    *,
    max_tokens: int,
    left_out: Counter[str],
    linked: bool = False,
    shard_pairs: int = SHARD_PAIRS,
) -> None:
    """Encode ``pairs``, read once as a stream, into ``folder``, which is whole or absent after.

    Args:
        pairs: the corpus.
        tokenisers: of the source and the target.
        folder: replaced if it is there.
        max_tokens: pairs with more tokens than this on a side (END not counted) are left out.
        left_out: counts them, under ``longer than … tokens``.
        linked: the pairs are `LinkedPair`, whose links are stored too.
        shard_pairs: pairs in a shard.

    Raises:
        UserError: a text is not valid Unicode, or the folder cannot be written.
    """
    sizes = (tokenisers.source.size, tokenisers.target.size)
    remaining: Iterator[Pair | LinkedPair] = iter(pairs)
    with (
        atomic_folder(folder) as beside,
        ShardWriter(
            beside, sizes, shard_pairs, link_type(max_tokens) if linked else None
        ) as writer,
        progress("encoding", None, "pairs") as advance,
    ):
        while chunk := list(islice(remaining, _PAIRS_AT_ONCE)):
            sources = tokenisers.source.encode_batch([pair.source for pair in chunk])
            targets = tokenisers.target.encode_batch([pair.target for pair in chunk])
            kept = [
                (pair, source, target)
                for pair, source, target in zip(chunk, sources, targets, strict=True)
                if max(len(source), len(target)) <= max_tokens
            ]
            if len(kept) < len(chunk):
                left_out[f"longer than {max_tokens} tokens"] += len(chunk) - len(kept)
            sides = [tokens for _, *both in kept for tokens in both]
            lengths = np.fromiter(map(len, sides), np.int64, len(sides)).reshape(-1, 2)
            tokens = np.fromiter(chain.from_iterable(sides), np.int64, int(lengths.sum()))
            writer.add(tokens, lengths, _links(kept, tokenisers) if linked else None)
            advance(len(chunk))
        writer.finish({"max_tokens": max_tokens, "tokenisers": tokenisers.fingerprint()})


def _links(
    kept: list[tuple[Pair | LinkedPair, list[int], list[int]]], tokenisers: Tokenisers
) -> Links:
    """The links of words as links of tokens."""
    found = []
    for pair, source, target in kept:
        of_words = pair.links if isinstance(pair, LinkedPair) else ()
        of_source = tokenisers.source.word_indices(source)
        found.append(token_links(of_words, of_source, tokenisers.target.word_indices(target)))
    counts = np.fromiter(map(len, found), np.int64, len(found))
    tokens = np.array(list(chain.from_iterable(found)), np.int64).reshape(-1, 2)
    return Links(tokens, counts)


class ShardWriter:
    """Writes encoded pairs, many at a time, into a folder that exists; the index comes at `finish`.

    Args:
        folder: where the files go; use it inside `heedful.basics.files.atomic_folder`.
        sizes: the vocabularies of source and target.
        shard_pairs: pairs in a shard.
        links: how a link's numbers are stored, if there are links.
    """

    def __init__(
        self,
        folder: Path,
        sizes: tuple[int, int],
        shard_pairs: int = SHARD_PAIRS,
        links: np.dtype[Any] | None = None,
    ) -> None:
        self._folder = folder
        self._sizes = sizes
        self._shard_pairs = shard_pairs
        self._dtype = np.dtype("<u2" if max(sizes) <= 1 << 16 else "<u4")
        self._shards: list[dict[str, int]] = []
        self._totals = np.zeros(2, np.int64)
        self._files: tuple[BinaryIO, BinaryIO] | None = None
        self._link_type = links
        self._links: LinkWriter | None = None

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def add(self, tokens: NDArray[Any], lengths: NDArray[Any], links: Links | None = None) -> None:
        """Append pairs.

        Args:
            tokens: [all] token numbers: source and target of the first pair, then of the next.
            lengths: [pairs, 2] number of tokens of each side.
            links: the pairs' links, if the corpus has some.
        """
        if (links is None) != (self._link_type is None):
            raise ValueError("either every pair has links or none has")
        while len(lengths):
            if self._files is None:
                self._open()
            shard = self._shards[-1]
            room = self._shard_pairs - shard["pairs"]
            now, lengths = lengths[:room], lengths[room:]
            count = int(now.sum())
            self._append(tokens[:count], now, shard)
            tokens = tokens[count:]
            if links is not None:
                links = self._append_links(links, len(now), shard)
            if shard["pairs"] == self._shard_pairs:
                self._close()

    def finish(self, facts: dict[str, Any]) -> None:
        """Close the files and write the index, with ``facts`` about the corpus."""
        self._close()
        index = {
            "format": 1,
            "pairs": sum(shard["pairs"] for shard in self._shards),
            "source_tokens": int(self._totals[0]),
            "target_tokens": int(self._totals[1]),
            "vocabularies": list(self._sizes),
            "token_type": self._dtype.str,
            "shards": self._shards,
            **({} if self._link_type is None else {"link_type": self._link_type.str}),
            **facts,
        }
        (self._folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")

    def _open(self) -> None:
        tokens, offsets = _files(self._folder, len(self._shards))
        self._files = (tokens.open("wb"), offsets.open("wb"))
        self._files[1].write(np.zeros(1, OFFSET).tobytes())
        if self._link_type is not None:
            self._links = LinkWriter(self._folder, len(self._shards), self._link_type)
        self._shards.append({"pairs": 0, "tokens": 0})

    def _append(self, tokens: NDArray[Any], lengths: NDArray[Any], shard: dict[str, int]) -> None:
        if self._files is None:
            raise ValueError("no shard is open")
        ends = shard["tokens"] + np.cumsum(lengths.ravel())
        self._files[0].write(tokens.astype(self._dtype).tobytes())
        self._files[1].write(ends.astype(OFFSET).tobytes())
        shard["pairs"] += len(lengths)
        shard["tokens"] += len(tokens)
        self._totals += lengths.sum(axis=0, dtype=np.int64)

    def _append_links(self, links: Links, pairs: int, shard: dict[str, int]) -> Links:
        """Store the links of the first pairs; the others' are returned."""
        if self._links is None:
            raise ValueError("no shard is open")
        count = int(links.counts[:pairs].sum())
        self._links.add(Links(links.tokens[:count], links.counts[:pairs]))
        shard["links"] = self._links.links
        return Links(links.tokens[count:], links.counts[pairs:])

    def _close(self) -> None:
        for file in self._files or ():
            file.close()
        if self._links is not None:
            self._links.close()
        self._files = self._links = None


class EncodedCorpus:
    """What `write_shards` wrote, opened without reading it; pairs are reached at random.

    Attributes:
        source_tokens: number of source tokens of all pairs, END not counted.
        target_tokens: number of target tokens of all pairs, END not counted.
    """

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        self.folder = folder
        self.source_tokens: int = index["source_tokens"]
        self.target_tokens: int = index["target_tokens"]
        self._largest = max(index["vocabularies"])
        self._token_type = np.dtype(index["token_type"])
        counts = [shard["pairs"] for shard in index["shards"]]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._shards = [
            _Shard(folder, number, self._token_type, shard["pairs"], shard["tokens"])
            for number, shard in enumerate(index["shards"])
        ]
        kind = index.get("link_type")
        self._links = (
            None
            if kind is None
            else [
                StoredLinks(folder, number, np.dtype(kind), shard["pairs"], shard["links"])
                for number, shard in enumerate(index["shards"])
            ]
        )

    @classmethod
    def open(cls, folder: Path) -> "EncodedCorpus":
        """Map the files of ``folder``.

        Raises:
            UserError: the folder is not an encoded corpus, or a file is missing or damaged.
        """
        path = folder / INDEX
        index = read_json(path)
        if index.get("format") != 1:
            raise UserError(f"{path}: not an encoded corpus that this version of heedful reads")
        try:
            corpus = cls(folder, index)
            complete = len(corpus) == index["pairs"]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{path}: the file is damaged; encode the corpus again") from error
        if not complete:
            raise UserError(f"{path}: the file is damaged; encode the corpus again")
        return corpus

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> tuple[Tokens, Tokens]:
        """Source and target tokens of a pair, without BEGIN and END."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"pair {index} of a corpus of {len(self)} pairs")
        tokens, lengths = self.gather(np.array([index % len(self)]))
        return tokens[: lengths[0, 0]], tokens[lengths[0, 0] :]

    def __iter__(self) -> Iterator[tuple[Tokens, Tokens]]:
        return (self[index] for index in range(len(self)))

    def lengths(self, indices: Integers) -> Integers:
        """Number of tokens [n, 2] of source and target, END not counted."""
        lengths = np.empty((len(indices), 2), np.int64)
        for shard, chosen, rows in self._by_shard(indices):
            lengths[chosen] = np.diff(shard.bounds(rows), axis=1)
            shard.release()
        return lengths

    def gather(self, indices: Integers) -> tuple[Tokens, Integers]:
        """The pairs' tokens in one array, source before target, and their lengths [n, 2]."""
        lengths = self.lengths(indices)
        sizes = lengths.sum(axis=1)
        ends = np.cumsum(sizes)
        tokens = np.empty(ends[-1] if len(ends) else 0, self._token_type)
        for shard, chosen, rows in self._by_shard(indices):
            own = sizes[chosen]
            found = shard.tokens[ranges(shard.bounds(rows)[:, 0], own)]
            if len(found) and found.max() >= self._largest:
                raise damaged(shard.tokens_file)
            tokens[ranges((ends - sizes)[chosen], own)] = found
            shard.release()
        return tokens, lengths

    @property
    def is_linked(self) -> bool:
        """Whether the pairs have links."""
        return self._links is not None

    def links(self, indices: Integers) -> Links | None:
        """The pairs' links between tokens, in the order of ``indices``; None if there are none."""
        if self._links is None:
            return None
        counts = np.zeros(len(indices), np.int64)
        parts = []
        for number, chosen, rows in self._numbers(indices):
            found = self._links[number].gather(rows)
            counts[chosen] = found.counts
            parts.append((chosen, found))
        ends = np.cumsum(counts)
        tokens = np.empty((ends[-1] if len(ends) else 0, 2), np.int64)
        for chosen, found in parts:
            tokens[ranges((ends - counts)[chosen], counts[chosen])] = found.tokens
        return Links(tokens, counts)

    def _by_shard(
        self, indices: Integers
    ) -> Iterator[tuple["_Shard", NDArray[np.bool_], Integers]]:
        """Each shard that holds some of the pairs, which of them, and their rows in the shard."""
        for number, chosen, rows in self._numbers(indices):
            yield self._shards[number], chosen, rows

    def _numbers(self, indices: Integers) -> Iterator[tuple[int, NDArray[np.bool_], Integers]]:
        if not len(indices):
            return
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(numbers):
            chosen = numbers == number
            yield int(number), chosen, indices[chosen] - self._starts[number]


class _Shard:
    """One shard's two arrays, mapped."""

    def __init__(
        self, folder: Path, number: int, token_type: np.dtype[Any], pairs: int, tokens: int
    ) -> None:
        self.tokens_file, self.offsets_file = _files(folder, number)
        self._tokens = Mapped(self.tokens_file, token_type, tokens)
        self._offsets = Mapped(self.offsets_file, OFFSET, 2 * pairs + 1)
        self.tokens = self._tokens.array
        if self._offsets.array[0] != 0 or self._offsets.array[-1] != tokens:
            raise damaged(self.offsets_file)

    def bounds(self, rows: Integers) -> Integers:
        """Where source and target start and the target ends [n, 3], for each row."""
        bounds: Integers = self._offsets.array[2 * rows[:, None] + np.arange(3)]
        unordered = (bounds[:, :-1] > bounds[:, 1:]).any()
        if unordered or (len(bounds) and (bounds.min() < 0 or bounds.max() > len(self.tokens))):
            raise damaged(self.offsets_file)
        return bounds

    def release(self) -> None:
        """Unmap the pages read so far: see `Mapped.release`."""
        self._tokens.release()
        self._offsets.release()


def _files(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"{number:05}.tokens", folder / f"{number:05}.offsets"
