"""Streams of documents: every token is predicted once an epoch, from any position on."""

from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.basics.symbols import END, PAD
from heedful.data.positions import Position
from heedful.data.streams import Stream, WindowBatches, write_stream


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
)
def test_an_epoch_predicts_every_token_once(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[list[int]],
    context: int,
    rows: int,
) -> None:
    folder = tmp_path_factory.mktemp("stream") / "train"
    stream = [END] + [token for tokens in documents for token in [*tokens, END]]
    assert write_stream(documents, folder, 200_001) == len(stream) - 1
    batches = WindowBatches(Stream(folder), context, rows)
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
