"""CTranslate2: the same weights and tokens there, exports, the engine, and the commands."""

import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.cli import evaluate, export, task_commands, view
from heedful.decoding import Hypothesis, SearchOptions, search
from heedful.inference import Translator
from heedful.inference.alignment import token_weights
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.engine import Outcome
from heedful.interop.ctranslate2_engine import CTranslate2Engine, choose_compute_type
from heedful.interop.ctranslate2_facts import Facts, KeptRule
from heedful.interop.ctranslate2_folders import export_ctranslate2, save_model
from heedful.interop.engines import load_with_engine
from heedful.interop.layouts.ctranslate2 import Watched, specification, symbol_names
from heedful.models.pairs import AlignmentSource
from heedful.models.transformer import Transformer, TransformerSettings
from heedful.runs.checkpoints import model_tensors
from heedful.runs.opening import accept_changes
from heedful.tasks.pairs.building import load_translator
from serving_help import sentences, serving, small_run

torch.set_num_threads(1)
app = typer.Typer()
task_commands.register(app)
export.register(app)
evaluate.register(app)
view.register(app)
CPU = torch.device("cpu")
ROWS = (41, 37)
ODD: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"pre_norm": True, "activation": "gelu"},
    "learned": {"positions": "learned", "tied_embeddings": "output", "activation": "silu"},
    "untied": {"tied_embeddings": "none", "activation": "gelu-tanh", "scale_embeddings": False},
    "other-decoder": {"decoder_layers": 1, "decoder_heads": 6, "decoder_ffn_size": 5},
    "deep-decoder": {"layers": 1, "decoder_layers": 3, "pre_norm": True, "output_bias": True},
    "separate": {"tied_embeddings": "output", "hidden_size": 18, "heads": 9},
}
RULES = {
    "post-norm": AlignmentSource("decoder.1.cross_attention", None, 0),
    "pre-norm": AlignmentSource("decoder.0.cross_attention", (2,), 1),
    "other-decoder": AlignmentSource("decoder.0.cross_attention", (4, 1, 5), 0),
    "deep-decoder": AlignmentSource("decoder.2.cross_attention", (1,), 1),
}


def made(name: str) -> Transformer:
    shape = {"layers": 2, "hidden_size": 12, "heads": 3, "ffn_size": 7, "max_length": 30} | ODD[
        name
    ]
    torch.manual_seed(5)
    rows = (ROWS[1], ROWS[1]) if shape.get("tied_embeddings", "all") == "all" else ROWS
    model = Transformer(TransformerSettings.model_validate(shape), *rows).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        if model.bias is not None:
            model.bias.normal_()
    return model


def engine_of(model: Transformer, folder: Path, name: str = "post-norm") -> CTranslate2Engine:
    """The engine over a model's export, its alignment read where `RULES` says."""
    where = RULES.get(name, model.alignment)
    facts = Facts(
        source=None,
        target=None,
        max_length=model.max_length,
        beam=5,
        length_penalty=1.0,
        alignment=KeptRule(**where._asdict(), threshold=None),
        quantization="float32",
        parameters=1,
        weights="",
        vocabulary="",
    )
    watched = Watched(int(where.module.split(".")[1]), where.heads)
    spec = specification(model_tensors(model), model.settings, watched)
    sides = (model.source_embedding, model.target_embedding)
    source, target = ([str(row) for row in range(len(side.weight))] for side in sides)
    folder.mkdir()
    save_model(folder, spec, source, target, "float32")
    return CTranslate2Engine(folder, facts, device="cpu", compute_type="float32", threads=2)


def sources(count: int = 12, longest: int = 9) -> list[list[int]]:
    chance = random.Random(2)
    return [
        [chance.randrange(END + 1, min(ROWS)) for _ in range(chance.randint(1, longest))]
        for _ in range(count)
    ]


def ours(
    model: Transformer, given: Sequence[list[int]], options: SearchOptions, limits: list[int]
) -> list[list[Hypothesis]]:
    with torch.inference_mode():
        return search(
            model,
            source_of(given, CPU),
            rows=len(given),
            options=options,
            max_lengths=torch.tensor(limits),
        )


def require_same(one: Hypothesis, other: Hypothesis) -> None:
    assert one.tokens == other.tokens
    assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-4)
    assert one.score == pytest.approx(other.score, abs=1e-4)


def require_same_weights(
    model: Transformer, name: str, given: Sequence[list[int]], found: Sequence[Outcome]
) -> None:
    targets = [one.hypotheses[0].tokens for one in found]
    where = RULES.get(name, model.alignment)
    with torch.inference_mode():
        wanted = token_weights(model, where, source_of(given, CPU), target_in_of(targets, CPU))
    for own, source, target, one in zip(wanted, given, targets, found, strict=True):
        assert one.weights is not None
        assert one.weights.shape == (len(target), len(source))
        torch.testing.assert_close(
            one.weights, own[: len(target), : len(source)], atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("name", ODD)
def test_greedy_search_and_alignments_are_the_same(name: str, tmp_path: Path) -> None:
    model, given, options = made(name), sources(), SearchOptions(beam=1)
    engine = engine_of(model, tmp_path / "made", name)
    limits = [min(2 * len(one) + 3, model.max_length) for one in given]
    found = engine.search(given, options, limits, scores=True, weights=True)
    for mine, theirs in zip(ours(model, given, options, limits), found, strict=True):
        require_same(theirs.hypotheses[0], mine[0])
    require_same_weights(model, name, given, found)
    lengths = [len(one.hypotheses[0].token_log_probabilities) for one in found]
    assert any(length == limit for length, limit in zip(lengths, limits, strict=True))


@pytest.mark.parametrize("name", ["pre-norm", "untied"])
def test_beams_of_a_given_length_are_the_same(name: str, tmp_path: Path) -> None:
    ODD["never"] = ODD[name] | {"output_bias": True}
    model, given = made("never"), sources()
    del ODD["never"]
    # Here END counts among all symbols though it is not written; there it does not.
    assert model.bias is not None
    model.bias[[PAD, UNKNOWN, BEGIN, END]] = -1e4
    engine = engine_of(model, tmp_path / "made", name)
    options = SearchOptions(beam=4, nbest=3, forced_length=6)
    found = engine.search(given, options, [20] * len(given), scores=True, weights=True)
    for mine, theirs in zip(ours(model, given, options, [20] * len(given)), found, strict=True):
        for one, other in zip(theirs.hypotheses, mine, strict=True):
            require_same(one, other)
    require_same_weights(model, name, given, found)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_beams_end_within_their_limits_and_have_our_scores(exponent: float, tmp_path: Path) -> None:
    model, given = made("post-norm"), sources()
    engine = engine_of(model, tmp_path / "made")
    options = SearchOptions(beam=4, nbest=3, length_penalty=exponent)
    limits = [len(one) + 3 for one in given]
    found = engine.search(given, options, limits, scores=True, weights=True)
    for source, limit, outcome in zip(given, limits, found, strict=True):
        assert len({one.tokens for one in outcome.hypotheses}) == len(outcome.hypotheses) == 3
        assert [one.score for one in outcome.hypotheses] == sorted(
            (one.score for one in outcome.hypotheses), reverse=True
        )
        for one in outcome.hypotheses:
            assert len(one.tokens) < limit
            assert not {PAD, UNKNOWN, BEGIN, END} & set(one.tokens)
            with torch.inference_mode():
                logits = model.teacher_force(
                    source_of([source], CPU), target_in_of([one.tokens], CPU)
                )
            each = logits[0].log_softmax(-1)[range(len(one.tokens) + 1), [*one.tokens, END]]
            require_same(one, Hypothesis.finished(one.tokens, each.tolist(), exponent))
    require_same_weights(model, "post-norm", given, found)


def test_scores_are_left_out_where_nobody_wants_them(tmp_path: Path) -> None:
    model, given = made("pre-norm"), sources()
    engine = engine_of(model, tmp_path / "made")
    for options in (SearchOptions(beam=1), SearchOptions(beam=3)):
        both = [
            engine.search(given, options, [25] * len(given), scores=scores, weights=False)
            for scores in (True, False)
        ]
        for with_scores, without in zip(*both, strict=True):
            assert with_scores.hypotheses[0].tokens == without.hypotheses[0].tokens
            lengths = [
                len(one.hypotheses[0].token_log_probabilities) for one in (with_scores, without)
            ]
            assert lengths[0] == lengths[1]
            assert with_scores.weights is None


def test_what_the_engine_cannot_do_is_said(tmp_path: Path) -> None:
    engine = engine_of(made("post-norm"), tmp_path / "made")
    with pytest.raises(UserError, match="sample with --engine torch"):
        engine.check(SearchOptions(sample=True))
    with pytest.raises(UserError, match="limit is 30"):
        engine.check(SearchOptions(forced_length=30))
    # A source without a token is not searched for there: its output is empty.
    [outcome] = engine.search([[]], SearchOptions(beam=2), [9], scores=True, weights=True)
    assert outcome.hypotheses[0].tokens == ()
    assert outcome.hypotheses[0].log_probability < 0


def test_symbols_have_names_of_their_own() -> None:
    names = symbol_names(["[PAD]", "?", "x", "y", "a", "a", "</s>", "a#5", "\n"])
    assert names == ["<pad>", "<unk>", "<s>", "</s>", "a", "a#5", "</s>#6", "a#5#7", "\n"]


# Runs

LINES = [*sentences(6, seed=7), "", "  ", *sentences(3, seed=8)]
LONG = " ".join(sentences(30, seed=9))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ctranslate2")
    small_run(folder, source="en", target="de")
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in [*LINES, LONG]))
    export_ctranslate2(folder / "run", folder / "export")
    return folder


@pytest.fixture
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def call(folder: Path, *arguments: object) -> tuple[str, str]:
    """What a command writes to standard output and standard error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.usefixtures("_own_cache")
def test_both_engines_translate_alike(folder: Path, tmp_path: Path) -> None:
    run, text = folder / "run", folder / "in.txt"
    plain = ("translate", run, text, "--beam", 1)
    engine = ("--engine", "ctranslate2", "--device", "cpu")
    expected, said = call(folder, *plain, "--alignments", tmp_path / "one", "--scores")
    found, also_said = call(folder, *plain, *engine, "--alignments", tmp_path / "two", "--scores")
    assert [line.partition("\t")[0] for line in found.splitlines()] == [
        line.partition("\t")[0] for line in expected.splitlines()
    ]
    for one, other in zip(found.splitlines(), expected.splitlines(), strict=True):
        assert float(one.split("\t")[1]) == pytest.approx(float(other.split("\t")[1]), abs=2e-4)
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    assert said == also_said
    assert "in parts" in said
    texts = "".join(line.partition("\t")[0] + "\n" for line in expected.splitlines())
    assert call(folder, *plain, *engine)[0] == texts
    assert call(folder, "translate", folder / "export", text, "--beam", 1, *engine)[0] == texts


def test_json_and_documents(folder: Path, tmp_path: Path) -> None:
    given = ("translate", folder / "export")
    engine = ("--engine", "ctranslate2", "--quantization", "int8", "--threads", 2)
    out, _ = call(folder, *given, folder / "in.txt", *engine, "--nbest", 3)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["source"] for row in rows] == [*LINES, LONG]
    for row in rows:
        assert len(row["alternatives"]) == (2 if row["source"].strip() else 0)
        assert len(row["tokens"]) == len(row["token_scores"])
        assert math.isfinite(row["score"])
        assert len(row["alignment"]) == len(row["text"].split())
    heading = 'msgid ""\nmsgstr "Language: de\\n"\n\n'
    (tmp_path / "m.po").write_text(f'{heading}msgid "the cat."\nmsgstr ""\n')
    filled, _ = call(folder, *given, tmp_path / "m.po", *engine)
    assert 'msgid "the cat."' in filled
    assert not filled.endswith('msgstr ""\n')


def test_exports_are_whole_and_of_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    out, _ = call(
        folder,
        "export",
        "ctranslate2",
        folder / "run",
        "--out",
        tmp_path / "e",
        "--quantization",
        "int8",
    )
    assert out.startswith(f"{tmp_path / 'e'}: ")
    names = {path.name for path in (tmp_path / "e").iterdir()}
    others = {"config.json", "shared_vocabulary.json", "heedful.json", "tokeniser"}
    assert names == {"model.bin", *others}
    assert (tmp_path / "e" / "model.bin").stat().st_size < (
        folder / "export" / "model.bin"
    ).stat().st_size
    translator = load_with_engine([tmp_path / "e"], engine="ctranslate2", device="cpu")
    assert isinstance(translator.engine, CTranslate2Engine)
    assert translator.engine.compute_type.startswith("int8")
    assert (translator.source_language, translator.target_language) == ("en", "de")
    assert translator.engine.parameters == sum(
        one.numel() for one in heedful.load(folder / "run").models[0].parameters()
    )
    with pytest.raises(UserError, match="exists"):
        export_ctranslate2(folder / "run", tmp_path / "e")


@pytest.mark.usefixtures("_own_cache")
def test_a_run_is_converted_once_into_the_cache(folder: Path, tmp_path: Path) -> None:
    before = sorted(path for path in (folder / "run").rglob("*"))
    kept = tmp_path / "cache" / "heedful" / "ctranslate2"
    for quantization, count in ((None, 1), (None, 1), ("int8", 2)):
        load_with_engine([folder / "run"], engine="ctranslate2", quantization=quantization)
        assert len(list(kept.iterdir())) == count
    times = {path: path.stat().st_mtime_ns for path in kept.rglob("model.bin")}
    load_with_engine([folder / "run"], engine="ctranslate2")
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("model.bin")} == times
    assert sorted(path for path in (folder / "run").rglob("*")) == before


@pytest.mark.usefixtures("_own_cache")
def test_a_served_run_traces_and_a_served_export_says_that_it_cannot(folder: Path) -> None:
    from heedful.serving.loading import load_all

    asked = {"engine": "ctranslate2", "quantization": None}
    models = load_all([folder / "run"], [], asked, device="cpu")
    exported = load_all([folder / "export"], [], asked, device="cpu")
    for served, status in ((models, 200), (exported, 400)):
        assert isinstance(served[0].predictor, Translator)
        with serving(*served) as client:
            [facts] = client.get("/api/models").json()["models"]
            assert (facts["architecture"], facts["aligns"]) == ("Transformer", True)
            assert facts["parameters"] > 1000
            one = client.post("/translate", json={"q": LINES[0], "source": "en", "target": "de"})
            assert one.json()["translatedText"]
            rich = {"text": LINES[0], "alignments": True}
            answer = client.post("/api/translate", json=rich).json()["translations"][0]
            assert answer["alignment"]
            trace = client.post("/api/trace", json={"source": LINES[0]})
            assert trace.status_code == status
            more = client.post("/api/alternatives", json={"text": LINES[0], "prefix": ""})
            assert more.status_code == status
            assert status == 200 or "the run that it was made from" in more.json()["error"]


@pytest.mark.usefixtures("_own_cache")
def test_python_and_evaluate_take_the_engine(folder: Path, tmp_path: Path) -> None:
    asked = {"engine": "ctranslate2", "device": "cpu"}
    translator = heedful.load(folder / "run", **asked)
    assert translator.computing == {"device": "cpu", "precision": "float32"}
    right = load_translator([folder / "run"], device="cpu")
    greedy = SearchOptions(beam=1)
    expected = [one.text for one in right.translate(LINES, options=greedy)]
    assert [one.text for one in translator.translate(LINES, options=greedy)] == expected
    assert translator.trace(LINES[0]).maps, "a run's own model is there for traces"
    exported = heedful.load(folder / "export", **asked)
    assert [one.text for one in exported.translate(LINES, options=greedy)] == expected
    whole = heedful.load(folder / "run", precision="int8", **asked)
    assert whole.computing["precision"].startswith("int8")
    (tmp_path / "test.tsv").write_text("".join(f"{one}\t{one[::-1]}\n" for one in LINES[:6]))
    scored = ("evaluate", folder / "run", "--data", tmp_path / "test.tsv", "--json")
    scored += ("--beam", 1, "--bootstrap", 0, "--output", tmp_path / "out.txt")
    out, _ = call(folder, *scored, "--engine", "ctranslate2", "--quantization", "int8")
    report = json.loads(out)
    assert (report["engine"], report["count"]) == ("ctranslate2", 6)
    assert report["precision"].startswith("int8")
    out, _ = call(folder, *scored, "--engine", "ctranslate2")
    assert (tmp_path / "out.txt").read_text().splitlines() == expected[:6]


# What is refused


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert isinstance(result.exception, UserError), result.output
    [line] = str(result.exception).splitlines()
    return line


@pytest.mark.usefixtures("_own_cache")
def test_mistakes_are_one_line(folder: Path, tmp_path: Path) -> None:
    seen = refused("view", folder / "export", LINES[0], "--output", tmp_path / "view.html")
    assert (
        "CTranslate2, which gives no attention weights: view the run that it was exported from"
        in seen
    )
    run, text, engine = folder / "run", folder / "in.txt", ("--engine", "ctranslate2")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.bin").write_bytes(b"")
    recurrent = shutil.copytree(run, tmp_path / "recurrent")
    recipe = (recurrent / "recipe.toml").read_text()
    head, _, rest = recipe.partition("[model]")
    rest = rest[rest.index("[training]") :]
    (recurrent / "recipe.toml").write_text(f'{head}[model]\nkind = "recurrent"\n\n{rest}')
    accept_changes(recurrent)
    for given, message in (
        ((run, text, "--engine", "marian"), "unknown engine 'marian'; use torch or ctranslate2"),
        ((run, text, "--quantization", "int8"), "needs --engine ctranslate2"),
        ((run, text, *engine, "--quantization", "int3"), "unknown quantization 'int3'"),
        (
            (run, text, *engine, "--precision", "float16"),
            "not support float16 on this cpu; it supports",
        ),
        ((run, text, *engine, "--quantization", "int8", "--precision", "bfloat16"), "leave one"),
        ((run, text, *engine, "--ensemble", run), "does not support ensembles"),
        ((run, text, *engine, "--sample"), "sample with --engine torch"),
        ((run, text, *engine, "--device", "mps"), "no mps device"),
        ((recurrent, text, *engine), "model.kind = 'recurrent'"),
        ((folder / "export", text), "add --engine ctranslate2"),
        ((folder / "export", text, *engine, "--checkpoint", "best"), "leave out --checkpoint"),
        ((tmp_path / "empty", text, *engine), "it has no run.json and no heedful.json"),
        ((tmp_path / "other", text, *engine), "another program made it"),
        ((tmp_path / "absent", text, *engine), "the folder does not exist"),
    ):
        assert message in refused("translate", *given, "--output", tmp_path / "out")
    to = ("--out", tmp_path / "e")
    assert "no such model" in refused("export", "ctranslate2", recurrent, *to)
    assert "int3" in refused("export", "ctranslate2", run, *to, "--quantization", "int3")
    assert not (tmp_path / "e").exists()
    assert not (tmp_path / "out").exists()


def test_a_damaged_export_is_said(folder: Path, tmp_path: Path) -> None:
    for name, content, message in (
        ("model.bin", b"no model", "CTranslate2 cannot load it"),
        ("heedful.json", b"{}", "heedful.json"),
        ("shared_vocabulary.json", b"[1]", "cannot load it|not a list of symbols"),
    ):
        damaged = shutil.copytree(folder / "export", tmp_path / name)
        (damaged / name).write_bytes(content)
        with pytest.raises(UserError, match=message) as error:
            load_with_engine([damaged], engine="ctranslate2")
        assert "\n" not in str(error.value)


def test_what_is_computed_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert choose_compute_type(None, "float32", "cpu") == "float32"
    assert choose_compute_type(None, "float32", "cpu", "int8") == "int8"
    assert choose_compute_type("int8", "float32", "cpu") == "int8"
    assert choose_compute_type(None, "auto", "cpu") in ("float32", "bfloat16")
    assert choose_compute_type(None, "float32", "cpu", "float16") == "default"
    assert "does not support float16 on cpu" in capsys.readouterr().err


@pytest.mark.slow
def test_without_the_package_one_line_says_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys; sys.modules['ctranslate2'] = None; import heedful.cli.main as m; m.main()"
    arguments = ["translate", "run", "in.txt", "--engine", "ctranslate2"]
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'heedful[ctranslate2]'" in done.stderr
    assert done.stderr.count("\n") == 1
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said = refused("export", "ctranslate2", folder / "run", "--out", folder / "unmade")
    assert said in done.stderr
