"""Large corpora: encoding in processes is that of one process, whatever is killed; windows are
shuffled without loss; stores are opened, verified and fetched shard by shard."""

import filecmp
import functools
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics import file_identity
from heedful.basics.errors import UserError
from heedful.basics.files import unfinished_folder
from heedful.data import parallel_encoding, shards
from heedful.data.batching import TokenBatches
from heedful.data.examples import Pair
from heedful.data.order import WindowOrder
from heedful.data.pair_store import PairEncoder
from heedful.data.parallel_encoding import PROCESSES, encode_store
from heedful.data.positions import Position, Rank
from heedful.data.remote_files import CACHE_SIZE, RemoteFiles
from heedful.data.store import Store
from heedful.data.store_index import INDEX, link_store
from heedful.data.tokeniser import Tokenisers, TokeniserSettings
from heedful.runs import manifest
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.tasks.commands import train_from_command
from heedful.tasks.pairs import corpus as corpora
from heedful.training.train import prepare, train
from test_batching import same
from test_cli_data import run as run_data

PAIRS = [
    Pair(f"the cat number {n} sat", f"die Katze Nummer {n} saß {'sehr ' * (n % 9)}")
    for n in range(230)
]
SHARD, LONGEST = 40, 27


@pytest.fixture(scope="module")
def tokenisers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenisers, Path]:
    found = Tokenisers.train(lambda: PAIRS, TokeniserSettings(vocabulary_size=360), seed=1)
    folder = tmp_path_factory.mktemp("tokeniser")
    found.save(folder)
    return found, folder


def encode(
    tokenisers: tuple[Tokenisers, Path],
    folder: Path,
    pairs: Any = PAIRS,
    processes: int = 1,
    identity: str = "x",
) -> tuple[int, Counter[str]]:
    left_out: Counter[str] = Counter()
    encoder = PairEncoder(tokenisers[0], LONGEST)
    encoder.shard_size = SHARD
    opens = functools.partial(PairEncoder.open, tokenisers[1], LONGEST)
    before = PROCESSES.set(processes)
    try:
        counts = encode_store(pairs, encoder, folder, opens, identity=identity)
    finally:
        PROCESSES.reset(before)
    return encoder.stored(counts, left_out), left_out


@pytest.fixture(scope="module")
def encoded(tokenisers: tuple[Tokenisers, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoded") / "store"
    stored, left_out = encode(tokenisers, folder)
    assert stored + left_out[f"longer than {LONGEST} tokens"] == len(PAIRS)
    assert 5 < left_out.total() < 100
    return folder


def assert_same_files(first: Path, second: Path) -> None:
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert filecmp.cmpfiles(first, second, names, shallow=False)[0] == names


def test_two_processes_write_the_files_of_one(
    tokenisers: tuple[Tokenisers, Path], encoded: Path, tmp_path: Path
) -> None:
    encode(tokenisers, tmp_path / "store", processes=2)
    assert_same_files(encoded, tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_rows_are_those_of_an_encoding_without_shards(
    tokenisers: tuple[Tokenisers, Path], encoded: Path
) -> None:
    store, of = Store.open(encoded), tokenisers[0]
    expected = [
        pair
        for pair in PAIRS
        if max(len(of.source.encode(pair.source)), len(of.target.encode(pair.target))) <= LONGEST
    ]
    assert len(store) == len(expected)
    for row, pair in zip(store, expected, strict=True):
        assert of.source.decode(row["source"].tolist()) == pair.source
        assert of.target.decode(row["target"].tolist()) == pair.target


def slowly(pairs: list[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        time.sleep(0.01)
        yield pair


def test_an_encoding_killed_with_signal_9_is_resumed(
    tokenisers: tuple[Tokenisers, Path], encoded: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    child = multiprocessing.get_context("fork").Process(
        target=encode, args=(tokenisers, folder, slowly(PAIRS))
    )
    child.start()
    work = unfinished_folder(folder)
    first = work / "00001.json"
    while not first.exists():
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert not folder.exists()
    kept = first.stat().st_mtime_ns
    damaged = work / "00000.source.values"
    damaged.write_bytes(damaged.read_bytes()[::-1])
    times = {}

    def watched() -> Iterator[Pair]:
        yield from PAIRS
        times.update({path.name: path.stat().st_mtime_ns for path in work.iterdir()})

    encode(tokenisers, folder, watched())
    assert times["00001.json"] == kept  # not encoded again
    assert_same_files(encoded, folder)


def test_other_pairs_keep_nothing(tokenisers: tuple[Tokenisers, Path], tmp_path: Path) -> None:
    def broken() -> Iterator[Pair]:
        yield from PAIRS[:150]
        raise UserError("broken")

    with pytest.raises(UserError, match="broken"):
        encode(tokenisers, tmp_path / "store", broken())
    assert (unfinished_folder(tmp_path / "store") / "00000.json").exists()
    others = [Pair(pair.target, pair.source) for pair in PAIRS]
    encode(tokenisers, tmp_path / "store", others, identity="y")
    encode(tokenisers, tmp_path / "expected", others)
    assert_same_files(tmp_path / "expected", tmp_path / "store")


def _on_a_full_disk(tokenisers: tuple[Tokenisers, Path], folder: Path, told: Any) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))
    try:
        encode(tokenisers, folder)
    except UserError as error:
        told.send(str(error))


def test_a_full_disk_is_one_line(tokenisers: tuple[Tokenisers, Path], tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_on_a_full_disk, args=(tokenisers, tmp_path / "store", theirs)
    )
    child.start()
    assert ours.poll(60)
    told = ours.recv()
    child.join()
    assert "cannot write" in told
    assert "free some space" in told


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any),
    window=st.integers(1, 60),
    key=st.text(max_size=3),
    data=st.data(),
)
def test_every_row_once_in_windows_of_whole_shards(
    sizes: list[int], window: int, key: str, data: st.DataObject
) -> None:
    order = WindowOrder(np.array(sizes), window)
    total = sum(sizes)
    rows = order(np.arange(total), key)
    assert sorted(rows.tolist()) == list(range(total))
    some = data.draw(st.lists(st.integers(0, total - 1), max_size=20))
    assert order(np.array(some, np.int64), key).tolist() == rows[some].tolist()
    # The rows of a shard follow one another but for those of the other shards of its window.
    of = np.searchsorted(np.cumsum(sizes), rows, side="right")
    for shard in set(of.tolist()):
        places = np.flatnonzero(of == shard)
        between = set(of[places[0] : places[-1] + 1].tolist())
        assert len(between) <= order.shards


def test_batches_of_windows_are_a_function_of_the_position(encoded: Path) -> None:
    store = Store.open(encoded)
    batches = TokenBatches(store, 200, pool=64, window=2 * SHARD)
    plain = TokenBatches(store, 200, pool=64)
    tokens = []
    for which in (batches, plain):
        seen: Counter[tuple[int, ...]] = Counter()
        position = Position(5)
        for after, batch in which.batches(position):
            for row, length in zip(
                batch.source.tolist(), batch.source_lengths.tolist(), strict=True
            ):
                seen[tuple(row[:length])] += 1
            if after.epoch:
                break
        tokens.append(seen)
    assert tokens[0] == tokens[1]
    walk = batches.batches(Position(5))
    for _ in range(9):
        position, _ = next(walk)
    again = batches.batches(position)
    for _ in range(20):
        (one, first), (other, second) = next(walk), next(again)
        assert one == other
        assert same(first, second)
    ranks = [batches.batches(Position(5), Rank(n, 2)) for n in range(2)]
    for (_, expected), turn in zip(batches.batches(Position(5)), [0, 1] * 4, strict=False):
        assert same(next(ranks[turn])[1], expected)


def test_a_pool_of_a_window_reads_few_shards(
    encoded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MOST_OPEN", 2)
    store = Store.open(encoded)
    opened: list[int] = []
    opens = store._shards._opens
    monkeypatch.setattr(store._shards, "_opens", lambda n: opened.append(n) or opens(n))
    batches = TokenBatches(store, 200, pool=30, window=SHARD)
    next(batches.batches(Position(1)))
    assert 1 <= len(set(opened)) <= 2
    rows = np.arange(len(store))
    everything = store.read("source", rows)
    assert len(store._shards._open) == 2
    monkeypatch.undo()
    assert np.array_equal(everything.values, Store.open(encoded).read("source", rows).values)


def copied(store: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in store.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_a_changed_shard_is_found_when_it_is_first_read(encoded: Path, tmp_path: Path) -> None:
    folder = copied(encoded, tmp_path / "store")
    values = folder / "00003.target.values"
    content = bytearray(values.read_bytes())
    content[4] ^= 1
    values.write_bytes(content)
    assert len(Store.open(folder).read("target", np.arange(len(Store.open(folder)))).lengths)
    store = Store.open(folder, verified=True)
    store.verify_at_once()
    store.read("target", np.arange(3))
    row = int(store.starts[3])
    with pytest.raises(UserError, match=r"00003\.target\.values: the file is damaged: its SHA-256"):
        store.read("target", np.array([row]))
    spread = Store.open(folder, verified=True)  # four shards are verified at a time
    first = np.concatenate([spread.starts[:3], spread.starts[4:-1]])
    spread.read("source", first)
    with pytest.raises(UserError, match="SHA-256"):
        spread.read("source", np.array([row]))


def test_a_missing_shard_is_named(
    encoded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(encoded, tmp_path / "store")
    (folder / "00005.source.offsets").unlink()
    with pytest.raises(UserError, match=r"cannot read .*00005\.source\.offsets: No such file"):
        Store.open(folder)
    monkeypatch.setattr(shards, "MOST_OPEN", 2)
    store = Store.open(folder)
    store.read("source", np.arange(5))
    with pytest.raises(UserError, match=r"00005\.source\.offsets"):
        store.read("source", np.array([len(store) - 1]))


def test_a_link_names_a_store_elsewhere(encoded: Path, tmp_path: Path) -> None:
    folder, link = copied(encoded, tmp_path / "store"), tmp_path / "link"
    link.mkdir()
    link_store(link, folder)
    rows = np.arange(50)
    found, expected = (
        Store.open(link).read("target", rows),
        Store.open(encoded).read("target", rows),
    )
    assert np.array_equal(found.values, expected.values)
    Store.open(link).verify()
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, "facts": {}}))
    with pytest.raises(UserError, match=r"is not the encoded corpus that .*link was made with"):
        Store.open(link)
    (folder / INDEX).unlink()
    with pytest.raises(UserError, match=r"the encoded corpus .* cannot be read; put it back"):
        Store.open(link)


@pytest.fixture
def remote(
    encoded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """The store in memory, as an object store has it."""
    fsspec = pytest.importorskip("fsspec", reason="the package fsspec is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = f"/{request.node.name}"
    fsspec.filesystem("memory").put(str(encoded), name, recursive=True)
    return Path(f"memory:/{name}")


def test_a_store_at_a_url_is_fetched_shard_by_shard(
    remote: Path, encoded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, local = Store.open(remote), Store.open(encoded)
    cache = tmp_path / "cache" / "heedful" / "stores"
    assert len(list(cache.iterdir())) == 1  # the index
    store.read("source", np.arange(3))
    assert len(list(cache.iterdir())) == 3  # not the other column
    rows = np.random.default_rng(2).permutation(len(store))
    for name in ("source", "target"):
        assert np.array_equal(store.read(name, rows).values, local.read(name, rows).values)
    one = TokenBatches(local, 200, window=SHARD).batches(Position(3))
    other = TokenBatches(store, 200, window=SHARD).batches(Position(3))
    for _ in range(5):
        assert same(next(one)[1], next(other)[1])
    monkeypatch.setenv(CACHE_SIZE, "0.00001")  # 10,737 bytes
    again = Store.open(remote)
    for path in cache.iterdir():
        if not path.name.startswith("index-"):
            path.unlink()
    with pytest.raises(UserError, match=r"set training\.shuffle_window to a smaller number"):
        TokenBatches(again, 200)
    limited = again.read("source", np.arange(len(again)))
    assert np.array_equal(limited.values, local.read("source", np.arange(len(local))).values)
    kept = [path for path in cache.iterdir() if not path.name.startswith("index-")]
    assert sum(path.stat().st_size for path in kept) <= 10_737
    monkeypatch.setenv(CACHE_SIZE, "none")
    with pytest.raises(UserError, match="HEEDFUL_STORE_CACHE=none: give the size"):
        TokenBatches(again, 200)


def test_a_url_that_cannot_be_read_is_one_line(
    remote: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe(f"/{remote.name}/00000.source.values", b"else")
    with pytest.raises(UserError, match="damaged: its SHA-256 differs from that in the index"):
        Store.open(remote).read("source", np.arange(3))
    with pytest.raises(UserError, match=r"memory://nothing/store\.json does not exist"):
        Store.open(Path("memory://nothing"))
    with pytest.raises(UserError, match=r"cannot read nosuch://a/store\.json: Protocol not known"):
        Store.open(Path("nosuch://a"))
    for name in [name for name in sys.modules if name.split(".")[0] == "fsspec"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"fsspec; install it: pip install 'heedful\[remote\]'"):
        RemoteFiles("memory://any", tmp_path).path("it", "0")


def tables(path: str, **data: Any) -> dict[str, Any]:
    return {
        "data": {"train": path, "validation_share": 0.1, "max_tokens": 60, **data},
        "tokeniser": {"vocabulary_size": 360},
        "model": {"kind": "transformer", "size": "tiny", "layers": 1},
        "training": {"max_steps": 2, "batch_tokens": 300, "precision": "float32"},
        "evaluation": {"beam": 1, "validation_pairs": 1, "samples": 0},
    }


def write_corpus(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "train.tsv"
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS))
    return path


def weights(run: Path) -> bytes:
    return (open_run(run).chosen("last").path / "model.safetensors").read_bytes()


def test_a_run_on_an_encoded_corpus_is_that_on_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairEncoder, "shard_size", 50)
    monkeypatch.setattr(parallel_encoding, "usable_processors", lambda: 1)
    path = write_corpus(tmp_path / "data")
    recipe = check_recipe(tables("train.tsv"), "the recipe")
    prepare(recipe, tmp_path / "encoded", data=tmp_path / "data")
    assert train(recipe, tmp_path / "files", data=tmp_path / "data")
    path.unlink()
    assert train(recipe, tmp_path / "linked", data=tmp_path / "encoded")
    assert weights(tmp_path / "files") == weights(tmp_path / "linked")
    with pytest.raises(UserError, match=r"was encoded with data\.max_tokens = 60, .* has 50"):
        train(tables("train.tsv", max_tokens=50), tmp_path / "x", data=tmp_path / "encoded")
    other = {**tables("train.tsv"), "tokeniser": {"vocabulary_size": 350}}
    with pytest.raises(UserError, match=r"was encoded with tokeniser\.vocabulary_size = 360"):
        train(other, tmp_path / "x", data=tmp_path / "encoded")
    assert not (tmp_path / "x").exists()
    with pytest.raises(UserError, match=r"encoded without --start-from, now .* with --start-from"):
        train(recipe, tmp_path / "x", data=tmp_path / "encoded", start_from=tmp_path / "files")


def test_a_run_on_an_encoded_corpus_at_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="the package fsspec is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(manifest, "MOST_HASHED_BYTES", 0)
    write_corpus(tmp_path / "data")
    recipe = check_recipe(tables("train.tsv"), "the recipe")
    run = prepare(recipe, tmp_path / "encoded", data=tmp_path / "data")
    assert run.verifies_when_read
    fsspec.filesystem("memory").put(str(tmp_path / "encoded"), "/at-a-url", recursive=True)
    url = Path("memory://at-a-url")
    assert train(recipe, tmp_path / "remote", data=url)
    assert train(recipe, tmp_path / "local", data=tmp_path / "encoded")
    assert weights(tmp_path / "remote") == weights(tmp_path / "local")
    assert train(recipe, tmp_path / "remote", data=url)  # already trained
    assert not [path for path in (tmp_path / "remote").iterdir() if "encoded" in path.name]


def test_the_command_encodes_and_training_needs_no_recipe(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    tables_, out = tables("train.tsv"), tmp_path / "encoded"
    (tmp_path / "recipe.toml").write_text(tomlkit.dumps(tables_))
    given = ["encode", tmp_path / "recipe.toml", "--data", tmp_path, "--out", out]
    with pytest.raises(UserError, match="--processes 0: give a number from 1"):
        run_data(*given, "--processes", 0)
    found = run_data(*given, "--processes", 1, "--set", "seed=7")
    facts = open_run(out).facts["data"]
    kept, validation = facts["train_pairs"], facts["validation_pairs"]
    assert f"encoded      {kept} pairs\n" in found.stdout
    assert f"held out     {validation} validation, 0 test pairs\n" in found.stdout
    assert kept + validation == len(PAIRS)
    how: dict[str, Any] = {"given": {}, "overrides": [], "start_from": None}
    assert train_from_command(None, tmp_path / "run", [str(out)], **how)
    assert open_run(tmp_path / "run").recipe.seed == 7
    how["given"] = {"source": "en"}
    with pytest.raises(UserError, match=r"was encoded without data\.source = 'en'"):
        train_from_command(None, tmp_path / "other", [str(out)], **how)


@pytest.mark.parametrize("keep", [True, False])
def test_a_large_corpus_is_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once for held-out pairs and the sample of the vocabulary, once to encode."""
    monkeypatch.setattr("heedful.tasks.preparation.LARGE", 0)
    monkeypatch.setattr(corpora, "SAMPLE_TEXTS", 100)
    path = write_corpus(tmp_path / "data")
    passes = []
    read = corpora.read_pairs

    def counted(*given: Any, **how: Any) -> Iterator[Pair]:
        passes.append(given)
        return read(*given, **how)

    monkeypatch.setattr(corpora, "read_pairs", counted)
    settings = tables(str(path), keep_near_duplicates=keep)
    settings["tokeniser"] = {"vocabulary_size": 355}
    run = prepare(check_recipe(settings, "the recipe"), tmp_path / "run")
    assert len(passes) == 2
    assert "from a random sample: 100 of 230 pairs" in capfd.readouterr().err
    found = run.facts["data"]
    assert found["train_pairs"] + found["validation_pairs"] == len(PAIRS)


def test_a_large_file_is_identified_by_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).bytes(300_000))
    whole = file_identity.file_identity(path)
    monkeypatch.setattr(file_identity, "LARGE_FILE", 100_000)
    monkeypatch.setattr(file_identity, "_BLOCKS", 3)
    monkeypatch.setattr(file_identity, "_BLOCK", 1000)
    sampled = file_identity.file_identity(path)
    assert sampled.startswith("sampled:")
    with file_identity.hashed_like({"train": [whole]}):
        assert file_identity.file_identity(path) == whole
    with file_identity.hashed_like({"train": [sampled]}):
        assert file_identity.file_identity(path) == sampled
    content = path.read_bytes()
    for place in (0, 149_700, 299_999):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert file_identity.file_identity(path) != sampled
    path.write_bytes(content + b"1")
    assert file_identity.file_identity(path) != sampled


def test_patterns_and_urls_stand_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec", reason="the package fsspec is not installed")
    from heedful.data.readers import read_pairs

    lines = [f"{pair.source}\t{pair.target}\n" for pair in PAIRS[:30]]
    for number in range(3):
        part = lines[10 * number : 10 * number + 10]
        (tmp_path / f"{number}.tsv").write_text("".join(part))
        for side in (0, 1):
            texts = [line.rstrip("\n").split("\t")[side] + "\n" for line in part]
            (tmp_path / f"{number}.{'ab'[side]}").write_text("".join(texts))
    fsspec.filesystem("memory").put(str(tmp_path), "/raw", recursive=True)
    for place in (str(tmp_path), "memory://raw"):
        for named in ([f"{place}/*.tsv"], [f"{place}/*.a", f"{place}/*.b"], [f"{place}/"]):
            assert list(read_pairs(named)) == PAIRS[:30], named
        assert list(read_pairs([Path(f"{place}/1.tsv")])) == PAIRS[10:20]
        with pytest.raises(UserError, match=r"\*\.no.* correct the pattern"):
            list(read_pairs([f"{place}/*.no"]))
        with pytest.raises(UserError, match=r"stands for 3 files but .* for 1; aligned"):
            list(read_pairs([f"{place}/*.a", f"{place}/2*.b"]))
    with pytest.raises(UserError, match=r"memory://raw/9\.tsv does not exist"):
        list(read_pairs(["memory://raw/9.tsv"]))
    run = prepare(check_recipe(tables("*.tsv"), "the recipe"), tmp_path / "run", data=tmp_path)
    url = Path("memory://raw")
    other = prepare(check_recipe(tables("*.tsv"), "the recipe"), tmp_path / "other", data=url)
    assert other.facts["data"] == run.facts["data"]
