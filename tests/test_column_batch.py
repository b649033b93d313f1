"""Batches of any columns: ragged, padded on demand, split, in an order that resumes."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.data import columns
from heedful.data.batching import StoreBatches
from heedful.data.column_batch import ColumnBatch
from heedful.data.positions import Position
from heedful.data.store import Store, StoreWriter

ROWS = 40


@pytest.fixture
def store(tmp_path: Path) -> Store:
    random = np.random.default_rng(2)
    sizes = random.integers(1, 9, (ROWS, 2))
    codecs = {
        "sound": columns.sound(3),
        "picture": columns.image(),
        "label": columns.label(ROWS),
    }
    rows = {
        "sound": [np.full((size, 3), n, np.float32) for n, size in enumerate(sizes[:, 0])],
        "picture": [np.full((size, 2, 1), n, np.uint8) for n, size in enumerate(sizes[:, 1])],
        "label": list(range(ROWS)),
    }
    with StoreWriter(tmp_path, codecs, 16) as writer:
        writer.add({name: codecs[name].column(own) for name, own in rows.items()})
        writer.finish({})
    return Store.open(tmp_path)


def batches_of(store: Store) -> StoreBatches[ColumnBatch]:
    return StoreBatches(store, 30, ColumnBatch.of, by=["sound"], pool=16)


def test_an_epoch_has_every_row_once_with_all_its_columns(store: Store) -> None:
    seen: list[int] = []
    for after, batch in batches_of(store).batches(Position(1)):
        sound, pictures = batch["sound"].padded(-1), batch["picture"].padded()
        assert sound.shape == (batch.weight, int(batch["sound"].lengths.max()), 3)
        assert batch.weight * (sound.shape[1] + 1) <= 30
        for number, frames, picture in zip(
            batch["label"].values.tolist(), sound, pictures, strict=True
        ):
            expected = store[number]
            real = len(expected["sound"])
            assert bool((frames[:real] == number).all())
            assert bool((frames[real:] == -1).all())
            high = expected["picture"].shape[0]
            assert np.array_equal(picture[:high].numpy(), expected["picture"])
            assert not picture[high:].any()
        seen += batch["label"].values.tolist()
        if after.epoch:
            break
    assert sorted(seen) == list(range(ROWS))


def test_the_order_goes_on_from_any_position(store: Store) -> None:
    whole = list(islice(batches_of(store).batches(Position(3)), 12))
    after, batch = next(batches_of(store).batches(whole[4][0]))
    assert after == whole[5][0]
    assert torch.equal(batch["picture"].values, whole[5][1]["picture"].values)


def test_parts_of_a_batch_are_its_rows(store: Store) -> None:
    batch = max(islice(batches_of(store).once(), 9), key=lambda batch: batch.weight)
    parts = batch.to("cpu").split(3, fewest=1)
    assert len(parts) > 1
    assert sum(part.weight for part in parts) == batch.weight
    for name in store.codecs:
        joined = torch.cat([part[name].values for part in parts])
        assert torch.equal(joined, batch[name].values)
        whole = batch[name].padded()
        first = parts[0][name].padded()
        cut = tuple(map(slice, first.shape))
        assert torch.equal(whole[cut], first)
