"""Streams of documents: every token is predicted once an epoch, from any position on."""

from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.basics.symbols import END, PAD
from heedful.data.positions import Position
from heedful.data.streams import Stream, WindowBatches
from stream_help import write_stream


def epoch_of(batches: WindowBatches, epoch: int) -> list[tuple[Position, object]]:
    found = []
    for after, batch in batches.batches(Position(3, epoch, 0)):
        found.append((after, batch))
        if after.epoch != epoch:
            return found
    raise AssertionError


@settings(max_examples=40, deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(4, 200_000), max_size=30), min_size=1, max_size=6),
    context=st.integers(1, 12),
    rows=st.integers(1, 5),
    shard=st.sampled_from([1, 20, 1 << 25]),
    window=st.sampled_from([None, 1, 25]),
)
def test_an_epoch_predicts_every_token_once(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[list[int]],
    context: int,
    rows: int,
    shard: int,
    window: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("stream") / "train"
    stream = [END] + [token for tokens in documents for token in [*tokens, END]]
    assert write_stream(documents, folder, 200_001, shard) == len(stream) - 1
    batches = WindowBatches(Stream(folder), context, rows, window=window)
    wanted = Counter(pairwise(stream))
    for epoch in range(3):
        pairs: Counter[tuple[int, int]] = Counter()
        for _, batch in epoch_of(batches, epoch):
            assert batch.tokens.shape == batch.targets.shape
            assert len(batch.tokens) <= rows
            assert batch.tokens.shape[1] <= context
            real = batch.targets != PAD
            assert batch.weight == int(real.sum())
            assert bool((batch.tokens[~real] == PAD).all())
            pairs.update(
                zip(batch.tokens[real].tolist(), batch.targets[real].tolist(), strict=True)
            )
        assert pairs == wanted


@pytest.mark.parametrize("aligned", [False, True])
def test_windows_cross_the_ends_of_shards(tmp_path: Path, aligned: bool) -> None:
    random = np.random.default_rng(1)
    documents = [random.integers(4, 99, random.integers(0, 40)).tolist() for _ in range(30)]
    walks = []
    for name, shard in (("one", 1 << 25), ("many", 50)):
        write_stream(documents, tmp_path / name, 100, shard)
        stream = Stream(tmp_path / name)
        walks.append(WindowBatches(stream, 16, 3, aligned=aligned).batches(Position(3)))
    assert len(stream.store.shard_sizes) > 5
    assert len(set(stream.store.shard_values("tokens"))) > 1
    for (one, first), (other, second) in islice(zip(*walks, strict=True), 60):
        assert one == other
        assert first.tokens.equal(second.tokens)
        assert first.targets.equal(second.targets)


def test_windows_that_are_shuffled_together_are_of_few_shards(tmp_path: Path) -> None:
    write_stream([list(range(4, 54))] * 40, tmp_path / "s", 100, 100)  # 102 tokens in a shard
    stream = Stream(tmp_path / "s")
    batches = WindowBatches(stream, 10, 1, window=300)
    ends = np.cumsum(stream.store.shard_values("tokens"))
    assert len(ends) == 20
    seen = []
    for _, (numbers, first) in batches._order(Position(5)):
        start = 0 if numbers[0] == 0 else first + (numbers[0] - 1) * 10
        seen.append(int(np.searchsorted(ends, start, side="right")))
        if len(seen) == batches._shuffle(first).rows:
            break
    for shard in range(20):
        places = [place for place, one in enumerate(seen) if one == shard]
        assert len(set(seen[places[0] : places[-1] + 1])) <= 3
    assert len(set(seen[:30])) == 3  # shuffled


def test_aligned_windows_are_documents_of_one_length(tmp_path: Path) -> None:
    grids = [list(range(10 * number, 10 * number + 5)) for number in range(1, 8)]
    write_stream(grids, tmp_path / "s", 100)
    batches = WindowBatches(Stream(tmp_path / "s"), 6, 3, aligned=True)
    for epoch in range(3):
        rows = [row for _, batch in epoch_of(batches, epoch) for row in batch.tokens.tolist()]
        assert sorted(rows) == [[END, *grid] for grid in grids]


def test_going_on_from_a_position_gives_what_would_have_followed(tmp_path: Path) -> None:
    write_stream([list(range(4, 60)), list(range(60, 99))], tmp_path / "s", 100)
    batches = WindowBatches(Stream(tmp_path / "s"), 7, 3)
    whole = list(islice(batches.batches(Position(1, 0, 0)), 12))
    assert len({tuple(batch.targets.flatten().tolist()) for _, batch in whole}) == 12
    for number, (after, _) in enumerate(whole[:-1]):
        again = next(batches.batches(after))
        assert again[0] == whole[number + 1][0]
        assert again[1].tokens.equal(whole[number + 1][1].tokens)


def test_wrong_streams_are_one_line(tmp_path: Path) -> None:
    write_stream([], tmp_path / "empty", 10)
    with pytest.raises(UserError, match="no text to train on"):
        WindowBatches(Stream(tmp_path / "empty"), 4, 2)
    write_stream([[5, 6, 7]], tmp_path / "s", 10)
    with pytest.raises(UserError, match="there is no batch at"):
        next(WindowBatches(Stream(tmp_path / "s"), 4, 2).batches(Position(1, 0, 9)))
    (tmp_path / "s" / "00000.tokens.values").write_bytes(b"xx")
    with pytest.raises(UserError, match="damaged"):
        Stream(tmp_path / "s")
