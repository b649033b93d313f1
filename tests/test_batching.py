"""Batching: every pair once an epoch, exact resume, the token limit, little padding."""

import dataclasses
import tracemalloc
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data import batching
from heedful.data.batching import Batch, TokenBatches, collate, permute
from heedful.data.columns import Column
from heedful.data.columns import tokens as tokens_of
from heedful.data.positions import Position
from heedful.data.store import Store, StoreWriter

MULTI30K = Path(__file__).parents[1] / "../shared/data/multi30k"


def encoded(folder: Path, lengths: NDArray[np.int64], shard_rows: int = 7) -> Store:
    """A corpus of given lengths; token ``1000 + i`` throughout pair ``i``."""
    sides = (
        np.repeat(1000 + np.arange(len(lengths)), lengths[:, 0]),
        np.repeat(1000 + np.arange(len(lengths)), lengths[:, 1]),
    )
    return stored(folder, lengths, sides, shard_rows)


def stored(
    folder: Path,
    lengths: NDArray[np.int64],
    sides: tuple[NDArray[np.int64], NDArray[np.int64]],
    shard_rows: int = 7,
) -> Store:
    folder.mkdir()
    codecs = {"source": tokens_of(50_000), "target": tokens_of(50_000)}
    with StoreWriter(folder, codecs, shard_rows) as writer:
        parts = zip(codecs, sides, lengths.T, strict=True)
        writer.add({name: Column(tokens, sizes) for name, tokens, sizes in parts})
        writer.finish({})
    return Store.open(folder)


def rows_of(store: Store, rows: NDArray[np.int64]) -> dict[str, Column]:
    return {name: store.read(name, rows) for name in store.codecs}


def random_corpus(folder: Path, pairs: int, longest: int, seed: int = 0) -> Store:
    lengths = np.random.default_rng(seed).integers(1, longest + 1, (pairs, 2))
    return encoded(folder, lengths)


def same(one: Batch, other: Batch) -> bool:
    if one.weight != other.weight or (one.links is None) != (other.links is None):
        return False
    pieces = [(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(Batch)]
    return all(torch.equal(*both) for both in pieces if isinstance(both[0], torch.Tensor))


def pairs_of(batch: Batch) -> list[int]:
    return [int(row[0]) - 1000 for row in batch.source]


def epoch_of(batches: TokenBatches, seed: int, epoch: int) -> list[tuple[Position, Batch]]:
    """All batches of an epoch."""
    found = []
    for position, batch in batches.batches(Position(seed, epoch)):
        found.append((position, batch))
        if position.epoch != epoch:
            return found
    raise AssertionError


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.integers(1, 90),
    longest=st.integers(1, 30),
    batch_tokens=st.integers(1, 120),
    pool=st.integers(1, 100),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 1000),
)
def test_every_pair_once_an_epoch_and_within_the_limit(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: int,
    longest: int,
    batch_tokens: int,
    pool: int,
    seed: int,
    epoch: int,
) -> None:
    corpus = random_corpus(tmp_path_factory.mktemp("corpus") / "it", pairs, longest, seed)
    batches = TokenBatches(corpus, batch_tokens, pool)
    whole = epoch_of(batches, seed, epoch)
    seen = Counter(pair for _, batch in whole for pair in pairs_of(batch))
    assert seen == Counter(range(pairs))
    assert whole[-1][0] == Position(seed, epoch + 1, 0)
    for batch in [batch for _, batch in whole] + list(batches.once()):
        rows = len(batch.source)
        assert rows == 1 or rows * max(batch.source.shape[1], batch.target_out.shape[1]) <= (
            batch_tokens
        )
    once = Counter(pair for batch in batches.once() for pair in pairs_of(batch))
    assert once == Counter(range(pairs))


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.integers(1, 60),
    batch_tokens=st.integers(5, 90),
    pool=st.integers(1, 70),
    seed=st.integers(0, 1000),
    steps=st.integers(0, 60),
)
def test_going_on_from_any_position_gives_the_same_batches(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: int,
    batch_tokens: int,
    pool: int,
    seed: int,
    steps: int,
) -> None:
    folder = tmp_path_factory.mktemp("corpus") / "it"
    batches = TokenBatches(random_corpus(folder, pairs, 12, seed), batch_tokens, pool)
    start = Position(seed, 3, 0)
    uninterrupted = list(islice(batches.batches(start), steps + 12))
    position = uninterrupted[steps - 1][0] if steps else start
    again = TokenBatches(Store.open(folder), batch_tokens, pool)
    for (ours, batch), (theirs, other) in zip(
        islice(again.batches(position), 12), uninterrupted[steps:], strict=True
    ):
        assert ours == theirs
        assert same(batch, other)


def test_a_batch_is_padded_pairs_with_their_ends(tmp_path: Path) -> None:
    corpus = encoded(tmp_path / "it", np.array([[2, 0], [0, 3]]))
    batch = collate(rows_of(corpus, np.array([1, 0])))
    assert batch.source.tolist() == [[END, PAD, PAD], [1000, 1000, END]]
    assert batch.source_lengths.tolist() == [1, 3]
    assert batch.target_in.tolist() == [[BEGIN, 1001, 1001, 1001], [BEGIN, PAD, PAD, PAD]]
    assert batch.target_out.tolist() == [[1001, 1001, 1001, END], [END, PAD, PAD, PAD]]
    assert batch.target_lengths.tolist() == [4, 1]
    assert batch.weight == int((batch.target_out != PAD).sum()) == 5
    assert same(batch.to("cpu"), batch)


def test_a_batch_holds_the_very_tokens_of_the_corpus(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    lengths = generator.integers(0, 9, (50, 2))
    sides = tuple(generator.integers(4, 50_000, sizes.sum()) for sizes in lengths.T)
    corpus = stored(tmp_path / "it", lengths, (sides[0], sides[1]), 11)
    chosen = generator.permutation(50)
    batch = collate(rows_of(corpus, chosen))
    for row, index in enumerate(chosen):
        source, target = corpus[int(index)]["source"], corpus[int(index)]["target"]
        assert batch.source[row, : len(source) + 1].tolist() == [*source, END]
        assert batch.target_in[row, : len(target) + 1].tolist() == [BEGIN, *target]
        assert batch.target_out[row, : len(target) + 1].tolist() == [*target, END]


def test_seed_and_epoch_change_the_order_and_equal_ones_do_not(tmp_path: Path) -> None:
    batches = TokenBatches(random_corpus(tmp_path / "it", 300, 5), 40)

    def order(seed: int, epoch: int) -> list[list[int]]:
        return [pairs_of(batch) for _, batch in epoch_of(batches, seed, epoch)]

    assert order(1, 0) == order(1, 0)
    orders = [order(1, 0), order(2, 0), order(1, 1)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    # Not only the order of the batches differs, but what stands together in them.
    assert {frozenset(batch) for batch in orders[0]} != {frozenset(batch) for batch in orders[2]}


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1000, 65_536, 65_537])
def test_permute_is_a_permutation(size: int) -> None:
    places = permute(np.arange(size), size, "key")
    assert np.array_equal(np.sort(places), np.arange(size))
    assert np.array_equal(permute(np.arange(size)[::-1], size, "key"), places[::-1])


def test_permute_spreads_like_chance() -> None:
    """Each pair falls into each tenth of the order equally often, and neighbours part."""
    size, keys = 200, 400
    places = np.stack([permute(np.arange(size), size, f"key {key}") for key in range(keys)])
    tenths = np.stack([(places // 20 == tenth).sum(axis=0) for tenth in range(10)])
    chi_square = ((tenths - keys / 10) ** 2 / (keys / 10)).sum() / (9 * size)
    assert 0.85 < chi_square < 1.15
    for column in (places[:, 0], places[:, 57]):
        assert abs(np.corrcoef(column, places[:, 58])[0, 1]) < 0.2


def test_permute_reaches_into_a_huge_corpus() -> None:
    size = 10**15 + 37
    places = permute(np.arange(size - 5000, size), size, "key")
    assert len(set(places.tolist())) == 5000
    assert 0 <= places.min() < size // 100
    assert size // 100 * 99 < places.max() < size


def test_large_columns_are_read_for_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = random_corpus(tmp_path / "c", 40, 700)
    usual = epoch_of(TokenBatches(store, 2000, pool=30), 4, 1)
    with monkeypatch.context() as changed:
        changed.setattr(batching, "_MOST_BYTES", 0)
        single = TokenBatches(store, 2000, pool=30)
    for (place, batch), (expected_place, expected) in zip(
        epoch_of(single, 4, 1), usual, strict=True
    ):
        assert place == expected_place
        assert same(batch, expected)
    assert all(map(same, single.once(), TokenBatches(store, 2000, pool=30).once()))


def test_reading_long_rows_takes_little_more_memory_than_the_rows(tmp_path: Path) -> None:
    store = encoded(tmp_path / "c", np.full((40, 2), 50_000), shard_rows=40)
    rows = np.arange(40)[::-1].copy()
    tracemalloc.start()
    try:
        found = store.read("source", rows).take(np.array([3, 0]))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.values.tolist() == [1036] * 50_000 + [1039] * 50_000
    assert most < 4 * 40 * 50_000 * 2  # an index of each value would take eight bytes


def test_a_position_of_another_corpus_is_refused(tmp_path: Path) -> None:
    batches = TokenBatches(random_corpus(tmp_path / "it", 30, 5), 40, pool=10)
    for index in (9, 30, 10**9, -1):
        with pytest.raises(UserError, match="there is no batch at"):
            next(batches.batches(Position(1, 0, index)))


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    corpus = encoded(tmp_path / "it", np.empty((0, 2), np.int64))
    assert len(corpus) == 0
    with pytest.raises(UserError, match="empty"):
        TokenBatches(corpus, 100)


def test_little_is_padding_on_real_lengths(tmp_path: Path) -> None:
    if not MULTI30K.exists():
        pytest.skip("needs ../shared/data/multi30k")
    lengths = np.array(
        [
            [
                len(line.split())
                for line in (MULTI30K / name).read_text(encoding="utf-8").splitlines()
            ]
            for name in ("lc.norm.tok/train.en", "lc.norm.tok/train.de")
        ]
    ).T
    batches = TokenBatches(encoded(tmp_path / "it", lengths, 250_000), 4096)
    whole = [batch for _, batch in epoch_of(batches, 1, 0)]
    real = lengths.sum() + lengths.size
    cells = sum(batch.source.numel() + batch.target_out.numel() for batch in whole)
    assert cells <= 1.06 * real
