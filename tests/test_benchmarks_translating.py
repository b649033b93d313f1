"""The translation benchmarks run and compare like with like. Speeds are not tested."""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
VOCABULARY = 600
SMALL = ["--made", "--repetitions", "2", "--threads", "1", "--length", "5"]
SMALL += ["--vocabulary", str(VOCABULARY), "--sizes", "smallest"]


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    """Imports a benchmark by its name, as ``python benchmarks/NAME.py`` would."""
    sys.path.insert(0, str(BENCHMARKS))
    limits = importlib.import_module("limits")
    before = limits.SLICE, limits.WIDTH, limits.READ
    limits.SLICE, limits.WIDTH, limits.READ = 0.0, 64, 1 << 16
    yield importlib.import_module
    limits.SLICE, limits.WIDTH, limits.READ = before
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def corpus(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("corpus")
    return benchmark("corpus").prepare_corpus(folder, None, VOCABULARY, 60, 9)


@pytest.fixture(scope="module")
def sentences(corpus: Any) -> Any:
    return corpus.test


@pytest.fixture(scope="module")
def translated(
    benchmark: Any, corpus: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What measuring gives with all sides that are installed: it checks every output's length."""
    translate_speed = benchmark("translate_speed")
    options = translate_speed.parse([*SMALL, "--batch-tokens", "64", "256"])
    found: dict[str, Any] = translate_speed.measure(
        options, corpus, tmp_path_factory.mktemp("work")
    )
    found = json.loads(json.dumps(found))
    found["text"] = translate_speed.report(found)
    return found["sizes"]["smallest"] | {"text": found["text"]}


@pytest.mark.slow
def test_ours_is_measured_in_the_batches_it_is_fastest_with(translated: dict[str, Any]) -> None:
    assert list(translated["searches"]) == ["greedy", "beam 5"]
    for search in translated["searches"].values():
        ours = search["rows"]["ours"]
        assert len(ours["all"]) == 2
        assert ours["lowest"] > 0
        assert ours["batch_tokens"] in (64, 256)
        assert ours["same"] == 1
    assert "### smallest, beam 5" in translated["text"]
    assert "GB/s from memory" in translated["text"]


@pytest.mark.slow
def test_ctranslate2_writes_the_same_tokens(benchmark: Any, translated: dict[str, Any]) -> None:
    if "CTranslate2" not in translated["sides"]:
        pytest.skip(benchmark("install_peers").how_to_install("ctranslate2"))
    for search in translated["searches"].values():
        assert search["rows"]["CTranslate2"]["same"] == 1
        assert search["rows"]["ours"]["ratio"] > 0
    assert translated["sides"]["CTranslate2, int8"]["precision"].startswith("int8")


@pytest.mark.slow
def test_marian_has_the_same_size(benchmark: Any, translated: dict[str, Any]) -> None:
    if "MarianMT" not in translated["sides"]:
        pytest.skip(benchmark("install_peers").how_to_install("transformers"))
    sides = translated["sides"]
    assert sides["MarianMT"]["parameters"] == sides["ours"]["parameters"]
    assert "same" not in translated["searches"]["greedy"]["rows"]["MarianMT"]


@pytest.mark.parametrize(("pool", "count"), [("threads", 2), ("processes", 1)])
def test_several_workers_write_what_one_writes(
    benchmark: Any, sentences: Any, pool: str, count: int
) -> None:
    worker = benchmark("heedful_worker")
    model = benchmark("turns").transformer("smallest")
    work = {"model": model, "vocabulary": VOCABULARY, "length": 5}
    expected = [worker.Searcher(work, "float32", 1)([one], 2)[0] for one in sentences]
    with worker.pool_of(pool, count, work, "float32") as workers:
        found = list(workers.map(worker._Pool.search, [[one] for one in sentences], [2] * 9))
    assert [one for (one,) in found] == expected


@pytest.mark.slow
def test_sentences_are_timed_one_by_one(benchmark: Any, corpus: Any, tmp_path: Path) -> None:
    one_sentence = benchmark("one_sentence")
    options = one_sentence.parse([*SMALL, "--every", "4", "--ours-only"])
    found = json.loads(json.dumps(one_sentence.measure(options, corpus, tmp_path)))
    ours = found["sizes"]["smallest"]["rows"]["ours, 1 thread"]
    assert found["sentences"] == 3
    assert all(0 < p50 <= p90 for p50, p90 in zip(ours["p50"], ours["p90"], strict=True))
    assert "\n| ours, 1 thread " in one_sentence.report(found)


def test_a_peer_that_fails_is_left_out_and_ours_is_not(
    benchmark: Any, sentences: Any, tmp_path: Path
) -> None:
    turns, errors = benchmark("turns"), benchmark("workers")
    options = benchmark("translate_speed").parse([*SMALL])
    work = turns.write_work(
        tmp_path / "work.json", turns.transformer("smallest"), sentences, options
    )
    failing = tmp_path / "failing.py"
    failing.write_text("raise SystemExit(3)\n", encoding="utf-8")
    with ExitStack() as stack:
        starter = turns.Starter(stack, work, options)
        starter.add("peer", Path(sys.executable), str(failing))
        with pytest.raises(errors.WorkerError):
            starter.add("ours", Path(sys.executable), str(failing))
    assert "peer" not in starter.sides
    assert "exit code 3" in turns.said_of({}, starter.left_out)


def test_batches_are_those_of_our_translator(benchmark: Any, sentences: Any) -> None:
    from heedful.inference.batches import Item, token_batches

    items = [Item(line, 0, tokens) for line, tokens in enumerate(sentences)]
    for width, tokens in ((1, 60), (5, 200), (5, 3)):
        expected = [[item.tokens for item in one] for one in token_batches(items, width, tokens)]
        assert benchmark("workers").batched(sentences, width, tokens) == expected


def test_operations_are_those_that_the_products_ask_for(benchmark: Any) -> None:
    sizes = benchmark("sizes")
    base = sizes.SIZES["base"]
    # A base model's forward and backward: 96 M multiplications and additions, three times.
    assert base.training(1.0, 8000) == pytest.approx(289e6, rel=0.01)
    one, five = (base.translating(12, 16, beam, 8000) for beam in (1, 5))
    assert one < five < 5 * one
    decoder = 6 * (6 * 512**2 + 2 * 512 * 2048) + 512 * 8000
    assert base.weights_read(16, 8000) - base.weights_read(15, 8000) == decoder
