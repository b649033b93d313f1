"""Encoded pairs: a store with the columns ``source``, ``target`` and optionally ``links``.

Tokens exclude BEGIN and END. Links are pairs of source token and target token.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from heedful.data import columns
from heedful.data.columns import Codec, Columns
from heedful.data.examples import Pair
from heedful.data.links import LinkedPair, token_links
from heedful.data.saved_vocabularies import load_tokenisers
from heedful.data.store import SHARD_ROWS
from heedful.data.store_encoder import StoreEncoder, write_store
from heedful.data.tokeniser import Tokenisers

AnyPair = Pair | LinkedPair


class PairEncoder(StoreEncoder[AnyPair]):
    """Encodes pairs into the columns of a store; counts ``stored`` and ``skipped``.

    Args:
        tokenisers: of the source and the target.
        max_tokens: pairs with more tokens on a side (without END) are skipped.
        linked: whether the pairs are `LinkedPair`, whose links are stored.
    """

    unit = "pairs"
    shard_size = SHARD_ROWS
    chunk_size = 4096

    def __init__(self, tokenisers: Tokenisers, max_tokens: int, linked: bool = False) -> None:
        self.tokenisers, self.max_tokens = tokenisers, max_tokens
        self.codecs: dict[str, Codec] = {
            "source": columns.tokens(tokenisers.source.size),
            "target": columns.tokens(tokenisers.target.size),
            **({"links": columns.links(max_tokens)} if linked else {}),
        }

    @classmethod
    def open(cls, saved: Path, max_tokens: int, linked: bool = False) -> "PairEncoder":
        """The encoder with the tokenisers that are saved in a folder."""
        return cls(load_tokenisers(saved), max_tokens, linked)

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.facts(Counter()), "linked": "links" in self.codecs}

    def facts(self, counts: Counter[str]) -> dict[str, Any]:
        return {"max_tokens": self.max_tokens, "tokenisers": self.tokenisers.fingerprint()}

    def size(self, item: AnyPair) -> int:
        return 1

    def rows(self, items: Sequence[AnyPair]) -> tuple[Columns, Counter[str]]:
        of = self.tokenisers
        sources = of.source.encode_batch([pair.source for pair in items], self.threads)
        targets = of.target.encode_batch([pair.target for pair in items], self.threads)
        kept = [
            (pair, source, target)
            for pair, source, target in zip(items, sources, targets, strict=True)
            if max(len(source), len(target)) <= self.max_tokens
        ]
        rows: dict[str, list[Any]] = {
            "source": [source for _, source, _ in kept],
            "target": [target for _, _, target in kept],
        }
        if "links" in self.codecs:
            rows["links"] = [_links(*one, of) for one in kept]
        counts = Counter(stored=len(kept), skipped=len(items) - len(kept))
        return {name: self.codecs[name].column(own) for name, own in rows.items()}, counts

    def stored(self, counts: Counter[str], left_out: Counter[str]) -> int:
        """The number of pairs stored; those skipped are added to ``left_out``."""
        if counts["skipped"]:
            left_out[f"longer than {self.max_tokens} tokens"] += counts["skipped"]
        return counts["stored"]


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
    encoder.shard_size = shard_rows
    return encoder.stored(write_store(pairs, encoder, folder), left_out)


def _links(
    pair: AnyPair, source: list[int], target: list[int], tokenisers: Tokenisers
) -> list[tuple[int, int]]:
    """Convert links of words to links of tokens."""
    of_words = pair.links if isinstance(pair, LinkedPair) else ()
    of_source = tokenisers.source.word_indices(source)
    return token_links(of_words, of_source, tokenisers.target.word_indices(target))
