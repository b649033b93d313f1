"""The benchmarks run and compare equivalent computations. Speeds are not tested."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.models.transformer import TransformerSettings

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SIZES = {"layers": 1, "hidden_size": 16, "ffn_size": 32, "heads": 2}
VOCABULARY = 600


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    """Imports a benchmark by its name, as ``python benchmarks/NAME.py`` would."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def corpus(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("corpus")
    return benchmark("corpus").prepare_corpus(folder, None, VOCABULARY, 300)


def test_made_texts_have_the_lengths_of_multi30k(benchmark: Any) -> None:
    pairs = list(benchmark("corpus").made_pairs(1500, seed=3))
    words = torch.tensor([[len(text.split()) for text in pair] for pair in pairs]).double()
    assert words.mean(0).tolist() == pytest.approx([11.9, 11.1], abs=0.5)
    assert words.std(0).tolist() == pytest.approx([3.8, 3.8], abs=0.4)


def test_both_loops_learn_from_the_same_batches(benchmark: Any, corpus: Any) -> None:
    train_speed = benchmark("train_speed")
    settings = TransformerSettings.model_validate({**SIZES, "dropout": 0.1})
    torch.manual_seed(1)
    ours = train_speed.Ours(corpus.folder, settings, 300, "float32")
    plain = train_speed.Plain(corpus.folder, settings, 300, everywhere=False)
    of_stacks = (
        2 * 2 * SIZES["hidden_size"]
    )  # the layer norm after each stack of torch.nn.Transformer
    assert plain.parameters == ours.parameters + of_stacks
    losses: dict[str, list[float]] = {"ours": [], "plain": []}
    for steps in (3, 12):
        seconds, tokens, loss = ours.go_on(steps)
        plain_seconds, plain_tokens, plain_loss = plain.go_on(steps)
        assert tokens == plain_tokens > 0
        assert min(seconds, plain_seconds) > 0
        losses["ours"].append(loss)
        losses["plain"].append(plain_loss)
    assert ours.loop.progress.position == plain.position
    assert all(last < first for first, last in losses.values()), losses


def test_the_plain_model_hides_padding_and_what_comes_later(benchmark: Any) -> None:
    plain_loop = benchmark("plain_loop")
    settings = TransformerSettings.model_validate({**SIZES, "dropout": 0.0})
    torch.manual_seed(2)
    model = plain_loop.PlainModel(settings, 50, True).train()
    source, target = torch.randint(4, 50, (2, 7)), torch.randint(4, 50, (2, 6))
    source[0, 4:] = 0
    expected = model(source, target)
    alone = model(source[:1, :4], target[:1, :3])
    torch.testing.assert_close(alone, expected[:1, :3], atol=1e-5, rtol=1e-5)


def test_the_plain_bytenet_is_the_network(benchmark: Any) -> None:
    speed = benchmark("bytenet_speed")
    torch.manual_seed(3)
    model, plain = speed.both(16, 3)
    tokens = torch.randint(4, 50, (2, 7))
    source = speed.Source(tokens, torch.full((2,), 7))
    expected = model.teacher_force(source, tokens)
    torch.testing.assert_close(plain.decode(plain.encode(tokens), tokens), expected)
    with torch.inference_mode():
        written = plain.write(tokens, 5)
        found = speed.search(
            model.eval(),
            source,
            rows=2,
            options=speed.SearchOptions(beam=1, forced_length=5),
            max_lengths=torch.full((2,), 5),
        )
    assert [list(best[0].tokens)[:5] for best in found] == written.tolist()


def test_the_plain_elmo_has_the_same_parameters(benchmark: Any) -> None:
    speed = benchmark("elmo_speed")
    settings = speed.ElmoSettings(hidden_size=8, projection_size=4, filters=[[1, 4], [2, 4]])
    ours, plain = speed.Elmo(settings, speed.SYMBOLS), speed.Plain(settings)
    output = sum(part.numel() for part in plain.output.parameters())
    mixture = settings.layers + 2
    counts = [sum(part.numel() for part in each.parameters()) for each in (ours, plain)]
    assert counts[0] - mixture == counts[1] - output
    for step in speed.steps(settings):
        step()


def test_a_table_is_markdown(benchmark: Any) -> None:
    reporting = benchmark("reporting")
    found = {"a": reporting.summarised([2.0, 4.0, 9.0], None)}
    found["b"] = reporting.summarised([4.0, 4.0, 27.0], [2.0, 4.0, 9.0])
    lines = reporting.speed_table("tokens/s", found).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == ["a", "4", "2", "9", "–"]
    assert lines[3].split("|")[-2].strip() == "2.00×"
    assert len({len(line) for line in lines}) == 1


def test_a_missing_peer_is_named_not_fatal() -> None:
    command = [sys.executable, str(BENCHMARKS / "install_peers.py"), "no-such-peer"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "unknown peer 'no-such-peer'; known: ctranslate2, transformers, eole" in done.stderr


class _Here:
    """A worker of the attention benchmark in this process."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench

    def ask(self, **request: Any) -> dict[str, Any]:
        answered: dict[str, Any] = json.loads(json.dumps(self.bench.answer(request)))
        return answered


@pytest.fixture
def attention(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its parts without what compiles for long, one call a round."""
    contenders, attention = benchmark("attention_contenders"), benchmark("attention")
    worker = benchmark("attention_worker")
    monkeypatch.setattr(attention, "SLICE", 0.0)
    part = contenders.PARTS["A"]
    kept = {name: one for name, one in part.contenders.items() if not one.compiles}
    monkeypatch.setitem(contenders.PARTS, "A", replace(part, contenders=kept))
    attention.start = lambda letter: _Here(worker.Bench(contenders.PARTS[letter]))
    return attention


SMALL = ["--width", "16", "--rounds", "2", "--threads", "1"]


@pytest.mark.parametrize(
    "letter", [*(pytest.param(one, marks=pytest.mark.slow) for one in "ABC"), "D"]
)
def test_attention_is_measured_with_the_same_outputs(attention: Any, letter: str) -> None:
    options = attention.parse(["--parts", letter, "--sizes", "9", *SMALL])
    found = json.loads(json.dumps(attention.measure(options, attention.start)))
    cells = found["parts"][letter]
    assert {cell["size"] for cell in cells} == {9}
    for cell in cells:
        assert cell["median"] > 0, cell
        assert cell["ratio"] > 0
        assert len(cell["all"]) == 2
    text = attention.report(found)
    for name in {cell["contender"] for cell in cells}:
        assert f"| {name} " in text


def test_attention_leaves_out_what_would_take_too_long(attention: Any) -> None:
    options = attention.parse(["--parts", "D", "--sizes", "8,16", "--most-seconds", "0", *SMALL])
    found = attention.measure(options, attention.start)
    later = [cell for cell in found["parts"]["D"] if cell["size"] == 16]
    assert all(cell["skipped"].startswith("takes ") for cell in later)
    assert attention.report(found).count("| takes 0 s") == 2 * len(later)  # in both tables


def test_attention_notices_other_outputs(attention: Any, benchmark: Any) -> None:
    part = benchmark("attention_contenders").PARTS["D"]
    able = {"unwatched": {"sample": [[1.0, 1.0]]}, "rows=8": {"sample": [[1.1, 1.0]]}}
    with pytest.raises(RuntimeError, match="rows=8 and unwatched"):
        attention.check_agreement(part, able)


def test_attention_says_whether_targets_are_met(benchmark: Any) -> None:
    def cell(name: str, size: int, ratio: float, peak: int) -> dict[str, Any]:
        case = {"size": size, "mask": "none", "backward": False}
        return {"contender": name, **case, "median": 1.0, "ratio": ratio, "peak": peak}

    cells = [cell("torch.compile, plain", 1024, 12.5, 0), cell("SDPA, same width", 1024, 0.25, 0)]
    cells += [cell("ours", 4096, 1.0, 10), cell("ours", 16384, 1.0, 160)]
    verdicts = benchmark("attention_report").additive_targets(cells)
    assert [line.endswith(": met") for line in verdicts] == [True, False, False]
    assert "12.5×" in verdicts[0]
    assert "4.00× the time of SDPA" in verdicts[1]


@pytest.mark.slow
def test_a_worker_measures_time_and_memory(benchmark: Any) -> None:
    worker = benchmark("workers").Worker
    script = BENCHMARKS / "attention_worker.py"
    case = {"size": 1024, "width": 64, "mask": "none", "backward": False}
    with worker(Path(sys.executable), script, ["C", "--threads", "1"], 1) as asked:
        request = {"contender": "parallel (the definition)", "case": case}
        first = asked.ask(**request)
        again = asked.ask(**request, calls=2)
    assert again["seconds"] > 0
    if first["peak"] is not None:
        assert first["peak"] > 4 * 1024 * 1024 * 4  # the weights of four heads


def test_ibm_model_1_finds_the_words_that_go_together(benchmark: Any) -> None:
    alignment = benchmark("alignment")
    words = {"a": "x", "b": "y", "c": "z"}
    sources = [list(text) for text in ("ab", "bc", "ca", "a", "abc", "cb")]
    targets = [[words[word] for word in reversed(source)] for source in sources]
    model = alignment.IbmModel1(sources, targets)
    found = model.align(sources, targets)
    for links, source in zip(found, sources, strict=True):
        assert links == {(place, len(source) - 1 - place) for place in range(len(source))}
    assert model.align([["new"]], [["x"]]) == [set()]  # NULL is as good as a word never seen
    gold = [alignment.GoldLinks(frozenset(links), frozenset(links)) for links in found]
    assert alignment.interval(gold, found, 50, 1) == (1.0, 1.0)
    ways = alignment.joined(found, [set() for _ in found])
    assert ways["intersection"] == [set() for _ in found]
    assert ways["union"] == ways["en→es"] == found


def test_short_attention_is_compared_with_pytorchs_kernel(
    benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    module = benchmark("short_attention")
    if module.short.library() is None:
        pytest.skip("there is no C compiler here")
    before = torch.get_num_threads()
    try:
        module.main(["--quick", "--json"])
        found = json.loads(capsys.readouterr().out)
        module.main(["--quick"])
    finally:
        torch.set_num_threads(before)
    (row,) = found["rows"]
    assert row["products"] == 1 * 4 * 16 * 16 * 8 < found["limit"]
    assert (
        min(row[way][side] for way in ("forward", "with backward") for side in ("ours", "sdpa")) > 0
    )
    assert "| B1 H4 T16 D8 |" in capsys.readouterr().out


def test_the_plain_loop_is_xlnet(
    benchmark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it measures, the benchmark compares the losses of both sides."""
    permutation_speed = benchmark("permutation_speed")
    monkeypatch.setattr(permutation_speed, "VOCABULARY", 50)
    given = ["--rounds", "1", "--steps", "1", "--rows", "2", "--length", "12", "--json"]
    assert permutation_speed.main(given) == 0
    found = json.loads(capsys.readouterr().out)["speeds"]
    assert set(found) >= {"plain PyTorch", "heedful"}
