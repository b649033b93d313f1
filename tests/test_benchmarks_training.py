"""The training benchmark runs and compares like with like. Speeds are not tested."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SMALL = ["--made", "--sizes", "smallest", "--threads", "1", "--repetitions", "2", "--steps", "1"]
SMALL += ["--warm-up", "1", "--batch-tokens", "256"]


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
    return benchmark("corpus").prepare_corpus(tmp_path_factory.mktemp("corpus"), None, 600, 100)


@pytest.mark.slow
def test_training_is_measured_with_the_plain_loop(benchmark: Any, corpus: Any) -> None:
    train_speed = benchmark("train_speed")
    options = train_speed.parse([*SMALL, "--ours-only", "--variants", "plain loop", "ours"])
    found = json.loads(json.dumps(train_speed.measure(options, corpus)))
    rows = found["sizes"]["smallest"]["variants"]
    assert rows["plain loop"]["ratio"] == 1
    assert len(rows["ours"]["all"]) == 2
    assert rows["ours"]["lowest"] > 0
    text = train_speed.report(found)
    assert "| plain loop (float32) |" in text


def test_peers_are_given_the_very_tokens(benchmark: Any, corpus: Any, tmp_path: Path) -> None:
    texts = benchmark("train_peers").write_texts(corpus, tmp_path / "words")
    lines = (texts.folder / "train.target").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 100
    assert texts.target_tokens == sum(len(line.split()) + 1 for line in lines) / 100
    words = json.loads((texts.folder / "words.json").read_text(encoding="utf-8"))
    assert words["4"] == 4
    assert len(words) == corpus.vocabulary
    assert set(" ".join(lines).split()) <= words.keys()
    eole = (texts.folder / "words.txt").read_text(encoding="utf-8").split()
    assert len(eole) == corpus.vocabulary
    assert eole.index("7") == 7


def test_a_peers_speed_is_its_logs_last(benchmark: Any) -> None:
    train_peers = benchmark("train_peers")
    words = "B=3\ts/sec=5.47 tok/sec=212.13\nB=6\ts/sec=4.69 tok/sec=143.11\nUpdates/sec=46921.242"
    assert train_peers._last(r"\bs/sec=([\d.]+)", words, "Sockeye") == ("4.69",)
    with pytest.raises(train_peers.PeerError, match="Eole's log has no speed"):
        train_peers._last(r"([\d.]+)/\s*([\d.]+) tok/s", words, "Eole")


@pytest.mark.parametrize("name", ["Eole", "Sockeye"])
def test_a_peer_that_is_installed_trains(
    benchmark: Any, corpus: Any, tmp_path: Path, name: str
) -> None:
    train_peers, peers = benchmark("train_peers"), benchmark("install_peers")
    environment, train = train_peers.PEERS[name]
    if not peers.peer_python(environment):
        pytest.skip(peers.how_to_install(environment))
    texts = train_peers.write_texts(corpus, tmp_path / "words")
    size = benchmark("sizes").SIZES["smallest"]
    assert 0 < train(train_peers.Training(texts, size, 512, 2, 1)) < 1e6
