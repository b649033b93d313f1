"""The store of columns: what is written is read back, the folder is whole or absent, damage is
named, and stores of heedful 0.1 are read."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data import columns
from heedful.data.batching import TokenBatches
from heedful.data.columns import Codec, Column
from heedful.data.document_store import EncodedDocuments
from heedful.data.examples import Pair
from heedful.data.pair_store import write_pair_store
from heedful.data.positions import Position
from heedful.data.store import INDEX, Store, StoreWriter
from heedful.data.streams import Stream
from heedful.data.tokeniser import Tokenisers, TokeniserSettings
from test_batching import same

PAIRS = [
    Pair(f"the cat number {n}", f"die Katze Nummer {n} {'sehr ' * (n % 5)}") for n in range(40)
]
OLD = Path(__file__).parent / "data" / "runs-0.1"


@pytest.fixture(scope="module")
def tokenisers() -> Tokenisers:
    return Tokenisers.train(lambda: PAIRS, TokeniserSettings(vocabulary_size=360), seed=1)


@pytest.fixture
def folder(tmp_path: Path, tokenisers: Tokenisers) -> Path:
    write_pair_store(
        PAIRS, tokenisers, tmp_path / "it", max_tokens=99, left_out=Counter(), shard_rows=16
    )
    return tmp_path / "it"


def test_pairs_are_read_back_from_all_shards(folder: Path, tokenisers: Tokenisers) -> None:
    store = Store.open(folder)
    assert len(store) == len(PAIRS)
    assert len(list(folder.glob("*.source.values"))) == 3
    for pair, row in zip(PAIRS, store, strict=True):
        assert tokenisers.source.decode(row["source"].tolist()) == pair.source
        assert tokenisers.target.decode(row["target"].tolist()) == pair.target
    expected = [len(tokenisers.source.encode(pair.source)) for pair in PAIRS]
    rows = np.array([39, 0, 16, 15, 15])
    assert store.lengths("source", rows).tolist() == [expected[row] for row in rows]
    assert store.total("source") == sum(expected)
    assert np.array_equal(store[-1]["source"], store[39]["source"])
    with pytest.raises(IndexError):
        store[40]


def test_rows_come_in_the_order_asked_for(folder: Path) -> None:
    store = Store.open(folder)
    rows = np.random.default_rng(0).permutation(40)
    found = store.read("target", rows)
    expected = [store[int(row)]["target"] for row in rows]
    assert np.array_equal(found.values, np.concatenate(expected))
    assert found.lengths.tolist() == [len(row) for row in expected]
    nothing = store.read("target", np.empty(0, np.int64))
    assert (len(nothing.values), len(nothing.lengths)) == (0, 0)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), max_size=40),
    chunk=st.integers(1, 50),
    shard_rows=st.integers(1, 50),
    largest=st.sampled_from([300, 1 << 16, (1 << 16) + 1]),
)
def test_any_lengths_in_any_chunks(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    chunk: int,
    shard_rows: int,
    largest: int,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    sizes = np.array(lengths, np.int64)
    column = Column(np.random.default_rng(len(lengths)).integers(0, largest, sizes.sum()), sizes)
    with StoreWriter(folder, {"it": columns.tokens(largest)}, shard_rows) as writer:
        for start in range(0, len(sizes), chunk):
            writer.add({"it": column.part(start, min(start + chunk, len(sizes)))})
        writer.finish({"of": "numbers"})
    store = Store.open(folder)
    assert (len(store), store.facts) == (len(sizes), {"of": "numbers"})
    found = store.read("it", np.arange(len(sizes)))
    assert np.array_equal(found.values, column.values)
    assert np.array_equal(found.lengths, sizes)
    store.verify()


RANDOM = np.random.default_rng(5)
ROWS: dict[str, tuple[Codec, list[Any]]] = {
    "tokens": (columns.tokens(70_000), [[], [69_999, 4], [7]]),
    "label": (columns.label(3), [2, 0, 1]),
    "number": (columns.number(), [0.5, -3.0, 2.0**99]),
    "vector": (columns.number(2), [[0.5, 1.0], [2.0, -1.0], [0.0, 0.25]]),
    "links": (columns.links(9), [[(0, 1), (8, 3)], [], [(2, 2)]]),
    "text": (columns.text(), ["", "Grüße\nत", "a"]),
    "image": (
        columns.image(),
        [RANDOM.integers(0, 256, size, np.uint8) for size in ((3, 5, 3), (1, 1, 1), (4, 2, 3))],
    ),
    "sound": (
        columns.sound(4),
        [RANDOM.standard_normal((size, 4)).astype(np.float32) for size in (6, 0, 2)],
    ),
}


def test_every_codec_gives_back_its_rows(tmp_path: Path) -> None:
    codecs = {name: codec for name, (codec, _) in ROWS.items()}
    for folder, shard_rows in ((tmp_path / "1", 2), (tmp_path / "2", None)):
        folder.mkdir()
        with StoreWriter(folder, codecs, shard_rows) as writer:
            writer.add({name: codec.column(rows) for name, (codec, rows) in ROWS.items()})
            writer.finish({})
        store = Store.open(folder)
        for number, row in enumerate(store):
            for name, (codec, rows) in ROWS.items():
                expected = rows[number]
                if isinstance(row[name], np.ndarray):
                    assert row[name].dtype == np.dtype(codec.dtype)
                    expected = np.asarray(expected).reshape(row[name].shape)
                assert np.array_equal(row[name], expected), name
    assert Store.open(tmp_path / "1").codecs == codecs


@pytest.mark.parametrize(
    ("codec", "rows", "message"),
    [
        (columns.label(3), [0, 3], "whole numbers from 0 to 2"),
        (columns.label(3), [-1], "whole numbers from 0 to 2"),
        (columns.tokens(9), [[1, 9]], "whole numbers from 0 to 8"),
        (columns.image(), [np.zeros((2, 2), np.uint8)], r"row 0 .* shape \[2, 2\] instead of"),
        (columns.image(), [np.full((1, 1, 1), 0.5)], "whole numbers from 0 to 255"),
        (columns.sound(4), [np.zeros((2, 4)), np.zeros((2, 3))], r"row 1 .* \[any, 4\]"),
    ],
)
def test_what_a_codec_cannot_hold_is_refused(codec: Codec, rows: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codec.column(rows)


def test_columns_must_fit_together(tmp_path: Path) -> None:
    codecs = {"one": columns.label(3), "other": columns.label(3)}
    two, three = columns.label(3).column([0, 1]), columns.label(3).column([0, 1, 2])
    with StoreWriter(tmp_path, codecs) as writer:
        with pytest.raises(ValueError, match="different numbers of rows"):
            writer.add({"one": two, "other": three})
        with pytest.raises(ValueError, match="instead of"):
            writer.add({"one": two})


def test_long_pairs_are_left_out_and_counted(tmp_path: Path, tokenisers: Tokenisers) -> None:
    exact, over = "x" * 9, "x" * 10
    tokens = len(tokenisers.source.encode(exact))
    assert len(tokenisers.source.encode(over)) == tokens + 1
    pairs = [Pair(exact, exact), Pair(over, "x"), Pair("x", over), Pair("", "")]
    left_out = Counter({"empty": 3})
    write_pair_store(pairs, tokenisers, tmp_path / "it", max_tokens=tokens, left_out=left_out)
    assert left_out == {"empty": 3, f"longer than {tokens} tokens": 2}
    assert [len(row["source"]) for row in Store.open(tmp_path / "it")] == [tokens, 0]


def test_a_failure_leaves_nothing_half_written(folder: Path, tokenisers: Tokenisers) -> None:
    def broken() -> Iterator[Pair]:
        yield from PAIRS * 200
        raise UserError("line 8001: bad byte")

    for place in (folder, folder.with_name("new")):
        before = sorted(folder.parent.iterdir())
        with pytest.raises(UserError, match="line 8001"):
            write_pair_store(broken(), tokenisers, place, max_tokens=99, left_out=Counter())
        assert sorted(folder.parent.iterdir()) == before
    assert len(Store.open(folder)) == len(PAIRS)


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    names = (INDEX, "00001.source.values", "00002.target.offsets")
    index, tokens, offsets = (folder / name for name in names)

    def refused(named: Path) -> None:
        with pytest.raises(UserError, match=r"damaged|cannot read") as error:
            list(Store.open(folder))
        assert str(named) in str(error.value)
        assert "\n" not in str(error.value)

    for file in (index, tokens, offsets):
        content = file.read_bytes()
        file.unlink()
        refused(file)
        for shorter in (b"", content[:-2], content[: len(content) // 2]):
            file.write_bytes(shorter)
            refused(file)
        file.write_bytes(content)
    for file, place in ((tokens, 5), (offsets, 15), (offsets, 8)):
        content = file.read_bytes()
        file.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        refused(file)
        file.write_bytes(content)
    values = json.loads(index.read_text(encoding="utf-8"))
    for key in ("rows", "shards", "columns"):
        index.write_text(json.dumps({**values, key: 3}), encoding="utf-8")
        refused(index)
    with pytest.raises(UserError, match="cannot read"):
        Store.open(tmp_path / "elsewhere")


def test_a_changed_value_is_found_by_its_hash(folder: Path) -> None:
    store = Store.open(folder)
    known = store.fingerprint
    store.verify()
    path = folder / "00000.source.values"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    list(Store.open(folder))  # a token like any other
    with pytest.raises(UserError, match=r"00000\.source\.values: the file is damaged"):
        Store.open(folder).verify()
    assert Store.open(folder).fingerprint == known  # of what was written


def test_an_unwritable_place_is_a_user_error(tmp_path: Path, tokenisers: Tokenisers) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    place = tmp_path / "file" / "it"
    with pytest.raises(UserError, match="cannot write"):
        write_pair_store(PAIRS, tokenisers, place, max_tokens=9, left_out=Counter())


@pytest.mark.parametrize("task", ["translation", "alignment"])
def test_a_store_of_version_0_1_gives_the_same_batches(tmp_path: Path, task: str) -> None:
    old = Store.open(OLD / task / "run" / "data" / "train")
    assert {"source", "target"} <= old.codecs.keys()
    with StoreWriter(tmp_path, old.codecs, 7) as writer:
        rows = np.arange(len(old))
        writer.add({name: old.read(name, rows) for name in old.codecs})
        writer.finish({})
    batches = [TokenBatches(store, 200) for store in (old, Store.open(tmp_path))]
    both = zip(*(islice(one.batches(Position(1)), 20) for one in batches), strict=True)
    assert all(one[0] == other[0] and same(one[1], other[1]) for one, other in both)


def test_streams_and_documents_of_version_0_1_are_read(tmp_path: Path) -> None:
    stream = Stream(next((OLD / "language-model").rglob("stream.json")).parent)
    assert stream.tokens > 100
    assert stream.windows([0], 4).shape == (1, 4)
    starts = next(OLD.rglob("documents.starts"))
    documents = EncodedDocuments.open(starts.parent)
    assert documents.starts.tolist() == np.frombuffer(starts.read_bytes(), "<i8").tolist()
    shutil.copytree(starts.parent, tmp_path / "it")
    for damaged in (starts.read_bytes()[:-1], starts.read_bytes()[8:16] * len(documents.starts)):
        (tmp_path / "it" / starts.name).write_bytes(damaged)
        with pytest.raises(UserError, match="damaged"):
            EncodedDocuments.open(tmp_path / "it")
