"""``heedful evaluate`` and ``heedful plot`` on a real run, and what they are made of."""

import json
import random
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from heedful.basics.errors import UserError
from heedful.cli import evaluate, plot
from heedful.evaluation.forced_alignment import align_translations
from heedful.evaluation.metrics import score_corpus
from heedful.inference import Translator
from heedful.inference.trace import AttentionMap, Trace, make_trace
from heedful.runs.opening import open_run
from heedful.tasks.pairs.building import load_translator
from heedful.training import train
from heedful.viewing.trace_view import cross_maps, map_rows, trace_figure

HANSARDS = Path(__file__).parents[1] / "../shared/data/align-enfr"
WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}
SENTENCES = ["one red dog sees two cat", "two cat", "", "red red dog"]
TRANSLATIONS = ["eins rot Hund sieht zwei Katze", "zwei Katze", "", "rot rot Hund"]


def write_corpus(path: Path, pairs: int, seed: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    rows = []
    for _ in range(pairs):
        words = chance.choices(list(WORDS), k=chance.randint(2, 6))
        rows.append((" ".join(words), " ".join(WORDS[word] for word in words)))
    path.write_text("".join(f"{one}\t{two}\n" for one, two in rows), encoding="utf-8")
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and two runs: `good` has learnt something, `new` has not."""
    folder = tmp_path_factory.mktemp("runs")
    write_corpus(folder / "train.tsv", 400, 1)
    write_corpus(folder / "validation.tsv", 10, 2)
    write_corpus(folder / "test.tsv", 25, 3)
    names = ("train", "validation", "test")
    tables = {
        "data": {name: [f"{name}.tsv"] for name in names} | {"filters": {"duplicates": False}},
        "tokeniser": {"vocabulary_size": 360},
        "model": {"layers": 1, "hidden_size": 32, "ffn_size": 64, "heads": 2},
        "evaluation": {"beam": 2, "samples": 0, "tokenise": "none"},
    }
    training = {
        "batch_tokens": 1000,
        "learning_rate": 6e-3,
        "warmup_steps": 20,
        "log_every": 10,
        "validate_every": 1000,
        "checkpoint_every": 1000,
        "precision": "float32",
        "device": "cpu",
    }
    for out, steps in (("good", 120), ("new", 1)):
        train({**tables, "training": {**training, "max_steps": steps}}, folder / out, data=folder)
    return folder


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return load_translator([folder / "good"], device="cpu")


def heedful(*arguments: object) -> Result:
    app = typer.Typer()
    evaluate.register(app)
    plot.register(app)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def finished(*arguments: object) -> str:
    result = heedful(*arguments)
    assert result.exception is None, result.exception
    return result.stdout


def refused(*arguments: object) -> str:
    result = heedful(*arguments)
    assert isinstance(result.exception, UserError), result.exception
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_a_run_is_scored_on_its_own_test_set(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    arguments = ("--json", "--by-length", "--bootstrap", 50, "--output", out, "--device", "cpu")
    report = json.loads(finished("evaluate", folder / "good", *arguments))
    outputs = out.read_text(encoding="utf-8").split("\n")[:-1]
    pairs = [line.split("\t") for line in (folder / "test.tsv").read_text().splitlines()]
    expected = score_corpus(outputs, [pair[1] for pair in pairs], tokenise="none", bootstrap=50)
    assert report["count"] == 25
    used = {name: report[name] for name in ("checkpoint", "beam", "device", "precision")}
    chosen = open_run(folder / "good").chosen().path.name
    assert used == {"checkpoint": chosen, "beam": 2, "device": "cpu", "precision": "float32"}
    assert [score["value"] for score in report["scores"]] == [score.value for score in expected]
    assert "tok:none" in report["scores"][0]["signature"]
    assert sum(bucket["count"] for bucket in report["by_length"]) == 25
    assert report["faults"]["empty"] == []


def test_evaluating_translates_as_translating_does(
    folder: Path, tmp_path: Path, translator: Translator
) -> None:
    out = tmp_path / "out.txt"
    finished("evaluate", folder / "good", "--beam", 1, "--output", out, "--bootstrap", 0)
    sources = [line.split("\t")[0] for line in (folder / "test.tsv").read_text().splitlines()]
    from heedful.decoding import SearchOptions

    expected = translator.translate(sources, options=SearchOptions(beam=1))
    assert out.read_text(encoding="utf-8").split("\n")[:-1] == [one.text for one in expected]


def test_two_runs_are_compared(folder: Path) -> None:
    arguments = ("--against", folder / "new", "--metrics", "chrf", "--bootstrap", 0)
    plain = finished("evaluate", folder / "good", *arguments)
    rows = [line.split("\t") for line in plain.split("\n") if line.startswith("chrF2")]
    assert float(rows[1][3]) < 0
    assert rows[1][-1] == str(folder / "good")
    report = json.loads(finished("evaluate", folder / "good", *arguments, "--json", "--beam", 1))
    assert (report["checkpoint"], report["beam"]) == ("step-00000120", 1)
    assert report["against_used"]["checkpoint"] == "step-00000001"


def test_gold_links_of_the_test_set_are_scored(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data.tsv").write_text("one red dog\teins rot Hund\ntwo cat\tzwei Katze\n")
    (tmp_path / "gold").write_text("1-1 2-2 3-3\n1-1 2p2\n")
    arguments = ("--data", tmp_path / "data.tsv", "--gold", tmp_path / "gold", "--json")
    report = json.loads(finished("evaluate", folder / "good", *arguments))
    assert report["alignment"]["links"] == 5
    assert (report["alignment"]["sure"], report["alignment"]["possible"]) == (4, 5)
    assert 0 <= report["alignment"]["aer"] <= 1
    (tmp_path / "gold").write_text("1-1 2-2 3-4\n1-1 2p2\n")
    assert "link '3-4' is out of range" in refused("evaluate", folder / "good", *arguments)


def test_settings_out_of_range_are_refused_before_anything_runs(
    folder: Path, tmp_path: Path
) -> None:
    run = folder / "good"
    assert "beam" in refused("evaluate", run, "--beam", 0)
    assert "--threads 0" in refused("evaluate", run, "--threads", 0)
    assert "beam" in refused("plot", run, "dog", "--beam", 0)
    assert "--threads 0" in refused("plot", run, "dog", "--threads", 0)
    assert str(tmp_path) in refused("evaluate", run, "--output", tmp_path)
    assert "did you mean 'intl'" in refused("evaluate", run, "--tokenise", "intll")
    assert "--sources is for scoring files" in refused("evaluate", run, "--sources", "x")
    told = refused("evaluate", run, "--head", "x")
    assert told.startswith("--head is for classification, tagging, bidirectional, masked, ")
    assert told.endswith(f"{run} is a run for translation")


def test_files_of_any_system_are_scored_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "hyp").write_text("a b c d\ne f\n")
    (tmp_path / "ref").write_text("a b c d\ne g\n")
    (tmp_path / "src").write_text("1 2\ne f\n")
    files = ("--hypotheses", tmp_path / "hyp", "--references", tmp_path / "ref")
    plain = finished(
        "evaluate", *files, "--sources", tmp_path / "src", "--against-hypotheses", tmp_path / "ref"
    )
    assert "copy of the source\t1\t50.0 %\t2" in plain
    report = json.loads(finished("evaluate", *files, "--json", "--sentences", 1))
    assert report["worst"][0]["line"] == 2
    assert report["faults"] is None
    (tmp_path / "ref").write_text("a b c d\n")
    assert "2 hypotheses but 1 references" in refused("evaluate", *files)


@pytest.mark.skipif(not HANSARDS.exists(), reason="the Hansards links are not on this machine")
def test_links_alone_are_scored() -> None:
    arguments = ("--gold", HANSARDS / "enfr.gold", "--links", HANSARDS / "hyp.giza.enfr.talp")
    assert "8.0 %\t91.4 %\t92.9 %" in finished("evaluate", *arguments)
    assert json.loads(finished("evaluate", *arguments, "--json"))["links"] == 6069


def test_the_last_sentences_may_have_no_gold_links(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("1 1 1 S\n2 1 2 P\n")
    (tmp_path / "links").write_text("0-0\n0-1\n\n0-0\n")
    arguments = ("--gold", tmp_path / "gold", "--links", tmp_path / "links")
    assert json.loads(finished("evaluate", *arguments, "--json"))["links"] == 3


SCORED = ("--hypotheses", "x", "--references", "y")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--json"], "nothing to evaluate"),
        (["nowhere"], "no run at nowhere"),
        (["--hypotheses", "x"], "needs --references"),
        (["--hypotheses", "x", "--references", "y", "--gold", "g"], "needs --links"),
        (["--links", "x"], "needs --gold"),
        (["--hypotheses", "x", "--references", "y", "--output", "z"], "--output needs a run"),
        (["--hypotheses", "x", "--references", "y", "--metrics", "bleu,rouge"], "use some of"),
        ([*SCORED, "--against", "runs/x"], "use --against-hypotheses"),
        ([*SCORED, "--data", "d"], "--data needs a run"),
        ([*SCORED, "--beam", "2"], "--beam needs a run"),
        ([*SCORED, "--from", "de"], "--from needs a run"),
        ([*SCORED, "--to", "de"], "--to needs a run"),
        ([*SCORED, "--checkpoint", "last"], "--checkpoint needs a run"),
        ([*SCORED, "--precision", "bfloat16"], "--precision needs a run"),
        ([*SCORED, "--engine", "ctranslate2"], "--engine needs a run"),
        ([*SCORED, "--quantization", "int8"], "--quantization needs a run"),
        (["--gold", "x", "--links", "y", "--indexing", "3"], "use auto, 0 or 1"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(arguments: list[str], says: str) -> None:
    assert says in refused("evaluate", *arguments)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_alignments_heads_and_curves_are_drawn(folder: Path, tmp_path: Path, kind: str) -> None:
    run = folder / "good"
    file = tmp_path / f"a.{kind}"
    views: list[list[object]] = [["--target", "eins zwei"], ["--heads"]]
    if kind == "png":
        views += [["--tokens", "--target", "eins zwei"], ["--layer", 1]]
        views += [["--map", "decoder.0.self_attention", "--heads"], ["--links"]]
        views += [["--links", "--map", "encoder.0.self_attention"]]
    for more in views:
        finished("plot", run, "one two", "--output", file, *more)
        assert file.stat().st_size > 3000
        file.unlink()
    finished("plot", run, "--curves", "--output", file)
    assert file.stat().st_size > 3000


def test_without_a_file_the_alignment_is_text(folder: Path) -> None:
    drawn = finished("plot", folder / "good", SENTENCES[0], "--target", TRANSLATIONS[0])
    lines = drawn.rstrip("\n").split("\n")
    assert lines[0] == TRANSLATIONS[0]
    assert [line.split()[-1] for line in lines[1:7]] == SENTENCES[0].split()
    assert [line.split()[-1] for line in lines[7:]] == TRANSLATIONS[0].split()
    names = finished("plot", folder / "good", "dog", "--map", "?").split()
    assert "decoder.0.cross_attention" in names


def test_distances_between_the_heads_of_all_layers(folder: Path) -> None:
    run, file = folder / "good", folder / "distances.png"
    names, *rows = finished("plot", run, SENTENCES[0], "--distances").splitlines()
    assert names == "1: decoder.0.cross_attention"
    assert any("1.1" in row for row in rows)
    own = ["--map", "encoder.0.self_attention"]
    drawn = finished("plot", run, SENTENCES[0], "--distances", *own, "--output", file)
    assert drawn.strip() == "1: encoder.0.self_attention"
    assert file.stat().st_size > 3000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dog", "--output", "a.gif"], "must end in .png"),
        (["dog", "--distances", "--heads"], "--distances compares all heads"),
        ([], "nothing to plot"),
        ([" "], "the sentence is empty"),
        (["dog", "--layer", "7"], "this model has 1"),
        (["dog", "--map", "decoder"], "no attention module 'decoder'"),
        (["dog", "--heads"], "--heads needs --output"),
        (["dog", "--links"], "--links needs --output"),
        (["--curves"], "--curves needs --output"),
        (["dog", "--curves", "--output", "a.png"], "leave one of them out"),
        (["--curves", "--output", "a.png", "--map", "x"], "--map has no effect with --curves"),
        (["--calibration", "--heads"], "--heads has no effect with --calibration"),
        (["dog", "--target", " "], "nothing to align"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_line(
    folder: Path, arguments: list[str], says: str
) -> None:
    assert says in refused("plot", folder / "good", *arguments)


def test_given_translations_are_aligned_alone_as_in_a_batch(translator: Translator) -> None:
    together = align_translations(translator, SENTENCES, TRANSLATIONS)
    for source, target, alignment in zip(SENTENCES, TRANSLATIONS, together, strict=True):
        assert alignment.soft.shape == (len(target.split()), len(source.split()))
        alone = align_translations(translator, [source], [target])[0]
        assert torch.allclose(alone.soft, alignment.soft, atol=1e-5)
    links = together[0].links
    assert sum(source == target for source, target in links) >= 4


def test_the_runs_own_translation_is_aligned_as_translate_does(translator: Translator) -> None:
    for found in translator.translate(SENTENCES, alignments=True):
        assert found.alignment is not None
        encoded = translator.tokenisers.target.encode(found.text)
        # Only where the model wrote the pieces that the tokeniser would have cut.
        if translator.tokenisers.target.pieces(encoded) == list(found.tokens) and encoded:
            again = align_translations(translator, [found.source], [found.text])[0]
            assert torch.allclose(again.soft, found.alignment.soft, atol=1e-5)


def test_pairs_beyond_the_limit_have_no_links_and_are_counted(
    translator: Translator, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "dog " * 2000
    found = align_translations(translator, [long, "dog"], ["Hund", "Hund"])
    assert found[0].links == []
    assert len(found[1].links) == 1
    assert "1 of 2 pairs are longer" in capsys.readouterr().err


def made_trace() -> Trace:
    weights = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(1))
    return make_trace(
        axes={"source": ["▁the", "</s>"], "target": ["<s>", "▁der", "▁Hund"]},
        maps=[
            AttentionMap("cross", "target", "source", weights),
            AttentionMap("own", "target", "target", torch.rand(2, 3, 3)),
        ],
        decided=["▁der", "▁Hund", "</s>"],
        log_probabilities=[-0.1, -0.2, -0.3],
    )


def test_rows_are_the_tokens_written_or_read() -> None:
    trace = made_trace()
    assert map_rows(trace, trace["cross"])[1] == ["▁der", "▁Hund", "</s>"]
    weights, rows = map_rows(trace, trace["cross"], shift=1)
    assert rows == ["▁der", "▁Hund"]
    assert torch.equal(weights, trace["cross"].weights[:, 1:])
    assert map_rows(trace, trace["own"])[1] == ["<s>", "▁der", "▁Hund"]
    assert cross_maps(trace) == ["cross"]


def test_a_trace_is_drawn_by_its_mean_or_head_by_head() -> None:
    trace = made_trace()
    mean = trace_figure(trace, "cross").axes[0].collections[0].get_array()
    assert torch.allclose(
        torch.tensor(mean.tolist()).reshape(3, 2), trace["cross"].weights.mean(0), atol=1e-6
    )
    figure = trace_figure(trace, "own", apart=True, heads=[1])
    assert figure.axes[0].get_xlabel() == "head 2"
    with pytest.raises(UserError, match="no head 3; its heads are 1 to 2"):
        trace_figure(trace, "cross", heads=[2])
    with pytest.raises(UserError, match="no attention module 'x'"):
        trace_figure(trace, "x")
