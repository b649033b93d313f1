"""Encoded pairs: a store with the columns ``source``, ``target`` and optionally ``links``.

Tokens exclude BEGIN and END. Links are pairs of source token and target token.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from heedful.basics.files import atomic_folder
from heedful.basics.progress import progress
from heedful.data import columns
from heedful.data.examples import Pair
from heedful.data.links import LinkedPair, token_links
from heedful.data.store import SHARD_ROWS, StoreWriter
from heedful.data.tokeniser import Tokenisers

_PAIRS_AT_ONCE = 4096


def write_pair_store(
    pairs: Iterable[Pair] | Iterable[LinkedPair],
    tokenisers: Tokenisers,
    folder: Path,
    *,
    max_tokens: int,
    left_out: Counter[str],
    linked: bool = False,
    shard_rows: int = SHARD_ROWS,
) -> int:
    """Encode a stream of pairs into ``folder``, atomically.

    Args:
        pairs: the corpus.
        tokenisers: of the source and the target.
        folder: the folder; an existing one is replaced.
        max_tokens: pairs with more tokens on a side (without END) are skipped.
        left_out: counts skipped pairs under ``longer than … tokens``.
        linked: whether the pairs are `LinkedPair`, whose links are stored.
        shard_rows: number of pairs in a shard.

    Returns:
        The number of pairs stored.

    Raises:
        UserError: a text is not valid Unicode, or the folder cannot be written.
    """
    codecs = {
        "source": columns.tokens(tokenisers.source.size),
        "target": columns.tokens(tokenisers.target.size),
        **({"links": columns.links(max_tokens)} if linked else {}),
    }
    remaining: Iterator[Pair | LinkedPair] = iter(pairs)
    stored = 0
    with (
        atomic_folder(folder) as beside,
        StoreWriter(beside, codecs, shard_rows) as writer,
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
            rows: dict[str, list[Any]] = {
                "source": [source for _, source, _ in kept],
                "target": [target for _, _, target in kept],
            }
            if linked:
                rows["links"] = [_links(*one, tokenisers) for one in kept]
            writer.add({name: codecs[name].column(own) for name, own in rows.items()})
            stored += len(kept)
            advance(len(chunk))
        writer.finish({"max_tokens": max_tokens, "tokenisers": tokenisers.fingerprint()})
    return stored


def _links(
    pair: Pair | LinkedPair, source: list[int], target: list[int], tokenisers: Tokenisers
) -> list[tuple[int, int]]:
    """Convert links of words to links of tokens."""
    of_words = pair.links if isinstance(pair, LinkedPair) else ()
    of_source = tokenisers.source.word_indices(source)
    return token_links(of_words, of_source, tokenisers.target.word_indices(target))
