"""Precisions of trained runs: what int8 and bfloat16 change, the commands, Python, the server."""

import importlib
import json
import math
import random
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

import heedful
from command_help import fork_server
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.cli import evaluate, serve, task_commands, view
from heedful.decoding import SearchOptions
from heedful.inference import Translator, fastest_precision
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.generator import Generator
from heedful.layers.int8_linear import Int8Linear, largest_input
from heedful.serving.loading import load_all
from heedful.tasks.pairs.building import load_translator
from heedful.training import train
from language_help import ByteVocabulary, SmallLanguage
from serving_help import serving
from tolerance import quantised

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}
MODELS: dict[str, dict[str, object]] = {
    "transformer": {
        "kind": "transformer",
        "layers": 1,
        "hidden_size": 32,
        "ffn_size": 64,
        "heads": 2,
    },
    "bahdanau": {
        "kind": "recurrent",
        "attention": "bahdanau",
        "embedding_size": 32,
        "hidden_size": 48,
    },
}
STEPS = {"transformer": 280, "bahdanau": 120}

torch.set_num_threads(1)
app = typer.Typer()
for command in (evaluate, serve, task_commands, view):
    command.register(app)


def lines(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(list(WORDS), k=chance.randint(1, 4))) for _ in range(count)]


def translated(line: str) -> str:
    return " ".join(WORDS[word] for word in line.split())


NEW = lines(40, 9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of a Transformer and of a recurrent model, which have learnt six words."""
    folder = tmp_path_factory.mktemp("precision")
    sets = {"train": lines(1200, 1), "validation": lines(4, 2), "test": lines(12, 3)}
    for name, own in sets.items():
        text = "".join(f"{line}\t{translated(line)}\n" for line in own)
        (folder / f"{name}.tsv").write_text(text)
    for name, model in MODELS.items():
        data = {key: [f"{key}.tsv"] for key in sets}
        training = {"max_steps": STEPS[name], "batch_tokens": 400, "learning_rate": 8e-3}
        training |= {"warmup_steps": 20, "validate_every": 1000, "checkpoint_every": 1000}
        recipe = {
            "data": {**data, "source": "en", "target": "de", "filters": {"duplicates": False}},
            "tokeniser": {"vocabulary_size": 360},
            "model": {**model, "dropout": 0.0},
            "training": {**training, "precision": "float32", "device": "cpu"},
            "evaluation": {"beam": 2, "samples": 0},
        }
        train(recipe, folder / name, data=folder)
    return folder


def logits(translator: Translator) -> torch.Tensor:
    """Of the right translations' tokens."""
    sources = [translator.tokenisers.source.encode(line) for line in NEW]
    targets = [translator.tokenisers.target.encode(translated(line)) for line in NEW]
    source, target_in = source_of(sources, translator.device), target_in_of(targets, "cpu")
    with translator.ready():
        found = translator.model.teacher_force(source, target_in).float()
    real = torch.tensor([len(tokens) for tokens in targets])
    return found[torch.arange(found.shape[1]) <= real.unsqueeze(1)][:, END:]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("precision", "share"), [("int8", 0.05), ("bfloat16", 0.03)])
def test_a_trained_model_says_the_same(
    folder: Path, name: str, precision: str, share: float
) -> None:
    exact = load_translator([folder / name], device="cpu")
    other = load_translator([folder / name], device="cpu", precision=precision)
    expected = logits(exact)
    error = float((logits(other) - expected).norm() / expected.norm())
    assert 0 < error < share
    for options in (SearchOptions(), SearchOptions(beam=4)):
        outputs = [one.text for one in exact.translate(NEW, options=options)]
        found = [one.text for one in other.translate(NEW, options=options)]
        assert len(found) == len(NEW)
        right = sum(one == translated(line) for one, line in zip(outputs, NEW, strict=True))
        assert right >= 30, "the model has not learnt enough for this to say anything"
        assert sum(a == b for a, b in zip(outputs, found, strict=True)) >= 37


def test_int8_is_searched_alone_as_in_a_batch(folder: Path) -> None:
    translator = load_translator([folder / "transformer"], device="cpu", precision="int8")
    assert any(isinstance(part, Int8Linear) for part in translator.model.modules())
    given = [*NEW[:6], "", " "]
    together = translator.translate(given, alignments=True)
    for line, one in zip(given, together, strict=True):
        [alone] = translator.translate([line], alignments=True)
        assert alone.text == one.text
        assert alone.score == pytest.approx(one.score, abs=1e-3)
    assert [one.text for one in together[6:]] == ["", " "]


def test_traces_gradients_and_ensembles_in_int8(folder: Path) -> None:
    translator = load_translator([folder / "transformer"], device="cpu", precision="int8")
    trace = translator.trace(NEW[0], relevance=True)
    assert {one.kind for one in trace.maps} == {"weights", "rollout", "gradient"}
    assert any(one.weights.abs().sum() > 0 for one in trace.maps if one.kind == "gradient")
    exact = load_translator([folder / "transformer"], device="cpu")
    expected = exact.trace(NEW[0])
    for one, other in zip(trace.maps, expected.maps, strict=False):
        torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=0.1)
    both = [load_translator([folder / "transformer"], device="cpu").model for _ in range(2)]
    ensemble = Translator(both, exact.tokenisers, precision="int8")
    assert ensemble.parameters == 2 * exact.parameters == 2 * translator.parameters
    found = [one.text for one in ensemble.translate(NEW)]
    alone = [one.text for one in translator.translate(NEW)]
    assert sum(a == b for a, b in zip(found, alone, strict=True)) >= 39


def test_a_language_model_writes_in_int8() -> None:
    torch.manual_seed(1)
    model = SmallLanguage(dim=32)
    model.tokens.weight.data.mul_(32**-0.5)  # so that logits are of order 1
    exact = Generator(model, ByteVocabulary())
    whole = Generator(model, ByteVocabulary(), precision="int8")
    options = SearchOptions(beam=1)
    prompts = ["ab", "the c", ""]
    written = whole.generate_all(prompts, options=options, max_tokens=6)
    assert [one[0].prompt for one in written] == prompts
    assert all(len(one[0].tokens) <= 6 for one in written)
    texts = ["abc abc", "something else"]
    losses = [math.log(one.perplexity(texts).per_token) for one in (whole, exact)]
    assert 4 < losses[1] < 8  # log 260 is 5.6
    products = sum(isinstance(part, Int8Linear) for part in whole.model.modules())
    assert 0 < abs(losses[0] - losses[1]) < quantised(products, largest_input())
    assert whole.parameters == exact.parameters


# The commands, Python, the server


def call(*arguments: object, given: str = "") -> tuple[str, str]:
    """What a command writes to standard output and standard error."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_commands_take_a_precision(folder: Path) -> None:
    run, text = folder / "transformer", "".join(f"{line}\n" for line in [*NEW[:5], "", NEW[5]])
    plain, _ = call("translate", run, "--device", "cpu", given=text)
    whole, said = call("translate", run, "--device", "cpu", "--precision", "int8", given=text)
    same = [one == other for one, other in zip(whole.split("\n"), plain.split("\n"), strict=True)]
    assert (sum(same) >= 7, said) == (True, "")
    auto, said = call("translate", run, "--device", "cpu", "--precision", "auto", given=text)
    assert auto.count("\n") == 7
    assert said.startswith("heedful: --precision auto: ")
    assert said.count("\n") == 1
    scored = ("evaluate", run, "--device", "cpu", "--json", "--bootstrap", 0)
    report = json.loads(call(*scored, "--precision", "int8")[0])
    assert (report["precision"], report["engine"], report["count"]) == ("int8", "torch", 12)
    # A choice is told once in a process; those of the two runs can have the same words.
    fastest_precision._notify_once.cache_clear()
    out, said = call(*scored, "--precision", "auto", "--against", folder / "bahdanau")
    assert said.count("--precision auto") in (1, 2)
    assert json.loads(out)["precision"] in ("float32", "bfloat16")


def test_python_and_the_server_tell_the_precision(folder: Path) -> None:
    translator = heedful.load(folder / "transformer", device="cpu", precision="int8")
    assert translator.computing == {"device": "cpu", "precision": "int8"}
    text = translator.translate(NEW[:1])[0].text
    models = load_all([folder / "transformer"], [], device="cpu", precision="int8")
    with serving(*models) as client:
        [facts] = client.get("/api/models").json()["models"]
        assert (facts["device"], facts["precision"]) == ("cpu", "int8")
        assert facts["parameters"] == translator.parameters
        asked = {"q": NEW[0], "source": "en", "target": "de"}
        assert client.post("/translate", json=asked).json()["translatedText"] == text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("translate", "--precision", "int4"), "unknown precision 'int4'; use float32, bfloat16"),
        (("translate", "--precision", "float16", "--device", "cpu"), "float16 needs a CUDA GPU"),
        (("evaluate", "--precision", "half"), "int8 or auto"),
        (("evaluate", "--engine", "marian"), "unknown engine 'marian'"),
        (("evaluate", "--quantization", "int8"), "--quantization needs --engine ctranslate2"),
        (("generate", "--prompt", "a", "--precision", "int8"), "is a run for translation"),
    ],
)
def test_mistakes_are_one_line(folder: Path, arguments: tuple[str, ...], part: str) -> None:
    command, *rest = arguments
    with pytest.raises(UserError, match=part) as raised:
        call(command, folder / "transformer", *rest)
    assert "\n" not in str(raised.value)


def test_training_has_no_int8(folder: Path, tmp_path: Path) -> None:
    recipe = {"data": {"train": ["train.tsv"]}, "training": {"precision": "int8"}}
    with pytest.raises(UserError, match="precision"):
        train(recipe, tmp_path / "run", data=folder)


def test_the_benchmark_of_outputs_compares_all_ways(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"source": NEW[:8], "reference": [translated(line) for line in NEW[:8]]}
    for name, own in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in own))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    fork_server()  # has all modules before the benchmark starts it
    given = ["--source", str(folder / "source"), "--reference", str(folder / "reference")]
    importlib.import_module("same_output").main([str(folder / "transformer"), *given, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"greedy", "beam 5"}
    for rows in found.values():
        assert len(rows) == 5
        assert all(row["of"] == 8 for row in rows.values())
        in_c = [row for name, row in rows.items() if name.startswith("C")]
        assert [row["same"] for row in in_c] == [8, 8]
        assert {row["bleu"] for row in in_c} == {rows["modules"]["bleu"]}
        assert all(row["of_same"] < 1e-4 for row in in_c)
