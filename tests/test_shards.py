"""Shards: what is written is read back, the folder is whole or absent, damage is named."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.shards import EncodedCorpus, ShardWriter, write_shards
from heedful.data.tokeniser import Tokenisers, TokeniserSettings

PAIRS = [
    Pair(f"the cat number {n}", f"die Katze Nummer {n} {'sehr ' * (n % 5)}") for n in range(40)
]


@pytest.fixture(scope="module")
def tokenisers() -> Tokenisers:
    return Tokenisers.train(lambda: PAIRS, TokeniserSettings(vocabulary=360), seed=1)


@pytest.fixture
def folder(tmp_path: Path, tokenisers: Tokenisers) -> Path:
    write_shards(
        PAIRS, tokenisers, tmp_path / "it", max_tokens=99, left_out=Counter(), shard_pairs=16
    )
    return tmp_path / "it"


def test_pairs_are_read_back_from_all_shards(folder: Path, tokenisers: Tokenisers) -> None:
    corpus = EncodedCorpus.open(folder)
    assert len(corpus) == len(PAIRS)
    assert len(list(folder.glob("*.tokens"))) == 3
    for pair, (source, target) in zip(PAIRS, corpus, strict=True):
        assert tokenisers.source.decode(source.tolist()) == pair.source
        assert tokenisers.target.decode(target.tolist()) == pair.target
    expected = [
        [len(tokenisers.source.encode(pair.source)), len(tokenisers.target.encode(pair.target))]
        for pair in PAIRS
    ]
    indices = np.array([39, 0, 16, 15, 15])
    assert corpus.lengths(indices).tolist() == [expected[index] for index in indices]
    assert [corpus.source_tokens, corpus.target_tokens] == np.sum(expected, axis=0).tolist()
    assert np.array_equal(corpus[-1][0], corpus[39][0])
    with pytest.raises(IndexError):
        corpus[40]


def test_gather_keeps_the_order_asked_for(folder: Path) -> None:
    corpus = EncodedCorpus.open(folder)
    indices = np.random.default_rng(0).permutation(40)
    tokens, lengths = corpus.gather(indices)
    expected = [side for index in indices for side in corpus[int(index)]]
    assert np.array_equal(tokens, np.concatenate(expected))
    assert lengths.ravel().tolist() == [len(side) for side in expected]
    nothing, none = corpus.gather(np.empty(0, np.int64))
    assert (len(nothing), none.shape) == (0, (0, 2))


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40),
    chunk=st.integers(1, 50),
    shard_pairs=st.integers(1, 50),
    largest=st.sampled_from([300, 1 << 16, (1 << 16) + 1]),
)
def test_any_lengths_in_any_chunks(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[tuple[int, int]],
    chunk: int,
    shard_pairs: int,
    largest: int,
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    sizes = np.array(lengths, np.int64).reshape(-1, 2)
    tokens = np.random.default_rng(len(lengths)).integers(0, largest, sizes.sum())
    ends = np.concatenate([[0], np.cumsum(sizes.sum(axis=1))])
    with ShardWriter(folder, (largest, 9), shard_pairs) as writer:
        for start in range(0, len(sizes), chunk):
            stop = min(start + chunk, len(sizes))
            writer.add(tokens[ends[start] : ends[stop]], sizes[start:stop])
        writer.finish({})
    corpus = EncodedCorpus.open(folder)
    assert len(corpus) == len(sizes)
    everything, read = corpus.gather(np.arange(len(sizes)))
    assert np.array_equal(everything, tokens)
    assert np.array_equal(read, sizes)


def test_long_pairs_are_left_out_and_counted(tmp_path: Path, tokenisers: Tokenisers) -> None:
    exact, over = "x" * 9, "x" * 10
    tokens = len(tokenisers.source.encode(exact))
    assert len(tokenisers.source.encode(over)) == tokens + 1
    pairs = [Pair(exact, exact), Pair(over, "x"), Pair("x", over), Pair("", "")]
    left_out = Counter({"empty": 3})
    write_shards(pairs, tokenisers, tmp_path / "it", max_tokens=tokens, left_out=left_out)
    assert left_out == {"empty": 3, f"longer than {tokens} tokens": 2}
    corpus = EncodedCorpus.open(tmp_path / "it")
    assert [len(source) for source, _ in corpus] == [tokens, 0]


def test_a_failure_leaves_nothing_half_written(folder: Path, tokenisers: Tokenisers) -> None:
    def broken() -> Iterator[Pair]:
        yield from PAIRS * 200
        raise UserError("line 8001: bad byte")

    for place in (folder, folder.with_name("new")):
        before = sorted(folder.parent.iterdir())
        with pytest.raises(UserError, match="line 8001"):
            write_shards(broken(), tokenisers, place, max_tokens=99, left_out=Counter())
        assert sorted(folder.parent.iterdir()) == before
    assert len(EncodedCorpus.open(folder)) == len(PAIRS)


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    index, tokens, offsets = (
        folder / name for name in ("index.json", "00001.tokens", "00002.offsets")
    )

    def refused(named: Path) -> None:
        with pytest.raises(UserError, match=r"damaged|cannot read") as error:
            list(EncodedCorpus.open(folder))
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
    for key in ("pairs", "shards", "vocabularies"):
        index.write_text(json.dumps({**values, key: 3}), encoding="utf-8")
        refused(index)
    with pytest.raises(UserError, match="cannot read"):
        EncodedCorpus.open(tmp_path / "elsewhere")


def test_an_unwritable_place_is_a_user_error(tmp_path: Path, tokenisers: Tokenisers) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(UserError, match="cannot write"):
        write_shards(PAIRS, tokenisers, tmp_path / "file" / "it", max_tokens=9, left_out=Counter())
