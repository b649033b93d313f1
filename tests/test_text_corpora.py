"""Large corpora of plain text: shards, processes and interruptions change no file and no weight."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomlkit

from heedful.basics.errors import UserError
from heedful.basics.files import unfinished_folder, unfinished_folders
from heedful.data import parallel_encoding
from heedful.data.examples import Document
from heedful.data.parallel_encoding import PROCESSES
from heedful.data.store import Store
from heedful.data.store_encoder import StoreEncoder
from heedful.data.store_index import INDEX
from heedful.runs import manifest
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.runs.run import Run
from heedful.tasks.bidirectional import head as bidirectional
from heedful.tasks.texts import preparation
from heedful.tasks.texts.data import DocumentData
from heedful.training.train import prepare, train
from test_cli_data import run as run_data
from text_help import BERT, LANGUAGE, LOOP, WORDS, XLNET

SHARD = 1500
"""Characters of a shard: the corpus has several."""
DATA: dict[str, Any] = {"train": "*.txt", "validation_share": 0.1, "sentences": "en"}
MASK = {**WORDS, "mask": True}
LINES = {key: value for key, value in DATA.items() if key != "sentences"}
TRAINING = {**LOOP, "max_steps": 2, "threads": 1}
GPT = {"layers": 1, "hidden_size": 16, "heads": 2}


def tables(task: str, **more: Any) -> dict[str, Any]:
    return {"task": task, "seed": 5, "data": DATA, "max_tokens": 24, "training": TRAINING, **more}


RECIPES: dict[str, dict[str, Any]] = {
    "language": {**LANGUAGE, "data": LINES, "model": GPT, "training": TRAINING},
    "packed": {
        **LANGUAGE,
        "data": LINES,
        "windows": "packed",
        "tokeniser": {"kind": "bytes", "vocabulary_size": 300},
        "model": GPT,
        "training": {**TRAINING, "shuffle_window": 900},
    },
    "masked": tables("masked", tokeniser=MASK, model=BERT),
    "replaced": tables("replaced", tokeniser=MASK, model=BERT),
    "permutation": tables("permutation", tokeniser=MASK, model=XLNET),
    "bidirectional": tables(
        "bidirectional",
        data=LINES,
        words=20,
        tokeniser={"kind": "bytes", "vocabulary_size": 260},
        model={
            "character_size": 3,
            "filters": [[1, 2], [3, 4]],
            "hidden_size": 6,
            "projection_size": 4,
        },
    ),
    "denoising": {
        "task": "denoising",
        "data": {**DATA, "max_tokens": 30},
        "tokeniser": {"vocabulary_size": 360},
        "model": {"layers": 1, "hidden_size": 16, "ffn_size": 24, "heads": 2},
        "training": {**TRAINING, "shuffle_window": 50},
        "evaluation": {"beam": 1, "validation_pairs": 1, "samples": 0},
    },
}
TASKS = list(RECIPES)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of several lines in two files; some lines are empty or have two sentences."""
    draw, folder = random.Random(4), tmp_path_factory.mktemp("corpus")
    words = ["the", "cat", "Dog", "sees", "a", "blue", "bird", "and", "eats", "café", "x1"]

    def sentence() -> str:
        return " ".join(draw.choices(words, k=draw.randint(2, 40))).capitalize() + "."

    for name in ("b.txt", "a.txt"):
        documents = [
            "\n".join(" ".join(sentence() for _ in range(draw.randint(1, 2))) for _ in range(3))
            for _ in range(30)
        ]
        (folder / name).write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return folder


def prepared(name: str, corpus: Path, folder: Path, processes: int = 1) -> Run:
    before = PROCESSES.set(processes)
    try:
        return prepare(check_recipe(RECIPES[name], "the recipe"), folder, data=corpus)
    finally:
        PROCESSES.reset(before)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a prepared run, by name; without the versions that it was made with."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("run.json", "manifest.json", ".lock")
    }
    facts = open_run(folder).facts
    return {**found, "facts": repr({**facts, "made_with": None}).encode()}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreEncoder, "shard_size", SHARD)
    monkeypatch.setattr(StoreEncoder, "chunk_size", SHARD // 3)


@pytest.mark.parametrize("name", TASKS)
def test_shards_have_the_rows_of_one_shard_in_the_order_of_the_files(
    name: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = prepared(name, corpus, tmp_path / "whole")
    monkeypatch.setattr(StoreEncoder, "shard_size", SHARD)
    monkeypatch.setattr(StoreEncoder, "chunk_size", SHARD // 3)
    parts = prepared(name, corpus, tmp_path / "parts")
    assert {**whole.facts, "made_with": 0} == {**parts.facts, "made_with": 0}
    folders = [path.parent for path in whole.path.rglob(INDEX)]
    assert folders
    for folder in folders:
        one = Store.open(folder)
        other = Store.open(parts.path / folder.relative_to(whole.path))
        assert one.facts == other.facts
        assert len(one.shard_sizes) == 1
        assert (len(other.shard_sizes) > 3) == (folder.name == "train")
        for column in one.codecs:
            rows = np.arange(len(one))
            first, second = one.read(column, rows), other.read(column, rows)
            assert np.array_equal(first.values, second.values)
            assert np.array_equal(first.lengths, second.lengths)
    assert not unfinished_folders(parts.path)


def test_a_stream_has_the_tokens_of_the_files(corpus: Path, tmp_path: Path, small: None) -> None:
    run: Any = prepared("packed", corpus, tmp_path / "run")
    train_ = [
        row["tokens"].tolist() for row in Store.open(run.set_folder("language-model") / "train")
    ]
    held_out = set(run.documents("language-model", "validation"))
    text = "\n\n".join((corpus / name).read_text().strip() for name in ("a.txt", "b.txt"))
    documents = [Document(one) for one in text.split("\n\n")]
    kept = [one for one in documents if one not in held_out]
    assert len(kept) + len(held_out) == 60
    assert train_[0] == [3]
    assert [run.vocabulary().decode(row) for row in train_[1:]] == kept


@pytest.mark.parametrize("name", ["language", "masked", "denoising"])
def test_a_run_on_an_encoded_corpus_is_that_on_its_files(
    name: str, corpus: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="the package fsspec is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(parallel_encoding, "usable_processors", lambda: 1)
    encoded = prepared(name, corpus, tmp_path / "encoded").path
    recipe = check_recipe(RECIPES[name], "the recipe")
    fsspec.filesystem("memory").put(str(encoded), f"/{tmp_path.name}", recursive=True)
    found = []
    for out, data in (
        ("files", corpus),
        ("linked", encoded),
        ("remote", Path(f"memory://{tmp_path.name}")),
    ):
        assert train(recipe, tmp_path / out, data=data)
        point = open_run(tmp_path / out).chosen("last")
        found.append((point.path / "model.safetensors").read_bytes())
    assert found[0] == found[1] == found[2]
    assert train(recipe, tmp_path / "remote", data=Path(f"memory://{tmp_path.name}"))  # is trained
    with pytest.raises(UserError, match=r"memory://nowhere does not exist; correct the URL"):
        train(recipe, tmp_path / "x", data=Path("memory://nowhere"))
    changed = {**RECIPES[name], "tokeniser": {**RECIPES[name]["tokeniser"], "vocabulary_size": 350}}
    with pytest.raises(UserError, match=r"was encoded with tokeniser\.vocabulary_size"):
        train(changed, tmp_path / "x", data=encoded)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("permutation", {"permutation": {"pairs": False}}, r"permutation\.pairs = True"),
        ("bidirectional", {"words": 21}, "words = 20, the recipe has 21"),
        ("denoising", {"noise": {"share": 0.2}}, r"noise\.share = None"),
    ],
)
def test_other_settings_of_the_preparation_are_refused(
    name: str, changed: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    prepared(name, corpus, tmp_path / "encoded")
    with pytest.raises(UserError, match=f"was encoded with {message}"):
        train({**RECIPES[name], **changed}, tmp_path / "run", data=tmp_path / "encoded")


def slowly(name: str, corpus: Path, folder: Path) -> None:
    encode = StoreEncoder.shard

    def shard(self: StoreEncoder[Any], *given: Any) -> Any:
        time.sleep(0.2)
        return encode(self, *given)

    StoreEncoder.shard = shard  # type: ignore[method-assign]
    prepared(name, corpus, folder)


def kill_in_the_second_shard(name: str, corpus: Path, folder: Path) -> Path:
    """Encode in a process that is killed; returns the record of the first shard."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=slowly, args=(name, corpus, folder))
    child.start()
    while not (records := sorted(folder.rglob(".train.unfinished/00000.json"))):
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert not (folder / "run.json").exists()
    return records[0]


def test_an_encoding_killed_with_signal_9_is_resumed(
    corpus: Path, tmp_path: Path, small: None, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = contents(prepared("language", corpus, tmp_path / "expected").path)
    kill_in_the_second_shard("language", corpus, tmp_path / "run")
    capfd.readouterr()
    run = prepared("language", corpus, tmp_path / "run")
    assert "1 of " in capfd.readouterr().err
    assert contents(run.path) == expected
    kill_in_the_second_shard("language", corpus, tmp_path / "other")
    with pytest.raises(UserError, match="no file matches"):  # what is finished is kept
        prepared("language", corpus / "missing", tmp_path / "other")
    assert unfinished_folder(tmp_path / "other" / "data" / "language-model" / "train").exists()


@pytest.mark.skipif("HEEDFUL_PROCESSES" not in os.environ, reason="make processes runs it")
@pytest.mark.parametrize("name", TASKS)
def test_two_processes_that_were_killed_write_the_files_of_one(
    name: str, corpus: Path, tmp_path: Path, small: None
) -> None:
    expected = contents(prepared(name, corpus, tmp_path / "one").path)
    assert contents(prepared(name, corpus, tmp_path / "two", processes=2).path) == expected
    record = kill_in_the_second_shard(name, corpus, tmp_path / "killed")
    begun = record.stat().st_mtime_ns
    values = next(record.parent.glob("00000.tokens.values"))
    kept = values.stat().st_mtime_ns
    assert contents(prepared(name, corpus, tmp_path / "killed", processes=2).path) == expected
    [store] = [path for path in (tmp_path / "killed").rglob("train") if path.is_dir()]
    assert (store / "00000.tokens.values").stat().st_mtime_ns == kept <= begun


@pytest.mark.parametrize("name", ["masked", "language"])
def test_files_folders_and_patterns_are_read_in_order(
    name: str, corpus: Path, tmp_path: Path
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="the package fsspec is not installed")
    fsspec.filesystem("memory").put(str(corpus), f"/{tmp_path.name}", recursive=True)
    (tmp_path / "folder").mkdir()
    for path in corpus.iterdir():
        (tmp_path / "folder" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "folder" / ".hidden").write_bytes(b"\xff")
    url = f"memory://{tmp_path.name}"
    found = []
    for number, files in enumerate(
        (["a.txt", "b.txt"], "?.txt", str(tmp_path / "folder"), f"{url}/*.txt", f"{url}/")
    ):
        recipe = {**RECIPES[name], "data": {**RECIPES[name]["data"], "train": files}}
        run = prepare(check_recipe(recipe, "it"), tmp_path / str(number), data=corpus)
        stores = [Store.open(path.parent).fingerprint for path in sorted(run.path.rglob(INDEX))]
        found.append((stores, run.facts["vocabulary"]["fingerprint"]))
    assert found == found[:1] * len(found)
    recipe = {**RECIPES[name], "data": {"train": "*.none"}}
    with pytest.raises(UserError, match=r"\*\.none; correct the pattern"):
        prepare(check_recipe(recipe, "it"), tmp_path / "x", data=corpus)


def test_a_large_corpus_is_read_twice(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Once for held-out documents and the sample of the vocabulary, once to encode."""
    monkeypatch.setattr(preparation, "SAMPLE_TEXTS", 30)
    passes = []
    read_files = DocumentData.read_files
    monkeypatch.setattr(
        DocumentData,
        "read_files",
        lambda self, files: passes.append(files) or read_files(self, files),
    )
    run = prepared("packed", corpus, tmp_path / "run")
    assert len(passes) == 2
    assert "learnt from a random sample of 30 of" in capfd.readouterr().err
    assert run.facts["sets"]["language-model"]["train"] > 1000


def test_the_words_of_a_large_corpus_are_sampled(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("heedful.tasks.preparation.LARGE", 0)
    monkeypatch.setattr(bidirectional, "SAMPLE_TEXTS", 20)
    run = prepared("bidirectional", corpus, tmp_path / "run")
    assert "in a random sample of 20 of" in capfd.readouterr().err
    assert len(run.facts["sets"]["bidirectional"]["labels"]) > 5


def test_files_are_verified_when_they_are_first_read(
    corpus: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "MOST_HASHED_BYTES", 0)
    monkeypatch.setattr(parallel_encoding, "usable_processors", lambda: 1)
    run = prepared("language", corpus, tmp_path / "run")
    values = tmp_path / "run" / "data" / "language-model" / "train" / "00002.tokens.values"
    content = bytearray(values.read_bytes())
    content[4] ^= 1
    values.write_bytes(content)
    with pytest.raises(UserError, match=r"00002\.tokens\.values: the file is damaged: its SHA-256"):
        train({**RECIPES["language"], "training": TRAINING}, run.path, data=corpus)


def test_the_command_prints_what_was_encoded(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(tomlkit.dumps(RECIPES["masked"]))
    given = ["encode", tmp_path / "recipe.toml", "--data", corpus, "--out", tmp_path / "encoded"]
    said = run_data(*given, "--processes", 1).stdout
    facts = open_run(tmp_path / "encoded").facts["sets"]["masked"]
    assert f"encoded      {facts['train']:,} sentences\n" in said
    assert f"held out     {facts['validation']} validation, 0 test\n" in said


def test_a_model_that_makes_words_needs_a_corpus_that_was_encoded_for_it(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "one\ta b c\ntwo\td e f\n" * 4)
    recipe: dict[str, Any] = {
        "task": "classification",
        "data": {"train": "train.tsv"},
        "tokeniser": {"kind": "characters"},
        "model": {"kind": "recurrent-encoder", "hidden_size": 128},
        "training": {"max_steps": 1},
    }
    encoded = prepare(check_recipe(recipe, "the recipe"), tmp_path / "encoded", data=tmp_path).path
    changed = {**recipe, "model": {"kind": "elmo", "hidden_size": 128}}
    with pytest.raises(UserError, match="was encoded for another kind of model"):
        train(changed, tmp_path / "run", data=encoded)
